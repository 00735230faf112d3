"""Where the pages of accounts lead: to where a person came from, with a word there."""

from __future__ import annotations

import base64
import json
import re
from typing import Any
from urllib.parse import urlsplit

import pytest
from allauth.account.models import EmailAddress
from django.contrib.auth.models import User
from django.core import mail
from django.test import Client

from accounts.phones import ConsoleBackend
from tests.support.accounts import OUTSIDE, PASSWORD, code_in, signed_in_as

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("cheap_passwords"), pytest.mark.quick]

EMAIL, NUMBER = "ada@example.com", "+8613800000001"
SALE, ORDERS = "/vouchers/7/", "/orders/"
NEW = "noch laenger 5678"
ENGLISH = {"Accept": "text/html", "Accept-Language": "en"}


@pytest.fixture(autouse=True)
def sent(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The texts to phones."""
    texts: list[str] = []
    monkeypatch.setattr(ConsoleBackend, "send", lambda _, phone, text: texts.append(text))
    return texts


@pytest.fixture
def browser() -> Client:
    return Client(headers=ENGLISH)


def has_email(user: User, *, verified: bool) -> None:
    EmailAddress.objects.create(user=user, email=EMAIL, verified=verified, primary=True)


def link_in(text: object) -> str:
    found = re.search(r"http://\S+", str(text))
    assert found
    parts = urlsplit(found[0])
    return f"{parts.path}?{parts.query}"


def told(response: Any) -> str:
    """Return what a page that is the same for everybody is told by its cookie."""
    value = response.cookies["told"].value
    return " ".join(json.loads(base64.b64decode(value + "=" * (-len(value) % 4))))


def test_verified_phone_leads_back_to_the_sale(browser: Client, ada: User, sent: list[str]) -> None:
    browser.force_login(ada)
    browser.get(f"/accounts/phone/change/?next={SALE}")
    browser.post("/accounts/phone/change/", {"phone": NUMBER})

    response = browser.post("/accounts/phone/verify/", {"code": code_in(sent[-1])})

    assert response["Location"] == SALE
    assert NUMBER in told(response)
    assert response.cookies["way_back"].value == "", "the way is over"


def test_verified_phone_leads_to_the_account_itself(
    browser: Client, ada: User, sent: list[str]
) -> None:
    browser.force_login(ada)
    browser.post("/accounts/phone/change/", {"phone": NUMBER})

    page = browser.post("/accounts/phone/verify/", {"code": code_in(sent[-1])}, follow=True)

    assert page.redirect_chain[-1][0] == "/accounts/profile/"
    assert NUMBER in str(list(page.context["messages"])[-1])


def test_three_wrong_codes_of_a_phone_are_told(browser: Client, ada: User, sent: list[str]) -> None:
    browser.force_login(ada)
    browser.post("/accounts/phone/change/", {"phone": NUMBER})

    for _ in range(3):
        page = browser.post("/accounts/phone/verify/", {"code": "wrong"}, follow=True)

    assert page.redirect_chain[-1][0] == "/accounts/phone/change/"
    assert "This code is not valid any more" in page.text


@pytest.mark.parametrize("elsewhere", [False, True], ids=["here", "in another browser"])
def test_confirmed_address_leads_back_with_a_word(
    browser: Client, ada: User, elsewhere: bool
) -> None:
    browser.force_login(ada)
    browser.get(f"/accounts/email/?next={SALE}notice/")
    page = browser.post("/accounts/email/", {"email": EMAIL, "action_add": ""}, follow=True)
    assert EMAIL in page.text

    link = link_in(mail.outbox[-1].body)
    reader = Client(headers=ENGLISH) if elsewhere else browser
    reader.get(link)
    response = reader.post(link)

    assert response["Location"] == f"{SALE}notice/"
    assert "told" not in response.cookies, "that page says it itself"
    assert "messages" in response.cookies


def test_confirmed_address_without_a_way_back(browser: Client, ada: User) -> None:
    browser.force_login(ada)
    browser.post("/accounts/email/", {"email": EMAIL, "action_add": ""})
    link = link_in(mail.outbox[-1].body)

    assert Client().post(link)["Location"] == "/accounts/login/"
    assert EmailAddress.objects.get().verified


def test_reset_password_signs_in_and_leads_back(browser: Client, ada: User) -> None:
    has_email(ada, verified=True)
    browser.get(f"/accounts/login/?next={ORDERS}")
    browser.post("/accounts/password/reset/", {"email": EMAIL})
    form = browser.get(link_in(mail.outbox[-1].body), follow=True).redirect_chain[-1][0]

    page = browser.post(form, {"password1": NEW, "password2": NEW}, follow=True)

    assert page.redirect_chain == [(ORDERS, 302)]
    assert "Password" in str(next(iter(page.context["messages"])))
    assert signed_in_as(browser) == "ada"


def test_changed_password_is_told_on_the_account_page(browser: Client, ada: User) -> None:
    browser.post("/accounts/login/", {"username": "ada", "password": PASSWORD})
    form = {"oldpassword": PASSWORD, "password1": NEW, "password2": NEW}

    page = browser.post("/accounts/password/change/", form, follow=True)

    assert page.redirect_chain == [("/accounts/profile/", 302)]
    assert "assword" in str(list(page.context["messages"])[-1])


def test_sign_in_in_the_middle_of_paying_leads_back(browser: Client, ada: User) -> None:
    """Also by a code, whose first tries fail: their pages forget the address."""
    has_email(ada, verified=True)
    receipt = "/vouchers/7/orders/8/"
    asked = browser.post(f"{receipt}pay/")
    browser.get(asked["Location"])
    browser.post("/accounts/login/code/", {"email": EMAIL})
    for _ in range(3):
        browser.post("/accounts/login/code/confirm/", {"code": "wrong"})
    browser.post("/accounts/login/code/", {"email": EMAIL})

    code = code_in(mail.outbox[-1].body)
    response = browser.post("/accounts/login/code/confirm/", {"code": code})

    assert response["Location"] == receipt
    assert "messages" in response.cookies


def test_sign_in_says_so_on_the_sales_page(browser: Client, ada: User) -> None:
    form = {"username": "ada", "password": PASSWORD, "next": SALE}

    assert told(browser.post("/accounts/login/", form)) == "You are signed in."


def test_sign_out_is_told(browser: Client, ada: User) -> None:
    browser.force_login(ada)

    assert told(browser.post("/accounts/logout/")) == "You are signed out."


@pytest.mark.parametrize("outside", OUTSIDE)
def test_way_back_stays_on_this_site(browser: Client, ada: User, outside: str) -> None:
    browser.get("/accounts/login/", {"next": outside})
    assert "way_back" not in browser.cookies
    browser.cookies["way_back"] = outside

    response = browser.post("/accounts/login/", {"username": "ada", "password": PASSWORD})

    assert response["Location"] == "/"


def test_pages_of_an_account_are_no_place_to_go_back_to(browser: Client, ada: User) -> None:
    """Such as the one that asked for the password again."""
    browser.get("/accounts/reauthenticate/?next=/accounts/2fa/totp/activate/")
    browser.get(f"/accounts/login/?next={ORDERS}")
    browser.get("/accounts/login/code/?next=/accounts/password/change/")

    response = browser.post("/accounts/login/", {"username": "ada", "password": PASSWORD})

    assert response["Location"] == ORDERS


def test_way_back_needs_no_session(browser: Client) -> None:
    browser.get(f"/accounts/login/?next={SALE}")

    assert "sessionid" not in browser.cookies
    assert browser.cookies["way_back"]["path"] == "/accounts/"


def test_shared_page_has_nobodys_message(browser: Client, ada: User) -> None:
    browser.force_login(ada)
    browser.post("/accounts/profile/", {"first_name": "Ada"})

    shared = browser.get("/", headers=ENGLISH)

    assert "Saved." not in shared.text
    assert "Saved." in browser.get("/accounts/profile/").text


@pytest.mark.parametrize("path", ["/accounts/login/", ORDERS])
def test_ended_session_is_told(browser: Client, path: str) -> None:
    browser.cookies["sessionid"] = "a" * 32

    page = browser.get(path, follow=True)

    assert "Your session has ended" in page.text
    assert "Your session has ended" not in browser.get("/accounts/login/").text


def test_ended_session_is_told_to_who_pressed_a_button(browser: Client) -> None:
    browser.cookies["sessionid"] = "a" * 32

    page = browser.post("/vouchers/7/orders/8/pay/", follow=True)

    assert "press the button once more" in page.text


def test_password_changed_elsewhere_ends_the_session_with_a_word(
    browser: Client, ada: User
) -> None:
    browser.force_login(ada)
    ada.set_password(NEW)
    ada.save()

    assert "Your session has ended" in browser.get(ORDERS, follow=True).text


def test_visitor_is_told_of_no_ended_session(browser: Client, ada: User) -> None:
    assert "has ended" not in browser.get(ORDERS, follow=True).text
    browser.force_login(ada)
    browser.post("/accounts/logout/")
    assert "has ended" not in browser.get(ORDERS, follow=True).text


def test_sign_out_everywhere_says_so(browser: Client, ada: User) -> None:
    browser.force_login(ada)

    page = browser.post("/accounts/sessions/everywhere/", follow=True)

    assert "signed out on all devices" in page.text
    assert "has ended" not in page.text


PAGES_OF_AN_ACCOUNT = [
    "profile/", "email/", "phone/change/", "password/change/", "2fa/", "sessions/", "notices/",
    "delete/",
]  # fmt: skip


@pytest.mark.parametrize("page", PAGES_OF_AN_ACCOUNT)
def test_account_pages_lead_to_one_another(browser: Client, ada: User, page: str) -> None:
    browser.force_login(ada)

    text = browser.get(f"/accounts/{page}").text

    for other in PAGES_OF_AN_ACCOUNT:
        assert f'href="/accounts/{other}"' in text
    header = text[text.index('<header class="top">') : text.index("</header>")]
    assert 'href="/accounts/profile/"' in header


def test_header_of_a_shared_page_leads_to_the_account(browser: Client) -> None:
    page = browser.get("/")

    assert 'href="/accounts/profile/" data-who="buyer"' in page.text
