// My orders: the time left to pay, by the server's clock.

import { ServerClock, fill, shortLeftText, tickMs } from "./clock.js";

const { serverTimeMs, days } = document.getElementById("main").dataset;
const clock = new ServerClock();

function tick() {
  const waits = [...document.querySelectorAll("[data-pay-by-ms]")].map(show);
  if (waits.length) setTimeout(tick, Math.min(...waits));
}

/** Show the time left of an order. Return the milliseconds until it changes. */
function show(action) {
  const leftMs = action.dataset.payByMs - clock.now();
  const left = action.querySelector("[data-left]");
  left.hidden = false;
  left.textContent = fill(left.dataset.left, { clock: shortLeftText(leftMs, days) });
  if (leftMs <= 0) close(action);
  return tickMs(leftMs);
}

/** Only the server says what became of the order: its page does. */
function close(action) {
  const card = action.closest(".order");
  card.querySelector(".badge").textContent = action.dataset.overdue;
  action.remove();
}

clock.addSample(Number(serverTimeMs), performance.now());
tick();
// Back from the payment: the page is an old one.
window.addEventListener("pageshow", ({ persisted }) => persisted && location.reload());
