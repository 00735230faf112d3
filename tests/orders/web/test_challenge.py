"""Work and pictures before a purchase, from both doors and without JavaScript."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from allauth.account.models import EmailAddress
from captcha.models import CaptchaStore
from django.contrib.auth.models import User
from django.core.mail import EmailMessage
from django.test import Client

from accounts.models import Phone
from orders.placing.tokens import PurchaseToken, read_token
from orders.web import challenge
from tests.support import asgi, wsgi
from tests.support.browsers import browser_of
from tests.support.orders import make_sale, token_for
from tests.support.sales import redis_now_ms
from tests.support.tiers import slow_after
from tests.support.work import do_work
from tests.support.wsgi import Answer
from vouchers.models import SeckillVoucher, Work

pytestmark = pytest.mark.django_db

HTML = "text/html"

Ask = Callable[..., Answer]


@pytest.fixture(params=["front door", "django"])
def ask(request: pytest.FixtureRequest) -> Ask:
    return asgi.ask if request.param == "front door" else wsgi.ask


@pytest.fixture
def sale() -> SeckillVoucher:
    """A sale that asks for work."""
    return make_sale(stock=5, work=Work.LIGHT)


@pytest.fixture
def shopper(buyer: User) -> Client:
    """The buyer's browser, without JavaScript."""
    return browser_of(buyer, headers={"Accept": HTML, "Accept-Language": "en"})


def cookies(client: Client) -> dict[str, str]:
    return {"HTTP_COOKIE": "; ".join(f"{it.key}={it.value}" for it in client.cookies.values())}


def read(text: str, sale: SeckillVoucher) -> PurchaseToken:
    return read_token(text, sale_id=sale.pk, now_ms=redis_now_ms())


def place(ask: Ask, sale: SeckillVoucher, text: str) -> Answer:
    return ask("POST", f"/vouchers/{sale.pk}/orders/", {"token": text})


# --- Work -----------------------------------------------------------------------------------------


def test_tokens_say_what_work_a_sale_asks_for(
    ask: Ask, sale: SeckillVoucher, shopper: Client
) -> None:
    answer = ask("GET", f"/vouchers/{sale.pk}/token/", **cookies(shopper))
    assert read(answer.json["token"], sale).work == Work.LIGHT


@pytest.mark.parametrize("door", [asgi.ask, None], ids=["front door", "django"])
def test_me_says_what_work_a_sale_asks_for(
    door: Ask | None, sale: SeckillVoucher, shopper: Client
) -> None:
    path = f"/me/?sale={sale.pk}"
    content = door("GET", path, **cookies(shopper)).json if door else shopper.get(path).json()
    assert read(content["sale"]["token"], sale).work == Work.LIGHT


def test_tokens_of_other_sales_ask_for_none(ask: Ask, shopper: Client) -> None:
    sale = make_sale(stock=5)
    token = ask("GET", f"/vouchers/{sale.pk}/token/", **cookies(shopper)).json["token"]
    assert "-w" not in token.partition(":")[0]  # a signature may have these letters too
    assert read(token, sale).work == 0


def test_order_with_work_is_accepted(ask: Ask, sale: SeckillVoucher, buyer: User) -> None:
    token = token_for(sale, buyer)._replace(work=Work.LIGHT)
    text = do_work(token)
    answer = place(ask, sale, text)
    assert (answer.status, answer.json["order_id"]) == (202, str(token.order_id))
    assert place(ask, sale, text).json == answer.json


def test_receipt_needs_no_work(ask: Ask, sale: SeckillVoucher, buyer: User) -> None:
    token = token_for(sale, buyer)._replace(work=Work.LIGHT)
    text = do_work(token)
    path = place(ask, sale, text).json["status_url"]
    for sent in (text, token.sign()):
        answer = ask("GET", path, HTTP_PURCHASE_TOKEN=sent)
        assert (answer.status, answer.json["status"]) == (200, "queued")


