// The voucher's code, alone on the screen: keeps the screen on, and leaves once the code is used.

import "./code_picture.js";
import "./copy.js";
import { ask } from "./wire.js";

const POLL_MS = 3000;
const url = document.getElementById("voucher").dataset.statusUrl;
let timer;

document.getElementById("print").addEventListener("click", () => window.print());
document.addEventListener("visibilitychange", wake);
window.addEventListener("pageshow", ({ persisted }) => persisted && wake());
window.addEventListener("online", wake);

function wake() {
  clearTimeout(timer);
  if (document.hidden) return;
  // A phone that saves power, or a page on plain HTTP, keeps no screen on.
  navigator.wakeLock?.request("screen").catch(() => {});
  poll();
}

async function poll() {
  clearTimeout(timer);
  const { status, body, retryAfterMs } = await ask(url);
  if (status === 401 || (status === 200 && body.status !== "paid")) return location.replace(url);
  if (!document.hidden) timer = setTimeout(poll, Math.max(POLL_MS, retryAfterMs));
}

wake();
