// The admin's form for a sale: shows errors and hints beside the fields while they are edited. The
// server decides both; without this script it shows them after saving.

import { still } from "./office.js";

const PAUSE_MS = 400;
const AGAIN_MS = 30_000; // "Starts in 2 h 10 min" gets out of date

const { checkUrl } = document.querySelector("script[data-check-url]").dataset;
const form = document.getElementById("seckillvoucher_form");
const status = form?.appendChild(document.createElement("p"));

const edited = new Set();
const left = new Set(); // edited and left: no error appears in the middle of a word
const lists = new Map();
const nothing = { errors: {}, hints: {} };
const HINTED = ["price", "stock", "begins_at", "ends_at"]; // they keep room for a line from the start
let answer = nothing;
let changing = null;
let sent = "";
let answered = "";
let timer = 0;
let asking = null;

/** The entries without files: a picture is checked when it is saved. */
function entries() {
  const texts = [...new FormData(form)].filter(([, value]) => typeof value === "string");
  return new URLSearchParams(texts).toString();
}

/** The name of a control's field: a date with time is one field with two controls. */
const fieldOf = (control) => control?.name?.replace(/_[01]$/, "");

/** The list under a field, or null if the page has no such field. */
function listOf(field) {
  if (!lists.has(field)) lists.set(field, makeList(field));
  return lists.get(field);
}

/** The part of the page with this field's label, controls and help. */
const placeOf = (control) => control.closest(".form-multiline > div, .form-row > div");

function makeList(field) {
  const controls = [...form.elements].filter((control) => fieldOf(control) === field);
  const place = controls[0] && placeOf(controls[0]);
  if (!place) return null;
  const list = document.createElement("ul");
  list.className = "sale-hints";
  list.id = `hints-${field}`;
  place.append(list);
  for (const control of controls) {
    const described = control.getAttribute("aria-describedby");
    control.setAttribute("aria-describedby", [described, list.id].filter(Boolean).join(" "));
  }
  return list;
}

async function check() {
  const body = entries();
  sent = body;
  asking?.abort();
  asking = new AbortController();
  try {
    const response = await fetch(checkUrl, {
      method: "POST",
      headers: { Accept: "application/json", "Content-Type": "application/x-www-form-urlencoded" },
      body,
      credentials: "same-origin",
      signal: asking.signal,
    });
    const checked = response.ok ? await response.json() : nothing;
    answered = body;
    show(checked);
  } catch (error) {
    // Show nothing rather than the hints of other entries. Saving checks everything again.
    if (error.name !== "AbortError") show(nothing);
  }
}

function show(checked) {
  answer = checked;
  const isEdit = changing !== null;
  still(() => showAnswer(isEdit));
}

function showAnswer(isEdit) {
  const { errors, hints } = answer;
  for (const field of new Set([...lists.keys(), ...Object.keys(errors), ...Object.keys(hints)])) {
    const wrong = left.has(field) ? (errors[field] ?? []) : [];
    const lines = [
      ...wrong.map((text) => ({ level: "error", text })),
      ...(hints[field] ?? []),
    ];
    showLines(field, lines, isEdit);
  }
}

function showLines(field, lines, isEdit) {
  if (!lines.length && !lists.has(field)) return;
  const list = listOf(field);
  const text = lines.map((line) => line.text).join(" ");
  if (!list || list.dataset.text === text) return;
  list.dataset.text = text;
  list.style.minHeight = `${list.offsetHeight}px`; // what becomes shorter keeps its room
  list.replaceChildren(
    ...lines.map((line) => {
      const item = document.createElement("li");
      item.className = `sale-hints__${line.level}`;
      item.textContent = line.text;
      return item;
    }),
  );
  // Announce only what follows an edit, not the passing of time.
  if (isEdit) status.textContent = [status.textContent, text].join(" ").trim();
}

/** Check once typing stops. The admin's pickers change fields without an event. */
function checkSoon() {
  clearTimeout(timer);
  timer = setTimeout(() => {
    if (entries() === sent) return;
    changing = fieldOf(document.activeElement) ?? "";
    status.textContent = "";
    check().finally(() => (changing = null));
  }, PAUSE_MS);
}

/** Hide the errors that the server rendered for the previous entry; they keep their room. */
function removeErrors(control) {
  const place = placeOf(control);
  const alone = place?.parentElement.classList.contains("form-row");
  const scope = alone ? place.parentElement : place;
  scope?.querySelectorAll(".errorlist").forEach((list) => {
    list.style.minHeight = `${list.offsetHeight}px`;
    list.className = "sale-hints__past";
  });
  scope?.querySelectorAll(".errors").forEach((box) => box.classList.remove("errors"));
  if (alone) scope.classList.remove("errors");
}

function edit({ target }) {
  edited.add(fieldOf(target));
  removeErrors(target);
  checkSoon();
}

function leave({ target, relatedTarget }) {
  const field = fieldOf(target);
  if (!edited.has(field) || placeOf(target)?.contains(relatedTarget)) return;
  left.add(field);
  if (answered === entries()) show(answer); // else the answer to the last entry is still to come
}

function start() {
  status.className = "visually-hidden";
  status.setAttribute("role", "status");
  form.addEventListener("input", edit);
  form.addEventListener("change", edit);
  form.addEventListener("focusout", leave);
  document.addEventListener("click", checkSoon);
  document.addEventListener("focusin", checkSoon);
  setInterval(() => document.hidden || check(), AGAIN_MS);
  HINTED.forEach(listOf);
  check();
}

if (form?.elements.stock) start();
