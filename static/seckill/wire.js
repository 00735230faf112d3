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

/** The JSON block of the page with this id. */
export const readJson = (id) => JSON.parse(document.getElementById(id)?.textContent || "null");
