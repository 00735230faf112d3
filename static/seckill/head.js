// The fingerprint of the list of orders on a sale's page: that of now, for whoever looks at it.

import { askPage } from "./pages.js";

const EVERY_MS = 10_000;
const PARTS = ["chain-entries", "head"];
let askedAt = performance.now(); // the page has just been made

/** Take it over from the page as it is now, if it is on the screen and not new. */
export async function renewHead() {
  const now = performance.now();
  if (now < askedAt + EVERY_MS || !isOnScreen(document.getElementById("head"))) return;
  askedAt = now;
  const newer = await askPage(location.pathname);
  for (const id of PARTS) {
    const [before, after] = [document, newer].map((it) => it?.getElementById(id));
    if (before && after) before.textContent = after.textContent;
  }
}

function isOnScreen(shown) {
  if (!shown) return false;
  const { top, bottom } = shown.getBoundingClientRect();
  return top < innerHeight && bottom > 0;
}
