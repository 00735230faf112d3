// Computes a draw again from its record, as orders/draws/rules.py does; nothing here touches the page.

import { readHead, sha256 } from "./sha256.js";

const FIELDS = ["sale", "commitment", "digest", "entries", "units", "seed"];
const AT_ONCE = 2000;

/** Read a record: six lines "# name: value", then an id a line. Ids stay texts: they have 63 bits. */
export function readRecord(text) {
  const { head, lines: ids } = readHead(text, FIELDS);
  if (!ids.every((id) => /^[1-9][0-9]{0,18}$/.test(id))) throw new Error("not an id");
  return { ...head, units: Number(head.units), ids };
}

/** Compare ids by their value: the longer one is greater. */
const byValue = (a, b) => a.length - b.length || (a < b ? -1 : a > b ? 1 : 0);

async function tickets({ seed, digest, ids }, onProgress) {
  const found = [];
  for (let start = 0; start < ids.length; start += AT_ONCE) {
    const some = ids.slice(start, start + AT_ONCE);
    found.push(...(await Promise.all(some.map((id) => sha256(`${seed}:${digest}:${id}`)))));
    onProgress(found.length, ids.length);
  }
  return found;
}

/** Return the name of the first thing that is wrong with a record, or "right". */
export async function check(record, onProgress = () => {}) {
  const { ids } = record;
  if (new Set(ids).size !== ids.length || ids.length !== Number(record.entries)) return "list";
  // oxlint-disable-next-line unicorn/no-array-sort -- toSorted is younger than the oldest browsers
  const list = [...ids].sort(byValue).map((id) => `${id}\n`);
  if ((await sha256(list.join(""))) !== record.digest) return "list";
  if (!record.seed) return "no_seed";
  if ((await sha256(record.seed)) !== record.commitment) return "seed";
  const found = await tickets(record, onProgress);
  const inOrder = found.every((ticket, number) => number === 0 || found[number - 1] < ticket);
  return inOrder ? "right" : "order";
}

/** Return the place of an id in the drawn order, from 1; 0 if it is not in the list. */
export const placeOf = ({ ids }, id) => ids.indexOf(id) + 1;
