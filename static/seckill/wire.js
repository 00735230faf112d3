// Requests to the server. A failed request is an answer with status 0: its outcome is unknown.

/** Request JSON. Return {status, body, retryAfterMs, receivedAt}; never throw. */
export async function ask(url, { method = "GET", body, headers = {}, timeoutMs = 5000 } = {}) {
  try {
    const response = await fetch(url, {
      method,
      // oxlint-disable-next-line unicorn/no-invalid-fetch-options -- a GET comes without a body
      body: body && JSON.stringify(body),
      headers: {
        Accept: "application/json",
        ...(body && { "Content-Type": "application/json" }),
        ...headers,
      },
      credentials: "same-origin",
      cache: "no-store", // an answer from the browser's cache would set the clock back
      signal: AbortSignal.timeout(timeoutMs),
    });
    const receivedAt = performance.now();
    const answer = await response.json().catch(() => null);
    return {
      status: response.ok && answer === null ? 0 : response.status, // cut off
      receivedAt,
      retryAfterMs: retryAfterMs(response.headers.get("Retry-After")),
      body: answer ?? {},
    };
  } catch {
    return { status: 0, receivedAt: performance.now(), retryAfterMs: 0, body: {} };
  }
}

/** Request a page as a reload would. Return its document or null; never throw. */
export async function askPage(url, { headers = {}, timeoutMs = 5000 } = {}) {
  try {
    const response = await fetch(url, {
      headers: { Accept: "text/html", ...headers },
      credentials: "same-origin",
      cache: "no-store",
      redirect: "error", // to the sign-in, whose page is another
      signal: AbortSignal.timeout(timeoutMs),
    });
    if (!response.ok) return null;
    return new DOMParser().parseFromString(await response.text(), "text/html");
  } catch {
    return null;
  }
}

/** Place the order of a token. `ticket` is {token, attempt} and counts what was sent with it. */
export function place(url, ticket) {
  // Of the token, not of the press: only its first request may be refused without asking the ledger.
  ticket.attempt += 1;
  return ask(url, { method: "POST", body: { token: ticket.token, attempt: ticket.attempt } });
}

/**
 * Say how an answer failed: offline (this device), busy (the shop says so), unreachable, or "".
 */
export function faultOf(status) {
  if (status === 0 && !navigator.onLine) return "offline";
  if (status === 429 || status === 503) return "busy";
  return status === 0 || status >= 500 ? "unreachable" : "";
}

/** Parse Retry-After in seconds: never a date. */
export function retryAfterMs(header) {
  return /^\d+$/.test(header ?? "") ? Number(header) * 1000 : 0;
}

/** 0.3 s, 0.6 s, 1.2 s… to a longest, with 20 % jitter: a crowd must not return at once. */
export const backoffMs = (tries, longestMs = 2000) => jittered(Math.min(300 * 2 ** (tries - 1), longestMs));

export const jittered = (ms) => ms * (0.8 + 0.4 * Math.random());

export const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

/** Pauses that end early once the shop may be reached again. */
export class Rest {
  #end = null;

  pause(ms) {
    return new Promise((resolve) => {
      this.#end = resolve;
      setTimeout(resolve, ms);
    });
  }

  end() {
    this.#end?.();
  }
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

/** The JSON block of the page with this id. */
export const readJson = (id) => JSON.parse(document.getElementById(id)?.textContent || "null");

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
