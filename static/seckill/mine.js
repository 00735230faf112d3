// What the buyer has of the sale: one small call, made anew whenever that may have changed.

import { ask } from "./wire.js";

export class Mine {
  #url;
  #heard;
  #timer;
  #asking = false;
  #outdated = false;

  /** `heard` gets each answer that nothing has overtaken. */
  constructor(url, heard) {
    this.#url = url;
    this.#heard = heard;
  }

  async ask() {
    this.rest();
    this.#outdated = true;
    if (this.#asking) return;
    this.#asking = true;
    let answer;
    while (this.#outdated) {
      this.#outdated = false;
      answer = await ask(this.#url);
    }
    this.#asking = false;
    this.#heard(answer);
  }

  /** Something has changed: an answer that is on its way may not know of it, so ask once more. */
  outdate() {
    this.#outdated = this.#asking;
  }

  /** Ask after so many milliseconds; null: do not. A page that nobody sees asks nothing. */
  plan(ms) {
    this.rest();
    if (ms !== null && !document.hidden) this.#timer = setTimeout(() => this.ask(), ms);
  }

  rest() {
    clearTimeout(this.#timer);
  }
}
