"""Attacks on a sale: many accounts, false addresses, tokens and work of others, cycling."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from pytest_django import Settings

from orders.fulfilment.worker import fulfill_sale
from orders.models import VoucherOrder
from orders.placing.tokens import PurchaseToken
from tests.support import asgi, wsgi
from tests.support.orders import make_buyer, make_buyers, make_sale, token_for, tokens_for
from tests.support.work import do_work
from vouchers.inventory.order_limits import forget_first_orders
from vouchers.models import SeckillVoucher, Work

pytestmark = pytest.mark.django_db

HOME = "203.0.113.7"
OFF = 0


@pytest.fixture(autouse=True)
def limited(settings: Settings) -> Iterator[None]:
    """Limit orders alone, of everybody."""
    settings.SECKILL_UNLIMITED_NETWORKS = []
    settings.SECKILL_REQUESTS_PER_ADDRESS = OFF
    forget_first_orders()
    yield
    forget_first_orders()


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


@pytest.mark.parametrize(("per_address", "accepted"), [(3, 3), (OFF, 10)])
def test_fresh_accounts_take_few_of_the_units(ask: Any, per_address: int, accepted: int) -> None:
    """Without the limit, ten accounts take all ten units from one address."""
    sale = make_sale(stock=10, per_address=per_address)

    assert order_as_all(ask, sale, make_buyers(10)).count(202) == accepted


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


# --- Tokens and work of others --------------------------------------------------------------------


def test_shared_token_buys_for_its_account_alone(ask: Any) -> None:
    """Whoever sends a token, and however often, it is one order of the account that got it."""
    sale, owner = make_sale(stock=10), make_buyer()
    text = token_for(sale, owner).sign()
    clients = [Client() for _ in range(3)]
    for client, user in zip(clients, make_buyers(3), strict=True):
        client.force_login(user, backend="django.contrib.auth.backends.ModelBackend")

    answers = [
        order(ask, sale, text, HTTP_COOKIE=f"sessionid={client.cookies['sessionid'].value}")
        for client in clients
    ]
    fulfill_sale(sale_id=sale.pk)

    assert len({it.json["order_id"] for it in answers}) == 1
    assert list(VoucherOrder.objects.values_list("user", flat=True)) == [owner.pk]


def test_replayed_work_buys_nothing_more(ask: Any) -> None:
    sale = make_sale(stock=10, work=Work.LIGHT)
    worked = do_work(with_work(token_for(sale, make_buyer())))

    first, again = order(ask, sale, worked), order(ask, sale, worked)
    fulfill_sale(sale_id=sale.pk)

    assert first.json["order_id"] == again.json["order_id"]
    assert VoucherOrder.objects.count() == 1


def test_work_cannot_be_moved_to_another_token(ask: Any) -> None:
    sale = make_sale(stock=10, work=Work.LIGHT)
    done, other = (with_work(it) for it in tokens_for(sale, make_buyers(2)))
    nonce = do_work(done).partition("~")[2]

    assert order(ask, sale, f"{other.sign()}~{nonce}").json["code"] == "work_missing"
    assert order(ask, sale, do_work(other)).status == 202


def with_work(token: PurchaseToken) -> PurchaseToken:
    return token._replace(work=Work.LIGHT)
