// Requests to the shop. A request that fails is an answer too: status 0, the outcome is unknown.

/** Ask for JSON. Returns {status, body, retryAfterMs, heardAt} and never throws. */
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
      cache: "no-store", // a second-old answer of the browser's own cache would put the clock back
      signal: AbortSignal.timeout(timeoutMs),
    });
    const heardAt = performance.now();
    return {
      status: response.status,
      heardAt,
      retryAfterMs: retryAfterMs(response.headers.get("Retry-After")),
      body: (await response.json().catch(() => null)) ?? {},
    };
  } catch {
    return { status: 0, heardAt: performance.now(), retryAfterMs: 0, body: {} };
  }
}

/** Ask for a page as it would be loaded anew. Returns its document, or null, and never throws. */
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
  // The count belongs to the token, not to the press: only a first request may be refused as
  // sold out unseen, and after an unknown outcome the next one is no first request any more.
  ticket.attempt += 1;
  return ask(url, { method: "POST", body: { token: ticket.token, attempt: ticket.attempt } });
}

/** What Retry-After asks for; its form with a date is not used by this shop. */
export function retryAfterMs(header) {
  return /^\d+$/.test(header ?? "") ? Number(header) * 1000 : 0;
}

/** 0.3 s, 0.6 s, 1.2 s, 2 s, 2 s… each 20 % more or less, so that a crowd does not return in step. */
export function backoffMs(tries, random = Math.random()) {
  const base = Math.min(300 * 2 ** (tries - 1), 2000);
  return base * (0.8 + 0.4 * random);
}

export const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

/** The order id that a purchase token will become: its first number. */
export const orderIdOf = (token) => /^(\d+)-/.exec(token)?.[1] ?? null;

/** The JSON block of the page with this id. */
export const readJson = (id) => JSON.parse(document.getElementById(id)?.textContent || "null");

/**
 * The receipt's page keeps the token of an order in the queue: should the ledger lose the order,
 * it is asked for again under the same id. A browser may forbid the storage; then nobody asks.
 */
export const keptTokens = {
  keep: (token) => stored((storage) => storage.setItem(`seckill-${orderIdOf(token)}`, token)),
  of: (orderId) => stored((storage) => storage.getItem(`seckill-${orderId}`)),
  drop: (orderId) => stored((storage) => storage.removeItem(`seckill-${orderId}`)),
};

function stored(action) {
  try {
    return action(sessionStorage);
  } catch {
    return null;
  }
}
