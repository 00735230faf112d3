// Charts of what happened when. The page links uPlot.min.css and charts.css.

import uPlot from "../vendor/uplot/uPlot.esm.js";

const DASHES = [[], [8, 4], [2, 3], [10, 3, 2, 3]]; // lines differ by more than their colour
const INK = ["--chart-ink", "--body-quiet-color"];
const GRID = ["--chart-grid", "--hairline-color"];

/**
 * Draw values over time into an element.
 *
 * `times` are epoch seconds, rising; each of `series` is {label, values, kind, color}: one value per
 * time (null: unknown), `kind` "line" or "bars", `color` the name of a CSS custom property.
 * `unit` follows the numbers of the legend, `height` is in CSS pixels, `from` and `to` may fix
 * the window in epoch seconds, `whole` means that units have no fractions.
 *
 * `summary` is the text for screen readers; without one, there is a table of all values. `words.time` heads the times in table and legend.
 *
 * Returns {update(data)}: new `times`, `series` (with new `values` in the same order; what else is
 * not given stays), `summary`, `from`, `to`.
 */
export function drawTimes(element, options) {
  const chart = new TimeChart(element, options);
  return { update: (data) => chart.update(data) };
}

class TimeChart {
  #options;
  #element;
  #text;
  #place;
  #plot;

  constructor(element, options) {
    this.#options = { height: 240, unit: "", locale: document.documentElement.lang, ...options };
    this.#element = element;
    element.classList.add("chart");
    this.#place = document.createElement("div");
    this.#place.className = "chart__plot";
    this.#place.ariaHidden = "true";
    this.#text = document.createElement("div");
    this.#text.className = "chart__text";
    element.append(this.#place, this.#text);
    this.#writeText();
    this.#draw();
    new ResizeObserver(() => this.#resize()).observe(element);
    onColours(() => this.#draw());
  }

  update(data) {
    const old = this.#options.series;
    const series = (data.series ?? []).map((one, i) => ({ ...old[i], ...one }));
    this.#options = { ...this.#options, ...data, series: series.length ? series : old };
    this.#writeText();
    this.#plot.setData(this.#data());
  }

  #draw() {
    this.#plot?.destroy();
    this.#plot = new uPlot(this.#settings(), this.#data(), this.#place);
  }

  #resize() {
    const { width, height } = this.#size();
    if (width !== this.#plot.width) this.#plot.setSize({ width, height });
  }

  #size() {
    return { width: Math.max(160, this.#element.clientWidth), height: this.#options.height };
  }

  #data() {
    return [this.#options.times, ...this.#options.series.map(({ values }) => values)];
  }

  #settings() {
    const { series, locale, timeZone, words } = this.#options;
    return {
      ...this.#size(),
      tzDate: (s) => uPlot.tzDate(new Date(s * 1000), timeZone),
      padding: [null, 30, null, null], // room for the last label of the axis
      cursor: { drag: { x: false, y: false } },
      scales: { x: { range: () => this.#window() }, y: { range: fromZero } },
      axes: [
        { ...this.#axis(), space: 76, values: (_, at, __, ___, step) => ticks(at, step, locale, timeZone) },
        { ...this.#axis(), ...this.#numbers() },
      ],
      series: [
        { label: words?.time ?? "", value: (_, s) => (s == null ? "–" : moment(s, locale, timeZone)) },
        ...series.map((one) => this.#line(one)),
      ],
    };
  }

  #axis() {
    return {
      stroke: this.#colour(...INK),
      grid: { stroke: this.#colour(...GRID), width: 1 },
      ticks: { stroke: this.#colour(...GRID), width: 1 },
      font: "12px system-ui, sans-serif",
    };
  }

  #numbers() {
    const { locale, whole } = this.#options;
    const format = new Intl.NumberFormat(locale);
    return {
      values: (_, at) => at.map((value) => format.format(value)),
      size: (_, texts) => 18 + 7 * Math.max(2, ...(texts ?? []).map((text) => text.length)),
      ...(whole && { incrs: wholeSteps() }),
    };
  }

  #line({ label, kind, color }) {
    const stroke = this.#colour(color);
    const { locale, unit, series } = this.#options;
    const format = new Intl.NumberFormat(locale, { maximumFractionDigits: 1 });
    const value = (_, number) => (number == null ? "–" : `${format.format(number)} ${unit}`.trim());
    if (kind === "bars") {
      const paths = uPlot.paths.bars({ size: [0.8, 40] });
      return { label, value, stroke, fill: stroke, width: 0, alpha: 0.6, paths, points: { show: false } };
    }
    const before = series.filter((one) => one.kind !== "bars").findIndex((one) => one.label === label);
    const points = { show: (plot) => plot.data[0].length < 3 };
    return { label, value, stroke, width: 2, dash: DASHES[before % DASHES.length], points };
  }

  #window() {
    const { times, from = times[0] ?? 0, to = times.at(-1) ?? 0 } = this.#options;
    return from < to ? [from, to] : [from - 5, to + 5];
  }

  #colour(...names) {
    const { style } = this.#element;
    style.color = names.reduceRight((rest, name) => `var(${name}, ${rest})`, "inherit");
    const { color } = getComputedStyle(this.#element); // light or dark, as the page is
    style.color = "";
    return color;
  }

  #writeText() {
    this.#text.replaceChildren(this.#options.summary ?? this.#table());
  }

  #table() {
    const { times, series, locale, timeZone, unit, words } = this.#options;
    const table = document.createElement("table");
    const heads = series.map(({ label }) => (unit ? `${label} (${unit})` : label));
    addRow(table.createTHead(), [words?.time ?? "", ...heads]);
    const body = table.createTBody();
    times.forEach((s, i) => {
      const cells = series.map(({ values }) => values[i]?.toLocaleString(locale) ?? "–");
      addRow(body, [moment(s, locale, timeZone), ...cells]);
    });
    return table;
  }
}

function addRow(part, texts) {
  const row = part.insertRow();
  const cell = part.tagName === "THEAD" ? "th" : "td";
  for (const text of texts) row.appendChild(document.createElement(cell)).textContent = text;
}

/** From zero up, with some space above, and never so narrow that one unit fills the chart. */
function fromZero(_, __, max) {
  return [0, Math.max(4, (max ?? 0) * 1.08)];
}

function wholeSteps() {
  const powers = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9].map((power) => 10 ** power);
  return powers.flatMap((power) => [power, 2 * power, 5 * power]);
}

function ticks(at, step, locale, timeZone) {
  const clock = { hour: "2-digit", minute: "2-digit", ...(step < 60 && { second: "2-digit" }) };
  const parts = step < 86_400 ? { ...clock, hourCycle: "h23" } : { month: "numeric", day: "numeric" };
  const format = new Intl.DateTimeFormat(locale, { timeZone, ...parts });
  return at.map((s) => format.format(s * 1000));
}

function moment(s, locale, timeZone) {
  const format = { dateStyle: "short", timeStyle: "medium", timeZone, hourCycle: "h23" };
  return new Intl.DateTimeFormat(locale, format).format(s * 1000);
}

/** Call `call` when the page's colours change, by the system's or the admin's setting. */
function onColours(call) {
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", call);
  const theme = { attributes: true, attributeFilter: ["data-theme"] };
  new MutationObserver(call).observe(document.documentElement, theme);
}
