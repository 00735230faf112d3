"""Picture files as a shop might upload them."""

from __future__ import annotations

from io import BytesIO
from typing import Any

from PIL import Image

from vouchers.catalogue.pictures import store_picture
from vouchers.models import Picture, Voucher

RED = (200, 30, 30)


def image_file(
    *,
    kind: str = "JPEG",
    size: tuple[int, int] = (640, 360),
    colour: Any = RED,
    mode: str = "RGB",
    **options: Any,
) -> bytes:
    """Return a file of one colour."""
    return saved(Image.new(mode, size, colour), kind, **options)


def noise_file(*, kind: str = "JPEG", size: tuple[int, int] = (1600, 900)) -> bytes:
    """Return grey noise, which hardly compresses."""
    return saved(Image.effect_noise(size, 80), kind)


def film_file(kind: str) -> bytes:
    """Return a file of three frames, the first of which is red."""
    first, *others = (Image.new("RGB", (80, 60), colour) for colour in (RED, "green", "blue"))
    return saved(first, kind, save_all=True, append_images=others)


def saved(image: Image.Image, kind: str, **options: Any) -> bytes:
    file = BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def opened(content: bytes) -> Image.Image:
    image = Image.open(BytesIO(content))
    image.load()
    return image


def give_picture(voucher: Voucher, **options: Any) -> Picture:
    """Give a voucher a picture, and return its row."""
    voucher.picture = store_picture(content=image_file(**options))
    voucher.save(update_fields=["picture"])
    return voucher.picture
