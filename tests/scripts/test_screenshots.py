"""``script/screenshots``: what it says, and how a picture is made small. It takes none here."""

from __future__ import annotations

import io
import random
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from PIL import Image

from tests.browser.window import OFFERS
from tests.support.patience import GENEROUS_S

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def screenshots(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The program, without running it."""
    monkeypatch.setenv("SECKILL_LOG_LEVEL", "INFO")  # which it sets for itself
    monkeypatch.syspath_prepend(str(ROOT / "script" / "lib"))
    import screenshots

    return screenshots


def said(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "script/lib/screenshots.py", *arguments],
        cwd=ROOT, capture_output=True, text=True, timeout=GENEROUS_S, check=False,
    )  # fmt: skip


def as_png(picture: Image.Image) -> bytes:
    content = io.BytesIO()
    picture.save(content, "PNG")
    return content.getvalue()


def test_screenshots_help_names_every_picture(screenshots: ModuleType) -> None:
    script = ROOT / "script" / "screenshots"
    text = subprocess.run([script, "--help"], capture_output=True, text=True, check=True).stdout
    assert text.startswith("Usage: script/screenshots")
    named = re.search(r"only these: (.*?)\n\s+--into", text, re.DOTALL)
    assert named
    assert named[1].split() == list(screenshots.SHOTS)


@pytest.mark.slow
def test_unknown_picture_is_refused_before_start() -> None:
    answer = said("--only", "moon")
    assert answer.returncode == 2
    assert "invalid choice: 'moon'" in answer.stderr


def test_picture_is_saved_with_few_colours(screenshots: ModuleType, tmp_path: Path) -> None:
    flat = as_png(Image.new("RGB", (780, 1688), "teal"))
    assert screenshots.save(flat, tmp_path / "flat.png") == ""
    with Image.open(tmp_path / "flat.png") as saved:
        assert saved.mode == "P"


@pytest.mark.slow
def test_too_large_picture_is_reported(screenshots: ModuleType, tmp_path: Path) -> None:
    noise = as_png(Image.frombytes("RGB", (800, 800), random.Random(1).randbytes(3 * 800 * 800)))
    text = screenshots.save(noise, tmp_path / "noise.png")
    assert re.fullmatch(r"noise\.png has \d+ kB, more than 150", text)


def test_every_drawing_belongs_to_an_offer(screenshots: ModuleType) -> None:
    drawn = {path.stem for path in screenshots.DRAWINGS.glob("*.svg")}
    assert drawn == {offer.drawing for offer in OFFERS.values()} - {""}
