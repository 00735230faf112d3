"""Pictures that code has drawn: each can be read again, from what the screen shows."""

from __future__ import annotations

from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import PASSWORD, PHONE, Person, make_person
from tests.support.qr_codes import read_shown_qr

pytestmark = pytest.mark.browser


@pytest.mark.parametrize("scheme", ["light", pytest.param("dark", marks=pytest.mark.slow)])
def test_key_of_two_step_sign_in_is_read_and_copied(people: Person, scheme: str) -> None:
    buyer = make_person(f"tess-{scheme}", password=PASSWORD)
    clipboard = ["clipboard-read", "clipboard-write"]
    page = people(buyer, color_scheme=scheme, permissions=clipboard, **PHONE)
    page.goto("/accounts/2fa/totp/activate/")
    page.fill("main [name=password]", PASSWORD)
    page.click("main form.form button[type=submit]")

    key = page.locator("#code").inner_text()
    address = urlsplit(read_shown_qr(page, "img.qr") or "")

    assert (address.scheme, address.netloc) == ("otpauth", "totp")
    assert parse_qs(address.query)["secret"] == [key]
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    page.get_by_role("button", name="Copy key").click()
    expect(page.get_by_role("button", name="Copied")).to_be_visible()
    assert page.evaluate("navigator.clipboard.readText()") == key
