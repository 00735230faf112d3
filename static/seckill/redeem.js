// The counter: a code comes from the camera, from a hand-held scanner, which types, or behind the #
// of the address, where a phone's own scanner leads (so that no log has it).

import { Camera, codeIn } from "./camera.js";
import { readJson } from "./wire.js";

const element = (id) => document.getElementById(id);
const form = element("check");
const { code: input } = form.elements;
const texts = readJson("sentences");

function check(code) {
  input.value = code;
  form.submit();
}

// --- The address ---------------------------------------------------------------------------------

const scanned = /[#?]code=/.test(location.href) && codeIn(location.href);
if (scanned) {
  history.replaceState(null, "", location.pathname);
  check(scanned);
}

// --- A hand-held scanner -------------------------------------------------------------------------

// The next code replaces a wrong one that is still in the field.
if (document.activeElement === input) input.select();

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
