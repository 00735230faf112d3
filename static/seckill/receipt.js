// The receipt: asks what became of the order for as long as that may change, and says it.

import { ServerClock, milestone, shortLeftText, tickMs } from "./clock.js";
import { Queue } from "./queue.js";
import { Tabs } from "./tabs.js";
import { ask, askPage, keptTokens, place, readJson } from "./wire.js";

const FIRST_MS = 300; // as long as the shop has not asked for another pace
const SLOW_MS = 30_000;
const ASKED_AGAIN_AT_MOST = 3;
const LATER_MS = 3000; // while a payment or a refund is on its way
const MUCH_LATER_MS = 10_000; // after the first of these minutes
const LATER_FOR_MS = 180_000;
const OVER = ["refused", "cancelled", "expired", "refunded"];

const element = (id) => document.getElementById(id);
const page = element("receipt");
const say = readJson("sentences");
const clock = new ServerClock();
const queue = new Queue();

let receipt = readJson("order");
const token = keptTokens.of(receipt.order_id);
const ticket = { token, attempt: 1 }; // the purchase page has sent it at least once
let begunAt = performance.now();
let asked = 0;
let askedAgain = 0;
let leftMs = 0;
let stale = false; // what can be done is that of an earlier state, because it could not be asked for
let timer, ticker;
const tabs = new Tabs(page.dataset.sale, () => isOpen() && poll());

const waiting = () => receipt.status === "queued" || lost();
const lost = () => receipt.status === "refused" && receipt.reason === "lost" && canAskAgain();
const canAskAgain = () => Boolean(token) && askedAgain < ASKED_AGAIN_AT_MOST;
const isOpen = () => waiting() || moneyMoves() || receipt.status === "paid";
const moneyMoves = () =>
  ["unpaid", "refunding"].includes(receipt.status) || receipt.late_payment === "refunding";

// --- Asking --------------------------------------------------------------------------------------

/** Ask again at the pace of the queue or of our own, or later where the shop asked for that. */
function plan(atLeastMs = 0) {
  clearTimeout(timer);
  if (document.hidden || !(waiting() || moneyMoves() || stale)) return;
  timer = setTimeout(lost() ? placeAgain : poll, Math.max(waitMs(), atLeastMs));
}

function waitMs() {
  if (waiting()) return queue.paceMs(receipt.poll_after_ms ?? FIRST_MS);
  const base = performance.now() - begunAt < LATER_FOR_MS ? LATER_MS : MUCH_LATER_MS;
  return base * (0.9 + 0.2 * Math.random());
}

async function poll() {
  clearTimeout(timer);
  asked += 1;
  const answer = await ask(page.dataset.statusUrl, { headers: tokenHeader() });
  if (answer.status !== 200) queue.missed();
  if (answer.status === 200) await show(answer.body, answer.heardAt);
  else if (answer.status === 404) return unknown();
  else if (answer.status === 401) return location.reload(); // by way of the sign-in, and back
  else note(waiting() ? "busy" : "away");
  return plan(answer.retryAfterMs);
}

const tokenHeader = () => (token ? { "Purchase-Token": token } : {});

/** Neither ledger nor database knows the order. Whoever holds its token may ask for it again. */
function unknown() {
  if (canAskAgain()) return placeAgain();
  if (asked < 5) return plan();
  return note("missing");
}

/** Under the same id: had the order not been lost after all, this changes nothing. */
async function placeAgain() {
  askedAgain += 1;
  note("again");
  const { status, body } = await place(page.dataset.placeUrl, ticket);
  if (status >= 400 && status < 500 && status !== 429) {
    askedAgain = ASKED_AGAIN_AT_MOST;
    await show({ ...receipt, status: "refused", reason: body.code });
  } else {
    await show({ ...receipt, status: "queued", reason: "" });
  }
  plan();
}

// --- Showing -------------------------------------------------------------------------------------

async function show(now, heardAt) {
  if (now.server_time_ms < receipt.server_time_ms) return; // overtaken by a later answer
  const changed = ["status", "reason", "late_payment"].some((key) => now[key] !== receipt[key]);
  receipt = now;
  if (heardAt) clock.hear(now.server_time_ms, heardAt);
  showPlace(heardAt ?? performance.now());
  if (waiting()) {
    if (performance.now() - begunAt > SLOW_MS) note("slow");
    else if (receipt.status === "queued") note(null);
    return;
  }
  note(null);
  if (!changed && !stale) return;
  keptTokens.drop(receipt.order_id);
  tabs.tell();
  begunAt = performance.now();
  showStatus();
  await renewDoing();
}

function showStatus(shown = receipt.status) {
  const { status, reason, late_payment: late } = receipt;
  page.dataset.status = shown;
  setText("heading", say.heading[shown]);
  setText("text", say.reason[reason] ?? say.text[shown]);
  const lateness = ["expired", "cancelled"].includes(status) ? say.late : say.further;
  setText("late", lateness[late] ?? "");
  element("late").hidden = !late;
  element("back").hidden = !OVER.includes(status);
}

function showPlace(heardAt) {
  queue.heard({ place: receipt.place, atMs: heardAt });
  const text = queue.text(say.queue, "place");
  setText("queue", text);
  element("queue").hidden = !text;
}

/** What can be done in a state, and its facts, the server's template knows: they are asked for. */
async function renewDoing() {
  const fresh = await askPage(page.dataset.statusUrl, { headers: tokenHeader() });
  const doing = fresh?.getElementById("doing");
  stale = !doing;
  if (stale) {
    element("doing").hidden = true;
    return;
  }
  element("facts").replaceWith(document.adoptNode(fresh.getElementById("facts")));
  replaceDoing(element("doing"), doing);
}

function replaceDoing(old, doing) {
  const focused = old.contains(document.activeElement);
  old.replaceWith(document.adoptNode(doing));
  if (focused) element("heading").focus();
  tick();
}

function note(name) {
  const text = name ? say.note[name] : "";
  setText("note", text);
  element("note").hidden = !text;
}

/** Only a change is written: a status line that is written again is read out again. */
function setText(id, text) {
  if (element(id).textContent !== text) element(id).textContent = text;
}

// --- The time to pay -----------------------------------------------------------------------------

function tick() {
  clearTimeout(ticker);
  const payByMs = Number(element("deadline")?.dataset.payByMs);
  if (!payByMs) return;
  const beforeMs = leftMs;
  leftMs = payByMs - clock.now();
  if (leftMs <= 0) return overdue();
  const words = say.end[milestone(beforeMs, leftMs)];
  if (words) setText("announcement", words);
  setText("pay-left", shortLeftText(leftMs, say.clock.days));
  element("pay-clock").hidden = false;
  ticker = setTimeout(tick, tickMs(leftMs));
}

/** Whether the order is over the server alone says; until then there is nothing to be done. */
function overdue() {
  element("doing").replaceChildren();
  showStatus("overdue");
}

// --- Begin ---------------------------------------------------------------------------------------

document.addEventListener("visibilitychange", () => (document.hidden ? clearTimeout(timer) : wake()));
window.addEventListener("pageshow", ({ persisted }) => persisted && wake());

/** Back from another tab, or from the provider: a code may have been used meanwhile, too. */
function wake() {
  begunAt = performance.now();
  tick();
  if (isOpen()) poll();
}

clock.startAt(receipt.server_time_ms, performance.now());
showPlace(performance.now());
tick();
plan();
tabs.tell(); // the way here may have cut off the word of the purchase page
