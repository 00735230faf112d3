// Polls me/: who is signed in, and what they have of this sale.

import { ask } from "./wire.js";

export class BuyerStatusPoller {
  /** `onAnswer` gets each answer that is not outdated. */
  constructor(url, onAnswer) {
    this.url = url;
    this.onAnswer = onAnswer;
    this.isAsking = false;
    this.isOutdated = false;
  }

  async poll() {
    this.stop();
    this.isOutdated = true;
    if (this.isAsking) return;
    this.isAsking = true;
    let answer;
    while (this.isOutdated) {
      this.isOutdated = false;
      answer = await ask(this.url);
    }
    this.isAsking = false;
    this.onAnswer(answer);
  }

  /** Ask again after a pending request: its answer may predate the latest change. */
  markOutdated() {
    this.isOutdated = this.isAsking;
  }

  /** Poll after `ms` milliseconds, or not at all for null. A hidden page does not poll. */
  schedule(ms) {
    this.stop();
    if (ms !== null && !document.hidden) this.timer = setTimeout(() => this.poll(), ms);
  }

  stop() {
    clearTimeout(this.timer);
  }
}
