"""A voucher's code as a picture to keep: QR code, code and order number."""

import io

import segno
from PIL import Image, ImageDraw, ImageFont

WIDTH_PX, MARGIN_PX = 720, 40
CODE_PX, SMALL_PX = 52, 26


def draw_code_picture(*, address: str, code: str, order_id: int) -> bytes:
    """Return a PNG, black on white; ``address`` is what a scanner reads."""
    modules = segno.make(address, error="m", micro=False)
    scale = (WIDTH_PX - 2 * MARGIN_PX) // modules.symbol_size()[0]
    drawn = io.BytesIO()
    modules.save(drawn, kind="png", scale=scale)
    qr = Image.open(drawn).convert("L")
    code_top = MARGIN_PX + qr.height + MARGIN_PX // 2
    picture = Image.new("L", (WIDTH_PX, code_top + CODE_PX + SMALL_PX + 2 * MARGIN_PX), "white")
    picture.paste(qr, ((WIDTH_PX - qr.width) // 2, MARGIN_PX))
    pen = ImageDraw.Draw(picture)
    # The font that comes with Pillow has Latin letters and digits, which codes consist of.
    lines = ((code, CODE_PX, code_top), (f"No. {order_id}", SMALL_PX, code_top + CODE_PX + 24))
    for text, size, top in lines:
        font = ImageFont.load_default(size)
        pen.text((WIDTH_PX / 2, top), text, fill="black", font=font, anchor="ma")
    content = io.BytesIO()
    picture.quantize(16).save(content, "PNG", optimize=True)
    return content.getvalue()
