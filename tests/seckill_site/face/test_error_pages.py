"""nginx's error pages get the shop's name, contact and colour, however often they are written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from seckill_site.face import error_pages
from seckill_site.face.error_pages import PAGES, write_error_pages

pytestmark = pytest.mark.quick


@pytest.fixture(autouse=True)
def shop(settings: Any) -> Any:
    settings.SECKILL_SHOP_NAME, settings.SECKILL_SHOP_NAME_EN = "好券集市", "Salt & Pepper"
    settings.SECKILL_SHOP_CONTACT = "help@shop.example"
    settings.SECKILL_SHOP_COLOUR = "#0a7d4f"
    return settings


def test_pages_get_the_face(tmp_path: Path) -> None:
    assert {it.name for it in write_error_pages(into=tmp_path)} == {
        it.name for it in PAGES.iterdir()
    }
    for page in tmp_path.glob("*.html"):
        text = page.read_text(encoding="utf-8")
        assert "好券集市 · Salt &amp; Pepper" in text
        assert '<a href="mailto:help@shop.example">help@shop.example</a>' in text
    assert "#0a784c" in (tmp_path / "errors.css").read_text(encoding="utf-8")


def test_pages_are_written_in_place_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_error_pages(into=tmp_path)
    first = {it.name: it.read_bytes() for it in tmp_path.iterdir()}
    monkeypatch.setattr(error_pages, "PAGES", tmp_path)
    write_error_pages(into=tmp_path)
    assert {it.name: it.read_bytes() for it in tmp_path.iterdir()} == first


def test_directory_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(CommandError, match="file"):
        call_command("error_pages", str(file))
