// The receipt: asks what became of the order for as long as that may change, and says it.

import { ServerClock, milestone, shortLeftText, tickMs } from "./clock.js";
import { ask, askPage, keptTokens, place, readJson } from "./wire.js";

const WAITS_MS = [300, 600, 1000, 2000];
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

let receipt = readJson("order");
const token = keptTokens.of(receipt.order_id);
const ticket = { token, attempt: 1 }; // the purchase page has sent it at least once
let begunAt = performance.now();
let asked = 0;
let askedAgain = 0;
let leftMs = 0;
let stale = false; // what can be done is that of an earlier state, because it could not be asked for
let timer, ticker;

const waiting = () => receipt.status === "queued" || lost();
const lost = () => receipt.status === "refused" && receipt.reason === "lost" && canAskAgain();
const canAskAgain = () => Boolean(token) && askedAgain < ASKED_AGAIN_AT_MOST;
const moneyMoves = () =>
  ["unpaid", "refunding"].includes(receipt.status) || receipt.late_payment === "refunding";

// --- Asking --------------------------------------------------------------------------------------

/** Ask again after the next of our own waits, or later where the shop asked for that. */
function plan(atLeastMs = 0) {
  clearTimeout(timer);
  if (document.hidden || !(waiting() || moneyMoves() || stale)) return;
  timer = setTimeout(lost() ? placeAgain : poll, Math.max(waitMs(), atLeastMs));
}

function waitMs() {
  if (waiting()) return WAITS_MS[Math.min(asked, WAITS_MS.length - 1)];
  const base = performance.now() - begunAt < LATER_FOR_MS ? LATER_MS : MUCH_LATER_MS;
  return base * (0.9 + 0.2 * Math.random());
}

async function poll() {
  asked += 1;
  const answer = await ask(page.dataset.statusUrl, { headers: tokenHeader() });
  if (answer.status === 200) await show(answer.body, answer.heardAt);
  else if (answer.status === 404) return unknown();
  else if (answer.status === 401) return location.reload(); // by way of the sign-in, and back
  else note(waiting() ? "busy" : "away");
  return plan(answer.status === 200 ? answer.body.poll_after_ms : answer.retryAfterMs);
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
  const changed = ["status", "reason", "late_payment"].some((key) => now[key] !== receipt[key]);
  receipt = now;
  if (heardAt) clock.hear(now.server_time_ms, heardAt);
  if (waiting()) {
    if (performance.now() - begunAt > SLOW_MS) note("slow");
    else if (receipt.status === "queued") note(null);
    return;
  }
  note(null);
  if (!changed && !stale) return;
  keptTokens.drop(receipt.order_id);
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
  showAccepted(receipt.accepted_at_ms);
}

/** What can be done in a state, the server's template knows: that part of the page is asked for. */
async function renewDoing() {
  const fresh = await askPage(page.dataset.statusUrl, { headers: tokenHeader() });
  const doing = fresh?.getElementById("doing");
  const old = element("doing");
  stale = !doing;
  if (stale) old.hidden = true;
  else replaceDoing(old, doing);
}

function replaceDoing(old, doing) {
  const focused = old.contains(document.activeElement);
  old.replaceWith(document.adoptNode(doing));
  if (focused) element("heading").focus();
  tick();
}

/** A queued order has no such moment yet, so the server could not print it. */
function showAccepted(acceptedAtMs) {
  if (!acceptedAtMs || !element("accepted").hidden) return;
  const { lang } = document.documentElement;
  const day = { month: lang === "en" ? "short" : "long", day: "numeric" };
  element("accepted-at").textContent = new Intl.DateTimeFormat(lang === "en" ? "en-GB" : lang, {
    ...day,
    hour: "2-digit",
    minute: "2-digit",
    hourCycle: "h23",
    timeZone: page.dataset.timeZone,
  }).format(acceptedAtMs);
  element("accepted").hidden = false;
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
  if (waiting() || moneyMoves() || receipt.status === "paid") poll();
}

clock.startAt(receipt.server_time_ms, performance.now());
tick();
plan(receipt.poll_after_ms);
