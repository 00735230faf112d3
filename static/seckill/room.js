// The waiting room: asks for the place in line, moves it meanwhile, and goes to the sale in its turn.

import { changeOf, placeAt } from "./line.js";
import { ask, faultOf, readJson } from "./wire.js";

const element = (id) => document.getElementById(id);
const page = element("room");
const texts = readJson("sentences");
const { title } = document;
const { lang } = document.documentElement;
const fill = (sentence, values) =>
  sentence.replace(/\{(\w+)\}/g, (braces, name) => values[name]?.toLocaleString(lang) ?? braces);

let timer;
let line = { turn: "asking" }; // the last answer
let answeredAt = 0;
let hasBegun = false;
let shown; // the place on the page
let first = 0; // where the bar begins

function schedule(ms) {
  clearTimeout(timer);
  timer = setTimeout(poll, ms);
}

async function poll(query = "") {
  clearTimeout(timer);
  const { status, body, retryAfterMs, receivedAt } = await ask(page.dataset.url + query);
  if (status === 200) return onPlace(body, receivedAt);
  if (status === 401) return take({ turn: "sign_in" });
  if (status === 404) return location.replace(page.dataset.sale);
  setText("note", texts.note[faultOf(status) || "unreachable"]);
  say();
  return schedule(Math.max(retryAfterMs, 5_000 + 10_000 * Math.random()));
}

function onPlace(answer, receivedAt) {
  const isIn = answer.turn === "in" || answer.state === "ended";
  take({ ...answer, turn: isIn ? "in" : answer.turn }, receivedAt);
  if (isIn) return location.replace(page.dataset.sale);
  if (line.turn === "expired") return undefined;
  // a crowd that came together does not ask together
  return schedule(line.poll_after_ms * (0.95 + 0.05 * Math.random()));
}

function take(answer, receivedAt) {
  const change = changeOf({ before: line, line: answer, shown });
  if (change || line.turn !== answer.turn) shown = Infinity; // else no answer moves the place back
  if (line.turn !== answer.turn) first = line.turn === "asking" ? keptFirst() : 0;
  line = answer;
  answeredAt = receivedAt;
  hasBegun = false;
  if (line.position > first) first = keptFirst(line.position);
  setText("note", texts.change[change]);
  show();
  say();
}

function show() {
  const elapsedMs = performance.now() - answeredAt;
  // Never beyond what the next answer may say: all stands still once that is due.
  const movedMs = Math.min(elapsedMs, line.poll_after_ms);
  const begins = line.begins_at_ms <= line.server_time_ms + elapsedMs;
  const turn = begins && line.turn === "drawn_later" ? "drawing" : line.turn;
  const isWaiting = turn === "waiting";
  if (isWaiting) shown = Math.min(shown, placeAt(line, movedMs));
  page.dataset.turn = turn;
  setText("heading", fill(texts.heading[turn], { position: shown }));
  setText("text", texts.text[turn]);
  setText("wait", isWaiting && line.wait_ms ? waitText((line.wait_ms - movedMs) / 1000) : "");
  setText("sale-state", texts.sale[begins ? "started" : line.state]);
  setText("people", line.waiting && fill(texts.people, { count: line.waiting }));
  setText("units", line.remaining && fill(texts.units, { count: line.remaining }));
  setText("updated", answeredAt && fill(texts.updated, { count: Math.floor(elapsedMs / 1000) }));
  element("bar").hidden = !isWaiting;
  if (isWaiting) element("bar").value = 1 - shown / first;
  element("sign-in").hidden = turn !== "sign_in";
  element("again").hidden = turn !== "expired";
  element("go").hidden = turn !== "in";
  document.title = turn === "in" && line.state === "open" ? `${texts.heading.in} · ${title}` : title;
  if (begins && !hasBegun) say();
  hasBegun = begins;
}

/** Kept for a reload; a browser may forbid it. */
function keptFirst(position) {
  try {
    if (position) sessionStorage[page.dataset.url] = position;
    return Number(sessionStorage[page.dataset.url]) || 0;
  } catch {
    return position ?? 0;
  }
}

function waitText(seconds) {
  if (seconds <= 5) return texts.wait.soon;
  if (seconds < 90) return fill(texts.wait.seconds, { count: Math.ceil(seconds / 10) * 10 });
  if (seconds < 5400) return fill(texts.wait.minutes, { count: Math.ceil(seconds / 60) });
  return fill(texts.wait.hours, { count: Math.floor(seconds / 3600) });
}

/** Tell screen readers, but not what moves by itself. */
function say() {
  const parts = ["note", "heading", "wait", "sale-state"].map((id) => element(id).textContent);
  setText("said", parts.filter(Boolean).join(". "));
}

/** Write only a change: screen readers read a status line again each time it is written. */
function setText(id, text) {
  const target = element(id);
  if (target.textContent !== (text || "")) target.textContent = text || "";
  target.hidden = !text;
}

element("again").addEventListener("click", () => poll("?again=1"));
// A hidden page's timers may sleep, and a page from the history is old.
document.addEventListener("visibilitychange", () => !document.hidden && poll());
window.addEventListener("pageshow", ({ persisted }) => persisted && poll());
window.addEventListener("online", () => poll());

setInterval(() => answeredAt && show(), 1000);
poll();
