// A rule refuses the buyer: why, and what helps. Also the field of an invitation code.

import { canBeSent } from "./account.js";
import { fill } from "./clock.js";
import { momentText } from "./why.js";
import { ask } from "./wire.js";

const element = (id) => document.getElementById(id);

/** The reason in words, by what me/ says of the buyer. */
export function ruleText({ rule, rule_number: number, eligible_at_ms: fromMs }, { texts, endsAtMs }) {
  if (!rule) return "";
  return fromMs >= endsAtMs ? texts.old_too_late : fill(texts.rule[rule], { number });
}

/** "Eligible from 3 May, 14:00" for an account that is too new; "" for other rules, or if that is too late. */
export function eligibleText({ eligible_at_ms: fromMs }, { texts, endsAtMs, lang, timeZone }) {
  if (!fromMs || fromMs >= endsAtMs) return "";
  return fill(texts.rule_button.account_age, { time: momentText(fromMs, { lang, timeZone }) });
}

/** Show what helps with the rule that refuses the buyer, or nothing. */
export function showHelp({ rule, unpaid_url: unpaidUrl }, { texts, urls }) {
  const help = element("help");
  const form = element("code-entry");
  const maySend = canBeSent(form);
  help.hidden = !["contact", "unpaid_orders"].includes(rule) && (rule !== "code" || maySend);
  if (!help.hidden) {
    help.textContent = texts.rule_button[rule];
    help.href = { contact: urls.phone, unpaid_orders: unpaidUrl || urls.orders, code: urls.form }[rule];
  }
  element("help-email").hidden = rule !== "contact";
  form.hidden = rule !== "code" || !maySend;
}

/** Enter a code without leaving the page. `onDone` is called unless it was wrong: then me/ knows more. */
export function listenForCode({ texts, onDone }) {
  const form = element("code-entry");
  const { code, csrfmiddlewaretoken } = form.elements;
  let isAsking = false;

  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    if (isAsking) return;
    isAsking = true;
    say("");
    const headers = { "X-CSRFToken": csrfmiddlewaretoken.value };
    const answer = await ask(form.action, { method: "POST", body: { code: code.value }, headers });
    isAsking = false;
    const error = codeError(answer, texts);
    if (!error) {
      code.value = ""; // a sale of several may take another one
      return onDone();
    }
    say(error);
    return code.focus();
  });
  code.addEventListener("input", () => say(""));

  function say(text) {
    element("code-error").textContent = text;
    if (text) code.setAttribute("aria-invalid", "true");
    else code.removeAttribute("aria-invalid");
  }
}

/** What was wrong with a code; "" if it was taken, or if something else keeps the buyer out. */
function codeError({ status, body, retryAfterMs }, texts) {
  if (status === 429) return fill(texts.rate_limited, { minutes: Math.ceil(retryAfterMs / 60_000) });
  if (status === 400 || body.code === "code_refused") return texts.code_refused;
  return status === 0 || status >= 500 ? texts.away : "";
}
