// The page of a rehearsal that runs: asks every second how far it is while somebody sees it, and
// loads the page with the verdict once it is over.

import { ask } from "./wire.js";

const PACE_MS = 1000;

const page = document.getElementById("rehearsal");
const bar = page.querySelector("progress");
let timer;

/** Only a change is written: a status line that is written again is read out again. */
function write(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

function show({ phase, label, text, done, total }) {
  write(page.querySelector("[data-label]"), label);
  write(page.querySelector("[data-text]"), text);
  if (phase === "clearing") page.querySelector("button")?.remove();
  bar.max = total || 1;
  bar.value = done;
}

async function poll() {
  clearTimeout(timer);
  const { status, body, retryAfterMs } = await ask(page.dataset.url);
  if (status === 200 && body.over === false) show(body);
  // It is over; or whoever looks was signed out, or may not look any more. The page says which.
  else if ([200, 403, 404].includes(status)) return location.reload();
  if (!document.hidden) timer = setTimeout(poll, Math.max(PACE_MS, retryAfterMs));
}

document.addEventListener("visibilitychange", () => (document.hidden ? clearTimeout(timer) : poll()));
window.addEventListener("pageshow", ({ persisted }) => persisted && poll());

timer = setTimeout(poll, PACE_MS);
