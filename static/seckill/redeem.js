// The counter: a code scanned with a phone stands behind the # of the address, so that no log has it.
// (Behind the ? in QR codes that were printed before.)

const scanned = /[#?]code=([0-9A-Za-z-]{1,40})$/.exec(location.href)?.[1];
if (scanned) {
  history.replaceState(null, "", location.pathname);
  const form = document.getElementById("check");
  form.elements.code.value = scanned;
  form.submit();
}
