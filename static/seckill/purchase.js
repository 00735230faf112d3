// The purchase page: the countdown by the server's clock, the button, and the buyer's own orders.

import { order } from "./buying.js";
import { BuyerStatusPoller } from "./buyer_status.js";
import { fill, leftText, milestone, shortLeftText, tickMs } from "./clock.js";
import { Live } from "./live.js";
import { STATES, minePollMs, move, shownState } from "./purchase_states.js";
import { Queue } from "./queue.js";
import { Tabs } from "./tabs.js";
import { whySoldOut } from "./why.js";
import { keptTokens, orderIdOf, readJson } from "./wire.js";

const LATER_MS = 3000;

const element = (id) => document.getElementById(id);
const page = element("main");
const button = element("buy");
const link = element("order-link");
const texts = readJson("sentences");
const urls = readJson("urls");
const visitor = "visitor" in page.dataset;
const ticket = { token: element("token")?.value ?? "", attempt: 0 };
const queue = new Queue();
const spent = new Set(); // ids of orders that exist: their tokens buy nothing more

let mine = readJson("mine");
let own = mine?.own_state ?? null;
let note = { state: null, text: "" }; // replaces the text of that state while it lasts
let reading = { end: null, leftMs: 0, payMs: 0 }; // the last clock readings, to notice milestones
let buying = false;
let awakeMs = Date.now() - performance.now();
let ticker;

const live = new Live({
  url: urls.live,
  figures: readJson("live") ?? figuresOf(page.dataset),
  serverTimeMs: Number(page.dataset.serverTimeMs),
  buttonState: stateNow,
  onAnswer: tick,
});
const statusPoller = new BuyerStatusPoller(urls.mine, onMine);
const tabs = new Tabs(page.dataset.sale, () => statusPoller.poll());

/** The sale by its database row alone, until live/ answers: its first buyer loads it. */
function figuresOf({ saleState: state, beginsAtMs, endsAtMs, total }) {
  const times = { begins_at_ms: Number(beginsAtMs), ends_at_ms: Number(endsAtMs) };
  return { state, ...times, total: Number(total), remaining: null, unloaded: true };
}

function stateNow() {
  return shownState({ own, sale: live.state, visitor, visitorStates: texts.visitor_states });
}

const payLeftMs = () => (mine?.pay_by_ms ?? Infinity) - live.clock.now();

// --- What is shown -------------------------------------------------------------------------------

function tick() {
  const state = stateNow();
  showCountdown();
  showOrder(state);
  showButton(state);
  showStock(live.figures);
  noticeSleep();
  clearTimeout(ticker);
  ticker = setTimeout(tick, Math.min(tickMs(reading.leftMs), tickMs(reading.payMs)));
}

function showCountdown() {
  const end = live.state === "scheduled" ? "begin" : "end";
  const leftMs = end === "begin" ? live.leftToBeginMs : live.leftToEndMs;
  element("countdown").hidden = live.state === "ended";
  setText(element("countdown-label"), texts.clock[end]);
  setText(element("countdown-left"), leftText(leftMs, texts.clock.days));
  announce(reading.end === end ? texts[end][milestone(reading.leftMs, leftMs)] : "");
  reading = { ...reading, end, leftMs };
}

/** Show the link to the buyer's order and, while it is unpaid, the time left to pay. */
function showOrder(state) {
  const leftMs = payLeftMs();
  const toPay = mine?.status === "unpaid" && leftMs > 0;
  const timed = toPay && mine.pay_by_ms !== null;
  const words = timed ? (state === "yours" ? "pay" : "pay_too") : toPay ? "pay_any_time" : "see";
  link.hidden = !link.hasAttribute("href");
  setText(element("order-label"), texts.order[words]);
  setText(element("order-left"), timed ? shortLeftText(leftMs, texts.clock.days) : "");
  element("order-left").hidden = !timed;
  if (timed) announce(texts.pay_end[milestone(reading.payMs, leftMs)]);
  if (state === "yours" && !toPay) note = { state, text: texts.note.overdue };
  reading.payMs = timed ? leftMs : 0;
  if (mine) showHoldings();
}

function showHoldings() {
  setText(element("holds"), fill(texts.holds, mine));
  element("holds").hidden = !(mine.may_buy && mine.holds);
  if (!element("line-join")) return;
  element("line-place").hidden = !mine.waits;
  element("line-join").hidden = mine.waits;
}

function showButton(state) {
  const { press } = STATES[state];
  const hadFocus = document.activeElement === button;
  page.dataset.state = state;
  page.dataset.saleState = live.state;
  setText(element("buy-label"), labelOf(state));
  const beside = besideLabel(state);
  setText(element("buy-left"), beside);
  element("buy-left").hidden = !beside;
  // Not `disabled`: that would take the focus away from a buyer waiting on the button.
  button.setAttribute("aria-disabled", String(press === null || visitor));
  button.hidden = state === "yours" || (visitor && press === "signIn");
  if (visitor) element("sign-in").hidden = press !== "signIn";
  if (hadFocus && button.hidden) link.focus();
  if (note.state !== state) note = { state: null, text: "" };
  setText(element("status"), note.text || texts.status[state]);
}

const labelOf = (state) => (state === "scheduled" ? texts.button.countdown : texts.button[state]);

/** Text that changes all the time stands beside the label, where no screen reader reads it out. */
function besideLabel(state) {
  if (state === "scheduled") return element("countdown-left").textContent;
  return state === "queued" ? queue.text(texts.queue, "number") : "";
}

