// The waiting page: one's place in line, and the way to the order once the turn has come.

import { fill } from "./clock.js";
import { ask, readJson } from "./wire.js";

const EVERY_MS = 4000;

const element = (id) => document.getElementById(id);
const page = element("waiting");
const say = readJson("sentences");
let line = readJson("line");
let timer;

function plan(atLeastMs = 0) {
  clearTimeout(timer);
  if (document.hidden || !line.waiting) return;
  timer = setTimeout(poll, Math.max(EVERY_MS * (0.8 + 0.4 * Math.random()), atLeastMs));
}

async function poll() {
  const answer = await ask(page.dataset.url);
  if (answer.status === 200) heard(answer.body);
  else if (answer.status === 404) await askForOrder();
  else if (answer.status === 401) return location.reload(); // by way of the sign-in, and back
  else note(say.note.away);
  return plan(answer.retryAfterMs);
}

function heard(now) {
  line = now;
  if (line.offered) location.replace(line.status_url);
  else show();
}

/** Nobody waits here any more: the turn came while nobody looked, or the waiting is over. */
async function askForOrder() {
  const { status } = await ask(line.status_url);
  if (status === 200) return heard({ ...line, waiting: false, offered: true });
  if (status === 404) return heard({ ...line, waiting: false, place: null, state: "over" });
  return note(say.note.away);
}

function show() {
  const { place, state } = line;
  page.dataset.status = place === null ? "refused" : "queued";
  setText("heading", fill(say.heading[state], { place }));
  setText("text", say.text[state]);
  setText("place", place ?? "");
  element("place").hidden = element("doing").hidden = place === null;
  note("");
}

function note(text) {
  setText("note", text);
  element("note").hidden = !text;
}

/** Only a change is written: a status line that is written again is read out again. */
function setText(id, text) {
  if (element(id).textContent !== String(text)) element(id).textContent = text;
}

document.addEventListener("visibilitychange", () => (document.hidden ? clearTimeout(timer) : wake()));
window.addEventListener("pageshow", ({ persisted }) => persisted && wake());

function wake() {
  if (line.waiting) poll();
}

plan();
