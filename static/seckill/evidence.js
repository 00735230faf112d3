// The receipt's part of the chain: kept by this browser once it is shown, and checked later.

const element = (id) => document.getElementById(id);

/** Keep what the page shows of the chain, and let the button check it once the list is there. */
export function showEvidence(texts) {
  const shown = element("evidence")?.dataset;
  if (!shown) return;
  const kept = keep(shown);
  element("check-place")?.addEventListener("click", async ({ target }) => {
    target.disabled = true;
    element("place-result").hidden = true;
    const result = await check(shown, kept).catch(() => "failed");
    element("place-result").textContent = texts[result];
    element("place-result").hidden = false;
    element("evidence").dataset.result = result;
    target.disabled = false;
  });
}

/** Return what this browser was shown first: what the shop shows today proves nothing alone. */
function keep({ order, position, head }) {
  const now = `${position} ${head}`;
  const key = `seckill-evidence-${order}`;
  try {
    const kept = localStorage.getItem(key);
    if (!kept) localStorage.setItem(key, now);
    return kept ?? now;
  } catch {
    return now; // the browser forbids it
  }
}

async function check({ order, partUrl }, kept) {
  if (!globalThis.crypto?.subtle) return "no_crypto"; // only on https
  const { checkChain, findOrder, readChain } = await import("./chain_check.js");
  const response = await fetch(partUrl);
  if (!response.ok) return "failed";
  const chain = readChain(await response.text());
  if ((await checkChain(chain)) !== "right") return "broken";
  const found = findOrder(chain, order);
  if (!found) return "absent";
  return `${found.number} ${found.head}` === kept ? "right" : "moved";
}
