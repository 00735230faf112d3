// The board of a sale: asks for its figures every 2 s while somebody sees it, and shows them.
// The server writes every text of them; here they only find their places.

import { drawTimes } from "./charts.js";
import { ServerClock, fill, leftText, tickMs } from "./clock.js";
import { ask, readJson } from "./wire.js";

const PACE_MS = 2000;
const KEPT_S = 600; // so long the chart of what is left looks back
const GAP_S = 10; // after so long without figures its line is broken

const board = document.getElementById("board");
const say = readJson("sentences");
const locale = document.documentElement.lang;
const clock = new ServerClock();
const points = keptPoints();
let shown = null; // the figures on the page
let stale = false;
let asking = false;
let verdict = ""; // the last one heard
let ticker, poller, charts;

// --- Figures ---------------------------------------------------------------------------------------

const find = (selector) => board.querySelector(selector);
const time = (ms) =>
  new Intl.DateTimeFormat(locale, { timeStyle: "medium", timeZone: say.time_zone }).format(ms);

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
  for (const action of board.querySelectorAll("[data-action]")) {
    action.hidden = !data.actions.includes(action.dataset.action);
  }
  showCharts(data);
}

function showState({ state, alert }) {
  const [badge, notice] = [find("[data-state]"), find("[data-alert]")];
  if (shown && shown.state.text !== state.text) announce(fill(say.state, { state: state.text }));
  if (shown && shown.alert.code !== alert.code && alert.code) announce(alert.text);
  badge.dataset.state = state.code;
  write(badge, state.text);
  notice.dataset.alert = alert.code;
  notice.hidden = !alert.code;
  write(notice, alert.text);
}

/** Units that are on their way between the two looks are no difference: it has to last. */
function showVerdict({ code, text }) {
  const lasting = code !== "off" || verdict === "off";
  verdict = code;
  const place = find("[data-verdict]");
  place.dataset.verdict = lasting ? code : "in_flight";
  write(place, lasting ? text : say.checking);
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

/** Say what changed to those who do not see it; never the figures themselves. */
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
  const common = { times: [], height: 200, locale, timeZone: say.time_zone, words: { time: say.time } };
  const requests = { label: say.requests, values: [], kind: "bars", color: "--chart-1" };
  const accepted = { label: say.accepted, values: [], kind: "line", color: "--chart-2" };
  const left = { label: say.left, values: [], kind: "line", color: "--chart-2" };
  return {
    pace: drawTimes(document.getElementById("pace"), {
      ...common, series: [requests, accepted], unit: say.per_second, summary: "",
    }),
    left: drawTimes(document.getElementById("left"), {
      ...common, series: [left], unit: say.units, whole: true, summary: "",
    }),
  };
}

function leftOverTime(texts) {
  const known = points.filter(([, value]) => value !== null);
  if (!known.length) return texts.left_label;
  const [s, first] = known[0];
  return fill(say.left_over_time, { first, since: time(s * 1000), last: known.at(-1)[1] });
}

function remember(s, left) {
  const last = points.at(-1)?.[0] ?? s;
  if (s <= last && points.length) return;
  if (s - last > GAP_S) points.push([last + 1, null]);
  points.push([s, left]);
  while (points[0][0] < s - KEPT_S) points.shift();
  stored((storage) => storage.setItem(storageKey(), JSON.stringify(points)));
}

/** The line goes on after an action has led back here: the tab remembers it, if it may. */
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
  write(find("[data-clock]"), leftMs > 0 ? `${say.clock[end]} ${leftText(leftMs, say.clock.days)}` : "");
  clearTimeout(ticker);
  ticker = setTimeout(tick, tickMs(leftMs));
}

// --- Asking ----------------------------------------------------------------------------------------

async function look() {
  clearTimeout(poller);
  if (document.hidden || asking) return;
  asking = true;
  const answer = await ask(board.dataset.url);
  asking = false;
  if (answer.status === 200 && answer.body.now_ms) hear(answer.body, answer.heardAt);
  else miss(answer.status);
  if (!document.hidden) poller = setTimeout(look, PACE_MS);
}

function hear(data, heardAt) {
  clock.hear(data.now_ms, heardAt);
  show(data);
  shown = data;
  if (stale) announce(say.fresh);
  stale = false;
  find("[data-stale]").hidden = true;
  board.classList.remove("board--stale");
  tick();
}

/** Keep what is there and say since when it is old. A sign-in page is an answer of the wrong kind. */
function miss(status) {
  const sentence = status === 200 || status === 403 ? say.signed_out : say.stale;
  const text = fill(sentence, { time: time(shown.now_ms) });
  if (!stale) announce(text);
  stale = true;
  write(find("[data-stale]"), text);
  find("[data-stale]").hidden = false;
  board.classList.add("board--stale");
}

for (const note of board.querySelectorAll("noscript")) note.remove();
hear(readJson("board-data"), performance.now());
poller = setTimeout(look, PACE_MS);
document.addEventListener("visibilitychange", () => (document.hidden ? clearTimeout(poller) : look()));
window.addEventListener("pageshow", ({ persisted }) => persisted && look());
