// The queue: how fast one's place moves, when it will be the turn, when to ask again. Nothing in here
// touches the page.

import { fill } from "./clock.js";

const KEPT_MS = 15_000;
const STANDS_STILL_MS = [0, 600, 1000, 2000];

/**
 * Samples {place, atMs} with a new one, without those that are too old to tell today's pace. A place
 * that is unknown, or that rose (a queue that was lost and built anew), begins the count again.
 */
export function withSample(samples, { place, atMs }) {
  if (!place) return [];
  const rose = place > (samples.at(-1)?.place ?? Infinity);
  const kept = rose ? [] : samples.filter((sample) => atMs - sample.atMs <= KEPT_MS);
  return [...kept, { place, atMs }];
}

/** Milliseconds until it is the turn, at the pace of the samples; null while none is known. */
export function estimateMs(samples) {
  const [first, last] = [samples[0], samples.at(-1)];
  const moved = (first?.place ?? 0) - (last?.place ?? 0);
  return moved > 0 && last.atMs > first.atMs
    ? (last.place * (last.atMs - first.atMs)) / moved
    : null;
}

/** When to ask again: at the pace the shop asks for, and slower the longer nothing moves. */
export const paceMs = (shopMs, still) =>
  Math.max(shopMs ?? 0, STANDS_STILL_MS[Math.min(still, STANDS_STILL_MS.length - 1)]);

/** "about 6 s": rounded up, and the more roughly the further off. */
export function aboutText(ms, say) {
  const seconds = Math.max(1, Math.ceil(ms / 1000));
  if (seconds <= 10) return fill(say.seconds, { count: seconds });
  if (seconds <= 55) return fill(say.seconds, { count: 5 * Math.ceil(seconds / 5) });
  return fill(say.minutes, { count: Math.ceil(seconds / 60) });
}

/** What a page knows of the queue, from answer to answer. */
export class Queue {
  #samples = [];
  #still = 0;

  heard({ place, atMs }) {
    this.#still = place && place !== this.#place ? 0 : this.#still + 1;
    this.#samples = withSample(this.#samples, { place, atMs });
  }

  /** There was no answer. */
  missed() {
    this.#still += 1;
  }

  paceMs(shopMs) {
    return paceMs(shopMs, this.#still);
  }

  /** The place in words, by the sentences `name` and `name`_about; "" while there is none. */
  text(say, name) {
    if (!this.#place) return "";
    const ms = estimateMs(this.#samples);
    const about = ms === null ? "" : aboutText(ms, say);
    return fill(say[about ? `${name}_about` : name], { place: this.#place, about });
  }

  get #place() {
    return this.#samples.at(-1)?.place;
  }
}
