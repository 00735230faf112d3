"""The counter in a browser: a camera, which plays a QR code, and hand-held scanners."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import segno
from playwright.sync_api import Browser, BrowserType, Page, expect

from orders.lifecycle.redemption import written_code
from orders.models import OrderStatus, VoucherOrder
from tests.browser.conftest import PATIENT_MS, Faults, Person, make_person, sign_in
from tests.support.orders import make_order, make_sale
from tests.support.stack import Web

pytestmark = [pytest.mark.slow, pytest.mark.browser]

PAGE = "/staff/redeem/"
WIDTH, HEIGHT, MODULE = 640, 480, 8
SIZES: dict[str, Any] = {
    "phone": {"viewport": {"width": 390, "height": 844}, "is_mobile": True, "has_touch": True},
    "desk": {"viewport": {"width": 1280, "height": 800}},
}

NO_CAMERA_API = """
  Object.defineProperty(window, "isSecureContext", { value: false });
  Object.defineProperty(navigator, "mediaDevices", { value: undefined });
"""
REJECTING = """
  navigator.mediaDevices.getUserMedia = async () => { throw new DOMException("no", "%s"); };
"""
TRACKED = """
  window.tracks = [];
  const media = navigator.mediaDevices;
  const ask = media.getUserMedia.bind(media);
  media.getUserMedia = async (wanted) => {
    const stream = await ask(wanted);
    tracks.push(...stream.getTracks());
    return stream;
  };
"""
"""Note the camera's tracks, to see that they are stopped."""

codes = itertools.count(1)


