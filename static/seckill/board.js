// The board of a sale: asks for its figures every 2 s while it is visible, and shows them.
// The server writes every text; this script only places them.

import { drawTimes } from "./charts.js";
import { ServerClock, fill, leftText, tickMs } from "./clock.js";
import { still } from "./office.js";
import { ask, readJson } from "./wire.js";

const PACE_MS = 2000;
const KEPT_S = 600; // the time span of the chart of units left
const GAP_S = 10; // a gap this long breaks its line

const board = document.getElementById("board");
const sentences = readJson("sentences");
const locale = document.documentElement.lang;
const clock = new ServerClock();
const points = keptPoints();
let shown = null; // the figures on the page
let stale = false;
let asking = false;
let verdict = ""; // the latest
let ticker, poller, charts;

// --- Figures ---------------------------------------------------------------------------------------

const find = (selector) => board.querySelector(selector);
const time = (ms) =>
  new Intl.DateTimeFormat(locale, { timeStyle: "medium", timeZone: sentences.time_zone }).format(ms);

function write(element, text) {
  if (element && element.textContent !== text) element.textContent = text;
}

function show(data) {
  for (const [name, text] of Object.entries(data.texts)) {
    write(find(`[data-text="${name}"]`), text);
    find(`[data-label="${name}"]`)?.setAttribute("aria-label", text);
  }
  for (const number of board.querySelectorAll("[data-length]")) {
    number.dataset.length = number.textContent.length;
  }
  for (const { status, count } of data.statuses) write(find(`[data-status="${status}"]`), count);
  showState(data);
  showVerdict(data.verdict);
  data.refusals.forEach(showRefusal);
  showHistory(data.history);
  showLimited(data.limited);
  for (const action of board.querySelectorAll("[data-action]")) {
    action.hidden = !data.actions.includes(action.dataset.action);
  }
  showCharts(data);
}

function showState({ state, alert }) {
  const [badge, notice] = [find("[data-state]"), find("[data-alert]")];
  if (shown && shown.state.text !== state.text) announce(fill(sentences.state, { state: state.text }));
  if (shown && shown.alert.code !== alert.code && alert.code) announce(alert.text);
  badge.dataset.state = state.code;
  write(badge, state.text);
  find("[data-over]").hidden = state.code !== "ended";
  notice.dataset.alert = alert.code;
  notice.hidden = !alert.code;
  write(notice, alert.text);
}

/** A difference counts only if it lasts: units may be moving between two polls. */
function showVerdict({ code, text }) {
  const lasting = code !== "off" || verdict === "off";
  verdict = code;
  const place = find("[data-verdict]");
  place.dataset.verdict = lasting ? code : "in_flight";
  write(place, lasting ? text : sentences.checking);
}

function showRefusal({ answer, lately, ever, percent }) {
  const row = find(`[data-answer="${answer}"]`);
  write(row.querySelector("[data-lately]"), lately);
  write(row.querySelector("[data-ever]"), ever);
  row.querySelector("progress").value = percent;
}

function showHistory(history) {
  if (!history.length || JSON.stringify(history) === JSON.stringify(shown?.history)) return;
  const rows = history.map(({ at, by, what }) => {
    const row = document.createElement("tr");
    for (const text of [at, by, what]) row.insertCell().textContent = text;
    row.lastElementChild.className = "board__text";
    return row;
  });
  find("[data-history]").replaceChildren(...rows);
}

function showLimited(limited) {
  const place = find("[data-limited]");
  if (!place || JSON.stringify(limited) === JSON.stringify(shown?.limited)) return;
  const rows = limited.map((texts) => {
    const row = document.createElement("tr");
    for (const text of texts) {
      const cell = row.insertCell();
      cell.textContent = text;
      cell.className = "board__text";
    }
    return row;
  });
  place.replaceChildren(...rows);
}

/** Announce changes to screen readers, but never the figures themselves. */
const announce = (text) => write(find("[data-says]"), text);

// --- Charts ----------------------------------------------------------------------------------------

