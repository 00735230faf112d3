// What became of the reader's own entry, on the page of a sale or draw that is the same for everybody.

import { ask } from "./wire.js";

const link = document.getElementById("own-entry");

/** `account.js` tells who is there. */
document.addEventListener("account", async ({ detail: isSignedIn }) => {
  if (!isSignedIn || "result" in link.dataset) return;
  link.dataset.result = "";
  const { body } = await ask(link.href);
  if (!body.result) return;
  Object.assign(link.dataset, body);
  link.querySelector(`[data-of="${body.result}"]`).hidden = false;
  link.hidden = false;
});
