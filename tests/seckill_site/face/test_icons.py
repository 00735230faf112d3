"""The icons are of their size, in the shop's colour or with its logo."""

from __future__ import annotations

import io

import pytest
from PIL import Image

from seckill_site.face.icons import MOST_LOGO_BYTES, SIZES, UnusableLogo, icon, open_logo

pytestmark = pytest.mark.quick

GREEN = (10, 125, 79)


def picture(size: tuple[int, int], kind: str = "PNG") -> bytes:
    file = io.BytesIO()
    Image.new("RGB", size, "navy").save(file, kind)
    return file.getvalue()


def opened(content: bytes) -> Image.Image:
    return Image.open(io.BytesIO(content)).convert("RGBA")


@pytest.mark.parametrize("name", SIZES)
@pytest.mark.parametrize("logo", [b"", picture((300, 120))])
def test_icon_is_a_square_of_its_size(name: str, logo: bytes) -> None:
    content = icon(name, colour=GREEN, logo=logo)
    assert opened(content).size == (SIZES[name], SIZES[name])
    assert len(content) < 30_000


def test_flash_stands_on_the_shops_colour() -> None:
    shown = opened(icon("maskable", colour=GREEN, logo=b""))
    assert shown.getpixel((4, 4)) == (*GREEN, 255)
    assert shown.getpixel((256, 256)) == (255, 255, 255, 255)


def test_maskable_icon_keeps_the_logo_inside() -> None:
    shown = opened(icon("maskable", colour=GREEN, logo=picture((512, 512))))
    assert shown.getpixel((20, 256)) == (255, 255, 255, 255)
    assert shown.getpixel((256, 256)) == (0, 0, 128, 255)


@pytest.mark.parametrize(
    "content",
    [b"", b"<svg/>", picture((63, 200)), picture((64, 5000)), b"\x89PNG" * MOST_LOGO_BYTES],
    ids=["empty", "svg", "narrow", "long", "large"],
)
def test_unusable_logo_is_refused(content: bytes) -> None:
    with pytest.raises(UnusableLogo):
        open_logo(content)
