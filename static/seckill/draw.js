// The page of a draw: computes the result again in this browser, and finds an entry in the list.

import { offerCheck } from "./checking.js";
import { check, placeOf, readRecord } from "./draw_check.js";

/** Compare with the page as well: the file alone could be another draw's. */
function verify(record, { commitment, digest, seed }, onProgress) {
  if ([record.commitment, record.digest, record.seed].join() !== [commitment, digest, seed].join()) {
    return "other";
  }
  return check(record, onProgress);
}

function find(record, id) {
  const place = placeOf(record, id);
  const isDrawn = record.seed !== "";
  const key = !place ? "absent" : !isDrawn ? "listed" : place <= record.units ? "won" : "not_won";
  return { key, place };
}

offerCheck({ read: readRecord, verify, find });
