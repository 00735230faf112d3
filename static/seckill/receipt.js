// The receipt: polls the order while its state may change, and shows it.

import "./code_picture.js";
import "./copy.js";
import { announce } from "./announce.js";
import { ServerClock, milestone, shortLeftText, tickMs } from "./clock.js";
import { showEvidence } from "./evidence.js";
import { tellKeeper } from "./keeper.js";
import { askPage } from "./pages.js";
import { Queue } from "./queue.js";
import { Tabs } from "./tabs.js";
import { keptTokens, place } from "./tickets.js";
import { ask, readJson } from "./wire.js";

const FIRST_MS = 300; // until the server asks for another pace
const SLOW_MS = 30_000;
const MAX_PLACED_AGAIN = 3;
const SOON_FOR_MS = 10_000; // while a payment is confirmed: at the server's pace
const CONFIRM_LATER_MS = 2000; // after SOON_FOR_MS
const LATER_MS = 3000; // while a payment or a refund is in progress
const MUCH_LATER_MS = 10_000; // after LATER_FOR_MS
const LATER_FOR_MS = 180_000;
const IN_LINE_MS = 15_000; // while the entry is on the waiting list
const EXTENDED_FROM_MS = 120_000; // the last of the time to pay
const OVER = ["refused", "cancelled", "expired", "refunded"];

const element = (id) => document.getElementById(id);
const page = element("receipt");
const texts = readJson("sentences");
const clock = new ServerClock();
const queue = new Queue();

let receipt = leadOf(readJson("order"));
const { purchase } = receipt;
const token = keptTokens.of(purchase);
const query = new URLSearchParams(location.search);
const ticket = {
  token,
  attempt: 1, // the purchase page has sent it at least once
  quantity: Number(query.get("wanted")) || 1,
  allOrNone: query.has("all"),
};
let startedAt = performance.now();
let asked = 0;
let placedAgain = 0;
let renewals = 0;
let leftMs = 0;
let stale = false; // the actions shown are those of an earlier state
let timer, ticker;
const tabs = new Tabs(page.dataset.sale, () => poll());

const waiting = () => receipt.status === "queued" || lost();
const lost = () => receipt.status === "refused" && receipt.reason === "lost" && canPlaceAgain();
const canPlaceAgain = () => Boolean(token) && placedAgain < MAX_PLACED_AGAIN;
const inDraw = () => ["entered", "waiting"].includes(receipt.status);
const isOpen = () => waiting() || inDraw() || moneyMoves() || receipt.status === "paid";
const moneyMoves = () => [receipt, ...(receipt.units ?? [])].some(moves);
const moves = ({ status, payment, late_payment: late }) =>
  ["unpaid", "refunding"].includes(status) || late === "refunding" || Boolean(payment);
const confirming = () => ["confirming", "silent"].includes(receipt.payment);
const wasEnded = () => ["cancelled", "expired"].includes(receipt.status);

/** The unit of a purchase whose state the page shows, with all units; only the owner's session gets these. */
function leadOf(answer, units = answer.units) {
  const lead = answer.units?.find(({ order_id: id }) => id === answer.lead);
  return { ...(lead ?? answer), units };
}

/** What makes the page fetch its actions and facts again. */
const stateText = ({ status, reason, payment, late_payment: late, extended }) =>
  [status, reason, payment, late, extended].join();
const unitsText = ({ units = [] }) => units.map(stateText).join(";");

// --- Asking --------------------------------------------------------------------------------------

/** Poll at the queue's pace or our own, or later if the server asks for that. */
function schedule(atLeastMs = 0) {
  clearTimeout(timer);
  if (document.hidden || !(waiting() || inDraw() || moneyMoves() || stale)) return;
  timer = setTimeout(lost() ? placeAgain : poll, Math.max(waitMs(), atLeastMs));
}

function waitMs() {
  if (waiting()) return queue.paceMs(receipt.poll_after_ms ?? FIRST_MS);
  if (inDraw()) return receipt.poll_after_ms ?? IN_LINE_MS;
  const sinceMs = performance.now() - startedAt;
  if (confirming()) return sinceMs < SOON_FOR_MS ? receipt.poll_after_ms : CONFIRM_LATER_MS;
  const base = sinceMs < LATER_FOR_MS ? LATER_MS : MUCH_LATER_MS;
  return base * (0.9 + 0.2 * Math.random());
}

async function poll() {
  clearTimeout(timer);
  asked += 1;
  const answer = await ask(page.dataset.statusUrl, { headers: tokenHeader() });
  if (answer.status !== 200) queue.noAnswer();
  if (answer.status === 200) await show(answer.body, answer.receivedAt);
  else if (answer.status === 404) return unknown();
  else if (answer.status === 401) return location.reload(); // leads to the sign-in and back
  else note(waiting() ? "busy" : "away");
  return schedule(answer.retryAfterMs);
}

const tokenHeader = () => (token ? { "Purchase-Token": token } : {});

/** Neither ledger nor database knows the order. With its token it can be placed again. */
function unknown() {
  if (canPlaceAgain()) return placeAgain();
  if (asked < 5) return schedule();
  return note("missing");
}

