// Why a request was sold out: when it arrived, and when the last unit went. Nothing here touches the page.

import { fill } from "./clock.js";

const LARGE_UNITS = [["d", 86_400_000], ["h", 3_600_000], ["min", 60_000]];

/** The text for a sold-out refusal; "" if its arrival time is unknown. */
export function whySoldOut({ arrived_at_ms: arrivedMs, sold_out_at_ms: goneMs }, { texts, lang, timeZone }) {
  if (!arrivedMs) return "";
  const arrived = timeText(arrivedMs, { lang, timeZone });
  if (!goneMs) return fill(texts.arrived, { arrived });
  if (goneMs === arrivedMs) return fill(texts.same, { arrived });
  const day = (ms) => dayText(ms, { lang, timeZone });
  const sameDay = day(goneMs) === day(arrivedMs);
  const gone = `${sameDay ? "" : `${day(goneMs)}, `}${timeText(goneMs, { lang, timeZone })}`;
  return fill(texts.earlier, { arrived, gone, earlier: lengthText(arrivedMs - goneMs, texts) });
}

/** A duration in its largest unit, rounded down. */
export function lengthText(ms, texts) {
  const [unit, unitMs] = LARGE_UNITS.find(([, size]) => ms >= size) ?? [];
  if (unit) return fill(texts[unit], { count: Math.floor(ms / unitMs) });
  if (ms >= 100) return fill(texts.s, { count: (Math.floor(ms / 100) / 10).toFixed(1) });
  return fill(texts.ms, { count: ms });
}

/** "3 May, 14:00", as the server writes it: in the shop's time zone, without the current year. */
export function momentText(ms, { lang, timeZone }) {
  const time = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", hourCycle: "h23", timeZone });
  const isThisYear = new Date(ms).getFullYear() === new Date().getFullYear();
  const year = isThisYear ? undefined : "numeric";
  return `${dayText(ms, { lang, timeZone, year })}${lang === "en" ? "," : ""} ${time.format(ms)}`;
}

function timeText(ms, { lang, timeZone }) {
  const time = new Intl.DateTimeFormat(lang === "en" ? "en-GB" : lang, {
    hour: "2-digit",
    minute: "2-digit",
    second: "2-digit",
    hourCycle: "h23",
    timeZone,
  }).format(ms);
  return `${time}.${String(ms % 1000).padStart(3, "0")}`; // the oldest browsers show no milliseconds
}

function dayText(ms, { lang, timeZone, year }) {
  const month = lang === "en" ? "short" : "long";
  return new Intl.DateTimeFormat(lang === "en" ? "en-GB" : lang, { year, month, day: "numeric", timeZone }).format(ms);
}
