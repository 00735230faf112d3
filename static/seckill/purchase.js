// The purchase page: the countdown by the server's clock, the button, and the buyer's own orders.

import { canBeSent, showAccount } from "./account.js";
import { announce } from "./announce.js";
import { order } from "./buying.js";
import { BuyerStatusPoller } from "./buyer_status.js";
import { fill, isFinal, leftText, milestone, shortLeftText, stockText, tickMs } from "./clock.js";
import { Connection, Rest } from "./connection.js";
import { Live } from "./live.js";
import { askPage } from "./pages.js";
import { STATES, meDelayMs, mePollMs, move, roomDelayMs, shownState } from "./purchase_states.js";
import { Queue } from "./queue.js";
import { Tabs } from "./tabs.js";
import { changesText, isAtPrice, LEAST_MS, takeOver, termsOf, turnMs } from "./terms.js";
import { keptRefusal, keptTokens, needsWork, orderIdOf, worked } from "./tickets.js";
import { whySoldOut } from "./why.js";
import { readJson } from "./wire.js";

const LATER_MS = 3000;
const ROOM_LEAD_MS = 600_000 * Math.random(); // drawn once: a crowd comes evenly in ten minutes, as the page says

const element = (id) => document.getElementById(id);
const page = element("main");
const button = element("buy");
const link = element("order-link");
const texts = readJson("sentences");
const urls = readJson("urls");
const ticket = { token: "", attempt: 0 };
const queue = new Queue();
const { title } = document;
const isFromRoom = document.referrer.endsWith(urls.room);
let helper = null; // refusal.js, once a rule refuses the buyer
let helperLoads = null;
let quantity = null; // quantity.js, where a press may take several
let renewHead = null; // of head.js, where orders are chained
const spent = new Set(); // ids of orders that exist: their tokens buy nothing more

let visitor = false; // until me/ has answered, the page takes everybody for a buyer
let mine = null; // what the buyer has of the sale
let own = null;
let refusal = keptRefusal.of(page.dataset.sale); // the last one, also from before a reload
let note = { state: null, text: "" }; // replaces the text of that state while it lasts
let reading = { end: null, leftMs: 0, payMs: 0 }; // the last clock readings, to notice milestones
let buying = false;
let awakeMs = Date.now() - performance.now();
let ticker;
let seenTerms = termsOf(page); // as the buyer saw them first, or pressed the button
let renewal; // the timer of this page's turn to ask for a newer one

const rest = new Rest(); // between the tries of an order
const connection = new Connection({
  element: element("connection"),
  texts,
  onBack: () => rest.end(),
});
const live = new Live({
  url: urls.live,
  onStatus: (status) => connection.heard(status),
  figures: figuresOf(page.dataset),
  buttonState: stateNow,
  onAnswer: onLive,
});
const statusPoller = new BuyerStatusPoller(urls.me, onMe);
const tabs = new Tabs(page.dataset.sale, () => statusPoller.poll());

/** The sale as the page shows it, until live/ answers. */
function figuresOf({ saleState: state, beginsAtMs, endsAtMs, total, remaining, entries = "" }) {
  const times = { begins_at_ms: Number(beginsAtMs), ends_at_ms: Number(endsAtMs) };
  const left = remaining === "" ? null : Number(remaining);
  const entered = entries === "" ? null : Number(entries);
  return { state, ...times, total: Number(total), remaining: left, entries: entered };
}

function stateNow() {
  const { state: sale } = live;
  return shownState({ own, sale, visitor, visitorStates: texts.visitor_states, isLimited: limitLeftMs() > 0 });
}

const isOwnRefusal = () => Boolean(mine) && refusal?.buyer_id === mine.buyer_id;
const limitLeftMs = () => (isOwnRefusal() && refusal.until_ms ? refusal.until_ms - live.clock.now() : 0);
const payLeftMs = () => (mine?.pay_by_ms ?? Infinity) - live.clock.now();

// --- What is shown -------------------------------------------------------------------------------

function tick() {
  const state = stateNow();
  showCountdown();
  showOrder(state);
  showButton(state);
  showStock(live.figures);
  connection.show({ isToldElsewhere: buying });
  noticeSleep();
  clearTimeout(ticker);
  ticker = setTimeout(tick, Math.min(tickMs(reading.leftMs), tickMs(reading.payMs)));
}

function showCountdown() {
  const end = live.state === "scheduled" ? "begin" : "end";
  const leftMs = end === "begin" ? live.leftToBeginMs : live.leftToEndMs;
  const isOn = live.state !== "ended" && live.clock.known;
  page.dataset.final = isOn && isFinal(leftMs) ? end : "";
  element("countdown").hidden = live.state === "ended";
  setText(element("countdown-label"), texts.clock[end]);
  setText(element("countdown-left"), leftText(leftMs, texts.clock.days));
  announce(reading.end === end ? texts[end][milestone(reading.leftMs, leftMs)] : "");
  reading = { ...reading, end: live.clock.known ? end : null, leftMs };
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
  showHoldings();
  showLine();
  helper?.showHelp(state === "not_eligible" && mine ? mine : takesCode() ? { rule: "code" } : {}, { texts, urls });
}

