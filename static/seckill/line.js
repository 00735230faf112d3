// A place in line between two answers of room/. Nothing here touches the page.

/** The place this long after an answer, by the rate of the room. A turn comes only with an answer. */
export function placeAt({ position, rate, state, wait_ms: waitMs }, passedMs) {
  if (!rate) return position;
  const standsMs = state === "scheduled" ? waitMs - Math.max(0, position / rate - 1) * 1000 : 0; // until the start
  if (passedMs < standsMs) return position;
  // Half a millisecond more: the wait is rounded.
  return Math.min(position, Math.max(1, Math.ceil(((waitMs + 0.5 - passedMs) * rate) / 1000)));
}

/** Why an answer moves the place that is shown by more than two seconds of the line: a key, or "". */
export function changeOf({ before, line, shown }) {
  if (line.turn !== "waiting") return "";
  if (before.turn === "drawn_later") return "drawn";
  if (before.turn !== "waiting") return "";
  const notable = Math.max(1, 2 * line.rate, 2 * before.rate);
  const byRate = line.rate && before.rate ? line.rate - before.rate : 0;
  const ahead = byRate || (Math.abs(line.position - shown) > notable ? shown - line.position : 0);
  return ahead > 0 ? "faster" : ahead < 0 ? "slower" : "";
}
