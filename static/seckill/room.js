// The waiting room: asks for the place in line at the server's pace, and goes to the sale in its turn.

import { ask, faultOf, readJson } from "./wire.js";

const AWAY_MS = [5_000, 15_000];

const element = (id) => document.getElementById(id);
const page = element("room");
const texts = readJson("sentences");
const { lang } = document.documentElement;
const fill = (sentence, values) =>
  sentence.replace(/\{(\w+)\}/g, (braces, name) => values[name]?.toLocaleString(lang) ?? braces);

let timer;

function schedule(ms) {
  clearTimeout(timer);
  timer = setTimeout(poll, ms);
}

async function poll(query = "") {
  clearTimeout(timer);
  const { status, body, retryAfterMs } = await ask(page.dataset.url + query);
  if (status === 200) return onPlace(body);
  if (status === 401) return show("sign_in");
  if (status === 404) return location.replace(page.dataset.sale);
  setText("note", texts.note[faultOf(status) || "unreachable"]);
  const [least, most] = AWAY_MS;
  return schedule(Math.max(retryAfterMs, least + (most - least) * Math.random()));
}

function onPlace(line) {
  if (line.turn === "in" || line.state === "ended") {
    show("in", line);
    return location.replace(page.dataset.sale);
  }
  show(line.turn, line);
  // A crowd that came together does not ask together.
  return line.turn === "expired" ? undefined : schedule(line.poll_after_ms * (0.95 + 0.05 * Math.random()));
}

function show(turn, line = {}) {
  page.dataset.turn = turn;
  setText("heading", fill(texts.heading[turn], line));
  setText("text", texts.text[turn]);
  setText("wait", line.wait_ms ? waitText(line.wait_ms / 1000) : "");
  setText("sale-state", texts.sale[line.state] ?? "");
  setText("people", line.waiting ? fill(texts.people, { count: line.waiting }) : "");
  setText("note", "");
  element("sign-in").hidden = turn !== "sign_in";
  element("again").hidden = turn !== "expired";
  element("go").hidden = turn !== "in";
}

/** The wait in words, rounded up. */
function waitText(seconds) {
  if (seconds <= 5) return texts.wait.soon;
  if (seconds < 90) return fill(texts.wait.seconds, { count: Math.ceil(seconds / 10) * 10 });
  if (seconds < 5400) return fill(texts.wait.minutes, { count: Math.ceil(seconds / 60) });
  return fill(texts.wait.hours, { count: Math.floor(seconds / 3600) });
}

/** Write only a change: screen readers read a status line again each time it is written. */
function setText(id, text) {
  const target = element(id);
  if (target.textContent !== text) target.textContent = text;
  target.hidden = !text;
}

element("again").addEventListener("click", () => poll("?again=1"));
// A hidden page's timers may sleep, and a page from the history is old.
document.addEventListener("visibilitychange", () => !document.hidden && poll());
window.addEventListener("pageshow", ({ persisted }) => persisted && poll());
window.addEventListener("online", () => poll());

poll();
