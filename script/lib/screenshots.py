"""Take the pictures of the documentation: a filled shop, its pages, one PNG each.

``script/screenshots`` runs this beside private servers. The shop is that of the accessibility
tests, so what is shown is what is tested.
"""

from __future__ import annotations

import argparse
import io
import os
import shutil
import sys
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "seckill_site.settings")
os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = "true"  # Playwright keeps an event loop in this thread
os.environ["SECKILL_LOG_LEVEL"] = "WARNING"  # show only the progress

import django  # noqa: E402

django.setup()

from django.conf import settings  # noqa: E402
from django.core.management import call_command  # noqa: E402
from PIL import Image  # noqa: E402
from playwright.sync_api import Browser, Page, sync_playwright  # noqa: E402
from playwright.sync_api import Error as PlaywrightError  # noqa: E402
from tqdm import tqdm  # noqa: E402

from backoffice.demo.service import set_demo_face  # noqa: E402
from tests.browser.window import Window, fill_window, session_key  # noqa: E402
from tests.conftest import CHROMIUM_ARGUMENTS  # noqa: E402
from tests.support.heartbeats import note_all  # noqa: E402
from tests.support.orders import make_buyers  # noqa: E402
from tests.support.payments import make_unpaid_order  # noqa: E402
from tests.support.stack import Stack  # noqa: E402

DRAWINGS = Path(__file__).with_name("offers")
LARGEST_BYTES = 150_000
COLOURS = (256, 160, 96)
"""Numbers of colours to try; a page of text and flat areas has few."""

PHONE = {
    "viewport": {"width": 390, "height": 844},
    "device_scale_factor": 2,
    "is_mobile": True,
    "has_touch": True,
}
LANGUAGES = {"en": ("en", "en-GB"), "zh": ("zh-hans", "zh-CN")}


@dataclass(frozen=True)
class Shot:
    """One picture: the user, the page, the screen, and what must be on the page first."""

    who: str
    where: str
    """The address of the page, into which ``window`` is filled; or ``room``."""
    desk: int = 0
    """The height of a desktop's screen; without one, it is a phone's."""
    scheme: Literal["light", "dark"] = "light"
    wait_for: str = "main"
    sells: bool = False
    """Whether the sale is run meanwhile."""
    if_named: bool = False
    """Whether it is taken only if it is named."""
    whole: bool = False

    @property
    def screen(self) -> dict[str, Any]:
        desk = {"viewport": {"width": 1280, "height": self.desk}, "device_scale_factor": 1.5}
        return desk if self.desk else PHONE

    def address(self, window: Window) -> str:
        if self.where == "room":
            return f"/vouchers/{window.open_room(people=1_240).pk}/room/"
        return self.where.format(window=window)


def run_and_sell(window: Window, page: Page, language: str) -> None:
    """Sell for a while with the board open, so that its list and its charts fill."""
    window.run("open", language=language)
    for units in (1, 2, 0, 1, 3, 1, 0, 2, 1, 1):
        if units:
            make_unpaid_order(window.sales["open"], make_buyers(units))
        page.wait_for_timeout(2_100)


_SHOTS = tomllib.loads(Path(__file__).with_name("screenshots.toml").read_text("utf-8"))
SHOTS = {name: Shot(**it) for name, it in _SHOTS.items()}


def everywhere(shots: dict[str, Shot]) -> dict[str, Shot]:
    """Return these pictures on a phone and on a desk, light and dark, of the whole page."""
    schemes: tuple[Literal["light", "dark"], ...] = ("light", "dark")
    return {
        f"{name}-{width}-{scheme}": replace(shot, desk=desk, scheme=scheme, whole=True)
        for name, shot in shots.items()
        for width, desk in {"390": 0, "1280": 860}.items()
        for scheme in schemes
    }


