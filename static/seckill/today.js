// Today: asks for its own page every few seconds while it is visible, and replaces the parts that
// have changed. The server writes every text; this script counts down.

import { ServerClock, leftText } from "./clock.js";
import { showTimes, still } from "./office.js";
import { askPage } from "./pages.js";
import { readJson } from "./wire.js";

const PACE_MS = 5000;
const sentences = readJson("sentences");
const clock = new ServerClock();
const shown = new Map(); // the parts as the server wrote them
let poller;

const page = () => document.getElementById("today");
const parts = (root) => [...root.querySelectorAll("[data-block]")];

function tick() {
  for (const element of page().querySelectorAll("[data-until]")) {
    const text = leftText(element.dataset.until - clock.now(), sentences.days);
    if (element.textContent !== text) element.textContent = text;
  }
}

/** Replace a part; whoever has the focus on a link of it keeps it. */
function replace(part, html) {
  const focused = part.contains(document.activeElement) ? document.activeElement : null;
  const [href, text] = [focused?.getAttribute("href"), focused?.textContent];
  part.innerHTML = html;
  const links = [...part.querySelectorAll("a[href]")].filter((it) => it.getAttribute("href") === href);
  (links.find((it) => it.textContent === text) ?? links[0])?.focus({ preventScroll: true });
}

function show(other) {
  for (const part of parts(page())) {
    const name = part.dataset.block;
    const html = other.querySelector(`[data-block="${name}"]`)?.innerHTML;
    if (html === undefined || shown.get(name) === html) continue;
    shown.set(name, html);
    replace(part, html);
    showTimes(part);
  }
}

async function poll() {
  clearTimeout(poller);
  const other = (await askPage(location.pathname))?.getElementById("today");
  const receivedAt = performance.now();
  const note = page().querySelector("[data-stale]");
  page().classList.toggle("today--stale", !other);
  const wasStale = note.textContent === sentences.stale;
  if (other) {
    clock.addSample(Number(other.dataset.nowMs), receivedAt);
    still(() => show(other));
    tick();
  }
  note.textContent = other ? (wasStale ? sentences.fresh : "") : sentences.stale;
  if (!document.hidden) poller = setTimeout(poll, PACE_MS);
}

for (const part of parts(page())) shown.set(part.dataset.block, part.innerHTML);
clock.addSample(Number(page().dataset.nowMs), performance.now());
tick();
setInterval(tick, 250);
poller = setTimeout(poll, PACE_MS);
document.addEventListener("visibilitychange", () => (document.hidden ? clearTimeout(poller) : poll()));
window.addEventListener("pageshow", ({ persisted }) => persisted && poll());
