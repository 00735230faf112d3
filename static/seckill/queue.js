// The queue: how fast the place moves, how long the wait is, when to ask again. Nothing here touches
// the page.

import { fill } from "./clock.js";

const KEPT_MS = 15_000;
const IDLE_PACE_MS = [0, 600, 1000, 2000];

/**
 * Add a sample {place, atMs} and drop those too old to show the present pace. A place that is
 * unknown, or that rose because the queue was rebuilt, starts the samples again.
 */
export function withSample(samples, { place, atMs }) {
  if (!place) return [];
  const rose = place > (samples[samples.length - 1]?.place ?? Infinity);
  const kept = rose ? [] : samples.filter((sample) => atMs - sample.atMs <= KEPT_MS);
  return [...kept, { place, atMs }];
}

/** Milliseconds until the buyer's turn at the pace of the samples; null while the pace is unknown. */
export function estimateMs(samples) {
  const [first, last] = [samples[0], samples[samples.length - 1]];
  const moved = (first?.place ?? 0) - (last?.place ?? 0);
  return moved > 0 && last.atMs > first.atMs
    ? (last.place * (last.atMs - first.atMs)) / moved
    : null;
}

/** When to ask again: at the pace of the server, and slower the longer the place stays the same. */
export const paceMs = (shopMs, idleAnswers) =>
  Math.max(shopMs ?? 0, IDLE_PACE_MS[Math.min(idleAnswers, IDLE_PACE_MS.length - 1)]);

/** "about 6 s": rounded up, and coarser for a longer wait. */
export function aboutText(ms, texts) {
  const seconds = Math.max(1, Math.ceil(ms / 1000));
  if (seconds <= 10) return fill(texts.seconds, { count: seconds });
  if (seconds <= 55) return fill(texts.seconds, { count: 5 * Math.ceil(seconds / 5) });
  return fill(texts.minutes, { count: Math.ceil(seconds / 60) });
}

/** A page's view of the queue, from answer to answer. */
export class Queue {
  constructor() {
    this.samples = [];
    this.idleAnswers = 0;
  }

  addSample({ place, atMs }) {
    this.idleAnswers = place && place !== this.place ? 0 : this.idleAnswers + 1;
    this.samples = withSample(this.samples, { place, atMs });
  }

  noAnswer() {
    this.idleAnswers += 1;
  }

  paceMs(shopMs) {
    return paceMs(shopMs, this.idleAnswers);
  }

  /** The place in words, by the texts `name` and `name`_about; "" while it is unknown. */
  text(texts, name) {
    if (!this.place) return "";
    const ms = estimateMs(this.samples);
    const about = ms === null ? "" : aboutText(ms, texts);
    return fill(texts[about ? `${name}_about` : name], { place: this.place, about });
  }

  get place() {
    return this.samples[this.samples.length - 1]?.place;
  }
}
