"""The picture of a voucher's code: black on white, small, and large enough for a scanner."""

import io

from PIL import Image

from orders.receipts.code_picture import WIDTH_PX, draw_code_picture


def test_picture_is_small_and_black_on_white() -> None:
    content = draw_code_picture(
        address="https://shop.example/staff/redeem/#code=ABCD-1234-EFGH-5678",
        code="ABCD-1234-EFGH-5678",
        order_id=2**62,
    )
    picture = Image.open(io.BytesIO(content))
    assert picture.format == "PNG"
    assert picture.width == WIDTH_PX
    assert len(content) < 20_000
    shades = picture.convert("L")
    assert shades.getextrema() == (0, 255)
    assert shades.getpixel((0, 0)) == 255
    # Nothing is cut at the edges.
    for box in ((0, 0, 8, picture.height), (WIDTH_PX - 8, 0, WIDTH_PX, picture.height)):
        assert shades.crop(box).getextrema() == (255, 255)
