// Marks a page whose clocks are not the reader's: the style sheet then names the shop's time zone.

for (const { dateTime } of document.querySelectorAll("time[data-zone]")) {
  const isHere = new Date(dateTime).toTimeString().slice(0, 5) === dateTime.slice(11, 16);
  if (!isHere) document.documentElement.classList.add("is-elsewhere");
}
