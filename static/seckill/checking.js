// The pages on which this browser checks a published file, and finds an entry in it.

import { showAccount } from "./account.js";
import { fill } from "./clock.js";
import { ask, readJson } from "./wire.js";

const element = (id) => document.getElementById(id);
const page = element("main");
const texts = readJson("sentences");

const say = (id, text) => {
  element(id).textContent = text;
  element(id).hidden = !text;
};

const onProgress = (count, total) => say("result", fill(texts.checking, { count, total }));

/**
 * Let the button check the file. `read` makes something of its text, `verify` returns the name of a
 * result, and `find` returns a name and values of what somebody looks for.
 */
export function offerCheck({ read, verify, find }) {
  let file = null;

  async function check() {
    element("check").disabled = true;
    onProgress(0, page.dataset.entries);
    page.dataset.result = await fetchText(page.dataset.recordUrl)
      .then((text) => verify((file = read(text)), page.dataset, onProgress))
      .catch(() => "failed");
    say("result", texts.result[page.dataset.result]);
    element("check").disabled = false;
    element("find").hidden = !file;
  }

  function showFound(event) {
    event.preventDefault();
    const { key, ...values } = find(file, element("entry").value.trim());
    say("found", fill(texts.found[key], values));
  }

  if (page.dataset.recordUrl) {
    element("check").hidden = !canCheck();
    if (!canCheck()) say("result", texts.result.no_crypto);
    element("check").addEventListener("click", check);
    element("find").addEventListener("submit", showFound);
  }
  ask(page.dataset.meUrl).then(({ status, body }) => status === 200 && showAccount(body));
}

async function fetchText(url) {
  const response = await fetch(url);
  if (!response.ok) throw new Error(String(response.status));
  return response.text();
}

const canCheck = () => Boolean(globalThis.crypto?.subtle); // only on https