def main() -> int:
    parser = argparse.ArgumentParser(prog="script/screenshots")
    parser.add_argument("--only", nargs="+", choices=SHOTS, metavar="NAME")
    parser.add_argument("--into", type=Path, default=ROOT / "docs" / "images")
    parser.add_argument("--everywhere", action="store_true")
    arguments = parser.parse_args()
    arguments.into.mkdir(parents=True, exist_ok=True)
    names = arguments.only or [name for name, it in SHOTS.items() if not it.if_named]
    shots = {name: SHOTS[name] for name in names}
    if arguments.everywhere:
        shots = everywhere(shots)
    wanted = [(name, language) for language in LANGUAGES for name in shots]
    with shop() as (chromium, window, url):
        failed = [
            text
            for name, language in tqdm(wanted, unit="picture", disable=None)
            if (
                text := take(
                    chromium, window, url, shots[name], f"{name}-{language}", arguments.into
                )
            )
        ]
    sys.stderr.write("".join(f"screenshots: {text}\n" for text in failed))
    return 1 if failed else 0


# --- The shop and its browser ---------------------------------------------------------------------


@contextmanager
def shop() -> Iterator[tuple[Browser, Window, str]]:
    """Yield Debian's Chromium, a filled shop and the address of its web server."""
    program = shutil.which("chromium-headless-shell")
    call_command("migrate", interactive=False, verbosity=0)
    call_command("collectstatic", interactive=False, verbosity=0)
    directory, database = Path(os.environ["SECKILL_SCRATCH"]), settings.DATABASES["default"]["NAME"]
    with sync_playwright() as playwright, Stack(directory, database=database) as stack:
        chromium = playwright.chromium.launch(executable_path=program, args=CHROMIUM_ARGUMENTS)
        set_demo_face()
        window = fill_window(crowd=76, pictures=drawn(chromium))
        yield chromium, window, stack.web(workers=1, threads=6).url
        chromium.close()


def drawn(chromium: Browser) -> dict[str, bytes]:
    """Return the drawings as files that a shop would upload."""
    page = chromium.new_page(viewport={"width": 960, "height": 540})
    files = {}
    for path in sorted(DRAWINGS.glob("*.svg")):
        page.goto(path.as_uri())
        files[path.stem] = page.screenshot()
    page.close()
    return files


# --- A picture ------------------------------------------------------------------------------------


def take(chromium: Browser, window: Window, url: str, shot: Shot, name: str, into: Path) -> str:
    """Take a picture in the name's language, save it; return the error text, or an empty text."""
    spoken, locale = LANGUAGES[name.rpartition("-")[2]]
    window.speak(spoken)
    note_all()  # as if workers ran
    context = chromium.new_context(
        base_url=url,
        locale=locale,
        timezone_id="Asia/Shanghai",
        color_scheme=shot.scheme,
        **shot.screen,
    )
    cookie, value = settings.SESSION_COOKIE_NAME, session_key(window.people[shot.who])
    context.add_cookies([{"name": cookie, "value": value, "url": url}])
    try:
        page, address = context.new_page(), shot.address(window)
        response = page.goto(address)
        if response is None or not response.ok:
            raise RuntimeError(f"{address} returned {response and response.status}")
        page.locator(shot.wait_for).first.wait_for()
        if shot.sells:
            run_and_sell(window, page, spoken)
        page.wait_for_timeout(1_500)  # let clocks, meters and charts settle
        return save(page.screenshot(full_page=shot.whole), into / f"{name}.png")
    except (PlaywrightError, RuntimeError) as error:
        return f"{name}: {str(error).splitlines()[0]}"
    finally:
        context.close()


def save(content: bytes, path: Path) -> str:
    """Save a picture with as many colours as a page of the documentation can afford."""
    picture = Image.open(io.BytesIO(content)).convert("RGB")
    for colours in COLOURS:
        few = picture.quantize(colours, dither=Image.Dither.NONE)
        few.save(path, optimize=True)
        if path.stat().st_size <= LARGEST_BYTES:
            return ""
    return f"{path.name} has {path.stat().st_size // 1000} kB, more than {LARGEST_BYTES // 1000}"


if __name__ == "__main__":
    sys.exit(main())
