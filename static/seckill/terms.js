// The terms that a buyer agrees to, as the page shows them; and the newer page once they have changed.

import { fill } from "./clock.js";

const PARTS = [".ticket__stub", ".ticket__body", "#when", "#room-note", ".drawing", ".details"];
const FACTS = ["revision", "priceCents", "beginsAtMs", "endsAtMs"];
export const LEAST_MS = 2000; // by then every server and cache knows of the change
const SPREAD_MS = 10_000;

/** The terms in the page's words, by name. */
export function termsOf(page) {
  const terms = {};
  for (const { dataset, textContent } of page.querySelectorAll("[data-term]")) {
    terms[dataset.term] = `${terms[dataset.term] ?? ""}${textContent.trim().replace(/\s+/g, " ")}`;
  }
  return terms;
}

/** Say what is not as the buyer has seen it; "" if all of it is. */
export function changesText(seen, now, texts) {
  const names = Object.keys({ ...seen, ...now }).filter((name) => seen[name] !== now[name]);
  const sentences = names.map((name) => fill(texts[name], { now: now[name] }));
  return sentences.join(document.documentElement.lang.startsWith("zh") ? "" : " ");
}

/** Swap the parts of a page that differ in a newer one. The others keep focus and pictures. */
export function takeOver(page, newer) {
  for (const selector of PARTS) {
    const [before, after] = [page, newer].map((it) => it.querySelector(selector));
    if (before && after && !before.isEqualNode(after)) before.replaceWith(document.importNode(after, true));
  }
  for (const name of FACTS) page.dataset[name] = newer.dataset[name];
}

/**
 * Return the milliseconds until a page asks for the newer one. The more pages there are, the more ask
 * live/ all the time: spread over ten seconds, their reloads are a part of that. The server may name
 * a longer time, as for me/.
 */
export const turnMs = ({ paceMs = 0, random }) => LEAST_MS + random * Math.max(paceMs, SPREAD_MS);

/** Whether a token buys at this price, or at any: those of an earlier release do. */
export function isAtPrice(token, priceCents) {
  const [, signed, beside] = /-p(\d+)-w\d+:|~p(\d+)$/.exec(token) ?? [];
  const cents = signed ?? beside;
  return cents === undefined || cents === priceCents;
}
