"""Attacks on a sale: many accounts, false addresses, tokens and work of others, cycling."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from captcha.models import CaptchaStore
from django.contrib.auth.models import User
from pytest_django import Settings

from orders.fulfilment.worker import fulfil_sale
from orders.models import VoucherOrder
from orders.placing import service as placing
from orders.placing.signer import Signer
from orders.placing.tokens import PurchaseToken
from orders.receipts import service as receipts
from tests.abuse import guard_and_control
from tests.support import asgi, wsgi
from tests.support.browsers import browser_of, session_cookie
from tests.support.orders import (
    id_minted,
    make_buyer,
    make_buyers,
    make_order,
    make_sale,
    token_for,
    tokens_for,
)
from tests.support.work import do_work
from vouchers.models import SeckillVoucher, Work

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("young_window")]

HOME = "203.0.113.7"
OFF = 0


@pytest.fixture(autouse=True)
def limited(settings: Settings) -> None:
    """Limit orders alone, of everybody."""
    settings.SECKILL_UNLIMITED_NETWORKS = []
    settings.SECKILL_REQUESTS_PER_ADDRESS = OFF


@pytest.fixture(params=["front door", "Django"])
def ask(request: pytest.FixtureRequest) -> Any:
    return asgi.ask if request.param == "front door" else partial(wsgi.ask, REMOTE_ADDR=HOME)


def order(ask: Any, sale: SeckillVoucher, text: str, **headers: str) -> Any:
    return ask("POST", f"/vouchers/{sale.pk}/orders/", {"token": text}, **headers)


def order_as_all(ask: Any, sale: SeckillVoucher, buyers: list[User], **headers: str) -> list[int]:
    tokens = tokens_for(sale, buyers)
    return [order(ask, sale, token.sign(), **headers).status for token in tokens]


# --- Many accounts --------------------------------------------------------------------------------


@pytest.mark.parametrize(("per_address", "accepted"), [(20, 20), (OFF, 21)])
def test_twenty_first_account_of_an_address(ask: Any, per_address: int, accepted: int) -> None:
    sale = make_sale(stock=100, per_address=per_address)

    statuses = order_as_all(ask, sale, make_buyers(21))

    assert statuses == [202] * accepted + [429] * (21 - accepted)


@pytest.mark.parametrize(("trusted", "accepted"), [([], 2), (["*"], 5)])
def test_made_up_address_counts_for_nothing(trusted: list[str], accepted: int) -> None:
    """The header of a client is no proxy's; the control takes everybody for one."""
    from granian.utils.proxies import wrap_asgi_with_proxy_headers

    from seckill_site.asgi import application

    door = wrap_asgi_with_proxy_headers(application, trusted_hosts=trusted) if trusted else None
    sale = make_sale(stock=10, per_address=2)
    ask = partial(asgi.ask, door=door) if door else asgi.ask

    statuses = [
        order(ask, sale, token.sign(), HTTP_X_FORWARDED_FOR=f"198.51.100.{number}").status
        for number, token in enumerate(tokens_for(sale, make_buyers(5)))
    ]

    assert statuses.count(202) == accepted


# --- Ordering and cancelling ----------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    ("orders", "cancellations", "accepted"), [(5, OFF, 1 + 5), (OFF, 10, 10 + 1), (OFF, OFF, 15)]
)
def test_account_orders_and_cancels_few_times(
    ask: Any, settings: Settings, orders: int, cancellations: int, accepted: int
) -> None:
    """The first order is not counted; the last of ten cancellations leaves one order."""
    settings.SECKILL_ORDERS_PER_ACCOUNT = orders
    settings.SECKILL_CANCELLATIONS_PER_HOUR = cancellations
    sale, buyer = make_sale(stock=1), make_buyer()
    browser = browser_of(buyer, headers={"Accept": "application/json"})

    statuses = []
    for token in tokens_for(sale, [buyer] * 15):
        answer = order(ask, sale, token.sign())
        statuses.append(answer.status)
        if answer.status == 202:
            fulfil_sale(sale_id=sale.pk)
            browser.post(f"{answer.json['status_url']}cancel/")

    assert statuses.count(202) == accepted
    assert set(statuses[accepted:]) <= {429 if orders else 409}


# --- Tokens and work of others --------------------------------------------------------------------


