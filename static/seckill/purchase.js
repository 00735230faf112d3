// The purchase page: the countdown by the server's clock, the button, and what the buyer has already.

import { order } from "./buying.js";
import { fill, leftText, milestone, shortLeftText, tickMs } from "./clock.js";
import { Live } from "./live.js";
import { Mine } from "./mine.js";
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
const say = readJson("sentences");
const urls = readJson("urls");
const visitor = "visitor" in page.dataset;
const ticket = { token: element("token")?.value ?? "", attempt: 0 };
const queue = new Queue();
const spent = new Set(); // order ids that have become orders: their tokens buy nothing more

let mine = readJson("mine");
let own = mine?.own_state ?? null;
let note = { state: null, text: "" }; // stands in for the sentence of that state, while it lasts
let reading = { end: null, leftMs: 0, payMs: 0 }; // the clocks as last seen, to notice milestones
let buying = false;
let awakeMs = Date.now() - performance.now();
let ticker;

const live = new Live({
  url: urls.live,
  figures: readJson("live") ?? figuresOf(page.dataset),
  serverTimeMs: Number(page.dataset.serverTimeMs),
  buttonState: stateNow,
  heard: tick,
});
const mineCall = new Mine(urls.mine, heardMine);
const tabs = new Tabs(page.dataset.sale, () => mineCall.ask());

/** The sale by its row alone, as long as live/ has no answer: its first buyer loads it. */
function figuresOf({ saleState: state, beginsAtMs, endsAtMs, total }) {
  const times = { begins_at_ms: Number(beginsAtMs), ends_at_ms: Number(endsAtMs) };
  return { state, ...times, total: Number(total), remaining: null, unloaded: true };
}

function stateNow() {
  return shownState({ own, sale: live.state, visitor, visitorStates: say.visitor_states });
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
  setText(element("countdown-label"), say.clock[end]);
  setText(element("countdown-left"), leftText(leftMs, say.clock.days));
  announce(reading.end === end ? say[end][milestone(reading.leftMs, leftMs)] : "");
  reading = { ...reading, end, leftMs };
}

/** The way to what the buyer has and, as long as it is to be paid, the time that is left for that. */
function showOrder(state) {
  const leftMs = payLeftMs();
  const toPay = mine?.status === "unpaid" && leftMs > 0;
  const timed = toPay && mine.pay_by_ms !== null;
  const words = timed ? (state === "yours" ? "pay" : "pay_too") : toPay ? "pay_any_time" : "see";
  link.hidden = !link.hasAttribute("href");
  setText(element("order-label"), say.order[words]);
  setText(element("order-left"), timed ? shortLeftText(leftMs, say.clock.days) : "");
  element("order-left").hidden = !timed;
  if (timed) announce(say.pay_end[milestone(reading.payMs, leftMs)]);
  if (state === "yours" && !toPay) note = { state, text: say.note.overdue };
  reading.payMs = timed ? leftMs : 0;
  if (mine) showStanding();
}

function showStanding() {
  setText(element("holds"), fill(say.holds, mine));
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
  // Not `disabled`: that would take the focus away from whoever waits on the button.
  button.setAttribute("aria-disabled", String(press === null || visitor));
  button.hidden = state === "yours" || (visitor && press === "signIn");
  if (visitor) element("sign-in").hidden = press !== "signIn";
  if (hadFocus && button.hidden) link.focus();
  if (note.state !== state) note = { state: null, text: "" };
  setText(element("status"), note.text || say.status[state]);
}

const labelOf = (state) => (state === "scheduled" ? say.button.countdown : say.button[state]);

/** What changes all the time stands beside the label, where no screen reader reads it out. */
function besideLabel(state) {
  if (state === "scheduled") return element("countdown-left").textContent;
  return state === "queued" ? queue.text(say.queue, "number") : "";
}

function showStock(figures) {
  const known = figures.remaining !== null;
  const meter = element("stock");
  meter.hidden = !known;
  meter.max = figures.total;
  meter.value = figures.remaining ?? 0;
  setText(element("stock-words"), fill(known ? say.stock : say.stock_unknown, figures));
}

/** For screen readers alone, because to the eye the clock says it; "" takes back what is over. */
function announce(text) {
  if (text !== undefined) setText(element("announcement"), text);
}

/** Only a change is written: a status line that is written again is read out again. */
function setText(target, text) {
  if (target.textContent !== text) target.textContent = text;
}

