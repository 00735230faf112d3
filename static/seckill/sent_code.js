// "Send again" waits a minute: the first code may still arrive.
(function () {
  var again = document.getElementById("again");
  if (!again || again.dataset.wait === "0") return;
  var words = again.textContent;
  var until = performance.now() + Number(again.dataset.wait) * 1000;
  function show() {
    var left = Math.ceil((until - performance.now()) / 1000);
    again.disabled = left > 0;
    again.textContent = left > 0 ? again.dataset.waiting.replace("{seconds}", left) : words;
    if (left > 0) setTimeout(show, 250);
  }
  show();
})();
