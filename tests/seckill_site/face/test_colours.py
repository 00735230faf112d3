"""Whatever colour the shop has, its texts can be read."""

from __future__ import annotations

import re
from itertools import product
from pathlib import Path

import pytest

from seckill_site.face.colours import (
    DARK,
    LIGHT,
    SHAPE_CONTRAST,
    TEXT_CONTRAST,
    Grounds,
    Palette,
    contrast,
    hex_of,
    palettes,
    read_colour,
)

pytestmark = pytest.mark.quick

STEPS = (0, 51, 102, 153, 204, 255)
STYLES = Path(__file__).resolve().parents[3] / "static" / "seckill" / "site.css"


def assert_readable(palette: Palette, grounds: Grounds) -> None:
    everywhere = (grounds.paper, grounds.card, grounds.quiet)
    assert contrast(palette.on_accent, palette.accent) >= TEXT_CONTRAST
    assert contrast(palette.on_accent, palette.accent_down) >= TEXT_CONTRAST
    for ground in (*everywhere, palette.accent_soft):
        assert contrast(palette.accent_ink, ground) >= TEXT_CONTRAST
    for ground in everywhere:
        assert contrast(palette.bar, ground) >= SHAPE_CONTRAST


def test_texts_of_any_colour_keep_contrast_aa() -> None:
    for red, green, blue in product(STEPS, repeat=3):
        light, dark = palettes((red, green, blue))
        assert_readable(light, LIGHT)
        assert_readable(dark, DARK)


def test_contrast_is_that_of_wcag() -> None:
    assert contrast((0, 0, 0), (255, 255, 255)) == pytest.approx(21)
    assert contrast((0x76, 0x76, 0x76), (255, 255, 255)) == pytest.approx(4.54, abs=0.01)


def test_strong_colour_stays_as_it_is() -> None:
    light, _dark = palettes(read_colour("#0a7d4f"))
    assert (hex_of(light.accent), hex_of(light.on_accent)) == ("#0a7d4f", "#ffffff")


def test_light_colour_gets_black_text() -> None:
    light, _dark = palettes(read_colour("#ffcc00"))
    assert hex_of(light.on_accent) == "#000000"


@pytest.mark.parametrize("text", ["red", "#fff", "#12345g", "#1234567", "", "#cf2318;}", "cf2318"])
def test_other_notations_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a colour"):
        read_colour(text)


def test_grounds_are_those_of_the_style_sheet() -> None:
    text = STYLES.read_text(encoding="utf-8")
    for name, colours in (("paper", "paper"), ("card", "card"), ("quiet", "quiet")):
        found = re.findall(rf"--{name}: (#[0-9a-f]+);", text)[:2]
        wanted = [hex_of(getattr(grounds, colours)) for grounds in (LIGHT, DARK)]
        assert [it.replace("#fff", "#ffffff") if len(it) == 4 else it for it in found] == wanted