/** The order id stays the same: if the order was not lost after all, this changes nothing. */
async function placeAgain() {
  placedAgain += 1;
  note("again");
  const { status, body } = await place(page.dataset.placeUrl, ticket);
  if (status >= 400 && status < 500 && status !== 429) {
    placedAgain = MAX_PLACED_AGAIN;
    await show({ ...receipt, status: "refused", reason: body.code });
  } else {
    await show({ ...receipt, status: "queued", reason: "" });
  }
  schedule();
}

// --- Showing -------------------------------------------------------------------------------------

async function show(answer, receivedAt) {
  if (answer.server_time_ms < receipt.server_time_ms) return; // older than the answer shown
  const now = leadOf(answer, answer.units ?? receipt.units);
  const changed = stateText(now) !== stateText(receipt) || unitsText(now) !== unitsText(receipt);
  receipt = now;
  if (receivedAt) clock.addSample(now.server_time_ms, receivedAt);
  showPlace(receivedAt ?? performance.now());
  if (waiting()) {
    if (performance.now() - startedAt > SLOW_MS) note("slow");
    else if (receipt.status === "queued") note(null);
    if (receipt.status === "queued") showStatus(); // after a draw
    return;
  }
  note(null);
  if (!changed && !stale) return;
  keptTokens.drop(purchase);
  tabs.notify();
  tellKeeper("refresh"); // codes that this device keeps may have come or gone
  startedAt = performance.now();
  await renew();
}

/** The key of the sentences; agrees with `receipt_state` of the server's templates. */
function shownState() {
  const { status, reason, payment, late_payment: late } = receipt;
  if (["not_drawn", "withdrawn"].includes(reason)) return reason;
  if (wasEnded()) return late || status;
  return payment || status;
}

function showStatus(shown = shownState()) {
  const { status, reason } = receipt;
  page.dataset.status = shown;
  setText("heading", texts.heading[shown]);
  setText("text", texts.reason[reason] ?? texts.text[shown]);
  const about = moneyNote();
  setText("late", about);
  element("late").hidden = !about;
  element("back").hidden = !OVER.includes(status);
}

/** The sentence about money beside the order; agrees with `receipt_note` of the templates. */
function moneyNote() {
  const { payment, late_payment: late } = receipt;
  if (late) return (wasEnded() ? texts.late : texts.further)[late] ?? "";
  return (wasEnded() && texts.ended_payment[payment]) || "";
}

function showPlace(receivedAt) {
  queue.addSample({ place: receipt.place, atMs: receivedAt });
  const text = queue.text(texts.queue, "place");
  setText("queue", text);
  element("queue").hidden = !text;
}

/** Show the new state with its actions and facts, which only the server's template has. */
async function renew() {
  const number = (renewals += 1);
  const fresh = await askPage(page.dataset.statusUrl + location.search, { headers: tokenHeader() });
  if (number !== renewals) return; // a newer state is being shown
  const doing = fresh?.getElementById("doing");
  stale = !doing;
  showStatus();
  if (stale) {
    element("doing").hidden = true;
    return;
  }
  element("facts").replaceWith(document.adoptNode(fresh.getElementById("facts")));
  showEvidence(texts.proof);
  replaceActions(element("doing"), doing);
}

function replaceActions(old, doing) {
  const focused = old.contains(document.activeElement);
  for (const { id } of old.querySelectorAll("details[id][open]")) {
    const same = doing.querySelector(`#${id}`);
    if (same) same.open = true;
  }
  old.replaceWith(document.adoptNode(doing));
  announce("");
  if (focused) element("heading").focus();
  tick();
}

function note(name) {
  const text = name ? texts.note[name] : "";
  setText("note", text);
  element("note").hidden = !text;
}

/** Write only a change: screen readers read a status line again each time it is written. */
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
  announce(texts.end[milestone(beforeMs, leftMs)]);
  if (leftMs <= EXTENDED_FROM_MS) offerExtension();
  setText("pay-left", shortLeftText(leftMs, texts.clock.days));
  element("pay-clock").hidden = false;
  ticker = setTimeout(tick, tickMs(leftMs));
}

/** Offer more time to pay, once. */
function offerExtension() {
  const form = element("extend");
  if (!form?.hidden) return;
  form.hidden = false;
  announce(element("extend-offer").textContent.trim());
}

/** Only the server says whether the order has ended. Until then there is nothing to do. */
function overdue() {
  announce("");
  element("doing").textContent = "";
  showStatus("overdue");
}

// Paper shows every voucher.
window.addEventListener("beforeprint", () => {
  for (const details of document.querySelectorAll("#units details[id]")) details.open = true;
});

// --- Start ---------------------------------------------------------------------------------------

document.addEventListener("visibilitychange", () => (document.hidden ? clearTimeout(timer) : wake()));
window.addEventListener("pageshow", ({ persisted }) => persisted && wake());
window.addEventListener("online", wake);

/** Back from another tab or the provider: the code may have been used, too. */
function wake() {
  startedAt = performance.now();
  tick();
  if (isOpen()) poll();
}

clock.addSample(receipt.server_time_ms, performance.now());
showEvidence(texts.proof);
showPlace(performance.now());
tick();
schedule();
tabs.notify(); // the navigation may have cut off the message of the purchase page
tellKeeper("refresh");
