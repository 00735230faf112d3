// The receipt: asks until the order is written, and says what became of it.

import { ask, keptTokens, place, readJson } from "./wire.js";

const WAITS_MS = [300, 600, 1000, 2000];
const SLOW_MS = 30_000;
const ASKED_AGAIN_AT_MOST = 3;

const element = (id) => document.getElementById(id);
const page = element("receipt");
const say = readJson("sentences");
const begunAt = performance.now();

let receipt = readJson("order");
const token = keptTokens.of(receipt.order_id);
const ticket = { token, attempt: 1 }; // the purchase page has sent it at least once
let asked = 0;
let askedAgain = 0;
let timer;

const waiting = () => receipt.status === "queued" || lost();
const lost = () => receipt.status === "refused" && receipt.reason === "lost" && canAskAgain();
const canAskAgain = () => Boolean(token) && askedAgain < ASKED_AGAIN_AT_MOST;

/** Ask again after the next of our own waits, or later where the shop asked for that. */
function plan(atLeastMs = 0) {
  clearTimeout(timer);
  if (document.hidden || !waiting()) return;
  const wait = WAITS_MS[Math.min(asked, WAITS_MS.length - 1)];
  timer = setTimeout(lost() ? placeAgain : poll, Math.max(wait, atLeastMs));
}

async function poll() {
  asked += 1;
  const answer = await ask(page.dataset.statusUrl, {
    headers: token ? { "Purchase-Token": token } : {},
  });
  if (answer.status === 200) show(answer.body);
  else if (answer.status === 404) return unknown();
  else if (answer.status === 401) return location.reload(); // by way of the sign-in, and back
  else note("busy");
  return plan(answer.status === 200 ? answer.body.poll_after_ms : answer.retryAfterMs);
}

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
    show({ ...receipt, status: "refused", reason: body.code });
    askedAgain = ASKED_AGAIN_AT_MOST;
  } else {
    show({ ...receipt, status: "queued", reason: "" });
  }
  plan();
}

function show(now) {
  receipt = now;
  if (waiting()) {
    if (performance.now() - begunAt > SLOW_MS) note("slow");
    else if (receipt.status === "queued") note(null);
    return;
  }
  keptTokens.drop(receipt.order_id);
  const { status, reason } = receipt;
  page.dataset.status = status;
  element("heading").textContent = say.heading[status];
  element("text").textContent = say.reason[reason] ?? say.text[status];
  element("back").hidden = status !== "refused";
  showAccepted(now.accepted_at_ms);
  note(null);
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
  const target = element("note");
  if (target.textContent !== text) target.textContent = text;
  target.hidden = !text;
}

document.addEventListener("visibilitychange", () => (document.hidden ? clearTimeout(timer) : wake()));
window.addEventListener("pageshow", ({ persisted }) => persisted && wake());

function wake() {
  if (waiting()) poll();
}

if (waiting()) plan(receipt.poll_after_ms);
