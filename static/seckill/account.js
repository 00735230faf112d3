// Who is signed in, on a page that is the same for everybody.

const CSRF_COOKIE = /(?:^|; )(?:__Host-)?csrftoken=([^;]+)/;

/** Show the links of a buyer, of staff or of a visitor, by an answer of me/. */
export function showAccount({ signed_in: signedIn, name = "", staff_desk: desk }) {
  const who = new Set([signedIn ? "buyer" : "visitor", desk]);
  for (const part of document.querySelectorAll("[data-who]")) {
    part.hidden = !who.has(part.dataset.who) || !canBeSent(part);
  }
  document.getElementById("sign-out").title = name;
  document.dispatchEvent(new CustomEvent("account", { detail: signedIn }));
  forgetPagesUnlessOf(signedIn ? name : "");
}

/** Pages that this device keeps are one account's (keeper_worker.js). */
function forgetPagesUnlessOf(owner) {
  const workers = navigator.serviceWorker?.getRegistrations();
  workers?.then((all) => all.forEach((it) => it.active?.postMessage({ owner }))).catch(() => {}); // a browser may forbid it
}

/** Put Django's token into a form. Return whether there is one: each page with a form sets it. */
export function canBeSent(form) {
  const field = form.elements?.csrfmiddlewaretoken;
  if (!field) return true;
  field.value = CSRF_COOKIE.exec(document.cookie)?.[1] ?? "";
  return field.value !== "";
}

/** Say once what a page of accounts has just done; accounts/way_back.py wrote the cookie. */
function tell() {
  const told = /(?:^|; )told="?([\w+/]+)/.exec(document.cookie);
  const place = document.getElementById("told");
  if (!told || !place) return;
  document.cookie = "told=; path=/; max-age=0";
  for (const text of JSON.parse(atob(told[1]))) {
    const line = document.createElement("p");
    line.className = "message message--success";
    line.textContent = text;
    place.append(line);
  }
  for (const event of ["pointerdown", "keydown"]) addEventListener(event, () => place.remove());
}

tell();
