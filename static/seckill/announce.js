// What screen readers are told once: nobody finds an old sentence there later.

const KEPT_MS = 4000;

let timer;

/** Have screen readers read a sentence out; "" takes the last one away, undefined leaves it. */
export function announce(text) {
  const target = document.getElementById("announcement");
  if (text === undefined || !target) return;
  clearTimeout(timer);
  if (target.textContent !== text) target.textContent = text;
  if (text) timer = setTimeout(announce, KEPT_MS, "");
}
