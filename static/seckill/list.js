// The list of sales: who is signed in, and each card's countdown and stock, by the server's clock.

import { showAccount } from "./account.js";
import { ServerClock, isFinal, leftText, stockText, tickMs } from "./clock.js";
import { Connection } from "./connection.js";
import { askPage } from "./pages.js";
import { ask, jittered, pause, readJson } from "./wire.js";

const EVERY_MS = 15_000;
const AGAIN_MS = 4000; // after a failure
const SAMPLES = 3;

const list = document.getElementById("sales");
const texts = readJson("sentences");
const cards = [...document.querySelectorAll("[data-begins-at-ms]")];
const clock = new ServerClock();
const connection =
  list && new Connection({ element: document.getElementById("connection"), texts });
let isMet = false; // whether me/ has told who is there
let rounds = 0;
let ticker;
let poller;

// --- Cards ---------------------------------------------------------------------------------------

function tick() {
  connection?.show();
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
  card.dataset.final = isFinal(leftMs) ? end : "";
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

function showFigures(card, { state, total, remaining, begins_at_ms: beginsAtMs, ends_at_ms: endsAtMs, mode }) {
  mark(card, state);
  Object.assign(card.dataset, { beginsAtMs, endsAtMs });
  const meter = card.querySelector("meter");
  meter.hidden = remaining === null || mode === "draw";
  meter.max = total;
  meter.value = total - (remaining ?? total);
  card.querySelector("[data-stock]").textContent = stockText({ remaining, total }, texts);
}

// --- The server ----------------------------------------------------------------------------------

/** Ask live/ for a card's figures. Return the clock's sample, or null. */
async function refresh(card) {
  const { status, body, receivedAt } = await ask(card.dataset.liveUrl, { timeoutMs: 3000 });
  connection.heard(status);
  if (status !== 200) return null;
  clock.addSample(body.server_time_ms, receivedAt);
  showFigures(card, body);
  await takeOver(card, body.revision);
  tick();
  return [body.server_time_ms, receivedAt];
}

/** Take title, price and times of a card over from the newer page, once they have changed. */
async function takeOver(card, revision) {
  if (!revision || revision === card.dataset.revision) return;
  const page = await askPage(location.href);
  const newer = page?.querySelector(`[data-live-url="${card.dataset.liveUrl}"]`);
  if (!newer) return;
  card.dataset.revision = newer.dataset.revision;
  for (const part of [".ticket__title", ".price", ".when"]) {
    card.querySelector(part).replaceWith(document.importNode(newer.querySelector(part), true));
  }
}

/** Take a few clock samples from one sale's live/; all sales share the clock. */
async function measure() {
  const fresh = new ServerClock();
  const card = cards.find(({ dataset }) => dataset.saleState !== "ended");
  for (let left = card ? SAMPLES : 0; left > 0 && !document.hidden; left -= 1) {
    const sample = await refresh(card);
    if (!sample) break;
    fresh.addSample(...sample);
    await pause(300 + 300 * Math.random());
  }
  clock.replaceBy(fresh);
  tick();
}

/** Ask who is there, and what time it is. */
async function meet() {
  const { status, body, receivedAt } = await ask(document.getElementById("main").dataset.meUrl);
  connection?.heard(status);
  if (status !== 200) return;
  isMet = true;
  showAccount(body);
  clock.addSample(body.server_time_ms, receivedAt);
  if (cards.length) tick();
}

function isInView(card) {
  const { top, bottom } = card.getBoundingClientRect();
  return top < window.innerHeight && bottom > 0;
}

/** Refresh the cards in view, one after another, and the rest of the page if it is due. */
async function round({ measures = false } = {}) {
  clearTimeout(poller);
  rounds += 1;
  const own = rounds; // a later round takes over
  if (!isMet) await meet();
  if (measures && cards.length) await measure();
  for (const card of cards) {
    if (own !== rounds || document.hidden) return;
    if (card.dataset.saleState === "ended" || !isInView(card)) continue;
    if (!(await refresh(card))) break;
  }
  if (own !== rounds || document.hidden || (isMet && !cards.length)) return;
  poller = setTimeout(round, jittered(connection?.fault ? AGAIN_MS : EVERY_MS));
}

/** The page is seen, perhaps again: it may be old, or another user's. */
function look() {
  isMet = false;
  if (cards.length) tick();
  round({ measures: true });
}

look();
document.addEventListener("visibilitychange", () => (document.hidden ? clearTimeout(poller) : look()));
window.addEventListener("online", look);
window.addEventListener("pageshow", ({ persisted }) => persisted && look());
