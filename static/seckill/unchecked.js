// Codes that got no answer: typed while the shop could not be reached, or sent to be redeemed. They
// wait in this window for the shop, and for no other session than theirs. Once the shop answers they
// are looked up; only a press redeems. One that was sent to be redeemed keeps its key, so that the
// same press does not count twice.

import { abortedAfter, readJson } from "./wire.js";

const STORE = "counter";
const PAUSE_MS = 5000;
const SEEN_AS = { O: "0", I: "1", L: "1", U: "V" };

const PAGE = document.getElementById("check").action; // a voucher's page may be another
const main = document.getElementById("main");
const section = document.getElementById("unchecked");
const template = section.querySelector("template");
const texts = readJson("sentences").unchecked;
let items = stored();
let isAsking = false;

/** A typed code as the shop stores it. */
export function plain(code) {
  const typed = code.normalize("NFKC").toUpperCase().split("CODE=").at(-1);
  return typed.replace(/[^0-9A-Z]/g, "").replace(/[OILU]/g, (it) => SEEN_AS[it]);
}

/** Keep what was to be sent until the shop answers. */
export function wait({ code, key, why }) {
  const known = items.find((it) => it.id === plain(code));
  forget(code);
  items.push({ id: plain(code), code, key: key ?? known?.key, why: why ?? known?.why });
  store();
}

export function forget(code) {
  items = items.filter((it) => it.id !== plain(code));
  store();
}

function stored() {
  try {
    const kept = JSON.parse(sessionStorage.getItem(STORE));
    return kept.session === main.dataset.session ? kept.items : [];
  } catch {
    return []; // there are none, or the browser forbids it
  }
}

function store() {
  const kept = items.map(({ id, code, key, why }) => ({ id, code, key, why }));
  try {
    sessionStorage.setItem(STORE, JSON.stringify({ session: main.dataset.session, items: kept }));
  } catch {
    // they wait as long as the page is open
  }
  section.hidden = !items.length;
  template.parentElement.replaceChildren(template, ...items.map(asRow));
}

function asRow(item) {
  const row = template.content.cloneNode(true);
  row.querySelector("[data-part=code]").textContent = item.code;
  row.querySelector("[data-part=state]").textContent =
    item.found?.text ?? (item.key ? texts.unknown : texts.unchecked);
  row.querySelector("li").dataset.found = item.found?.verdict ?? "";
  const form = row.querySelector("form");
  const { code, key, why } = item;
  for (const [name, value] of Object.entries(key ? { code, key, why } : { code, check: "1" })) {
    if (value) form.append(Object.assign(document.createElement("input"), { type: "hidden", name, value }));
  }
  const [send, drop] = form.querySelectorAll("button");
  const isOwn = item.found?.verdict === "own";
  send.textContent = key ? texts[isOwn ? "again" : "redeem"] : texts.check;
  drop.textContent = texts.remove;
  drop.addEventListener("click", () => forget(code));
  return row;
}

// --- Once the shop answers -----------------------------------------------------------------------

/** Request the counter's page, with a code to look up. Return its document, or null. */
async function request(fields) {
  try {
    const response = await fetch(PAGE, {
      ...(fields && { method: "POST", body: new URLSearchParams(fields) }),
      headers: { Accept: "text/html" },
      cache: "no-store",
      redirect: "manual",
      signal: abortedAfter(PAUSE_MS),
    });
    if (response.type === "opaqueredirect" || response.status === 401) return leave(); // the sign-in
    if (response.status >= 500) return null;
    return new DOMParser().parseFromString(await response.text(), "text/html");
  } catch {
    return null;
  }
}

function leave() {
  location.replace(PAGE);
  return null;
}

async function ask() {
  const isWaiting = "kept" in main.dataset || items.some((it) => !it.found);
  if (isAsking || document.hidden || !isWaiting) return;
  isAsking = true;
  await lookUp();
  isAsking = false;
}

async function lookUp() {
  const page = await request();
  const fresh = page?.getElementById("main")?.dataset.session;
  if (!fresh) return;
  if (fresh !== main.dataset.session) return leave();
  delete main.dataset.kept;
  const { value } = page.querySelector("[name=csrfmiddlewaretoken]");
  for (const part of [document, template.content]) {
    for (const field of part.querySelectorAll("[name=csrfmiddlewaretoken]")) field.value = value;
  }
  for (const item of items.filter((it) => !it.found)) {
    const answer = await request({ code: item.code, check: "1", csrfmiddlewaretoken: value });
    const told = answer?.querySelector("[data-verdict]:not([data-verdict=too_many])");
    if (!told) break;
    item.found = { verdict: told.dataset.verdict, text: told.querySelector("h2").textContent.trim() };
  }
  store();
}

// The shop has answered about this one.
const about = document.querySelector("[data-about]:not([data-verdict=away]):not([data-verdict=too_many])");
if (about) forget(about.dataset.about);
if (main.dataset.sent) wait(JSON.parse(main.dataset.sent));
store();
ask();
setInterval(ask, PAUSE_MS);
window.addEventListener("online", ask);
document.addEventListener("visibilitychange", ask);