def test_waiting_list_asks_for_work_too(sale: SeckillVoucher, shopper: Client, buyer: User) -> None:
    token = token_for(sale, buyer)._replace(work=Work.LIGHT)
    answer = shopper.post(
        f"/vouchers/{sale.pk}/waiting/",
        {"token": token.sign()},
        headers={"Accept": "application/json"},
    )
    assert (answer.status_code, answer.json()["code"]) == (403, "work_missing")


# --- The picture ----------------------------------------------------------------------------------


def form_page(shopper: Client, sale: SeckillVoucher) -> str:
    answer = shopper.get(f"/vouchers/{sale.pk}/form/")
    assert answer.status_code == 200
    return answer.content.decode()


def answer_picture(
    shopper: Client, sale: SeckillVoucher, page: str, letters: str | None = None
) -> Any:
    found = re.search(r'name="answer_0" value="(\w+)"', page)
    assert found
    right = CaptchaStore.objects.get(hashkey=found[1]).response
    fields = {"answer_0": found[1], "answer_1": right if letters is None else letters}
    return shopper.post(f"/vouchers/{sale.pk}/form/", fields)


def test_form_page_asks_before_it_has_a_token(sale: SeckillVoucher, shopper: Client) -> None:
    page = form_page(shopper, sale)
    assert 'id="challenge-form"' in page
    assert 'name="token"' not in page
    found = re.search(r'<img class="captcha"\s+src="([^"]+)"', page)
    assert found
    picture = shopper.get(found[1])
    assert picture["Content-Type"] == "image/png"


def test_right_letters_give_a_token_that_asks_for_no_work(
    ask: Ask, sale: SeckillVoucher, shopper: Client
) -> None:
    answer = answer_picture(shopper, sale, form_page(shopper, sale))
    assert (answer.status_code, answer["Location"]) == (303, f"/vouchers/{sale.pk}/form/")
    found = re.search(r'name="token" value="([^"]+)"', form_page(shopper, sale))
    assert found
    assert read(found[1], sale).work == 0
    assert place(ask, sale, found[1]).status == 202


@pytest.mark.parametrize("letters", slow_after(1, ["", "wrong!", "ä" * 99]))
def test_wrong_letters_bring_another_picture(
    sale: SeckillVoucher, shopper: Client, letters: str
) -> None:
    page = form_page(shopper, sale)
    answer = answer_picture(shopper, sale, page, letters)
    again = answer.content.decode()
    assert answer.status_code == 200
    assert ("This field is required." if not letters else "Those letters are not right.") in again
    assert 'name="token"' not in form_page(shopper, sale)


