// The order request: repeated with the same token until its outcome is known.

import { judge, judgeReceipt } from "./purchase_states.js";
import { ask, backoffMs, needsWork, orderIdOf, pause, place, worked } from "./wire.js";

const TRIES = 5;
const LONGEST_WAIT_MS = 30_000; // who has to wait longer is told so
const NO_TOKEN = { status: 403, body: { code: "bad_token" } }; // as the server would answer

/**
 * Order with a ticket {token, attempt}. Returns {event, answer}; the event is one of accepted,
 * already_ordered, login_required, bad_token, waiting_room, not_eligible, refused, missing (no such order) and
 * unreachable (the outcome stays unknown). Meanwhile `step` is called with "busy" and "unknown".
 */
export async function order({ ticket, urls, step }) {
  const sent = await send({ ticket, urls, step });
  if (sent.event !== "unknown") return sent;
  step("unknown");
  return ticket.token ? askForReceipt({ ticket, urls }) : { event: "unreachable" };
}

async function send({ ticket, urls, step }) {
  let renewed = false;
  for (let tries = 1; tries <= TRIES; ) {
    if (needsWork(ticket.token)) ticket.token = await worked(ticket.token);
    const answer = ticket.token ? await place(urls.place, ticket) : NO_TOKEN;
    let event = judge(answer.status, answer.body.code);
    if (event === "bad_token" && !renewed) {
      event = await renewToken({ ticket, urls });
      renewed = event === "renewed";
    }
    if (event === "renewed") continue;
    if (event !== "busy") return { event, answer };
    if (answer.retryAfterMs > LONGEST_WAIT_MS) return { event: "refused", answer };
    step("busy");
    if (tries < TRIES) await pause(Math.max(backoffMs(tries), answer.retryAfterMs ?? 0));
    tries += 1;
  }
  return { event: "unknown" };
}

async function renewToken({ ticket, urls }) {
  const answer = await ask(urls.token);
  if (answer.status !== 200) {
    const event = judge(answer.status, answer.body.code);
    return event === "refused" ? "bad_token" : event;
  }
  ticket.token = answer.body.token;
  ticket.attempt = 0;
  return "renewed";
}

/** The outcome is unknown: ask for the receipt of the token's order id. */
async function askForReceipt({ ticket, urls }) {
  const url = `${urls.place}${orderIdOf(ticket.token)}/`;
  for (let tries = 1; tries <= TRIES; tries += 1) {
    const answer = await ask(url, { headers: { "Purchase-Token": ticket.token } });
    const event = judgeReceipt(answer.status, answer.body);
    if (event !== "unknown") return { event, answer };
    await pause(Math.max(backoffMs(tries), answer.retryAfterMs));
  }
  return { event: "unreachable" };
}
