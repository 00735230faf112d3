// The counter: a code comes from the camera, from a hand-held scanner, which types, or behind the #
// of the address, where a phone's own scanner leads (so that no log has it).

import { Camera, codeIn } from "./camera.js";
import { startKeeping } from "./keeper.js";
import { plain, wait } from "./unchecked.js";
import { readJson } from "./wire.js";

const element = (id) => document.getElementById(id);
const form = element("check");
const { code: input } = form.elements;
const texts = readJson("sentences");

function check(code) {
  input.value = code;
  form.requestSubmit();
}

// --- Without the shop ----------------------------------------------------------------------------

const LENGTH = 16;

/** Without network nothing is sent, and the page stays: not each browser keeps it. */
function onSubmit(event) {
  const { code, key, why } = event.target.elements;
  if (navigator.onLine || !code) return;
  event.preventDefault();
  if (event.target === form && plain(code.value).length !== LENGTH) {
    input.setCustomValidity(texts.length.replace("{count}", plain(code.value).length));
    return input.reportValidity();
  }
  wait({ code: code.value, key: key?.value, why: why?.value });
  input.value = "";
  input.focus();
  show("");
}

document.addEventListener("submit", onSubmit);
input.addEventListener("input", () => input.setCustomValidity(""));

/** Have this device keep the page, which opens without the shop then. */
async function keepPage() {
  const page = new URL(form.action).pathname;
  const isKept = await caches.match(page, { cacheName: "counter" });
  if (!isKept && location.pathname === page) await startKeeping(`${page}worker.js`, page);
}

keepPage().catch(() => {}); // a browser without workers, or one that forbids them

// --- A hand-held scanner -------------------------------------------------------------------------

// The next code replaces a wrong one that is still in the field.
if (input.autofocus) {
  input.focus();
  input.select();
}

/** Keys pressed anywhere are a code: the scanner does not know where the focus is. */
function takeKey(event) {
  const isCode = /^[!-~]$/.test(event.key) && !event.ctrlKey && !event.altKey && !event.metaKey;
  if (!isCode || event.target.matches("input, textarea, select")) return;
  input.focus();
  input.select();
}

document.addEventListener("keydown", takeKey);

// --- The camera ----------------------------------------------------------------------------------

const button = element("scan");
const camera = new Camera(element("picture"), show);

function show(note) {
  element("view").hidden = !camera.isOn;
  element("scan-label").textContent = camera.isOn ? texts.stop : texts.scan;
  const told = element("scan-note");
  const text = texts.note[note] ?? "";
  if (told.textContent !== text) told.textContent = text;
  told.hidden = !text;
  told.dataset.note = note;
}

async function scan() {
  show("asking");
  const code = await camera.scan();
  if (!code) return;
  show("found");
  navigator.vibrate?.(80);
  check(code);
}

function stop() {
  if (!camera.isOn) return;
  camera.stop();
  show("");
}

button.hidden = false;
button.addEventListener("click", () => (camera.isOn ? stop() : scan()));
document.addEventListener("keydown", ({ key }) => key === "Escape" && stop());
document.addEventListener("visibilitychange", () => document.hidden && stop());
window.addEventListener("pagehide", stop);

// --- The address ---------------------------------------------------------------------------------

const scanned = /[#?]code=/.test(location.href) && codeIn(location.href);
if (scanned) {
  history.replaceState(null, "", location.pathname);
  check(scanned);
}
