// The service worker that keeps one page on this device, and answers with it when the shop cannot be
// reached. Below /orders/ it is the page of a buyer's codes, once its buyer has switched that on. The
// other one is the counter: what staff sent there without an answer comes back with the kept page.
//
// The page is emptied when its account is no longer the one that is signed in here: by an answer
// of the shop (401, or its redirect to the sign-in), by a page that has asked me/, and by the
// Clear-Site-Data of a sign-out. Each answer of the shop replaces it, so a code that was used or
// refunded goes with the next one.

const { scope } = self.registration;
const IS_COUNTER = scope.endsWith("/staff/redeem/");
const PAGE = IS_COUNTER ? scope : new URL("codes/", scope).href;
const KEPT = IS_COUNTER ? "counter" : "codes";
const PATIENCE_MS = 4000;
const OWNER = /data-owner="([^"]*)"/;
const PARTS = /<(?:link rel="(?:stylesheet|modulepreload)" href|script type="module" src|img src)="([^"]+)"|data-keep="([^"]+)"/g;

self.addEventListener("install", () => self.skipWaiting());
self.addEventListener("activate", (event) => event.waitUntil(self.clients.claim()));

self.addEventListener("message", (event) => {
  const work = { keep, forget, refresh }[event.data] ?? (() => forgetUnless(event.data.owner));
  event.waitUntil(work().finally(() => event.ports[0]?.postMessage("done")));
});

self.addEventListener("fetch", (event) => {
  const { request } = event;
  if (IS_COUNTER && request.method === "POST" && request.mode === "navigate") event.respondWith(sent(request));
  if (request.method !== "GET") return;
  if (request.mode === "navigate") event.respondWith(page(event));
  else if (["style", "script", "image"].includes(request.destination)) event.respondWith(part(request));
});

// --- Answering -----------------------------------------------------------------------------------

async function page(event) {
  const kept = await keptPage();
  if (!kept) return fetch(event.request);
  const isCodes = event.request.url.split(/[?#]/)[0] === PAGE;
  const answer = await inTime(fetch(event.request));
  if (answer && answer.status < 500 && answer.status !== 429) {
    // My orders shows no codes, but whether there still is a session, and that the shop is there.
    event.waitUntil(isCodes ? renew(answer.clone()) : refresh());
    return answer;
  }
  return isCodes ? marked(kept) : Response.redirect(PAGE);
}

/** What was sent to the counter: without an answer, the kept page has it, for another try. */
async function sent(request) {
  const kept = await keptPage();
  if (!kept) return fetch(request);
  const copy = request.clone();
  const answer = await inTime(fetch(request));
  if (answer && answer.status < 500) return answer;
  const { csrfmiddlewaretoken: _, ...fields } = Object.fromEntries(await copy.formData());
  return marked(kept, ` data-sent="${escaped(JSON.stringify(fields))}"`);
}

const ENTITIES = { "&": "&amp;", "<": "&lt;", '"': "&quot;" };
const escaped = (text) => text.replace(/[&<"]/g, (it) => ENTITIES[it]);

async function part(request) {
  return (await caches.match(request.url, { cacheName: KEPT })) ?? fetch(request);
}

/** The shop's answer, or null if it does not come soon enough for somebody at a counter. */
function inTime(answer) {
  const late = new Promise((resolve) => setTimeout(() => resolve(null), PATIENCE_MS));
  return Promise.race([answer.catch(() => null), late]);
}

/** The kept page, which says that it is one. */
async function marked(kept, more = "") {
  const headers = new Headers(kept.headers);
  headers.delete("Content-Encoding");
  headers.delete("Content-Length");
  return new Response((await kept.text()).replace("<main ", () => `<main data-kept${more} `), { headers });
}

// --- Keeping -------------------------------------------------------------------------------------

const keptPage = () => caches.match(PAGE, { cacheName: KEPT });

const forget = () => caches.delete(KEPT);

// Of a page that was opened, a redirect to the sign-in shows only as one.
const isSignedOut = ({ status, type }) => type === "opaqueredirect" || status === 401 || status === 403;

const fresh = () => fetch(PAGE, { headers: { Accept: "text/html" }, redirect: "manual", cache: "no-store" });

async function keep() {
  const answer = await fresh();
  if (answer.ok) await store(answer);
}

/** Ask the shop again, if a page is kept and the shop can be reached. */
async function refresh() {
  if (!(await keptPage())) return;
  const answer = await fresh().catch(() => null);
  if (answer) await renew(answer);
}

async function renew(answer) {
  if (isSignedOut(answer)) return forget();
  if (!answer.ok) return;
  await forgetUnless(ownerOf(await answer.clone().text()));
  if (await keptPage()) await store(answer);
}

async function forgetUnless(owner) {
  const kept = await keptPage();
  if (kept && ownerOf(await kept.text()) !== owner) await forget();
}

const ownerOf = (text) => OWNER.exec(text)?.[1];

/** Keep a page with its styles and scripts; those of an earlier one go. */
async function store(answer) {
  const text = await answer.clone().text();
  const parts = [...text.matchAll(PARTS)].map(([, path, other]) => new URL(path ?? other, PAGE).href);
  const cache = await caches.open(KEPT);
  const known = (await cache.keys()).map(({ url }) => url);
  await cache.addAll(parts.filter((url) => !known.includes(url)));
  await cache.put(PAGE, answer);
  const old = known.filter((url) => url !== PAGE && !parts.includes(url));
  await Promise.all(old.map((url) => cache.delete(url)));
}
