"""A person's account, from sign-up to its end, as Chromium shows it."""

from __future__ import annotations

import re
import time
from collections.abc import Callable

import pytest
from allauth.mfa.models import Authenticator
from django.contrib.auth.models import User
from playwright.sync_api import Page, expect

from tests.browser.conftest import (
    PASSWORD,
    Faults,
    Person,
    make_person,
    put_on_sale,
    sign_in_by_form,
)
from tests.support.accounts import totp
from tests.support.patience import eventually, wait_for
from tests.support.stack import Web

pytestmark = [pytest.mark.slow, pytest.mark.browser]

LINK = re.compile(r"http://\S+(/accounts/confirm-email/\S+)")
CODE = re.compile(r"^[0-9]{6}$", re.MULTILINE)
SMS = re.compile(r"SMS to \+8613800000009: ([0-9]{6})")


@pytest.fixture
def printed(web: Web) -> Callable[[re.Pattern[str]], str]:
    """Return the last thing of a pattern that the web server printed: mails, texts to phones."""

    def last(pattern: re.Pattern[str]) -> str:
        assert eventually(lambda: pattern.search(web.log.read_text()))
        return str(pattern.findall(web.log.read_text())[-1])

    return last


def submit(page: Page, **fields: str) -> None:
    """Fill in these fields of the page's form, and send it."""
    for name, value in fields.items():
        page.fill(f"main [name={name}]", value)
    page.locator("main form.form button[type=submit]").first.click()


def test_account_from_sign_up_to_its_end(
    people: Person, web: Web, printed: Callable[[re.Pattern[str]], str]
) -> None:
    page, faults = people(), Faults(web.url)
    faults.watch(page)

    page.goto("/accounts/signup/")
    submit(page, username="zoe", email="zoe@example.com", password1=PASSWORD, password2=PASSWORD)
    page.wait_for_url("**/")

    page.goto(printed(LINK))
    submit(page)
    page.goto("/accounts/profile/")
    expect(page.locator("main")).to_contain_text("zoe@example.com")

    page.goto("/orders/")
    page.get_by_role("button", name="Sign out").click()
    page.goto("/accounts/login/code/")
    submit(page, email="zoe@example.com")
    submit(page, code=printed(CODE))
    page.wait_for_url("**/")

    page.goto("/accounts/phone/change/")
    submit(page, phone="138 0000 0009")
    submit(page, code=printed(SMS))
    page.goto("/accounts/profile/")
    expect(page.locator("main")).to_contain_text("+8613800000009")

    page.goto("/accounts/2fa/totp/activate/")
    submit(page, password=PASSWORD)
    secret = page.inner_text("#code")
    wait_for(lambda: time.time() % 30 < 15, what="a code that is good for a while")
    submit(page, code=totp(secret))
    expect(page.locator("main")).to_contain_text("recovery codes")

    page.goto("/accounts/profile/")
    page.get_by_role("button", name="Sign out everywhere").click()
    page.wait_for_url("**/accounts/login/")

    Authenticator.objects.all().delete()  # the code of this half minute is used up
    sign_in_by_form(page, "zoe")
    page.goto("/accounts/delete/")
    submit(page, password=PASSWORD)
    page.wait_for_url("**/")
    assert not User.objects.filter(username="zoe").exists()
    faults.leave()
    assert not faults.found


def with_key(page: Page, **options: bool) -> None:
    """Plug a key into the browser whose owner always agrees."""
    chromium = page.context.new_cdp_session(page)
    chromium.send("WebAuthn.enable")
    key = {"protocol": "ctap2", "transport": "usb", "hasUserVerification": True, **options}
    more = {"isUserVerified": True, "automaticPresenceSimulation": True}
    chromium.send("WebAuthn.addVirtualAuthenticator", {"options": {**key, **more}})


def test_security_key_is_added_and_asked_for(people: Person, web: Web) -> None:
    make_person("kim", password=PASSWORD)
    site = web.url.replace("127.0.0.1", "localhost")  # a key belongs to a name, not to a number
    page, faults = people(), Faults(site)
    faults.watch(page)
    with_key(page)

    def enter() -> None:
        page.goto(f"{site}/accounts/login/")
        submit(page, username="kim", password=PASSWORD)

    enter()
    page.wait_for_url(f"{site}/")
    page.goto(f"{site}/accounts/2fa/webauthn/add/")
    submit(page, password=PASSWORD)
    page.locator("#mfa_webauthn_add").click()
    page.wait_for_url(lambda url: "webauthn/add" not in url)
    assert Authenticator.objects.filter(user__username="kim", type="webauthn").exists()

    page.context.clear_cookies()
    enter()
    page.wait_for_url("**/2fa/authenticate/")
    page.locator("#mfa_webauthn_authenticate").click()
    page.wait_for_url(f"{site}/")
    faults.leave()
    assert not faults.found


def test_passkey_signs_in_alone_and_the_page_says_so(people: Person, web: Web) -> None:
    sale = put_on_sale()
    make_person("kit", password=PASSWORD)
    site = web.url.replace("127.0.0.1", "localhost")
    page, faults = people(), Faults(site)
    faults.watch(page)
    with_key(page, hasResidentKey=True)
    page.goto(f"{site}/accounts/login/")
    submit(page, username="kit", password=PASSWORD)
    page.goto(f"{site}/accounts/2fa/webauthn/add/")
    submit(page, password=PASSWORD)
    page.get_by_role("checkbox").check()
    page.locator("#mfa_webauthn_add").click()
    page.wait_for_url(lambda url: "webauthn/add" not in url)

    page.context.clear_cookies()
    page.goto(f"{site}/accounts/login/?next=/vouchers/{sale.pk}/")
    page.locator("#passkey_login").click()

    page.wait_for_url(f"**/vouchers/{sale.pk}/")
    expect(page.locator("#told")).to_have_text("You are signed in.")
    expect(page.get_by_role("link", name="Account")).to_be_visible()
    page.mouse.click(5, 300)
    expect(page.locator("#told")).to_have_count(0)
    page.reload()
    expect(page.get_by_role("link", name="Account")).to_be_visible()
    expect(page.locator("#told")).to_be_empty()
    faults.leave()
    assert not faults.found


def test_code_is_sent_again_after_a_minute(people: Person) -> None:
    make_person("cy")
    page = people()
    page.clock.install()
    page.goto("/accounts/login/code/")
    submit(page, email="nobody@example.com")
    again = page.locator("#again")
    expect(again).to_be_disabled()
    expect(again).to_contain_text("Send again in")

    page.clock.run_for(61_000)

    expect(again).to_be_enabled()
    expect(again).to_have_text("Send again")
