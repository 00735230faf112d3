// A purchase token: its parts, its work, its order request, and what the browser keeps of it.

import { ask } from "./wire.js";

/**
 * Place the order of a token. `ticket` is {token, attempt} and counts what was sent with it; for several
 * it also has {quantity, allOrNone}.
 */
export function place(url, ticket) {
  // Of the token, not of the press: only its first request may be refused without asking the ledger.
  ticket.attempt += 1;
  const { token, attempt, quantity, allOrNone } = ticket;
  const several = quantity > 1 ? { quantity, all_or_none: allOrNone } : {};
  return ask(url, { method: "POST", body: { token, attempt, ...several } });
}

/** The order id in a purchase token: its first number. */
export const orderIdOf = (token) => /^(\d+)-/.exec(token)?.[1] ?? null;

/** Whether a token still has to show work: its text ends in -w<bits> before the signature. */
export const needsWork = (token) => /-w\d+:[^~]*$/.test(token);

/** The text to send for a token: with its work, if it asks for any. */
export async function worked(token) {
  if (!needsWork(token)) return token;
  try {
    const { workOnce } = await import("./work.js");
    return await workOnce(token);
  } catch {
    return token; // the server says what is missing
  }
}

/**
 * Keep the token of a queued order for the receipt page: if the ledger loses the order, the page
 * places it again under the same id. A browser may forbid storage; then it does not.
 */
export const keptTokens = {
  keep(token) {
    stored((storage) => storage.setItem(`seckill-${orderIdOf(token)}`, token));
    // For the page itself, when it is loaded again: it cannot send a header then.
    const [orderId, , sale] = token.split("-");
    const secure = location.protocol === "https:" ? "; secure" : "";
    const scope = `path=/vouchers/${sale}/orders/${orderId}/; max-age=86400; samesite=lax`;
    document.cookie = `purchase-token=${token}; ${scope}${secure}`;
  },
  of: (orderId) => stored((storage) => storage.getItem(`seckill-${orderId}`)),
  drop: (orderId) => stored((storage) => storage.removeItem(`seckill-${orderId}`)),
};

/** The last refusal in a sale, which the page shows again when it is loaded again in this tab. */
export const keptRefusal = {
  keep: (saleId, refusal) =>
    stored((storage) => storage.setItem(`seckill-refusal-${saleId}`, JSON.stringify(refusal))),
  of: (saleId) =>
    stored((storage) => JSON.parse(storage.getItem(`seckill-refusal-${saleId}`) ?? "null")),
  drop: (saleId) => stored((storage) => storage.removeItem(`seckill-refusal-${saleId}`)),
};

function stored(action) {
  try {
    return action(sessionStorage);
  } catch {
    return null;
  }
}
