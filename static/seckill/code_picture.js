// "Save picture": draws a code with what is needed to use it. The page's fonts know every script;
// without this one, the link leads to the server's picture, which has the code alone.

const WIDTH = 720;
const MARGIN = 40;
const TEXT_WIDTH = WIDTH - 2 * MARGIN;
// Latin words stay whole, with what must not start a line; anything else may break anywhere.
const PARTS = /(?:[\x21-\x7e\u00a1-\u024f]{1,30}|[^])[\s，。、；：！？）》”]*/gu;

document.addEventListener("click", (event) => {
  const link = event.target.closest?.("a[data-title]");
  if (!link || !HTMLCanvasElement.prototype.toBlob) return;
  event.preventDefault();
  saved(link).catch(() => location.assign(link.href));
});

async function saved(link) {
  const voucher = link.closest("[data-voucher]");
  const qr = await picture(voucher.querySelector("svg.qr"));
  const canvas = document.createElement("canvas");
  canvas.width = WIDTH;
  canvas.height = drawn(canvas.getContext("2d"), qr, link.dataset, voucher); // which empties it
  drawn(canvas.getContext("2d"), qr, link.dataset, voucher);
  if (navigator.userAgent.includes("MicroMessenger")) return showToHold(link, canvas.toDataURL());
  const blob = await new Promise((resolve) => canvas.toBlob(resolve));
  const file = document.createElement("a");
  file.href = URL.createObjectURL(blob);
  file.download = link.download;
  file.click();
  setTimeout(() => URL.revokeObjectURL(file.href), 60_000);
}

/** WeChat's browser saves no files, but the picture under a finger. */
function showToHold(link, address) {
  const actions = link.closest("ul");
  if (actions.nextElementSibling?.matches(".held")) actions.nextElementSibling.remove();
  const figure = document.createElement("figure");
  figure.className = "held";
  const image = new Image();
  image.src = address;
  image.alt = link.dataset.title;
  const words = document.createElement("figcaption");
  words.textContent = link.dataset.hold;
  figure.append(words, image);
  actions.after(figure);
  figure.scrollIntoView({ block: "nearest" });
}

/** The QR code of the page as an image, each module a whole number of pixels wide. */
async function picture(svg) {
  const copy = svg.cloneNode(true);
  const modules = svg.viewBox.baseVal.width;
  const edge = modules * Math.floor(TEXT_WIDTH / modules);
  copy.setAttribute("width", edge);
  copy.setAttribute("height", edge);
  const image = new Image(edge, edge);
  image.src = `data:image/svg+xml,${encodeURIComponent(new XMLSerializer().serializeToString(copy))}`;
  await image.decode();
  return image;
}

/** Draw everything; return how high that is. */
function drawn(pen, qr, { title, code, number }, voucher) {
  const { fontFamily } = getComputedStyle(document.body);
  let y = MARGIN;
  pen.fillStyle = "#fff";
  pen.fillRect(0, 0, WIDTH, pen.canvas.height);
  pen.fillStyle = "#000";
  pen.textBaseline = "top";

  function write(text, { size = 28, bold = false, centred = false, after = 12 } = {}) {
    pen.font = `${bold ? 700 : 400} ${size}px ${fontFamily}`;
    pen.textAlign = centred ? "center" : "left";
    for (const line of lines(pen, text)) {
      pen.fillText(line, centred ? WIDTH / 2 : MARGIN, y);
      y += size * 1.4;
    }
    y += after;
  }

  write(title, { size: 40, bold: true, centred: true });
  pen.drawImage(qr, (WIDTH - qr.width) / 2, y);
  y += qr.height + 12;
  write(code, { size: 48, bold: true, centred: true });
  write(number, { size: 24, centred: true, after: 28 });
  for (const fact of voucher.querySelectorAll("[data-fact]")) {
    const [name, value] = fact.children;
    write(name.textContent.trim(), { size: 24, after: 0 });
    write(value.innerText.trim(), { bold: !value.matches(".rules"), after: 16 });
  }
  return Math.ceil(y + MARGIN);
}

function lines(pen, text) {
  const found = [];
  for (const paragraph of text.split(/\s*\n\s*/)) {
    let line = "";
    for (const part of paragraph.match(PARTS) ?? []) {
      if (line && pen.measureText((line + part).trimEnd()).width > TEXT_WIDTH) {
        found.push(line.trimEnd());
        line = "";
      }
      line += part;
    }
    found.push(line.trimEnd());
  }
  return found;
}