/** Load what a press for several needs: most sales give one. */
async function loadQuantity() {
  const { Quantity } = await import("./quantity.js");
  quantity = new Quantity({ page, onChange: tick });
  tick();
}

/** Whether another invitation code would let the buyer take another voucher. */
function takesCode() {
  if (!element("quantity-codes") || !mine?.may_buy || mine.rule || own !== null) return false;
  return (mine.most ?? 1) < mine.limit - mine.holds && ["open", "scheduled"].includes(live.state);
}

function showQuantity(state) {
  quantity?.show({ state, mine });
  if (element("quantity-codes")) element("quantity-codes").hidden = !takesCode();
}

function showHoldings() {
  if (mine) setText(element("holds"), fill(texts.holds, mine));
  element("holds").hidden = !(mine?.may_buy && mine.holds);
}

/** Show the way to the waiting list: without Django's token for forms it leads over the form page. */
function showLine() {
  const join = element("line-join");
  const maySend = canBeSent(join) && ticket.token !== "" && !needsWork(ticket.token);
  element("line-sign-in").hidden = !visitor;
  element("line-place").hidden = !mine?.waits;
  element("line-form").hidden = !mine || mine.waits || maySend;
  join.elements.token.value = ticket.token;
  join.hidden = !mine || mine.waits || !maySend;
}

function showButton(state) {
  const { press } = STATES[state];
  showQuantity(state);
  const hadFocus = document.activeElement === button;
  page.dataset.state = state;
  page.dataset.saleState = live.state;
  const label = labelOf(state);
  setText(element("buy-label"), label);
  const beside = besideLabel(state);
  setText(element("buy-left"), beside);
  element("buy-left").hidden = !beside;
  // Not `disabled`: that would take the focus away from a buyer waiting on the button.
  button.setAttribute("aria-disabled", String(press === null));
  button.hidden = state === "yours" || !label || (visitor && press === "signIn");
  element("sign-in").hidden = !button.hidden || press !== "signIn";
  if (hadFocus && button.hidden) focusBeside();
  if (note.state !== state) note = { state: null, text: "" };
  setText(element("status"), note.text || refusalText(state) || reasonText(state) || statusText(state));
  document.title = isFromRoom && state === "open" ? `${texts.your_turn} · ${title}` : title;
}

/** Load what helps with a rule: most buyers never need it. */
async function loadHelper() {
  helper = await import("./refusal.js");
  helper.listenForCode({ texts: texts.code, onDone: () => statusPoller.poll() });
  tick();
}

/** The button is gone: go on at what stands in its place, or at the reason. */
function focusBeside() {
  const places = ["sign-in", "order-link", "help", "code"].map(element);
  (places.find((it) => it.getClientRects().length) ?? element("status")).focus();
}

function statusText(state) {
  const isGone = state === "paused" && live.figures.remaining === 0;
  return texts.status[isGone ? "paused_sold_out" : state];
}

/** Why the buyer was refused, while that still holds: also after a reload. */
function refusalText(state) {
  if (!isOwnRefusal() || own !== null) return "";
  if (refusal.code === "over") return refusal.state === state ? texts.note.over : "";
  if (state === "limited") return texts.note[refusal.code] ?? "";
  if (refusal.code !== state) return "";
  const { lang } = document.documentElement;
  return whySoldOut(refusal, { texts: texts.why, lang, timeZone: page.dataset.timeZone });
}

function keepRefusal(answer) {
  refusal = answer && { ...answer, buyer_id: mine?.buyer_id };
  if (refusal) keptRefusal.keep(page.dataset.sale, refusal);
  else keptRefusal.drop(page.dataset.sale);
}

function labelOf(state) {
  if (state === "not_eligible") return mine && helper ? helper.eligibleText(mine, rules()) : "";
  if (state === "open" && quantity?.number > 1) return quantity.fill(quantity.texts.buy);
  return state === "scheduled" ? texts.button.countdown : texts.button[state];
}

/** The rule that refuses the buyer, in words. */
const reasonText = (state) => (state === "not_eligible" && mine && helper ? helper.ruleText(mine, rules()) : "");

function rules() {
  const { lang } = document.documentElement;
  return { texts, endsAtMs: live.figures.ends_at_ms, lang, timeZone: page.dataset.timeZone };
}