/** A machine that slept may have stopped performance.now(): the two clocks have then parted. */
function noticeSleep() {
  const nowMs = Date.now() - performance.now();
  if (Math.abs(nowMs - awakeMs) < 1000) return;
  awakeMs = nowMs;
  live.wake();
}

/** An event of the buyer's own, with a text that stands in for the sentence of the state it leads to. */
function step(event, text = "") {
  own = move(own, event);
  if (text) note = { state: stateNow(), text };
  mineCall.outdate();
  tick();
  live.plan();
}

// --- What the buyer has --------------------------------------------------------------------------

function heardMine({ status, body, heardAt, retryAfterMs }) {
  if (buying) return mineCall.plan(LATER_MS); // the request that is on its way tells more
  if (status === 200) {
    const same = mine?.buyer_id === body.buyer_id && own !== "sign_in";
    // Signed in meanwhile, or as somebody else: the forms of this page are not theirs.
    return same ? takeMine(body, heardAt) : location.reload();
  }
  if (visitor || status === 404) return undefined;
  if (status !== 401) return mineCall.plan(Math.max(LATER_MS, retryAfterMs));
  return own === "sign_in" ? undefined : step("login_required", say.note.signed_out);
}

function takeMine(now, heardAt) {
  const isOver = mine.order_id && !now.order_id;
  if (mine.waits && !now.waits && !element("line-join")) location.reload();
  live.clock.hear(now.server_time_ms, heardAt);
  mine = now;
  noteMine(heardAt);
  step(mine.own_state ?? "free");
  // The link still leads to the order that was there: a success does not just go away.
  if (isOver) step("over", say.note.over);
}

/** Keep what an answer means for later: where the order is, the spent token, the place, the pace. */
function noteMine(heardAt) {
  if (!mine) return;
  if (mine.order_id) spent.add(mine.order_id);
  if (mine.status_url) link.href = mine.status_url;
  queue.heard({ place: mine.place, atMs: heardAt });
  const queuePaceMs = queue.paceMs(mine.poll_after_ms);
  mineCall.plan(minePollMs({ mine, payLeftMs: payLeftMs(), queuePaceMs, random: Math.random() }));
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

const onTheWay = (event) => step(event, event === "unknown" ? say.note.asking : "");

function answered(event, answer) {
  if (event === "accepted") return goToReceipt(answer.body.status_url);
  if (event === "already_ordered") return askWhich(answer.body.order_id);
  if (event === "unreachable") return step("missing", say.note.unreachable);
  if (event === "missing" || event === "login_required") return step(event);
  return refused(event === "bad_token" ? { code: event } : answer.body);
}

function goToReceipt(url) {
  step("accepted");
  spent.add(orderIdOf(ticket.token));
  keptTokens.keep(ticket.token);
  tabs.tell();
  link.href = url;
  mineCall.plan(LATER_MS); // should the buyer stop the way there
  location.assign(url);
}

/** Another tab or device was faster: which order it is, and what is to be done, says mine/. */
function askWhich(orderId) {
  link.href = `${urls.place}${orderId}/`;
  step("already_ordered");
  mineCall.ask();
}

function refused(answer) {
  const { code } = answer;
  const { figures } = live;
  const known = ["sold_out", "paused", "ended"].includes(code);
  const remaining = code === "sold_out" ? 0 : figures.remaining;
  if (known) live.figures = { ...figures, state: code, remaining };
  const { lang } = document.documentElement;
  const why = whySoldOut(answer, { say: say.why, lang, timeZone: page.dataset.timeZone });
  step("refused", known ? why : (say.note[code] ?? say.note.failed));
  if (code === "not_started") live.measure();
}

// --- Begin ---------------------------------------------------------------------------------------

const PRESSES = { buy, signIn: () => location.assign(urls.login) };

element("order-form")?.addEventListener("submit", (event) => {
  event.preventDefault();
  PRESSES[STATES[stateNow()].press]?.();
});

/** Somebody looks at the page again: what it shows may be old, or of somebody else. */
function seenAgain() {
  tick();
  live.wake();
  mineCall.ask();
}

document.addEventListener("visibilitychange", () => {
  if (!document.hidden) return seenAgain();
  live.rest();
  return mineCall.rest();
});
window.addEventListener("pageshow", ({ persisted }) => {
  // The way back may show a copy that the browser has kept, even of before the sign-in.
  const [navigation] = performance.getEntriesByType("navigation");
  if (persisted || navigation?.type === "back_forward") seenAgain();
});

button.disabled = false;
noteMine(performance.now());
tick();
live.wake();
