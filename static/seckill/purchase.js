// The purchase page: the countdown by the server's clock, and the button.

import { ServerClock, fill, leftText, milestone, tickMs } from "./clock.js";
import { STATES, judge, judgeReceipt, move, pollMs, saleState, shownState } from "./purchase_states.js";
import { ask, backoffMs, keptTokens, orderIdOf, pause, place, readJson } from "./wire.js";

const TRIES = 5;
const SAMPLES = 5;
const NO_TOKEN = { status: 403, body: { code: "bad_token" } }; // what the shop would answer

const element = (id) => document.getElementById(id);
const page = element("main");
const button = element("buy");
const say = readJson("sentences");
const urls = readJson("urls");
const visitor = "visitor" in page.dataset;
const clock = new ServerClock();
const ticket = { token: element("token")?.value ?? "", attempt: 0 };

let live = readJson("live") ?? liveOfPage(page.dataset);
let own = "held" in page.dataset ? "already_ordered" : null;
let note = { state: null, text: "" }; // stands in for that state's own sentence until it changes
let reading = { end: null, leftMs: 0 }; // the countdown as last seen, to notice milestones
let awakeMs = Date.now() - performance.now();
let ticker, poller;

/** The sale by its row alone, as long as live/ has no answer: its first buyer loads it. */
function liveOfPage({ saleState: state, beginsAtMs, endsAtMs, total }) {
  const times = { begins_at_ms: Number(beginsAtMs), ends_at_ms: Number(endsAtMs) };
  return { state, ...times, total: Number(total), remaining: null, unloaded: true };
}

// --- What is shown -------------------------------------------------------------------------------

const saleNow = () => saleState(live, clock.now());
const stateNow = () => shownState({ own, sale: saleNow(), visitor });

function tick() {
  showCountdown(saleNow());
  showButton(stateNow());
  showStock();
  noticeSleep();
  clearTimeout(ticker);
  ticker = setTimeout(tick, tickMs(reading.leftMs));
}

function showCountdown(sale) {
  const end = sale === "scheduled" ? "begin" : "end";
  const leftMs = (end === "begin" ? live.begins_at_ms : live.ends_at_ms) - clock.now();
  const text = leftText(leftMs, say.clock.days);
  element("countdown").hidden = sale === "ended";
  setText(element("countdown-label"), say.clock[end]);
  setText(element("countdown-left"), text);
  setText(element("buy-left"), text);
  announce(reading.end === end ? say[end][milestone(reading.leftMs, leftMs)] : "");
  reading = { end, leftMs };
}

function showButton(state) {
  const { press } = STATES[state];
  page.dataset.state = state;
  page.dataset.saleState = saleNow();
  setText(element("buy-label"), state === "scheduled" ? say.button.countdown : say.button[state]);
  element("buy-left").hidden = state !== "scheduled";
  // Not `disabled`: that would take the focus away from whoever waits on the button.
  button.setAttribute("aria-disabled", String(press === null || visitor));
  if (visitor) {
    button.hidden = press === "signIn";
    element("sign-in").hidden = press !== "signIn";
  }
  element("order-link").hidden = !(state === "already_ordered" && element("order-link").href);
  setText(element("status"), note.state === state ? note.text : say.status[state]);
}

function showStock() {
  const known = live.remaining !== null;
  const meter = element("stock");
  meter.hidden = !known;
  meter.max = live.total;
  meter.value = live.remaining ?? 0;
  setText(element("stock-words"), fill(known ? say.stock : say.stock_unknown, live));
}

/** For screen readers alone, because to the eye the clock says it; "" takes back what is over. */
function announce(text) {
  if (text !== undefined) setText(element("announcement"), text);
}

/** Only a change is written: a status line that is written again is read out again. */
function setText(target, text) {
  if (target.textContent !== text) target.textContent = text;
}

// --- The server's clock and the sale's state -----------------------------------------------------

async function askLive() {
  const answer = await ask(urls.live, { timeoutMs: 3000 });
  if (answer.status !== 200) return null;
  const { heardAt } = answer;
  if (live.unloaded) clock.startAt(answer.body.server_time_ms, heardAt);
  else clock.hear(answer.body.server_time_ms, heardAt);
  if (!(answer.body.server_time_ms < live.server_time_ms)) live = answer.body;
  tick();
  return { serverMs: answer.body.server_time_ms, heardAt };
}

/** Several samples, a little apart so that not all of them come from one cached answer. */
async function measure() {
  const fresh = new ServerClock();
  for (let k = 0; k < SAMPLES && !document.hidden; k += 1) {
    const sample = await askLive();
    if (sample) fresh.hear(sample.serverMs, sample.heardAt);
    await pause(150 + 150 * Math.random());
  }
  clock.replaceBy(fresh);
  tick();
}

