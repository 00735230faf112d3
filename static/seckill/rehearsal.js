// The page of a running rehearsal: polls its progress every second while the page is visible, and
// loads the verdict at the end.

import { ask } from "./wire.js";

const PACE_MS = 1000;

const page = document.getElementById("rehearsal");
const bar = page.querySelector("progress");
let timer;

/** Write only a change: screen readers read a status line again each time it is written. */
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
  // It has ended, or the user was signed out or lost the permission. The page says which.
  else if ([200, 403, 404].includes(status)) return location.reload();
  if (!document.hidden) timer = setTimeout(poll, Math.max(PACE_MS, retryAfterMs));
}

document.addEventListener("visibilitychange", () => (document.hidden ? clearTimeout(timer) : poll()));
window.addEventListener("pageshow", ({ persisted }) => persisted && poll());

timer = setTimeout(poll, PACE_MS);