/** Text that changes all the time stands beside the label, where no screen reader reads it out. */
function besideLabel(state) {
  if (state === "scheduled") return element("countdown-left").textContent;
  if (state === "limited") return shortLeftText(limitLeftMs(), texts.clock.days);
  return state === "queued" ? queue.text(texts.queue, "number") : "";
}

function showStock(figures) {
  const { remaining, total } = figures;
  page.toggleAttribute("data-gone", remaining === 0);
  const meter = element("stock");
  meter.hidden = remaining === null || "draw" in page.dataset;
  meter.max = total;
  meter.value = total - (remaining ?? total);
  setText(element("stock-words"), stockText(figures, texts));
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

// --- Terms that have changed ---------------------------------------------------------------------

function onLive() {
  tick();
  renewHead?.();
  if (renewal || !isOutdated()) return;
  renewal = setTimeout(renewInTurn, turnMs({ paceMs: live.figures.me_pace_ms, random: Math.random() }));
}

/** The shop says that there is a newer page, or gives tokens at another price than this one's. */
function isOutdated() {
  const { revision } = live.figures;
  return Boolean(revision && revision !== page.dataset.revision) || !isAgreed(mine?.token ?? "");
}

const isAgreed = (token) => isAtPrice(token, page.dataset.priceCents);

/** One server may have been late: ask only if the last answer still says so. */
function renewInTurn() {
  renewal = undefined;
  if (isOutdated() && !document.hidden && !buying) renew();
}

/** Take over what has changed in the newer page, and say what that is. */
async function renew() {
  const newer = (await askPage(location.pathname))?.getElementById("main");
  if (!newer?.dataset.revision || buying) return false;
  const isNewer = newer.dataset.revision !== page.dataset.revision;
  takeOver(page, newer);
  const changes = changesText(seenTerms, termsOf(page), texts.changed);
  if (isNewer || changes) tellChanges(changes);
  // For a token at this price, and the rules for this buyer.
  if (mine && (isNewer || !isAgreed(mine.token))) statusPoller.poll();
  return isNewer;
}

function tellChanges(text) {
  element("changed").hidden = !text; // before the text, which is read out
  setText(element("changed"), text);
}

// --- Who is there, and what they have ------------------------------------------------------------

function onMe({ status, body, receivedAt, retryAfterMs }) {
  connection.heard(status);
  if (buying) return statusPoller.schedule(LATER_MS); // the running request will tell more
  if (status === 404) return undefined;
  if (status !== 200) return statusPoller.schedule(Math.max(LATER_MS, retryAfterMs));
  showAccount(body);
  live.clock.addSample(body.server_time_ms, receivedAt);
  if (!body.signed_in) return takeVisitor();
  const isSomebodyElse = mine && mine.buyer_id !== body.sale.buyer_id;
  return isSomebodyElse || own === "sign_in" ? location.reload() : takeBuyer(body.sale, receivedAt);
}

/** Nobody is signed in: a visitor, or a buyer who was signed out since. */
function takeVisitor() {
  if (own === "sign_in") return undefined;
  if (mine) return step("login_required", texts.note.signed_out);
  visitor = true;
  return step("free");
}

/** Return when a buyer in line goes to the page of the waiting room: long before the start, later. */
function toRoomMs(now) {
  if (!now.room || now.order_id) return null;
  return roomDelayMs({ sale: live.state, leftToBeginMs: live.leftToBeginMs, leadMs: ROOM_LEAD_MS });
}

function takeBuyer(now, receivedAt) {
  if (visitor) return location.reload(); // signed in since: begin again
  if (toRoomMs(now) === 0) return location.replace(urls.room);
  const isOver = mine?.order_id && !now.order_id;
  mine = now;
  if ((mine.rule || takesCode()) && !helperLoads) helperLoads = loadHelper();
  useMine(receivedAt);
  step(mine.own_state ?? "free");
  // The link still leads to the old order: a success does not just disappear.
  if (isOver) keepRefusal({ code: "over", state: stateNow(), url: link.getAttribute("href") });
  if (mine.order_id) keepRefusal(null);
  else if (refusal?.code === "over" && refusal.buyer_id === mine.buyer_id) link.href = refusal.url;
  tick();
  return undefined;
}

/** Take over what the buyer has: the link to the order, the tokens, the place, the pace. */
function useMine(receivedAt) {
  if (mine.order_id) spent.add(mine.order_id);
  if (mine.status_url) link.href = mine.status_url;
  const isForOne = mine.most > 1 && !ticket.isForSeveral && !ticket.attempt; // from before the limit was raised
  if (!ticket.token || isSpent() || !isAgreed(ticket.token) || isForOne) {
    Object.assign(ticket, { token: mine.token, attempt: 0, isForSeveral: mine.most > 1 });
    work(mine.token);
  }
  queue.addSample({ place: mine.place, atMs: receivedAt });
  const queuePaceMs = queue.paceMs(mine.poll_after_ms);
  const pollMs = mePollMs({ own: mine, payLeftMs: payLeftMs(), queuePaceMs, nowMs: live.clock.now(), random: Math.random() });
  statusPoller.schedule(toRoomMs(mine) ?? pollMs);
}

/** Do the work of a token while the buyer waits. */
async function work(token) {
  const text = await worked(token);
  if (ticket.token !== token) return;
  ticket.token = text;
  tick();
}

const isSpent = () => spent.has(orderIdOf(ticket.token));

/** Ask me/ in this page's turn. */
function askMe() {
  const { state: sale, leftToBeginMs, figures } = live;
  const paceMs = figures.me_pace_ms ?? 0;
  statusPoller.schedule(meDelayMs({ sale, leftToBeginMs, paceMs, random: Math.random() }));
}

// --- Buying --------------------------------------------------------------------------------------

async function buy() {
  buying = true;
  keepRefusal(null);
  seenTerms = termsOf(page);
  tellChanges("");
  step("press");
  if (isSpent()) ticket.token = "";
  Object.assign(ticket, { quantity: quantity?.number ?? 1, allOrNone: Boolean(quantity?.allOrNone) });
  const { event, answer } = await order({ ticket, urls, step, rest, isAgreed });
  buying = false;
  answered(event, answer);
}

function answered(event, answer) {
  if (event === "accepted") return goToReceipt(answer.body.status_url);
  if (event === "already_ordered") return askWhich(answer.body.order_id);
  if (event === "waiting_room") return location.replace(urls.room);
  if (event === "not_eligible") return checkRule(event);
  if (event === "login_required") return step(event);
  return refused(event === "bad_token" ? { code: event } : answer.body, answer.retryAfterMs);
}

function goToReceipt(url) {
  step("accepted");
  spent.add(orderIdOf(ticket.token));
  keptTokens.keep(ticket.token);
  tabs.notify();
  link.href = url;
  statusPoller.schedule(LATER_MS); // if the buyer stops the navigation
  const several = `?wanted=${ticket.quantity}${ticket.allOrNone ? "&all" : ""}`; // the receipt says how many there were
  quantity?.reset();
  location.assign(`${url}${ticket.quantity > 1 ? several : ""}`);
}

/** Another tab or device was faster: ask me/ which order there is. */
function askWhich(orderId) {
  link.href = `${urls.place}${orderId}/`;
  step("already_ordered");
  statusPoller.poll();
}

/** A rule refuses the buyer since: ask me/ which. */
function checkRule(event) {
  step(event);
  statusPoller.poll();
}

/** Nothing was bought: show the price as it is now, and the button again. */
function onOtherPrice({ message = texts.changed.price_unknown }) {
  ticket.token = "";
  step("refused");
  tellChanges(message);
  statusPoller.poll();
  // A server that still had the old page has the new one by then.
  renew().then((isNewer) => isNewer || setTimeout(renew, LEAST_MS));
}

/** Offer the waiting list to a buyer who wants more than are left. */
function onTooFew(answer) {
  page.dataset.few = "";
  element("line-quantity").value = quantity.number;
  element("line-choice").value = "1";
  step("refused", fill(texts.note.too_few, answer));
}

function refused(answer, retryAfterMs = 0) {
  const { code } = answer;
  if (code === "price_changed") return onOtherPrice(answer);
  if (code === "too_few") return onTooFew(answer);
  const { figures } = live;
  const known = ["sold_out", "paused", "ended"].includes(code);
  const remaining = code === "sold_out" ? 0 : figures.remaining;
  if (known) live.figures = { ...figures, state: code, remaining };
  if (code === "sold_out") keepRefusal(answer);
  if (retryAfterMs) keepRefusal({ code, until_ms: live.clock.now() + retryAfterMs });
  if (known || retryAfterMs) return step("refused");
  if (code !== "not_started") return step("outdated", code === "bad_token" ? "" : texts.note.failed);
  step("refused", texts.note.not_started);
  return live.measure();
}

// --- Start ---------------------------------------------------------------------------------------

const PRESSES = {
  buy,
  signIn: () => location.assign(urls.login),
  reload: () => location.reload(),
};

button.addEventListener("click", () => PRESSES[STATES[stateNow()].press]?.());

/** The page is visible again: it may be out of date, or another user's. */
function seenAgain() {
  tick();
  rest.end();
  live.wake();
  askMe();
}

window.addEventListener("online", seenAgain);
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
if (element("quantity")) loadQuantity();
if (element("head")) import("./head.js").then((it) => (renewHead = it.renewHead));
tick();
element("plain-way").hidden = true;
live.ask().then(() => {
  askMe(); // at the pace that live/ names
  if (live.state === "scheduled") live.wake();
  else live.schedule();
});
