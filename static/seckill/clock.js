// The server's clock, and countdown texts. Nothing here touches the page.

/**
 * The server's time. It may run a little late, but never early.
 *
 * An answer is stamped before it arrives, so "stamp minus arrival" never puts us ahead of the
 * server. The greatest such bound is the best: it is late by one transfer only. Halving the shortest
 * round trip would be early where the request is slower than the answer, and a cached answer, up
 * to a second old, has the shortest round trip of all.
 *
 * It runs on performance.now(), because the buyer's own clock may be wrong or may be changed.
 */
export class ServerClock {
  constructor() {
    this.aheadMs = -Infinity;
  }

  get known() {
    return this.aheadMs !== -Infinity;
  }

  now() {
    return performance.now() + this.aheadMs;
  }

  addSample(serverMs, receivedAt) {
    this.aheadMs = Math.max(this.aheadMs, serverMs - receivedAt);
  }

  /** Start again from fresh samples, after sleep or after the server's clock was set back. */
  replaceBy(other) {
    if (other.known) this.aheadMs = other.aheadMs;
  }
}

const two = (number) => String(number).padStart(2, "0");

const UNKNOWN = "--:--:--";

/** "00:12:34", with days before it if needed. Rounded up, so that 00:00:00 is the moment itself. */
export function leftText(leftMs, daysSentence) {
  if (!Number.isFinite(leftMs)) return UNKNOWN; // the server has not told the time yet
  const seconds = Math.max(0, Math.ceil(leftMs / 1000));
  const days = Math.floor(seconds / 86400);
  const clock = [Math.floor(seconds / 3600) % 24, Math.floor(seconds / 60) % 60, seconds % 60]
    .map(two)
    .join(":");
  return days ? fill(daysSentence, { days, clock }) : clock;
}

/** The same without zero hours: "12:34". */
export const shortLeftText = (leftMs, daysSentence) =>
  leftText(leftMs, daysSentence).replace(/^00:/, "");

/** Milliseconds until the text of leftText changes next. */
export function tickMs(leftMs) {
  if (leftMs <= 0) return 1000;
  return leftMs % 1000 || 1000;
}

const FINAL_MS = 10_000;

/** Whether these are the last ten seconds. */
export const isFinal = (leftMs) => leftMs > 0 && leftMs <= FINAL_MS;

const MILESTONES_S = [10, 60, 300];

/** The milestone, in seconds, that lies between two readings of a countdown, or null. */
export function milestone(beforeMs, afterMs) {
  return (
    MILESTONES_S.find((s) => beforeMs > s * 1000 && afterMs <= s * 1000 && afterMs > 0) ?? null
  );
}

/** "40 s", "3 min", "2 h". */
export function ageText(ms, texts) {
  const seconds = Math.max(1, Math.round(ms / 1000));
  if (seconds < 60) return fill(texts.s, { count: seconds });
  const minutes = Math.floor(seconds / 60);
  return minutes < 60
    ? fill(texts.min, { count: minutes })
    : fill(texts.h, { count: Math.floor(minutes / 60) });
}

/** The stock in words; agrees with `stock_words` of the server. */
export function stockText({ remaining, total, entries = null }, texts) {
  if (entries !== null) {
    const [all, entered] = [total, entries].map((number) => number.toLocaleString("en"));
    return fill(texts.entered, { total: all, entries: entered });
  }
  if (remaining === null) return fill(texts.stock_unknown, { total });
  const sold = total - remaining;
  if (sold <= 0) return fill(texts.stock, { remaining, total });
  const gone = Math.max(1, Math.floor((100 * sold) / total));
  return fill(texts.stock_gone, { gone, remaining, total });
}

/** "{remaining} of {total} left" with the words in braces filled in. */
export function fill(sentence, values) {
  return sentence.replace(/\{(\w+)\}/g, (braces, name) => values[name] ?? braces);
}
