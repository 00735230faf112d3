// The page with the QR code: it goes to the receipt once the order is no longer unpaid.

import { ask } from "./wire.js";

const EVERY_MS = 2000;

const { url } = document.getElementById("pay-code").dataset;
let timer;

function schedule(atLeastMs = 0) {
  clearTimeout(timer);
  if (!document.hidden) timer = setTimeout(poll, Math.max(EVERY_MS, atLeastMs));
}

async function poll() {
  const answer = await ask(url);
  if (answer.status === 401) return location.reload(); // leads to the sign-in and back
  if (answer.status === 200 && answer.body.status !== "unpaid") return location.replace(url);
  return schedule(answer.retryAfterMs);
}

document.addEventListener("visibilitychange", () => schedule());
schedule();
