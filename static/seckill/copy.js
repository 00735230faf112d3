// Buttons with data-copy: they copy its text and say so.

import { announce } from "./announce.js";

const SAID_MS = 2000;

for (const button of document.querySelectorAll("[data-copy][hidden]")) button.hidden = false;

document.addEventListener("click", ({ target }) => {
  const button = target.closest?.("[data-copy]");
  if (button) copy(button);
});

async function copy(button) {
  if (!(await written(button)) || button.dataset.label) return;
  button.dataset.label = button.textContent;
  button.textContent = button.dataset.copied;
  announce(button.dataset.copied);
  setTimeout(() => {
    button.textContent = button.dataset.label;
    delete button.dataset.label;
  }, SAID_MS);
}

/** Write to the clipboard; where the browser has none (plain HTTP), by way of a selection. */
async function written(button) {
  try {
    await navigator.clipboard.writeText(button.dataset.copy);
    return true;
  } catch {
    return selectedAndCopied(document.getElementById(button.dataset.select ?? "code"));
  }
}

function selectedAndCopied(element) {
  if (!element) return false;
  if (element.select) element.select();
  else getSelection().selectAllChildren(element);
  return document.execCommand("copy"); // where it fails, the text is selected at least
}
