"""Reads QR codes from pictures, as a phone does: with the counter's own reader, in Chromium."""

from __future__ import annotations

import base64
from pathlib import Path

from django.conf import settings
from playwright.sync_api import Page

READER = Path(settings.BASE_DIR) / "static/vendor/jsqr/jsQR.js"

READ = """async (address) => {
  const image = new Image();
  image.src = address;
  await image.decode();
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [image.naturalWidth, image.naturalHeight];
  const pen = canvas.getContext("2d");
  pen.drawImage(image, 0, 0);
  const { data, width, height } = pen.getImageData(0, 0, canvas.width, canvas.height);
  return jsQR(data, width, height)?.data ?? null;
}"""


def read_qr(page: Page, picture: bytes) -> str | None:
    """Return the text of the QR code in a PNG, or None if no code can be read."""
    reader = page.context.new_page()
    try:
        reader.add_script_tag(path=READER)
        address = f"data:image/png;base64,{base64.b64encode(picture).decode()}"
        text: str | None = reader.evaluate(READ, address)
        return text
    finally:
        reader.close()


def read_shown_qr(page: Page, selector: str) -> str | None:
    """Return the text of the QR code that this part of a page shows."""
    return read_qr(page, page.locator(selector).screenshot())