def video_of(text: str, path: Path) -> Path:
    """Write a video (YUV4MPEG2) of one picture: a QR code in the middle of grey."""
    rows = [bytearray([200]) * WIDTH for _ in range(HEIGHT)]
    code = segno.make(text, error="m", micro=False)
    matrix = [bytes(it) for it in code.matrix_iter(scale=MODULE, border=4)]
    top, left = (HEIGHT - len(matrix)) // 2, (WIDTH - len(matrix)) // 2
    for row, modules in zip(rows[top:], matrix, strict=False):
        row[left : left + len(modules)] = bytes(16 if dark else 235 for dark in modules)
    frame = b"FRAME\n" + b"".join(rows) + bytes([128]) * (WIDTH * HEIGHT // 2)
    path.write_bytes(f"YUV4MPEG2 W{WIDTH} H{HEIGHT} F10:1 Ip A1:1 C420\n".encode() + frame * 2)
    return path


@pytest.fixture
def voucher(db: None) -> VoucherOrder:
    """A paid order with a code of its own."""
    guest = make_person(f"guest-{next(codes)}")
    order = make_order(make_sale(), guest, status=OrderStatus.PAID)
    code = f"{order.pk % 10**12:0>12}WXYZ"
    VoucherOrder.objects.filter(pk=order.pk).update(code=code)
    order.refresh_from_db()
    return order


def code_of(order: VoucherOrder) -> str:
    return written_code(order.code or "")


@pytest.fixture
def counter(
    browser_type: BrowserType,
    browser_type_launch_args: dict[str, Any],
    web: Web,
    tmp_path: Path,
) -> Iterator[Person]:
    """Call it with what the camera sees (None: no camera): the counter's page of a clerk.

    The headless shell knows no camera, so this is the whole Chromium, without a window.
    """
    chromium = shutil.which("chromium")
    if not chromium:
        pytest.fail("no Chromium: script/test installs it, as root or with sudo")
    browsers: list[Browser] = []
    faults = Faults(web.url)

    def page_of(
        seen: str | None, *, size: str = "desk", script: str = "", allow: bool = True
    ) -> Page:
        fake = []
        if seen is not None:
            video = video_of(seen, tmp_path / "seen.y4m")
            fake = [
                "--use-fake-device-for-media-stream",
                f"--use-file-for-fake-video-capture={video}",
            ]
        args = [*browser_type_launch_args["args"], *fake]
        options = {**browser_type_launch_args, "args": args, "executable_path": chromium}
        browser = browser_type.launch(**options)
        browsers.append(browser)
        context = browser.new_context(base_url=web.url, locale="en-GB", **SIZES[size])
        context.set_default_timeout(PATIENT_MS)
        if allow:
            context.grant_permissions(["camera"], origin=web.url)
        sign_in(context, make_person("clerk", admin=True), url=web.url)
        page = context.new_page()
        if script:
            page.add_init_script(script)
        faults.watch(page)
        page.goto(PAGE)
        return page

    yield page_of
    for browser in browsers:
        browser.close()
    assert faults.found == []


def press_scan(page: Page) -> None:
    page.get_by_role("button", name="Scan with the camera").click()


# --- The camera ----------------------------------------------------------------------------------


@pytest.mark.parametrize("size", SIZES)
def test_camera_reads_a_voucher_and_stops(
    counter: Person, voucher: VoucherOrder, web: Web, size: str
) -> None:
    address = f"{web.url}{PAGE}#code={code_of(voucher)}"
    page = counter(address, size=size)
    press_scan(page)
    expect(page.locator("[data-verdict=valid]")).to_be_visible(timeout=PATIENT_MS)
    expect(page.locator("#view")).to_be_hidden()
    assert page.evaluate("document.documentElement.scrollWidth") <= SIZES[size]["viewport"]["width"]
    page.get_by_role("button", name="Redeem now").click()
    expect(page.locator("[data-verdict=redeemed]")).to_be_visible()
    expect(page.locator("#code")).to_be_focused()
    expect(page.locator("#code")).to_have_value("")


def test_camera_shows_its_picture_until_it_is_stopped(counter: Person) -> None:
    page = counter("https://elsewhere.example/menu", script=TRACKED)
    assert "jsQR" not in str(
        page.evaluate("performance.getEntriesByType('resource').map(it => it.name)")
    )
    press_scan(page)
    expect(page.locator("#view")).to_be_visible()
    expect(page.locator("#scan-note")).to_contain_text("not a voucher's", timeout=PATIENT_MS)
    assert page.evaluate("document.getElementById('picture').videoWidth") == WIDTH
    page.get_by_role("button", name="Stop the camera").click()
    expect(page.locator("#view")).to_be_hidden()
    assert page.evaluate("tracks.map((it) => it.readyState)") == ["ended"]

    press_scan(page)
    expect(page.locator("#view")).to_be_visible()
    page.keyboard.press("Escape")
    assert page.evaluate("tracks.map((it) => it.readyState)") == ["ended", "ended"]


@pytest.mark.parametrize(
    ("seen", "allow", "script", "note", "words"),
    [
        (None, True, "", "no_camera", "has no camera"),
        ("x", False, "", "denied", "does not allow the camera"),
        ("x", True, REJECTING % "NotReadableError", "in_use", "Another program may be using it"),
        ("x", True, REJECTING % "TypeError", "failed", "could not be started"),
        (None, True, NO_CAMERA_API, "insecure", "only open the camera over https"),
    ],
)  # fmt: skip
def test_counter_says_why_there_is_no_camera(
    counter: Person,
    voucher: VoucherOrder,
    seen: str | None,
    allow: bool,
    script: str,
    note: str,
    words: str,
) -> None:
    page = counter(seen, allow=allow, script=script)
    press_scan(page)
    expect(page.locator("#scan-note")).to_have_attribute("data-note", note)
    expect(page.locator("#scan-note")).to_contain_text(words)
    expect(page.locator("#view")).to_be_hidden()
    page.fill("#code", code_of(voucher))
    page.keyboard.press("Enter")
    expect(page.locator("[data-verdict=valid]")).to_be_visible()


# --- Hand-held scanners --------------------------------------------------------------------------


def scan_by_hand(page: Page, text: str) -> None:
    """Type as a scanner does: fast, to whatever has the focus, and Enter."""
    page.keyboard.type(text)
    page.keyboard.press("Enter")


@pytest.mark.parametrize("write", [str.upper, "{}".format], ids=["capitals", "as_written"])
def test_scanner_types_an_address_or_a_code_into_the_page(
    counter: Person, voucher: VoucherOrder, web: Web, write: Callable[[str], str]
) -> None:
    page = counter(None)
    expect(page.locator("#code")).to_be_focused()
    scan_by_hand(page, write(f"{web.url}{PAGE}#code={code_of(voucher)}"))
    expect(page.locator("[data-verdict=valid]")).to_be_visible()
    page.get_by_role("button", name="Redeem now").click()
    expect(page.locator("[data-verdict=redeemed]")).to_be_visible()
    scan_by_hand(page, code_of(voucher))
    expect(page.locator("[data-verdict=own]")).to_be_visible()


def test_next_scan_replaces_an_open_or_a_wrong_code(counter: Person, voucher: VoucherOrder) -> None:
    page = counter(None)
    scan_by_hand(page, "WRONG-CODE")
    expect(page.locator("[data-verdict=no_such_code]")).to_be_visible()
    page.wait_for_function("getSelection().toString() === document.querySelector('#code').value")
    scan_by_hand(page, code_of(voucher))
    expect(page.locator("[data-verdict=valid]")).to_be_visible()
    # The focus is nowhere, or on the button: neither redeems the voucher that is shown.
    page.get_by_role("button", name="Redeem now").focus()
    scan_by_hand(page, "0000-0000-0000-0000")
    expect(page.locator("[data-verdict=no_such_code]")).to_be_visible()
    voucher.refresh_from_db()
    assert voucher.status == OrderStatus.PAID


def test_scanned_code_is_in_no_request_address(people: Person, voucher: VoucherOrder) -> None:
    page = people(make_person("clerk", admin=True))
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url.partition("#")[0]))
    page.goto(f"/staff/redeem/#code={code_of(voucher)}")
    expect(page.locator("[data-verdict=valid]")).to_be_visible()
    page.click("text=Redeem now")
    expect(page.locator("[data-verdict=redeemed]")).to_be_visible()
    assert asked
    assert not [url for url in asked if "WXYZ" in url]
