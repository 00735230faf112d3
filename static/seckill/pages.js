// Pages of this shop, for their parts.

import { abortedAfter } from "./wire.js";

/** Request a page as a reload would. Return its document or null; never throw. */
export async function askPage(url, { headers = {}, timeoutMs = 5000 } = {}) {
  try {
    const response = await fetch(url, {
      headers: { Accept: "text/html", ...headers },
      cache: "no-store",
      redirect: "error", // to the sign-in, whose page is another
      signal: abortedAfter(timeoutMs),
    });
    if (!response.ok) return null;
    return new DOMParser().parseFromString(await response.text(), "text/html");
  } catch {
    return null;
  }
}
