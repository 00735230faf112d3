// The server's clock, and the words for what is left of it. Nothing in here touches the page.

/**
 * The server's time: it may run a little late, never early.
 *
 * An answer was stamped before it was heard, so "stamp minus moment heard" never puts us ahead of
 * the server; the greatest such bound is the best, and it is late by one way back only. Taking the
 * shortest round trip and halving it would be early wherever the way there is the slower one, and
 * an answer out of a cache, up to a second old, has the shortest round trip of all.
 *
 * It runs on performance.now(), because the buyer's own clock may be wrong or be set meanwhile.
 */
export class ServerClock {
  #aheadMs = -Infinity;

  get known() {
    return this.#aheadMs !== -Infinity;
  }

  now() {
    return performance.now() + this.#aheadMs;
  }

  hear(serverMs, heardAt) {
    this.#aheadMs = Math.max(this.#aheadMs, serverMs - heardAt);
  }

  startAt(serverMs, heardAt) {
    this.#aheadMs = serverMs - heardAt;
  }

  /** Start again from a fresh round of samples: after sleep, or where the server's clock was set back. */
  replaceBy(other) {
    if (other.known) this.#aheadMs = other.#aheadMs;
  }
}

const two = (number) => String(number).padStart(2, "0");

/** "00:12:34", or with days before it; rounded up, so that 00:00:00 is the moment itself. */
export function leftText(leftMs, daysSentence) {
  const seconds = Math.max(0, Math.ceil(leftMs / 1000));
  const days = Math.floor(seconds / 86400);
  const clock = [Math.floor(seconds / 3600) % 24, Math.floor(seconds / 60) % 60, seconds % 60]
    .map(two)
    .join(":");
  return days ? fill(daysSentence, { days, clock }) : clock;
}

/** The same without hours that are not there: "12:34". */
export const shortLeftText = (leftMs, daysSentence) =>
  leftText(leftMs, daysSentence).replace(/^00:/, "");

/** Milliseconds until the text of leftText changes next. */
export function tickMs(leftMs) {
  if (leftMs <= 0) return 1000;
  return leftMs % 1000 || 1000;
}

const MILESTONES_S = [10, 60, 300];

/** The milestone, in seconds, that lies between two readings of a countdown, or null. */
export function milestone(beforeMs, afterMs) {
  return (
    MILESTONES_S.find((s) => beforeMs > s * 1000 && afterMs <= s * 1000 && afterMs > 0) ?? null
  );
}

/** "{remaining} of {total} left" with the words in braces filled in. */
export function fill(sentence, values) {
  return sentence.replace(/\{(\w+)\}/g, (braces, name) => values[name] ?? braces);
}
