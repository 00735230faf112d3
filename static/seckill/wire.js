// Requests to the server. A failed request is an answer with status 0: its outcome is unknown.

/** Request JSON. Return {status, body, retryAfterMs, receivedAt}; never throw. */
export async function ask(url, { method = "GET", body, headers = {}, timeoutMs = 5000 } = {}) {
  try {
    const response = await fetch(url, {
      method,
      ...(body && { body: JSON.stringify(body) }),
      headers: {
        Accept: "application/json",
        ...(body && { "Content-Type": "application/json" }),
        ...headers,
      },
      cache: "no-store", // a cached answer would set the clock back
      signal: abortedAfter(timeoutMs),
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

/** `AbortSignal.timeout`, which the oldest browsers lack. */
export function abortedAfter(ms) {
  if (AbortSignal.timeout) return AbortSignal.timeout(ms);
  const end = new AbortController();
  setTimeout(() => end.abort(), ms);
  return end.signal;
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

/** With 20 % jitter: a crowd must not return at once. */
export const jittered = (ms) => ms * (0.8 + 0.4 * Math.random());

export const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

/** The JSON block of the page with this id. */
export const readJson = (id) => JSON.parse(document.getElementById(id)?.textContent || "null");
