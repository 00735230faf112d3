// The page of a chain: computes it again in this browser, and finds an order or a head in it.

import { checkChain, findOrder, placeOfHead, readChain } from "./chain_check.js";
import { offerCheck } from "./checking.js";

/** Compare with the page as well: the file alone could be another sale's. */
function verify(chain, { sale, head }, onProgress) {
  if (chain.sale !== sale || chain.head !== head || chain.first !== "1") return "other";
  return checkChain(chain, onProgress);
}

function find(chain, text) {
  const order = findOrder(chain, text);
  if (order) return { key: order.refused ? "refused" : "listed", place: order.number };
  const place = placeOfHead(chain, text.toLowerCase());
  return place === null ? { key: "absent" } : { key: "head", place };
}

offerCheck({ read: readChain, verify, find });
