"""Colours derived from the shop's own, so that every text keeps the contrast of WCAG 2 AA."""

import re
from dataclasses import dataclass

RGB = tuple[int, int, int]

TEXT_CONTRAST = 4.5
"""The least contrast of a text with its ground (WCAG 2.2, 1.4.3)."""

SHAPE_CONTRAST = 3.0
"""The least contrast of a shape that says something with its ground (1.4.11)."""

WHITE, BLACK = (255, 255, 255), (0, 0, 0)

_HEX = re.compile("#[0-9a-fA-F]{6}")


@dataclass(frozen=True)
class Grounds:
    """The colours behind the accent: of the page, of a card, and of a quiet area."""

    paper: RGB
    card: RGB
    quiet: RGB


@dataclass(frozen=True)
class Palette:
    """The accent's colours in the style sheet, for one colour scheme."""

    accent: RGB
    accent_down: RGB
    on_accent: RGB
    accent_ink: RGB
    accent_soft: RGB
    bar: RGB

    def css(self) -> str:
        """Return the custom properties of the style sheet."""
        return "".join(
            f"--{name.replace('_', '-')}:{hex_of(colour)};" for name, colour in vars(self).items()
        )


def read_colour(text: str) -> RGB:
    """Return the colour of ``#rrggbb``.

    :raises ValueError: it is written in another way.
    """
    if not _HEX.fullmatch(text):
        raise ValueError(f"{text!r} is not a colour like #cf2318")
    return int(text[1:3], 16), int(text[3:5], 16), int(text[5:7], 16)


def hex_of(colour: RGB) -> str:
    """Return a colour as ``#rrggbb``."""
    return "#{:02x}{:02x}{:02x}".format(*colour)


def contrast(one: RGB, other: RGB) -> float:
    """Return the contrast of two colours, from 1 to 21."""
    dark, light = sorted((_luminance(one), _luminance(other)))
    return (light + 0.05) / (dark + 0.05)


def palettes(colour: RGB) -> tuple[Palette, Palette]:
    """Return the colours of the light and of the dark scheme."""
    light = _palette(colour, LIGHT, towards=BLACK, soft=_mix(colour, WHITE, 0.9))
    dark = _palette(colour, DARK, towards=WHITE, soft=_mix(colour, DARK.paper, 0.8))
    return light, dark


LIGHT = Grounds(paper=(0xF5, 0xF3, 0xEF), card=WHITE, quiet=(0xEC, 0xE8, 0xE1))
DARK = Grounds(paper=(0x14, 0x12, 0x10), card=(0x1F, 0x1C, 0x19), quiet=(0x2C, 0x28, 0x24))
"""The grounds of ``static/seckill/site.css``."""


def _palette(colour: RGB, grounds: Grounds, *, towards: RGB, soft: RGB) -> Palette:
    everywhere = (grounds.paper, grounds.card, grounds.quiet)
    # A button has a text of its own; its edge only has to be seen.
    accent = _reach(colour, everywhere, 1.6, towards=towards)
    on_accent = WHITE if contrast(WHITE, accent) >= TEXT_CONTRAST else BLACK
    away = BLACK if on_accent == WHITE else WHITE
    return Palette(
        accent=accent,
        accent_down=_mix(accent, away, 0.16),
        on_accent=on_accent,
        accent_ink=_reach(colour, (*everywhere, soft), TEXT_CONTRAST, towards=towards),
        accent_soft=soft,
        bar=_reach(colour, everywhere, SHAPE_CONTRAST, towards=towards),
    )


def _reach(colour: RGB, grounds: tuple[RGB, ...], least: float, *, towards: RGB) -> RGB:
    """Return the colour, mixed with another until it stands out from all of these grounds."""
    mixes = (_mix(colour, towards, percent / 100) for percent in range(101))
    return next(it for it in mixes if all(contrast(it, ground) >= least for ground in grounds))


def _mix(one: RGB, other: RGB, share: float) -> RGB:
    """Return a mix of two colours, with this share of the other."""
    red, green, blue = (round(a + (b - a) * share) for a, b in zip(one, other, strict=True))
    return red, green, blue


def _luminance(colour: RGB) -> float:
    red, green, blue = (_linear(part / 255) for part in colour)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def _linear(part: float) -> float:
    return part / 12.92 if part <= 0.04045 else float(((part + 0.055) / 1.055) ** 2.4)
