// The back office: how far moments are from now, and the current entry of the navigation in view.

const STEPS = [["second", 60], ["minute", 60], ["hour", 24], ["day", 7]];
const REFRESH_MS = 20_000;
const locale = document.documentElement.lang;
const serverTime = document.querySelector("meta[name=server-time]")?.content;
const ahead = serverTime ? serverTime * 1000 - Date.now() : 0; // of this device's clock
const relative = new Intl.RelativeTimeFormat(locale); // no “tomorrow”, which names a day
const justNow = new Intl.RelativeTimeFormat(locale, { numeric: "auto" }).format(0, "second");

/** Return a moment as “3 minutes ago”; empty if it is more than a week away. */
function relativeText(moment) {
  let value = (moment - Date.now() - ahead) / 1000;
  if (Math.abs(value) < 1) return justNow;
  for (const [unit, count] of STEPS) {
    if (Math.abs(value) < count) return relative.format(Math.round(value), unit);
    value /= count;
  }
  return "";
}

/** Say below each `<time data-relative>` how far it is from now, if that is not more than a week. */
export function showTimes(root = document) {
  for (const element of root.querySelectorAll("time[data-relative]")) {
    const text = relativeText(Date.parse(element.dateTime));
    const shown = element.querySelector(".office-ago") ?? element.appendChild(emptySpan());
    if (shown.textContent !== text) shown.textContent = text;
  }
}

function emptySpan() {
  const span = document.createElement("span");
  span.className = "office-ago";
  return span;
}

showTimes();
setInterval(() => document.hidden || showTimes(), REFRESH_MS);

// --- Nothing moves under a pointer -----------------------------------------------------------------

const waiting = [];
let pointer = null; // where a mouse is; a finger is nowhere between two touches
let isPressed = false;

const topOf = (element) => element.getBoundingClientRect().top;

/** What must not move: what the pointer is on, else what has the focus. */
function anchor() {
  const under = pointer && document.elementFromPoint(pointer.x, pointer.y);
  const { activeElement: focused } = document;
  return under ?? (focused === document.body ? null : focused);
}

/**
 * Change the page, but not between the press of a button and its release, which would lose the
 * click, and so that what is under the pointer stays there: what grows, grows the other way.
 */
export function still(change) {
  if (isPressed) return void waiting.push(change);
  const held = [];
  for (let it = anchor(); it; it = it.parentElement) held.push([it, topOf(it)]);
  change();
  const [stays, before] = held.find(([it]) => it.isConnected) ?? [];
  if (stays) scrollBy({ top: topOf(stays) - before, behavior: "instant" });
}

function release() {
  isPressed = false;
  setTimeout(() => isPressed || waiting.splice(0).forEach((it) => still(it))); // after the click
}

addEventListener("pointermove", ({ x, y, pointerType, buttons }) => {
  pointer = pointerType === "mouse" ? { x, y } : null;
  if (isPressed && !buttons) release(); // the release went to the list of a select
});
addEventListener("pointerdown", () => (isPressed = true), true);
addEventListener("pointerup", release, true);
addEventListener("pointercancel", release, true);
document.documentElement.addEventListener("pointerleave", () => (pointer = null));

// --- Folded parts of a form ------------------------------------------------------------------------

/** What a control says in the heading of its part: a choice, a tick, a number that is not 0. */
function settingOf(control) {
  const label = control.labels?.[0]?.textContent.trim().replace(/[:：]$/, "") ?? "";
  if (control.type === "checkbox") return control.checked ? label : "";
  if (control.matches("select")) return control.value && control.selectedOptions[0].text;
  if (control.type === "number") return Number(control.value) ? `${label} ${control.value}` : "";
  return control.value && label;
}

for (const part of document.querySelectorAll("fieldset.collapse details")) {
  const told = document.createElement("span");
  told.className = "office-set";
  part.querySelector("summary").append(told);
  const tell = () => {
    const settings = [...part.querySelectorAll("input, select, textarea")].map(settingOf);
    told.textContent = settings.filter(Boolean).join(" · ");
  };
  part.addEventListener("change", tell);
  tell();
}

// A navigation that is wider than the screen says on which sides it goes on.
for (const nav of document.querySelectorAll(".office-nav")) {
  const list = nav.querySelector("ul");
  const current = list.querySelector("[aria-current]");
  const showMore = () => {
    const hidden = list.scrollWidth - list.clientWidth;
    nav.classList.toggle("office-nav--before", list.scrollLeft > 1);
    nav.classList.toggle("office-nav--after", list.scrollLeft < hidden - 1);
  };
  if (current) list.scrollLeft = current.offsetLeft - (list.clientWidth - current.offsetWidth) / 2;
  list.addEventListener("scroll", showMore, { passive: true });
  addEventListener("resize", showMore);
  showMore();
}

// A press elsewhere, or Escape, closes an open filter.
const openFilter = () => document.querySelector(".office-filter[open]");
document.addEventListener("click", ({ target }) => {
  const open = openFilter();
  if (open && !open.contains(target) && !target.closest(".select2-container")) open.open = false;
});
document.addEventListener("keydown", ({ key }) => {
  const open = openFilter();
  if (key !== "Escape" || !open) return;
  open.open = false;
  open.querySelector("summary").focus();
});
