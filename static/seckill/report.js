// The report on a sale: draws its charts, and prints them in dark ink in every colour scheme.

import { drawTimes } from "./charts.js";
import { readJson } from "./wire.js";

const { zone, words, parts } = readJson("charts");
const page = document.documentElement;

parts.forEach(({ summary, ...part }, i) => {
  const element = document.querySelector(`[data-chart="${i}"]`);
  drawTimes(element, { ...part, summary, words, timeZone: zone, height: 260 });
});

const print = document.querySelector("[data-print]");
print.hidden = false;
print.querySelector("button").addEventListener("click", () => window.print());

let theme; // the screen's theme, while the page is printed
addEventListener("beforeprint", () => {
  theme ??= page.dataset.theme ?? "auto";
  page.dataset.theme = "light";
});
addEventListener("afterprint", () => {
  page.dataset.theme = theme;
  theme = undefined;
});
