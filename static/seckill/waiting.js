// The waiting page: the place in line, and the way to the order once it exists.

import { fill } from "./clock.js";
import { askPage } from "./pages.js";
import { ask, faultOf, readJson } from "./wire.js";

const EVERY_MS = 4000;
const TERMS_EVERY = 15; // polls: about a minute

const element = (id) => document.getElementById(id);
const page = element("waiting");
const texts = readJson("sentences");
let line = readJson("line");
let timer;
let polls = 0;

function schedule(atLeastMs = 0) {
  clearTimeout(timer);
  if (document.hidden || !line.waiting) return;
  timer = setTimeout(poll, Math.max(EVERY_MS * (0.8 + 0.4 * Math.random()), atLeastMs));
}

async function poll() {
  if (polls % TERMS_EVERY === 0) await keepUp();
  polls += 1;
  const answer = await ask(page.dataset.url);
  if (answer.status === 200) onAnswer(answer.body);
  else if (answer.status === 404) await askForOrder();
  else if (answer.status === 401) return location.reload(); // leads to the sign-in and back
  else note(faultText(answer.status));
  return schedule(answer.retryAfterMs);
}

function onAnswer(now) {
  line = now;
  if (line.offered) location.replace(line.status_url);
  else show();
}

/** Price and times may change while the buyer waits: take them over from the newer page. */
async function keepUp() {
  const { status, body } = await ask(page.dataset.url.replace("waiting/", "live/"));
  if (status !== 200 || body.revision === page.dataset.revision) return;
  const newer = await askPage(location.pathname);
  for (const part of newer ? [".next", ".facts"] : []) {
    const [before, after] = [document, newer].map((it) => it.querySelector(part));
    if (before && after) before.replaceWith(document.importNode(after, true));
  }
  page.dataset.revision = newer?.getElementById("waiting")?.dataset.revision ?? page.dataset.revision;
}

/** The buyer no longer waits: there is an order, or the waiting list is closed. */
async function askForOrder() {
  const { status } = await ask(line.status_url);
  if (status === 200) return onAnswer({ ...line, waiting: false, offered: true });
  if (status === 404) return onAnswer({ ...line, waiting: false, place: null, state: "over" });
  return note(faultText(status));
}

const faultText = (status) => texts.note[faultOf(status) || "unreachable"];

function show() {
  const { place, state, wants, given } = line;
  page.dataset.status = place === null ? "refused" : "queued";
  setText("heading", fill(texts.heading[state], { place }));
  setText("text", wants === "all" && place !== null ? "" : texts.text[state]);
  setText("wanted", fill(texts.wanted[wants], line));
  setText("place", place ?? "");
  element("wanted").hidden = place === null || wants === "one";
  element("came").hidden = given === 0;
  element("came").firstElementChild.href = line.status_url;
  element("place").hidden = element("doing").hidden = place === null;
  note("");
}

function note(text) {
  setText("note", text);
  element("note").hidden = !text;
}

/** Write only a change: screen readers read a status line again each time it is written. */
function setText(id, text) {
  if (element(id).textContent !== String(text)) element(id).textContent = text;
}

document.addEventListener("visibilitychange", () => (document.hidden ? clearTimeout(timer) : wake()));
window.addEventListener("pageshow", ({ persisted }) => persisted && wake());
window.addEventListener("online", wake);

function wake() {
  if (line.waiting) poll();
}

schedule();
