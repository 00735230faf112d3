// The page of a draw: computes the result again in this browser, and finds an entry in the list.

import { showAccount } from "./account.js";
import { fill } from "./clock.js";
import { check, placeOf, readRecord } from "./draw_check.js";
import { ask, readJson } from "./wire.js";

const element = (id) => document.getElementById(id);
const page = element("main");
const texts = readJson("sentences");
let record = null;

const say = (id, text) => {
  element(id).textContent = text;
  element(id).hidden = !text;
};

/** Compare with the page as well: the file alone could be another draw's. */
async function verify(text) {
  record = readRecord(text);
  const { commitment, digest, seed } = page.dataset;
  if ([record.commitment, record.digest, record.seed].join() !== [commitment, digest, seed].join()) {
    return "other";
  }
  return check(record, (count, total) => say("result", fill(texts.checking, { count, total })));
}

async function checkDraw() {
  element("check").disabled = true;
  say("result", fill(texts.checking, { count: 0, total: page.dataset.entries }));
  page.dataset.result = await fetchRecord().then(verify).catch(() => "failed");
  say("result", texts.result[page.dataset.result]);
  element("check").disabled = false;
  element("find").hidden = !record;
}

async function fetchRecord() {
  const response = await fetch(page.dataset.recordUrl);
  if (!response.ok) throw new Error(String(response.status));
  return response.text();
}

function find(event) {
  event.preventDefault();
  const place = placeOf(record, element("entry").value.trim());
  const isDrawn = record.seed !== "";
  const key = !place ? "absent" : !isDrawn ? "listed" : place <= record.units ? "won" : "not_won";
  say("found", fill(texts.found[key], { place }));
}

if (page.dataset.recordUrl) {
  const canCheck = Boolean(globalThis.crypto?.subtle); // only on https
  element("check").hidden = !canCheck;
  if (!canCheck) say("result", texts.result.no_crypto);
  element("check").addEventListener("click", checkDraw);
  element("find").addEventListener("submit", find);
}

ask(page.dataset.meUrl).then(({ status, body }) => status === 200 && showAccount(body));
