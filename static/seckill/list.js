// The list of sales: the countdowns of its cards, by the server's clock.

import { ServerClock, leftText, tickMs } from "./clock.js";
import { ask, pause, readJson } from "./wire.js";

const list = document.getElementById("sales");
const say = readJson("sentences");
const cards = [...list.querySelectorAll("[data-begins-at-ms]")];
const clock = new ServerClock();
let ticker;

function tick() {
  const now = clock.now();
  clearTimeout(ticker);
  if (now >= list.dataset.dayEndsAtMs) sayDates();
  ticker = setTimeout(tick, Math.min(...cards.map((card) => show(card, now))));
}

/** Show a card's countdown; returns when it changes next, in milliseconds. */
function show(card, now) {
  const { beginsAtMs, endsAtMs } = card.dataset;
  const end = now < beginsAtMs ? "begin" : "end";
  if (now >= endsAtMs) mark(card, "ended");
  else if (now >= beginsAtMs && card.dataset.saleState === "scheduled") mark(card, "open");
  const left = card.querySelector("[data-left]");
  const leftMs = (end === "begin" ? beginsAtMs : endsAtMs) - now;
  left.hidden = now >= endsAtMs;
  left.textContent = `${say.clock[end]} ${leftText(leftMs, say.clock.days)}`;
  return tickMs(leftMs);
}

/** The day is over: "today" and "tomorrow" would be other days now. */
function sayDates() {
  delete list.dataset.dayEndsAtMs;
  for (const time of list.querySelectorAll("time[data-date]")) time.textContent = time.dataset.date;
}

function mark(card, state) {
  if (card.dataset.saleState === state) return;
  card.dataset.saleState = state;
  card.querySelector("[data-badge]").textContent = say.badge[state];
}

/** A few samples from one sale's live/: the clock is the same for all of them. */
async function measure() {
  const fresh = new ServerClock();
  const url = cards.find((card) => card.dataset.saleState !== "ended")?.dataset.liveUrl;
  for (let left = url ? 3 : 0; left > 0 && !document.hidden; left -= 1) {
    const { status, body, heardAt } = await ask(url, { timeoutMs: 3000 });
    if (status === 200) fresh.hear(body.server_time_ms, heardAt);
    await pause(300 + 300 * Math.random());
  }
  clock.replaceBy(fresh);
  tick();
}

if (cards.length) {
  clock.startAt(Number(list.dataset.serverTimeMs), performance.now());
  tick();
  measure();
  document.addEventListener("visibilitychange", () => document.hidden || measure());
  window.addEventListener("pageshow", ({ persisted }) => persisted && measure());
}
