// Polls live/ for the sale's state and the server's clock, as often as the button's state needs.

import { ServerClock } from "./clock.js";
import { STATES, pollMs, saleState } from "./purchase_states.js";
import { ask, pause } from "./wire.js";

const SAMPLES = 5;
const MEASURED_MS = 45_000; // before the start the clock is measured once more

export class Live {
  /**
   * `figures` are those of the page, until live/ answers. `buttonState` returns the state that the
   * button shows. `onAnswer` is called after each answer, `onStatus` with the status of any.
   */
  constructor({ url, figures, buttonState, onAnswer, onStatus }) {
    this.clock = new ServerClock();
    this.url = url;
    this.figures = figures;
    this.buttonState = buttonState;
    this.onAnswer = onAnswer;
    this.onStatus = onStatus;
  }

  get state() {
    if (!this.clock.known) return this.figures.state;
    return saleState(this.figures, this.clock.now());
  }

  get leftToBeginMs() {
    return this.figures.begins_at_ms - this.clock.now();
  }

  get leftToEndMs() {
    return this.figures.ends_at_ms - this.clock.now();
  }

  async ask() {
    const { status, body, receivedAt } = await ask(this.url, { timeoutMs: 3000 });
    this.onStatus(status);
    if (status !== 200) return null;
    this.clock.addSample(body.server_time_ms, receivedAt);
    if (!(body.server_time_ms < this.figures.server_time_ms)) this.figures = body;
    this.onAnswer();
    return { serverMs: body.server_time_ms, receivedAt };
  }

  /** Take several samples, far enough apart not to come from one cached answer. */
  async measure() {
    const fresh = new ServerClock();
    for (let k = 0; k < SAMPLES && !document.hidden; k += 1) {
      const sample = await this.ask();
      if (sample) fresh.addSample(sample.serverMs, sample.receivedAt);
      await pause(150 + 150 * Math.random());
    }
    this.clock.replaceBy(fresh);
    this.onAnswer();
  }

  async poll({ isWoken = false } = {}) {
    this.stop();
    const early = this.clock.known && this.state === "scheduled" && this.leftToBeginMs > 6000;
    const measures = early && (isWoken || this.leftToBeginMs < MEASURED_MS);
    await (measures ? this.measure() : this.ask());
    this.schedule();
  }

  schedule() {
    this.stop();
    const { state: sale } = this;
    const leftToBeginMs = this.clock.known ? this.leftToBeginMs : 0; // then ask soon
    const wait = pollMs({ state: this.buttonState(), sale, leftToBeginMs, random: Math.random() });
    if (wait !== null && !document.hidden) this.timer = setTimeout(() => this.poll(), wait);
  }

  wake() {
    if (STATES[this.buttonState()].polls) this.poll({ isWoken: true });
  }

  stop() {
    clearTimeout(this.timer);
  }
}
