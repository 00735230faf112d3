// The button's state machine, as tables and pure functions; purchase.js shows it.

const LONGEST_TIMER_MS = 3_600_000; // a much longer timer would overflow and fire at once
const SCHEDULED_MS = 60_000; // the start, the price and the rules may change before it

/**
 * Every state of the button.
 *   press  what a press does, or null: the button cannot be pressed
 *   polls  whether live/ is polled in it
 *
 * No state is a dead end: it has a press, or a link beside or in place of the button (queued, entered,
 * yours, already_ordered, barred: to the order; sold_out: to the waiting list; ended: to the other sales;
 * not_eligible: to what helps, if anything does), or it ends without a press.
 */
export const STATES = Object.freeze({
  sign_in: { press: "signIn", polls: true },
  sign_in_open: { press: "signIn", polls: true },
  scheduled: { press: null, polls: true },
  open: { press: "buy", polls: true },
  sending: { press: null, polls: false },
  busy: { press: null, polls: false },
  offline: { press: null, polls: true }, // an answer says that the shop is back
  unreachable: { press: null, polls: true },
  queued: { press: null, polls: false },
  entered: { press: null, polls: false }, // in a draw
  yours: { press: null, polls: false },
  sold_out: { press: null, polls: true }, // units come back
  already_ordered: { press: null, polls: false },
  barred: { press: null, polls: false }, // an ended order rules out another
  paused: { press: null, polls: true },
  ended: { press: null, polls: false },
  not_eligible: { press: null, polls: true }, // a rule refuses the buyer
  limited: { press: null, polls: true }, // too many orders: for a while
  outdated: { press: "reload", polls: false }, // this page can order nothing more
});

/** Events of a running request, which is repeated until its outcome is known. */
const ON_ITS_WAY = {
  busy: "busy",
  offline: "offline",
  unreachable: "unreachable",
  accepted: "queued",
  refused: null,
  already_ordered: "already_ordered",
  login_required: "sign_in",
  not_eligible: "not_eligible",
  outdated: "outdated",
};

/** Events from me/, which may come at any other time: its `own_state`, or "free" for null. */
const FROM_ME = {
  queued: "queued",
  entered: "entered",
  yours: "yours",
  already_ordered: "already_ordered",
  barred: "barred",
  not_eligible: "not_eligible",
  free: null,
  login_required: "sign_in",
};

/** Moves between the buyer's own states; null: the button shows the state of the sale. */
const MOVES = Object.freeze({
  null: { press: "sending", ...FROM_ME },
  sending: ON_ITS_WAY,
  busy: ON_ITS_WAY,
  offline: ON_ITS_WAY,
  unreachable: ON_ITS_WAY,
  queued: FROM_ME,
  entered: FROM_ME,
  yours: FROM_ME,
  already_ordered: FROM_ME,
  barred: FROM_ME,
  not_eligible: FROM_ME,
  outdated: { ...FROM_ME, free: "outdated" },
  sign_in: {},
});

/** Return the buyer's own state after an event; an unknown event changes nothing. */
export function move(own, event) {
  const moves = MOVES[own];
  return event in moves ? moves[event] : own;
}

/** Return the present state of the sale: the first that holds, in the order of live/. */
export function saleState(live, nowMs) {
  if (live.state === "ended" || nowMs >= live.ends_at_ms) return "ended";
  if (live.state === "paused") return "paused";
  if (nowMs < live.begins_at_ms) return "scheduled";
  return live.state === "sold_out" ? "sold_out" : "open";
}

/**
 * The state that the button shows. A buyer who was signed out sees the sale as a visitor does;
 * `isLimited`: the buyer's last order was refused for a while.
 */
export function shownState({ own, sale, visitor, visitorStates, isLimited }) {
  if (visitor || own === "sign_in") return visitorStates[sale] ?? sale;
  if (own === "not_eligible" && sale === "ended") return sale;
  if (own === null && sale === "open" && isLimited) return "limited";
  return own ?? sale;
}

/** Return the event of an answer to an order request; "failed" if its outcome is unknown. */
export function judge(status, code) {
  if (status === 202) return "accepted";
  if (["waiting_room", "not_eligible", "bad_token", "already_ordered"].includes(code)) return code;
  if (status === 401) return "login_required";
  return status >= 400 && status < 500 && status !== 429 ? "refused" : "failed";
}

/** Whether a receipt that was asked for with the order's own token says that there is an order. */
export const isOrdered = (status, { status: state, reason }) =>
  status === 200 && !(state === "refused" && reason === "lost");

/** Return the milliseconds until live/ is polled again; null: never. `random` is in [0, 1). */
export function pollMs({ state, sale, leftToBeginMs, random }) {
  if (!STATES[state].polls) return null;
  if (sale === "open") return 1000 + 1000 * random;
  if (sale !== "scheduled") return 4000 + 2000 * random;
  if (leftToBeginMs <= 5000) return 1000 + 1000 * random;
  // Measure the clock once more 20 to 40 s before the start, each page at its own moment.
  const untilMeasure = leftToBeginMs - 20_000 - 20_000 * random;
  const wait = untilMeasure > 5000 ? untilMeasure : leftToBeginMs - 5000 + 1000 * random;
  return Math.min(wait, SCHEDULED_MS * (0.8 + 0.4 * random));
}

/**
 * Return the milliseconds until the page asks me/: at once, but before the start a crowd spreads its
 * requests over the time that the server names.
 */
export function meDelayMs({ sale, leftToBeginMs, paceMs, random }) {
  if (sale !== "scheduled") return 0;
  return random * Math.max(0, Math.min(paceMs, leftToBeginMs - 5000));
}

/**
 * Return the milliseconds until a buyer in line goes to the waiting room: at once, but before the
 * start when `leadMs` are left; null: never.
 */
export function roomDelayMs({ sale, leftToBeginMs, leadMs }) {
  if (sale === "ended") return null;
  if (sale !== "scheduled") return 0;
  return Math.min(Math.max(0, leftToBeginMs - leadMs), LONGEST_TIMER_MS);
}

/** Return the milliseconds until me/ is polled again; null: not without an event. */
export function mePollMs({ own, payLeftMs, queuePaceMs, nowMs, random }) {
  if (own?.status === "queued") return queuePaceMs;
  if (own?.eligible_at_ms) {
    const leftMs = Math.max(0, own.eligible_at_ms - nowMs); // then the account is old enough
    return Math.min(leftMs + 1000 + 2000 * random, LONGEST_TIMER_MS);
  }
  if (own?.status !== "unpaid") return null;
  return (payLeftMs > 0 ? 8000 : 2500) * (0.8 + 0.4 * random);
}
