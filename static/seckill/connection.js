// Whether the shop answers, and how old the figures of a page are.

import { ageText, fill } from "./clock.js";
import { faultOf } from "./wire.js";

const FAILURES_TOLD = 2; // one lost answer is nothing to tell

export class Connection {
  /** `element` shows what is wrong. `onBack` is called when the shop answers again. */
  constructor({ element, texts, onBack }) {
    this.element = element;
    this.texts = texts;
    this.onBack = onBack;
    this.failures = 0;
    this.lastFault = "";
    this.answeredAt = performance.now();
    window.addEventListener("offline", () => this.fail("offline", FAILURES_TOLD));
  }

  /** Note the status of an answer. */
  heard(status) {
    const fault = faultOf(status);
    if (fault) return this.fail(fault, 1);
    this.answeredAt = performance.now();
    this.failures = 0;
    if (this.lastFault) {
      this.lastFault = "";
      this.onBack?.();
    }
    return this.show();
  }

  fail(fault, weight) {
    this.lastFault = fault;
    this.failures += weight;
    this.show();
  }

  get fault() {
    return this.failures >= FAILURES_TOLD ? this.lastFault : "";
  }

  /** Show it, unless the page tells the same elsewhere. */
  show({ isToldElsewhere = false } = {}) {
    const fault = isToldElsewhere ? "" : this.fault;
    const [text, age] = this.element.children;
    this.element.hidden = !fault;
    write(text, this.texts.connection[fault] ?? "");
    // Not for screen readers, to which it would be read every second.
    const past = ageText(performance.now() - this.answeredAt, this.texts.age);
    write(age, fault ? fill(this.texts.connection.age, { age: past }) : "");
  }
}

/** Pauses that end early once the shop may be reached again. */
export class Rest {
  end() {}

  pause(ms) {
    return new Promise((resolve) => {
      this.end = resolve;
      setTimeout(resolve, ms);
    });
  }
}

function write(target, text) {
  if (target.textContent !== text) target.textContent = text;
}