function showCharts({ chart, left, texts, now_ms: nowMs }) {
  remember(Math.floor(nowMs / 1000), left);
  const pace = chart && {
    times: chart.requests.map((_, i) => chart.first_s + i),
    series: [{ values: chart.requests }, { values: chart.accepted }],
    summary: chart.summary,
  };
  const rest = {
    times: points.map(([s]) => s),
    series: [{ values: points.map(([, value]) => value) }],
    summary: leftOverTime(texts),
  };
  charts ??= drawCharts();
  if (pace) charts.pace.update(pace);
  charts.left.update(rest);
}

function drawCharts() {
  const common = { times: [], height: 200, locale, timeZone: sentences.time_zone, words: { time: sentences.time } };
  const requests = { label: sentences.requests, values: [], kind: "bars", color: "--chart-1" };
  const accepted = { label: sentences.accepted, values: [], kind: "line", color: "--chart-2" };
  const left = { label: sentences.left, values: [], kind: "line", color: "--chart-2" };
  return {
    pace: drawTimes(document.getElementById("pace"), {
      ...common, series: [requests, accepted], unit: sentences.per_second, summary: "",
    }),
    left: drawTimes(document.getElementById("left"), {
      ...common, series: [left], unit: sentences.units, whole: true, summary: "",
    }),
  };
}

function leftOverTime(texts) {
  const known = points.filter(([, value]) => value !== null);
  if (!known.length) return texts.left_label;
  const [s, first] = known[0];
  return fill(sentences.left_over_time, { first, since: time(s * 1000), last: known.at(-1)[1] });
}

function remember(s, left) {
  const last = points.at(-1)?.[0] ?? s;
  if (s <= last && points.length) return;
  if (s - last > GAP_S) points.push([last + 1, null]);
  points.push([s, left]);
  while (points[0][0] < s - KEPT_S) points.shift();
  stored((storage) => storage.setItem(storageKey(), JSON.stringify(points)));
}

/** Restore the line after an action has led back here, if the browser allows storage. */
function keptPoints() {
  return stored((storage) => JSON.parse(storage.getItem(storageKey()))) ?? [];
}

function storageKey() {
  return `seckill-board-${board.dataset.sale}`;
}

function stored(action) {
  try {
    return action(sessionStorage);
  } catch {
    return null;
  }
}

// --- The clock -------------------------------------------------------------------------------------

function tick() {
  const now = clock.now();
  const end = now < shown.begins_at_ms ? "begin" : "end";
  const leftMs = (end === "begin" ? shown.begins_at_ms : shown.ends_at_ms) - now;
  write(find("[data-clock]"), leftMs > 0 ? `${sentences.clock[end]} ${leftText(leftMs, sentences.clock.days)}` : "");
  clearTimeout(ticker);
  ticker = setTimeout(tick, tickMs(leftMs));
}

// --- Asking ----------------------------------------------------------------------------------------

async function poll() {
  clearTimeout(poller);
  if (document.hidden || asking) return;
  asking = true;
  const answer = await ask(board.dataset.url);
  asking = false;
  const isFresh = answer.status === 200 && answer.body.now_ms;
  still(() => (isFresh ? onAnswer(answer.body, answer.receivedAt) : onNoAnswer(answer.status)));
  if (!document.hidden) poller = setTimeout(poll, PACE_MS);
}

function onAnswer(data, receivedAt) {
  clock.addSample(data.now_ms, receivedAt);
  if (stale) announce(sentences.fresh); // before news of the sale, which matter more
  stale = false;
  show(data);
  shown = data;
  find("[data-stale]").hidden = true;
  board.classList.remove("board--stale");
  tick();
}

/** Keep the figures and sentences how old they are. A sign-in page is not JSON. */
function onNoAnswer(status) {
  const sentence = status === 200 || status === 403 ? sentences.signed_out : sentences.stale;
  const text = fill(sentence, { time: time(shown.now_ms) });
  if (!stale) announce(text);
  stale = true;
  write(find("[data-stale]"), text);
  find("[data-stale]").hidden = false;
  board.classList.add("board--stale");
}

for (const note of board.querySelectorAll("noscript")) note.remove();
onAnswer(readJson("board-data"), performance.now());
poller = setTimeout(poll, PACE_MS);
document.addEventListener("visibilitychange", () => (document.hidden ? clearTimeout(poller) : poll()));
window.addEventListener("pageshow", ({ persisted }) => persisted && poll());
