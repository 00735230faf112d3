// The order request: repeated with the same token until its outcome is known.

import { isOrdered, judge } from "./purchase_states.js";
import { needsWork, orderIdOf, place, worked } from "./tickets.js";
import { ask, faultOf, jittered, pause } from "./wire.js";

const QUICK_TRIES = 5; // then slower, and the receipt is asked for as well
const SLOWEST_MS = 8000;
const LONGEST_WAIT_MS = 30_000; // who has to wait longer is told so
const PRICE_TRIES = 3;
const PRICE_PAUSE_MS = 600; // a server may be late by a second
const NO_TOKEN = { status: 403, body: { code: "bad_token" } }; // as the server would answer

/**
 * Order with a ticket {token, attempt}. Returns {event, answer}; the event is one of accepted,
 * already_ordered, login_required, bad_token, waiting_room, not_eligible and refused. Meanwhile `step` is
 * called with the fault of each try: offline, busy or unreachable. `rest` has the pauses between them.
 * A token at another price than the page shows, by `isAgreed`, is never sent; soon there may be one at this price.
 */
export async function order({ ticket, urls, step, rest, isAgreed }) {
  let renewed = false;
  let priceTries = 0;
  for (let tries = 1; ; ) {
    if (needsWork(ticket.token)) ticket.token = await worked(ticket.token);
    if (!isAgreed(ticket.token)) {
      if (priceTries === PRICE_TRIES) return { event: "refused", answer: { body: { code: "price_changed" } } };
      priceTries += 1;
      await pause(PRICE_PAUSE_MS);
      await renewToken({ ticket, urls });
      continue;
    }
    let answer = ticket.token ? await place(urls.place, ticket) : NO_TOKEN;
    if (answer.body.code === "bad_token" && !renewed) {
      answer = await renewToken({ ticket, urls });
      renewed = answer.status === 200;
      if (renewed) continue;
    }
    const event = judge(answer.status, answer.body.code);
    if (event !== "failed") return { event, answer };
    if (answer.retryAfterMs > LONGEST_WAIT_MS) return { event: "refused", answer };
    step(faultOf(answer.status) || "unreachable");
    const found = tries >= QUICK_TRIES && ticket.token ? await askForReceipt({ ticket, urls }) : null;
    if (found) return found;
    await (answer.retryAfterMs
      ? pause(Math.max(answer.retryAfterMs, backoffMs(tries)))
      : rest.pause(backoffMs(tries, tries < QUICK_TRIES ? undefined : SLOWEST_MS)));
    tries += 1;
  }
}

/** 0.3 s, 0.6 s, 1.2 s… to a longest. */
const backoffMs = (tries, longestMs = 2000) => jittered(Math.min(300 * 2 ** (tries - 1), longestMs));

async function renewToken({ ticket, urls }) {
  const answer = await ask(urls.token);
  if (answer.status === 200) Object.assign(ticket, { token: answer.body.token, attempt: 0 });
  return answer;
}

/** The outcome is unknown: ask for the receipt of the token's order id. */
async function askForReceipt({ ticket, urls }) {
  const url = `${urls.place}${orderIdOf(ticket.token)}/`;
  const answer = await ask(url, { headers: { "Purchase-Token": ticket.token } });
  return isOrdered(answer.status, answer.body) ? { event: "accepted", answer } : null;
}
