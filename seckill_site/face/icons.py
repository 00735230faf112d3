"""The icons of the shop as PNG: its logo, or a flash on the accent colour."""

import io
from functools import lru_cache

from PIL import Image, ImageDraw

from seckill_site.face.colours import RGB, palettes

SIZES = {"64": 64, "180": 180, "192": 192, "512": 512, "maskable": 512}
"""The icons by name, with their edges in pixels. A launcher cuts a maskable one to its shape."""

SMALLEST_LOGO, MOST_LOGO_BYTES = 64, 1024 * 1024
STORED_EDGE = max(SIZES.values())
LOGO_FORMATS = ("PNG", "WEBP", "JPEG")

_FLASH = ((18.6, 4), (7.5, 18), (14.5, 18), (13.1, 28), (24.5, 13.6), (17.2, 13.6))
"""The flash of ``static/seckill/favicon.svg``, in a square of 32."""

_FINER = 4
"""How much finer the flash is drawn, so that its edges are smooth."""

_SAFE_SHARE = 0.8
"""The share of a maskable icon that every launcher shows."""


class UnusableLogo(ValueError):
    """The file of the logo cannot be shown."""


def open_logo(content: bytes) -> Image.Image:
    """Return the picture of a logo.

    :raises UnusableLogo: it is no picture, or too small or large.
    """
    if len(content) > MOST_LOGO_BYTES:
        raise UnusableLogo("it is larger than 1 MB")
    try:
        logo = Image.open(io.BytesIO(content), formats=LOGO_FORMATS)
        width, height = logo.size
        if min(width, height) < SMALLEST_LOGO or max(width, height) > 4096:
            raise UnusableLogo("its edges are not 64 to 4,096 pixels long")
        return logo.convert("RGBA")
    except UnusableLogo:
        raise
    except Exception as error:  # Pillow may raise anything for a broken file
        raise UnusableLogo("it is no PNG, WebP or JPEG picture") from error


def stored_logo(content: bytes) -> bytes:
    """Return an uploaded logo as it is kept: its pixels alone, as a PNG of at most 512 by 512.

    :raises UnusableLogo: it is no picture, or too small or large.
    """
    logo = open_logo(content)
    logo.thumbnail((STORED_EDGE, STORED_EDGE), Image.Resampling.LANCZOS)
    file = io.BytesIO()
    logo.save(file, "PNG", optimize=True)
    return file.getvalue()


@lru_cache(maxsize=len(SIZES) * 2)
def icon(name: str, *, colour: RGB, logo: bytes) -> bytes:
    """Return an icon by its name, as PNG."""
    edge, is_maskable = SIZES[name], name == "maskable"
    drawn = _of_logo(open_logo(logo), edge, is_maskable) if logo else _flash(colour, edge, name)
    file = io.BytesIO()
    drawn.save(file, "PNG", optimize=True)
    return file.getvalue()


def _of_logo(logo: Image.Image, edge: int, is_maskable: bool) -> Image.Image:
    inner = round(edge * _SAFE_SHARE) if is_maskable else edge
    logo.thumbnail((inner, inner), Image.Resampling.LANCZOS)
    ground = (255, 255, 255, 255) if is_maskable else (255, 255, 255, 0)
    square = Image.new("RGBA", (edge, edge), ground)
    square.alpha_composite(logo, ((edge - logo.width) // 2, (edge - logo.height) // 2))
    return square


def _flash(colour: RGB, edge: int, name: str) -> Image.Image:
    light, _dark = palettes(colour)
    fine = edge * _FINER
    square = Image.new("RGBA", (fine, fine), (0, 0, 0, 0))
    pen = ImageDraw.Draw(square)
    if name in ("maskable", "180"):  # these are cut to their shape by others
        pen.rectangle((0, 0, fine, fine), fill=light.accent)
    else:
        pen.rounded_rectangle((0, 0, fine - 1, fine - 1), radius=fine // 4, fill=light.accent)
    share = _SAFE_SHARE if name == "maskable" else 1
    edge_of_flash, margin = fine * share, fine * (1 - share) / 2
    points = [(margin + x / 32 * edge_of_flash, margin + y / 32 * edge_of_flash) for x, y in _FLASH]
    pen.polygon(points, fill=light.on_accent)
    return square.resize((edge, edge), Image.Resampling.LANCZOS)