function showStock(figures) {
  const known = figures.remaining !== null;
  const meter = element("stock");
  meter.hidden = !known;
  meter.max = figures.total;
  meter.value = figures.remaining ?? 0;
  setText(element("stock-words"), fill(known ? texts.stock : texts.stock_unknown, figures));
}

/** Announce to screen readers what the clock shows; "" clears an old announcement. */
function announce(text) {
  if (text !== undefined) setText(element("announcement"), text);
}

/** Write only a change: screen readers read a status line again each time it is written. */
function setText(target, text) {
  if (target.textContent !== text) target.textContent = text;
}

/** performance.now() may stop while the machine sleeps; the two clocks then differ. */
function noticeSleep() {
  const nowMs = Date.now() - performance.now();
  if (Math.abs(nowMs - awakeMs) < 1000) return;
  awakeMs = nowMs;
  live.wake();
}

/** Apply an event of the buyer; `text` replaces the usual text of the new state. */
function step(event, text = "") {
  own = move(own, event);
  if (text) note = { state: stateNow(), text };
  statusPoller.markOutdated();
  tick();
  live.schedule();
}

// --- What the buyer has --------------------------------------------------------------------------

function onMine({ status, body, receivedAt, retryAfterMs }) {
  if (buying) return statusPoller.schedule(LATER_MS); // the running request will tell more
  if (status === 200) {
    const same = mine?.buyer_id === body.buyer_id && own !== "sign_in";
    // Another user has signed in: this page's forms are not theirs.
    return same ? takeMine(body, receivedAt) : location.reload();
  }
  if (visitor || status === 404) return undefined;
  if (status !== 401) return statusPoller.schedule(Math.max(LATER_MS, retryAfterMs));
  return own === "sign_in" ? undefined : step("login_required", texts.note.signed_out);
}

function takeMine(now, receivedAt) {
  const isOver = mine.order_id && !now.order_id;
  if (mine.waits && !now.waits && !element("line-join")) location.reload();
  live.clock.addSample(now.server_time_ms, receivedAt);
  mine = now;
  useMine(receivedAt);
  step(mine.own_state ?? "free");
  // The link still leads to the old order: a success does not just disappear.
  if (isOver) step("over", texts.note.over);
}

/** Take over an answer of mine/: the link to the order, the spent token, the place, the pace. */
function useMine(receivedAt) {
  if (!mine) return;
  if (mine.order_id) spent.add(mine.order_id);
  if (mine.status_url) link.href = mine.status_url;
  queue.addSample({ place: mine.place, atMs: receivedAt });
  const queuePaceMs = queue.paceMs(mine.poll_after_ms);
  statusPoller.schedule(minePollMs({ mine, payLeftMs: payLeftMs(), queuePaceMs, random: Math.random() }));
}

// --- Buying --------------------------------------------------------------------------------------

async function buy() {
  buying = true;
  step("press");
  if (spent.has(orderIdOf(ticket.token))) ticket.token = "";
  const { event, answer } = await order({ ticket, urls, step: onTheWay });
  for (const field of document.getElementsByName("token")) field.value = ticket.token;
  buying = false;
  answered(event, answer);
}

const onTheWay = (event) => step(event, event === "unknown" ? texts.note.asking : "");

function answered(event, answer) {
  if (event === "accepted") return goToReceipt(answer.body.status_url);
  if (event === "already_ordered") return askWhich(answer.body.order_id);
  if (event === "unreachable") return step("missing", texts.note.unreachable);
  if (event === "missing" || event === "login_required") return step(event);
  return refused(event === "bad_token" ? { code: event } : answer.body);
}

function goToReceipt(url) {
  step("accepted");
  spent.add(orderIdOf(ticket.token));
  keptTokens.keep(ticket.token);
  tabs.notify();
  link.href = url;
  statusPoller.schedule(LATER_MS); // if the buyer stops the navigation
  location.assign(url);
}

/** Another tab or device was faster: ask mine/ which order there is. */
function askWhich(orderId) {
  link.href = `${urls.place}${orderId}/`;
  step("already_ordered");
  statusPoller.poll();
}

function refused(answer) {
  const { code } = answer;
  const { figures } = live;
  const known = ["sold_out", "paused", "ended"].includes(code);
  const remaining = code === "sold_out" ? 0 : figures.remaining;
  if (known) live.figures = { ...figures, state: code, remaining };
  const { lang } = document.documentElement;
  const why = whySoldOut(answer, { texts: texts.why, lang, timeZone: page.dataset.timeZone });
  step("refused", known ? why : (texts.note[code] ?? texts.note.failed));
  if (code === "not_started") live.measure();
}

// --- Start ---------------------------------------------------------------------------------------

const PRESSES = { buy, signIn: () => location.assign(urls.login) };

element("order-form")?.addEventListener("submit", (event) => {
  event.preventDefault();
  PRESSES[STATES[stateNow()].press]?.();
});

/** The page is visible again: it may be out of date, or another user's. */
function seenAgain() {
  tick();
  live.wake();
  statusPoller.poll();
}

document.addEventListener("visibilitychange", () => {
  if (!document.hidden) return seenAgain();
  live.stop();
  return statusPoller.stop();
});
window.addEventListener("pageshow", ({ persisted }) => {
  // Going back may show a cached copy, even one from before the sign-in.
  const [navigation] = performance.getEntriesByType("navigation");
  if (persisted || navigation?.type === "back_forward") seenAgain();
});

button.disabled = false;
useMine(performance.now());
tick();
live.wake();
