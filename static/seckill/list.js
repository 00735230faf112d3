// The list of sales: who is signed in, and the countdowns of the cards, by the server's clock.

import { showAccount } from "./account.js";
import { ServerClock, leftText, tickMs } from "./clock.js";
import { ask, backoffMs, pause, readJson } from "./wire.js";

const TRIES = 5;

const list = document.getElementById("sales");
const texts = readJson("sentences");
const cards = [...document.querySelectorAll("[data-begins-at-ms]")];
const clock = new ServerClock();
let ticker;

function tick() {
  if (!clock.known) return;
  const now = clock.now();
  clearTimeout(ticker);
  if (now >= list.dataset.dayEndsAtMs) showDates();
  ticker = setTimeout(tick, Math.min(...cards.map((card) => show(card, now))));
}

/** Show a card's countdown. Return the milliseconds until it changes next. */
function show(card, now) {
  const { beginsAtMs, endsAtMs } = card.dataset;
  const end = now < beginsAtMs ? "begin" : "end";
  if (now >= endsAtMs) mark(card, "ended");
  else if (now >= beginsAtMs && card.dataset.saleState === "scheduled") mark(card, "open");
  const left = card.querySelector("[data-left]");
  const leftMs = (end === "begin" ? beginsAtMs : endsAtMs) - now;
  left.hidden = now >= endsAtMs;
  left.textContent = `${texts.clock[end]} ${leftText(leftMs, texts.clock.days)}`;
  return tickMs(leftMs);
}

/** Replace "today" and "tomorrow" by dates once the day is over. */
function showDates() {
  delete list.dataset.dayEndsAtMs;
  for (const time of list.querySelectorAll("time[data-date]")) time.textContent = time.dataset.date;
}

function mark(card, state) {
  if (card.dataset.saleState === state) return;
  card.dataset.saleState = state;
  card.querySelector("[data-badge]").textContent = texts.badge[state];
}

/** Take a few clock samples from one sale's live/; all sales share the clock. */
async function measure() {
  const fresh = new ServerClock();
  const url = cards.find((card) => card.dataset.saleState !== "ended")?.dataset.liveUrl;
  for (let left = url ? 3 : 0; left > 0 && !document.hidden; left -= 1) {
    const { status, body, receivedAt } = await ask(url, { timeoutMs: 3000 });
    if (status === 200) fresh.addSample(body.server_time_ms, receivedAt);
    await pause(300 + 300 * Math.random());
  }
  clock.replaceBy(fresh);
  tick();
}

/** Ask who is there, and what time it is. */
async function meet() {
  const { meUrl } = document.getElementById("main").dataset;
  for (let tries = 1; tries <= TRIES; tries += 1) {
    const { status, body, receivedAt, retryAfterMs } = await ask(meUrl);
    if (status === 200) {
      showAccount(body);
      clock.addSample(body.server_time_ms, receivedAt);
      if (cards.length) tick();
      return;
    }
    await pause(Math.max(backoffMs(tries), retryAfterMs));
  }
}

function look() {
  meet();
  if (cards.length) measure();
}

look();
document.addEventListener("visibilitychange", () => document.hidden || look());
window.addEventListener("pageshow", ({ persisted }) => persisted && look());

