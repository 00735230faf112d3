// The sale as the shop sees it, and the server's clock: asked as often as the button's state needs it.

import { ServerClock } from "./clock.js";
import { STATES, pollMs, saleState } from "./purchase_states.js";
import { ask, pause } from "./wire.js";

const SAMPLES = 5;

export class Live {
  clock = new ServerClock();
  figures;
  #url;
  #buttonState;
  #heard;
  #timer;

  /**
   * `figures` are those of live/ or, without them, what the page itself knows; `buttonState` tells
   * the state that the button shows, and `heard` is called after each answer.
   */
  constructor({ url, figures, serverTimeMs, buttonState, heard }) {
    this.#url = url;
    this.figures = figures;
    this.#buttonState = buttonState;
    this.#heard = heard;
    // The page itself is the first sample: late by its way here, which is on the careful side.
    this.clock.startAt(serverTimeMs, performance.now());
  }

  get state() {
    return saleState(this.figures, this.clock.now());
  }

  get leftToBeginMs() {
    return this.figures.begins_at_ms - this.clock.now();
  }

  get leftToEndMs() {
    return this.figures.ends_at_ms - this.clock.now();
  }

  async ask() {
    const { status, body, heardAt } = await ask(this.#url, { timeoutMs: 3000 });
    if (status !== 200) return null;
    if (this.figures.unloaded) this.clock.startAt(body.server_time_ms, heardAt);
    else this.clock.hear(body.server_time_ms, heardAt);
    if (!(body.server_time_ms < this.figures.server_time_ms)) this.figures = body;
    this.#heard();
    return { serverMs: body.server_time_ms, heardAt };
  }

  /** Several samples, a little apart so that not all of them come from one cached answer. */
  async measure() {
    const fresh = new ServerClock();
    for (let k = 0; k < SAMPLES && !document.hidden; k += 1) {
      const sample = await this.ask();
      if (sample) fresh.hear(sample.serverMs, sample.heardAt);
      await pause(150 + 150 * Math.random());
    }
    this.clock.replaceBy(fresh);
    this.#heard();
  }

  async poll() {
    this.rest();
    const early = this.state === "scheduled" && this.leftToBeginMs > 6000;
    await (early ? this.measure() : this.ask());
    this.plan();
  }

  plan() {
    this.rest();
    const { state: sale, leftToBeginMs } = this;
    const wait = pollMs({ state: this.#buttonState(), sale, leftToBeginMs, random: Math.random() });
    if (wait !== null && !document.hidden) this.#timer = setTimeout(() => this.poll(), wait);
  }

  wake() {
    if (STATES[this.#buttonState()].polls) this.poll();
  }

  rest() {
    clearTimeout(this.#timer);
  }
}
