// The page of all codes: its switch for this device, and what has changed since it was opened.

import "./code_picture.js";
import "./copy.js";
import { startKeeping, tellKeeper } from "./keeper.js";
import { askPage } from "./pages.js";

const element = (id) => document.getElementById(id);
const isKept = async () => Boolean(await caches.match(location.pathname, { cacheName: "codes" }));

async function showSwitch() {
  const kept = await isKept();
  element("switch-off").hidden = element("keep").hidden = kept;
  element("switch-on").hidden = element("forget").hidden = !kept;
  element("switch").hidden = false;
  return kept;
}

element("keep").addEventListener("click", async () => {
  element("keep").disabled = true;
  try {
    await startKeeping("/orders/codes.js", "/orders/");
  } catch {
    // as if nothing was kept
  }
  element("keep").disabled = false;
  element("switch-failed").hidden = await showSwitch();
  (element("forget").hidden ? element("keep") : element("forget")).focus();
});

element("forget").addEventListener("click", async () => {
  await tellKeeper("forget");
  await (await navigator.serviceWorker.getRegistration("/orders/"))?.unregister();
  await showSwitch();
  element("keep").focus();
});

/** Show what the shop says now; a page that may no longer be kept leads to the sign-in. */
async function renew() {
  if (document.hidden) return;
  if (canKeep && (await isKept())) {
    await tellKeeper("refresh");
    if (!(await isKept())) return location.reload();
  }
  const fresh = (await askPage(location.pathname))?.getElementById("codes");
  if (!fresh) return;
  for (const { id } of document.querySelectorAll("details[open]")) {
    const same = id && fresh.querySelector(`#${id}`);
    if (same) same.open = true;
  }
  delete element("main").dataset.kept;
  element("codes").replaceWith(document.adoptNode(fresh));
}

const canKeep = "serviceWorker" in navigator && "caches" in window;
if (canKeep) showSwitch();
document.addEventListener("visibilitychange", renew);
window.addEventListener("online", renew);
window.addEventListener("pageshow", ({ persisted }) => persisted && renew());
