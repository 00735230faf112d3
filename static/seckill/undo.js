// Undoing the use of a voucher while the shop cannot be reached: the page stays and says so, where a
// browser would show its own error. Sent is only what the shop can take.

import { abortedAfter } from "./wire.js";

const PATIENCE_MS = 4000;
let isAsking = false;

async function answers(url) {
  try {
    return (await fetch(url, { method: "HEAD", cache: "no-store", signal: abortedAfter(PATIENCE_MS) })).status < 500;
  } catch {
    return false;
  }
}

for (const form of document.querySelectorAll("form[data-undo]")) {
  const told = form.querySelector("[role=alert]");
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    if (isAsking) return;
    isAsking = true;
    const isThere = await answers(form.dataset.undo);
    isAsking = false;
    told.textContent = isThere ? "" : told.dataset.text;
    if (isThere) form.submit();
  });
}