def test_shared_token_buys_for_its_account_alone(ask: Any) -> None:
    """Whoever sends a token, and however often, it is one order of the account that got it."""
    sale, owner = make_sale(stock=10), make_buyer()
    text = token_for(sale, owner).sign()

    answers = [
        order(ask, sale, text, HTTP_COOKIE=session_cookie(buyer)) for buyer in make_buyers(3)
    ]
    fulfil_sale(sale_id=sale.pk)

    assert len({it.json["order_id"] for it in answers}) == 1
    assert list(VoucherOrder.objects.values_list("user", flat=True)) == [owner.pk]


@guard_and_control
def test_work_cannot_be_moved_to_another_token(
    ask: Any, guarded: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not guarded:
        monkeypatch.setattr(placing, "check_work", lambda token, text: None)
    sale = make_sale(stock=10, work=Work.LIGHT)
    done, other = (with_work(it) for it in tokens_for(sale, make_buyers(2)))
    nonce = do_work(done).partition("~")[2]

    moved = order(ask, sale, f"{other.sign()}~{nonce}")

    assert moved.json.get("code") == ("work_missing" if guarded else None)
    assert moved.status == (403 if guarded else 202)
    assert order(ask, sale, do_work(other)).status == 202


@guard_and_control
def test_picture_is_answered_for_one_account(
    guarded: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without that, a person answers one picture for a thousand programs."""
    if not guarded:
        monkeypatch.setattr(CaptchaStore, "delete", lambda picture: None)
    sale = make_sale(stock=10, work=Work.LIGHT)
    path = f"/vouchers/{sale.pk}/form/"
    person, program = (browser_of(it) for it in make_buyers(2))
    person.get(path)
    picture = CaptchaStore.objects.get()
    answer = {"answer_0": picture.hashkey, "answer_1": picture.response}

    statuses = [it.post(path, answer).status_code for it in (person, program)]

    assert statuses == [303, 200 if guarded else 303]


@guard_and_control
def test_token_of_another_account_cannot_be_made_up(
    ask: Any, guarded: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The attacker writes the victim's id into the attacker's own token."""
    if not guarded:
        monkeypatch.setattr(Signer, "has_signed", lambda *_: True)
    sale, (attacker, victim) = make_sale(stock=10), make_buyers(2)
    token = token_for(sale, attacker)
    signature = token.sign().rpartition(":")[2]
    payload = token._replace(user_id=victim.pk).sign().rpartition(":")[0]

    answer = order(ask, sale, f"{payload}:{signature}")
    fulfil_sale(sale_id=sale.pk)

    assert answer.status == (403 if guarded else 202)
    owners = list(VoucherOrder.objects.values_list("user", flat=True))
    assert owners == ([] if guarded else [victim.pk])


def with_work(token: PurchaseToken) -> PurchaseToken:
    return token._replace(work=Work.LIGHT)


# --- Orders of others -----------------------------------------------------------------------------


@guard_and_control
def test_made_up_order_id_tells_nothing(guarded: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the check of the purchase token, any id that is old enough is called a lost order."""
    look = receipts._lost
    if not guarded:
        monkeypatch.setattr(
            receipts, "_lost", lambda sale_id, order_id, now, _: look(sale_id, order_id, now, True)
        )
    sale = make_sale(stock=10)
    attacker = browser_of(make_buyer())

    answers = [
        attacker.get(f"/vouchers/{sale.pk}/orders/{id_minted(seconds_ago=60 + number)}/")
        for number in range(3)
    ]

    assert [it.status_code for it in answers] == [404 if guarded else 200] * 3
    assert {it.json().get("reason") for it in answers} == {None if guarded else "lost"}


@guard_and_control
def test_order_of_another_looks_like_none(guarded: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not guarded:
        monkeypatch.setattr(receipts, "_check_owner", lambda *_: None)
    sale = make_sale(stock=10)
    attacker = browser_of(make_buyer())
    real, made_up = make_order(sale, make_buyer()).pk, id_minted(seconds_ago=60)

    answers = [
        attacker.get(f"/vouchers/{sale.pk}/orders/{order_id}/") for order_id in (real, made_up)
    ]

    assert [it.status_code for it in answers] == [404 if guarded else 200, 404]
    assert (answers[0].json() == answers[1].json()) is guarded