async function poll() {
  clearTimeout(poller);
  const early = saleNow() === "scheduled" && live.begins_at_ms - clock.now() > 6000;
  await (early ? measure() : askLive());
  planPoll();
}

function planPoll() {
  clearTimeout(poller);
  const leftToBeginMs = live.begins_at_ms - clock.now();
  const sale = saleNow();
  const wait = pollMs({ state: stateNow(), sale, leftToBeginMs, random: Math.random() });
  if (wait !== null && !document.hidden) poller = setTimeout(poll, wait);
}

function wake() {
  tick();
  if (STATES[stateNow()].polls) poll();
}

/** A machine that slept may have stopped performance.now(): the two clocks have then parted. */
function noticeSleep() {
  const nowMs = Date.now() - performance.now();
  if (Math.abs(nowMs - awakeMs) < 1000) return;
  awakeMs = nowMs;
  wake();
}

// --- Buying --------------------------------------------------------------------------------------

function step(event, text = "") {
  own = move(own, event);
  note = { state: text ? stateNow() : null, text };
  tick();
  planPoll();
}

async function buy() {
  step("press");
  const { event, answer } = await send();
  if (event === "accepted") goToReceipt(answer.body.status_url);
  else if (event === "unknown") await askForReceipt();
  else if (event === "already_ordered") showOrder(answer.body.order_id);
  else if (event === "login_required") step(event);
  else refused(event === "bad_token" ? event : answer.body.code);
}

/** Send the order until there is an answer; every try carries the same token. */
async function send() {
  let renewed = false;
  for (let tries = 1; tries <= TRIES; ) {
    const answer = ticket.token ? await place(urls.place, ticket) : NO_TOKEN;
    let event = judge(answer.status, answer.body.code);
    if (event === "bad_token" && !renewed) {
      event = await renewToken();
      renewed = event === "renewed";
    }
    if (event === "renewed") continue;
    if (event !== "busy") return { event, answer };
    step("busy");
    if (tries < TRIES) await pause(Math.max(backoffMs(tries), answer.retryAfterMs ?? 0));
    tries += 1;
  }
  return { event: "unknown" };
}

async function renewToken() {
  const answer = await ask(urls.token);
  if (answer.status !== 200) {
    const event = judge(answer.status, answer.body.code);
    return event === "refused" ? "bad_token" : event;
  }
  ticket.token = answer.body.token;
  ticket.attempt = 0;
  return "renewed";
}

/** The outcome is unknown: whether there is an order says the receipt of the token's order id. */
async function askForReceipt() {
  step("unknown");
  const url = receiptUrl(orderIdOf(ticket.token));
  for (let tries = 1; tries <= TRIES; tries += 1) {
    const answer = await ask(url, { headers: { "Purchase-Token": ticket.token } });
    const event = judgeReceipt(answer.status, answer.body);
    if (event === "accepted") return goToReceipt(url);
    if (event === "missing") return step(event, say.note.missing);
    if (event === "login_required") return step(event);
    await pause(Math.max(backoffMs(tries), answer.retryAfterMs));
  }
  return step("missing", say.note.unreachable);
}

const receiptUrl = (orderId) => `${urls.place}${orderId}/`;

function goToReceipt(url) {
  step("accepted");
  keptTokens.keep(ticket.token);
  location.assign(url);
}

function showOrder(orderId) {
  if (orderId) element("order-link").href = receiptUrl(orderId);
  step("already_ordered");
}

function refused(code) {
  const known = ["sold_out", "paused", "ended"].includes(code);
  if (known) live = { ...live, state: code, remaining: code === "sold_out" ? 0 : live.remaining };
  step("refused", known ? "" : say.note[code] ?? say.note.failed);
  if (code === "not_started") measure();
}

// --- Begin ---------------------------------------------------------------------------------------

const PRESSES = { buy, signIn: () => location.assign(urls.login) };

element("order-form")?.addEventListener("submit", (event) => {
  event.preventDefault();
  PRESSES[STATES[stateNow()].press]?.();
});
document.addEventListener("visibilitychange", () => (document.hidden ? clearTimeout(poller) : wake()));
window.addEventListener("pageshow", ({ persisted }) => {
  if (!persisted) return;
  // Back from the receipt the token is spent, and back from the sign-in the page is a visitor's.
  if (own === null && !visitor) wake();
  else location.reload();
});

button.disabled = false;
// The page itself is the first sample: late by its way here, which is on the careful side.
clock.startAt(Number(page.dataset.serverTimeMs), performance.now());
wake();