def test_answer_holds_for_one_sale_and_a_while(
    sale: SeckillVoucher, shopper: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer_picture(shopper, sale, form_page(shopper, sale))
    assert 'name="token"' not in form_page(shopper, make_sale(stock=1, work=Work.LIGHT))
    now_ms = redis_now_ms() + challenge.ANSWERED_MS
    monkeypatch.setattr("orders.web.buyer_views.ledger_now_ms", lambda: now_ms)
    assert 'name="token"' not in form_page(shopper, sale)


def test_question_is_for_buyers_of_such_a_sale_alone(sale: SeckillVoucher, shopper: Client) -> None:
    assert "challenge-form" not in form_page(shopper, make_sale(stock=5))
    visitor = Client(headers={"Accept": HTML})
    assert "challenge-form" not in form_page(visitor, sale)


def test_post_without_a_question_leads_back_to_the_page(shopper: Client) -> None:
    sale = make_sale(stock=5)
    answer = shopper.post(f"/vouchers/{sale.pk}/form/", {"answer_1": "x"})
    assert (answer.status_code, answer["Location"]) == (303, f"/vouchers/{sale.pk}/form/")


# --- A code, for people who do not see the picture ------------------------------------------------


def ask_for_code(shopper: Client, sale: SeckillVoucher) -> Any:
    return shopper.post(f"/vouchers/{sale.pk}/form/", {"action": "send"})


def enter(shopper: Client, sale: SeckillVoucher, code: str) -> Any:
    return shopper.post(f"/vouchers/{sale.pk}/form/", {"sent-code": code})


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """The texts that were sent, with their numbers."""
    texts: list[tuple[str, str]] = []
    monkeypatch.setattr("accounts.adapter.send_text", lambda *text: texts.append(text))
    return texts


def code_in(text: str) -> str:
    found = re.search(r"\b\d{6}\b", text)
    assert found
    return found[0]


@pytest.mark.parametrize("way", slow_after(1, ["email", "phone"]))
def test_sent_code_takes_the_place_of_the_picture(
    ask: Ask,
    sale: SeckillVoucher,
    shopper: Client,
    buyer: User,
    sent: list[tuple[str, str]],
    mailoutbox: list[EmailMessage],
    way: str,
) -> None:
    if way == "email":
        EmailAddress.objects.create(user=buyer, email="ada@example.com", verified=True)
    else:
        Phone.objects.create(user=buyer, number="+8613800000000")
    wanted = {"email": "Get a code by email", "phone": "Get a code by text message"}[way]
    assert wanted in form_page(shopper, sale)
    assert ask_for_code(shopper, sale).status_code == 303
    text = mailoutbox[0].body if way == "email" else sent[0][1]
    page = form_page(shopper, sale)
    assert 'class="captcha"' not in page
    assert 'autocomplete="one-time-code"' in page
    answer = enter(shopper, sale, code_in(str(text)))
    assert (answer.status_code, answer["Location"]) == (303, f"/vouchers/{sale.pk}/form/")
    found = re.search(r'name="token" value="([^"]+)"', form_page(shopper, sale))
    assert found
    assert place(ask, sale, found[1]).status == 202


def test_wrong_code_is_said_and_brings_no_token(
    sale: SeckillVoucher, shopper: Client, buyer: User, mailoutbox: list[EmailMessage]
) -> None:
    EmailAddress.objects.create(user=buyer, email="ada@example.com", verified=True)
    ask_for_code(shopper, sale)
    right = code_in(str(mailoutbox[0].body))
    wrong = f"{(int(right) + 1) % 1_000_000:06}"
    assert "The code is not correct." in enter(shopper, sale, wrong).content.decode()
    assert 'name="token"' not in form_page(shopper, sale)
    assert enter(shopper, sale, right).status_code == 303


def test_picture_is_back_once_the_code_is_too_old(
    sale: SeckillVoucher, shopper: Client, buyer: User, settings: Any
) -> None:
    EmailAddress.objects.create(user=buyer, email="ada@example.com", verified=True)
    ask_for_code(shopper, sale)
    assert 'class="captcha"' not in form_page(shopper, sale)
    settings.ACCOUNT_LOGIN_BY_CODE_TIMEOUT = 0
    assert 'class="captcha"' in form_page(shopper, sale)


def test_refused_code_leaves_the_last_one_valid(
    sale: SeckillVoucher, shopper: Client, buyer: User, mailoutbox: list[EmailMessage]
) -> None:
    EmailAddress.objects.create(user=buyer, email="ada@example.com", verified=True)
    assert [ask_for_code(shopper, sale).status_code for _ in range(4)] == [303, 303, 303, 429]
    assert enter(shopper, sale, code_in(str(mailoutbox[-1].body))).status_code == 303


def test_without_a_contact_the_page_leads_to_the_account(
    sale: SeckillVoucher, shopper: Client, mailoutbox: list[EmailMessage]
) -> None:
    assert "Verify an email address or phone number to get a code" in form_page(shopper, sale)
    ask_for_code(shopper, sale)
    assert mailoutbox == []
    assert 'class="captcha"' in form_page(shopper, sale)
