// Computes a chain again from its list, as vouchers/chain.py does; nothing here touches the page.

import { readHead, sha256 } from "./sha256.js";

const FIELDS = ["sale", "first", "entries", "start", "head"];
const TELL_EVERY = 500;

/** Read a list or a part of one: `links` with their lines, and `entries` with their numbers. */
export function readChain(text) {
  const { head, lines } = readHead(text, FIELDS);
  const links = [];
  const entries = new Map();
  let added = [];
  let number = Number(head.first) - 1;
  for (const line of lines) {
    if (/^= [0-9a-f]{64}$/.test(line)) {
      links.push({ text: added.map((it) => `${it}\n`).join(""), head: line.slice(2), last: number });
      added = [];
    } else {
      added.push(line);
      const [, id, refused] = /^([1-9]\d*) \d+( refused)?$/.exec(line) ?? [];
      if (id) entries.set(id, { number: (number += 1), link: links.length, refused: Boolean(refused) });
      else if (!line.startsWith("! ")) throw new Error("no line of a list");
    }
  }
  const isWhole = number === Number(head.first) + Number(head.entries) - 1;
  if (added.length > 0 || !isWhole || entries.size !== Number(head.entries)) throw new Error("cut off");
  return { ...head, links, entries };
}

/** Return "right", or "broken" if a head does not follow from the lines before it. */
export async function checkChain(chain, onProgress = () => {}) {
  let head = chain.start;
  if (chain.first === "1" && head !== (await sha256(`sale ${chain.sale}`))) return "broken";
  for (const [index, link] of chain.links.entries()) {
    head = await sha256(`${head}\n${link.text}`);
    if (head !== link.head) return "broken";
    if (index % TELL_EVERY === 0) onProgress(link.last, chain.entries.size);
  }
  return head === chain.head ? "right" : "broken";
}

/** Return the number and the head of an order, and whether it was refused; null if it is not there. */
export function findOrder(chain, id) {
  const entry = chain.entries.get(id);
  return entry ? { ...entry, head: chain.links[entry.link].head } : null;
}

/** Return the number of the last order before a head; null if the head is not in the list. */
export const placeOfHead = (chain, head) => chain.links.find((link) => link.head === head)?.last ?? null;
