// How many vouchers one press takes, and what to do if fewer are left.

import { fill } from "./clock.js";
import { readJson } from "./wire.js";

const element = (id) => document.getElementById(id);
const CHOOSE_IN = ["sign_in", "sign_in_open", "scheduled", "open", "paused", "limited"];
const SHOWN_IN = [...CHOOSE_IN, "sending", "busy", "offline", "unreachable"];

/** An amount in cents as the server's pages write it (seckill_site/formatting.py). */
export function money(cents) {
  const yuan = String(Math.floor(cents / 100)).replace(/\B(?=(\d{3})+$)/g, ",");
  return `¥${yuan}.${String(cents % 100).padStart(2, "0")}`;
}

/** The nearest quantity from 1 to `most`; 1 for anything that is no number. */
export const clamped = (number, most) => Math.min(Math.max(Math.trunc(number) || 1, 1), Math.max(most, 1));

export class Quantity {
  /** `onChange` is called when the buyer has chosen another quantity. */
  constructor({ page, onChange }) {
    this.page = page;
    this.texts = readJson("several");
    this.field = element("quantity-number");
    this.most = "codes" in element("quantity").dataset ? 1 : Number(this.field.max); // me/ counts the codes
    this.key = `seckill-quantity-${page.dataset.sale}`;
    this.wanted = clamped(kept(this.key), this.most);
    const choose = (number) => {
      this.wanted = clamped(number, this.most);
      keep(this.key, this.wanted);
      onChange();
    };
    element("fewer").addEventListener("click", () => choose(this.number - 1));
    element("more").addEventListener("click", () => choose(this.number + 1));
    this.field.addEventListener("change", () => choose(this.field.value));
  }

  /** The quantity of a press now: never more than the buyer may have. */
  get number() {
    return clamped(this.wanted, this.most);
  }

  /** Another press is for one again, as who has ordered rarely wants as many once more. */
  reset() {
    this.wanted = 1;
    keep(this.key, 1);
  }

  get allOrNone() {
    return this.number > 1 && element("quantity-choice").querySelector("[value='1']").checked;
  }

  /** Show the stepper as it is for this buyer: `mine` of me/, or null before it is known. */
  show({ state, mine }) {
    if (mine) this.most = mine.most ?? 1;
    element("quantity").hidden = this.most < 2 || !SHOWN_IN.includes(state);
    this.field.max = this.most;
    for (const input of element("quantity").querySelectorAll("input, button")) input.disabled = !CHOOSE_IN.includes(state);
    if (document.activeElement !== this.field || Number(this.field.value) > this.most) this.field.value = this.number;
    // Not `disabled`: that would take the focus away from a button that was just pressed.
    element("fewer").setAttribute("aria-disabled", String(this.number === 1));
    element("more").setAttribute("aria-disabled", String(this.number === this.most));
    element("quantity-choice").hidden = this.number === 1;
    const total = this.fill(this.number === 1 ? this.texts.most : this.texts.total);
    if (element("quantity-total").textContent !== total) element("quantity-total").textContent = total;
  }

  /** A text with the quantity, the price of one and of all. */
  fill(text) {
    const cents = Number(this.page.dataset.priceCents);
    const words = { quantity: this.number, most: this.most, price: money(cents), total: money(cents * this.number) };
    return fill(text, words);
  }
}

function kept(key) {
  try {
    return sessionStorage.getItem(key);
  } catch {
    return null; // the browser forbids storage
  }
}

function keep(key, number) {
  try {
    sessionStorage.setItem(key, number);
  } catch {
    // the browser forbids storage
  }
}
