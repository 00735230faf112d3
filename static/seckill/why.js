// Why somebody who pressed got nothing: when the request arrived, and when the last unit had gone.
// Nothing in here touches the page.

import { fill } from "./clock.js";

const LARGE_UNITS = [["d", 86_400_000], ["h", 3_600_000], ["min", 60_000]];

/** The sentence for a refusal as sold out; "" where the shop does not know when it arrived. */
export function whySoldOut({ arrived_at_ms: arrivedMs, sold_out_at_ms: goneMs }, { say, lang, timeZone }) {
  if (!arrivedMs) return "";
  const arrived = timeText(arrivedMs, { lang, timeZone });
  if (!goneMs) return fill(say.arrived, { arrived });
  if (goneMs === arrivedMs) return fill(say.same, { arrived });
  const day = (ms) => dayText(ms, { lang, timeZone });
  const sameDay = day(goneMs) === day(arrivedMs);
  const gone = `${sameDay ? "" : `${day(goneMs)}, `}${timeText(goneMs, { lang, timeZone })}`;
  return fill(say.earlier, { arrived, gone, earlier: lengthText(arrivedMs - goneMs, say) });
}

/** A length of time in its largest unit, rather too short than too long. */
export function lengthText(ms, say) {
  const [unit, unitMs] = LARGE_UNITS.find(([, size]) => ms >= size) ?? [];
  if (unit) return fill(say[unit], { count: Math.floor(ms / unitMs) });
  if (ms >= 100) return fill(say.s, { count: (Math.floor(ms / 100) / 10).toFixed(1) });
  return fill(say.ms, { count: ms });
}

function timeText(ms, { lang, timeZone }) {
  return new Intl.DateTimeFormat(lang === "en" ? "en-GB" : lang, {
    hour: "2-digit",
    minute: "2-digit",
    second: "2-digit",
    fractionalSecondDigits: 3,
    hourCycle: "h23",
    timeZone,
  }).format(ms);
}

function dayText(ms, { lang, timeZone }) {
  const month = lang === "en" ? "short" : "long";
  return new Intl.DateTimeFormat(lang === "en" ? "en-GB" : lang, { month, day: "numeric", timeZone }).format(ms);
}
