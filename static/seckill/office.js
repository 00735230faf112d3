// The back office: relative times, and the current entry of the navigation in view.
// Without this script a <time> shows the exact moment, which is then its title.

const STEPS = [["second", 60], ["minute", 60], ["hour", 24], ["day", 7]];
const REFRESH_MS = 20_000;
const locale = document.documentElement.lang;
const serverTime = document.querySelector("meta[name=server-time]")?.content;
const ahead = serverTime ? serverTime * 1000 - Date.now() : 0; // of this device's clock
const relative = new Intl.RelativeTimeFormat(locale, { numeric: "auto" });

/** Return a moment as “3 minutes ago”; empty if it is more than a week away. */
function relativeText(moment) {
  let value = (moment - Date.now() - ahead) / 1000;
  for (const [unit, count] of STEPS) {
    if (Math.abs(value) < count) return relative.format(Math.trunc(value), unit);
    value /= count;
  }
  return "";
}

/** Show each `<time data-relative>` below an element relative to now. */
export function showTimes(root = document) {
  for (const element of root.querySelectorAll("time[data-relative]")) {
    element.title ||= element.textContent;
    const text = relativeText(Date.parse(element.dateTime)) || element.title;
    if (element.textContent !== text) element.textContent = text;
  }
}

showTimes();
setInterval(() => document.hidden || showTimes(), REFRESH_MS);

const nav = document.querySelector(".office-nav ul");
const current = nav?.querySelector("[aria-current]");
if (current) nav.scrollLeft = current.offsetLeft - (nav.clientWidth - current.offsetWidth) / 2;

// A press elsewhere, or Escape, closes an open filter.
const openFilter = () => document.querySelector(".office-filter[open]");
document.addEventListener("click", ({ target }) => {
  const open = openFilter();
  if (open && !open.contains(target)) open.open = false;
});
document.addEventListener("keydown", ({ key }) => {
  const open = openFilter();
  if (key !== "Escape" || !open) return;
  open.open = false;
  open.querySelector("summary").focus();
});
