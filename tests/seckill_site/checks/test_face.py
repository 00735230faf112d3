"""A face that buyers could not read or use is found at the start."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from seckill_site.checks import face
from seckill_site.checks.configuration import found_by
from seckill_site.face.values import MOST_TERMS_BYTES

pytestmark = pytest.mark.quick

CHECKS = (
    face.check_texts,
    face.check_logo,
    face.check_map,
    face.check_terms,
)


def ids() -> list[str]:
    return [str(message.id).removeprefix("seckill.") for message in found_by(*CHECKS)]


@pytest.fixture(autouse=True)
def no_face(settings: Any) -> None:
    assert ids() == []


@pytest.mark.parametrize(
    ("setting", "value", "found"),
    [
        ("SECKILL_SHOP_NAME", " ", "E040"),
        ("SECKILL_SHOP_NAME_EN", "x" * 41, "E040"),
        ("SECKILL_SHOP_NAME", "two\nlines", "E040"),
        ("SECKILL_SHOP_IMPRINT", "x" * 301, "E040"),
        ("SECKILL_SHOP_COLOUR", "red", "E041"),
        ("SECKILL_SHOP_LOGO", "/nowhere/logo.png", "E042"),
        ("SECKILL_SHOP_LOGO", __file__, "E042"),
        ("SECKILL_SHOP_CONTACT", "call us", "E043"),
        ("SECKILL_SHOP_CONTACT", "javascript:alert(1)", "E043"),
        ("SECKILL_SHOP_TERMS", "/nowhere/terms.txt", "E044"),
        ("SECKILL_MAP_URL", "https://map.example/search", "E045"),
        ("SECKILL_MAP_URL", "javascript:alert('{place}')", "E045"),
    ],
)
def test_unusable_value_is_an_error(settings: Any, setting: str, value: str, found: str) -> None:
    setattr(settings, setting, value)
    assert ids() == [found]


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("SECKILL_SHOP_NAME", "好券集市"),
        ("SECKILL_SHOP_COLOUR", "#FFCC00"),
        ("SECKILL_SHOP_CONTACT", "help@shop.example"),
        ("SECKILL_SHOP_CONTACT", "+86 21 5555 0100"),
        ("SECKILL_SHOP_IMPRINT", "沪ICP备00000000号"),
        ("SECKILL_SHOP_TERMS", "https://shop.example/terms"),
        ("SECKILL_SHOP_TERMS", __file__),
        ("SECKILL_MAP_URL", "https://map.example/?q={place}"),
    ],
)
def test_usable_value_passes(settings: Any, setting: str, value: str) -> None:
    setattr(settings, setting, value)
    assert ids() == []


def test_picture_passes_as_a_logo(settings: Any, tmp_path: Path) -> None:
    path = tmp_path / "logo.png"
    Image.new("RGB", (512, 512), "navy").save(path)
    settings.SECKILL_SHOP_LOGO = str(path)
    assert ids() == []


@pytest.mark.parametrize("content", [b"", b"\xff\xfe\xff", b"x" * (MOST_TERMS_BYTES + 1)])
def test_unreadable_terms_are_an_error(settings: Any, tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "terms.txt"
    path.write_bytes(content)
    settings.SECKILL_SHOP_TERMS_EN = str(path)
    assert ids() == ["E044"]
