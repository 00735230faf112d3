"""The cost of each request of a crowd: commands to Redis, SQL statements and messages.

Through the front door and its short way, where nothing is due and all is known.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest
from django.contrib.auth.models import User
from django.core.cache import cache
from pytest_django import DjangoAssertNumQueries, Settings

from orders.fulfilment.worker import fulfil_sale
from orders.placing.tokens import PurchaseToken, read_token
from seckill_site.clocks.machine import now_ms
from seckill_site.front_door import shells
from tests.support.asgi import ask
from tests.support.browsers import browser_of
from tests.support.draws import entered, make_draw
from tests.support.inspection import broker_length, empty_broker, redis_commands
from tests.support.orders import make_buyer, make_sale, receipt_path, reserved, token_for
from tests.support.tiers import slow_after
from tests.support.wsgi import Answer
from vouchers.catalogue import public_sales
from vouchers.inventory import sold_out_cache
from vouchers.models import SeckillVoucher
from vouchers.web import front_door as door

pytestmark = pytest.mark.django_db


@dataclass(frozen=True)
class Cost:
    """Commands to the Redis of the ledger and to that of the cache, SQL statements, messages."""

    redis: int
    cache: int = 0
    sql: int = 0
    messages: int = 0


Request = Callable[[], Answer]


def order(token: PurchaseToken, **fields: int) -> Request:
    path = f"/vouchers/{token.sale_id}/orders/"
    return lambda: ask("POST", path, {"token": token.sign(), **fields})


def receipt(token: PurchaseToken) -> Request:
    return lambda: ask("GET", receipt_path(token), HTTP_PURCHASE_TOKEN=token.sign())


def live(sale: SeckillVoucher) -> Request:
    return lambda: ask("GET", f"/vouchers/{sale.pk}/live/")


def page(sale: SeckillVoucher, cookie: str) -> Request:
    path = f"/vouchers/{sale.pk}/"
    return lambda: ask("GET", path, accept="text/html", HTTP_COOKIE=cookie)


def me(sale: SeckillVoucher, cookie: str) -> Request:
    return lambda: ask("GET", f"/me/?sale={sale.pk}", HTTP_COOKIE=cookie)


def login(buyer: User) -> str:
    """Return the buyer's cookie."""
    return browser_of(buyer).cookies.output(attrs=[], header="").strip()


def begun(stock: int = 10) -> SeckillVoucher:
    """Return a sale in which somebody has a unit already: its task is on its way."""
    sale = make_sale(stock=stock)
    reserved(sale, [make_buyer()])
    return sale


# --- Who asks, ready to ask -----------------------------------------------------------------------


def one_who_wins(buyer: User) -> Request:
    return order(token_for(begun(), buyer))


def the_first_of_a_burst(buyer: User) -> Request:
    return order(token_for(make_sale(), buyer))


def a_winner_who_asks_again(buyer: User) -> Request:
    (token,) = reserved(begun(), [buyer])
    return order(token)


def one_who_has_ordered(buyer: User) -> Request:
    sale = begun()
    reserved(sale, [buyer])
    return order(token_for(sale, buyer))


def one_who_comes_too_late(buyer: User) -> Request:
    return order(token_for(begun(stock=1), buyer))


def the_next_who_comes_too_late(buyer: User) -> Request:
    sale = begun(stock=1)
    order(token_for(sale, make_buyer()))()
    return order(token_for(sale, buyer), attempt=1)


def one_who_comes_too_early(buyer: User) -> Request:
    return order(token_for(make_sale(begins_in_s=60), buyer))


def one_with_the_token_of_another_sale(buyer: User) -> Request:
    token = token_for(begun(), buyer)
    return lambda: ask("POST", f"/vouchers/{token.sale_id + 1}/orders/", {"token": token.sign()})


def one_who_waits_in_the_queue(buyer: User) -> Request:
    (token,) = reserved(begun(), [buyer])
    return receipt(token)


def one_who_has_an_order(buyer: User) -> Request:
    sale = begun()
    (token,) = reserved(sale, [buyer])
    fulfil_sale(sale_id=sale.pk)
    return receipt(token)


def one_who_enters_a_draw(buyer: User) -> Request:
    return order(token_for(make_draw(), buyer))


def one_who_has_entered(buyer: User) -> Request:
    (token,) = entered(make_draw(), [buyer])
    return receipt(token)


def one_whose_page_asks_again_in_a_draw(buyer: User) -> Request:
    sale = make_draw()
    entered(sale, [buyer])
    request = me(sale, login(buyer))
    request()
    return request


def one_who_looks_at_the_sale(buyer: User) -> Request:
    sale = begun()
    public_sales.learn_sale(sale_id=sale.pk)
    return live(sale)


def the_next_who_looks_at_the_sale(buyer: User) -> Request:
    sale = begun()
    live(sale)()
    return live(sale)


def one_who_reloads_the_page(buyer: User) -> Request:
    sale = begun()
    page(sale, "")()
    return page(sale, login(buyer))


def one_whose_page_asks_again(buyer: User) -> Request:
    request = me(begun(), login(buyer))
    request()
    return request


def one_whom_the_cache_has_forgotten(buyer: User) -> Request:
    request = one_whose_page_asks_again(buyer)
    cache.clear()
    return request


def one_with_a_whole_evening(buyer: User) -> Request:
    """Load the page twice, with what its script asks for; order, and follow the receipt."""
    sale = begun()
    cookie = login(buyer)
    load = (page(sale, cookie), live(sale), me(sale, cookie))
    for request in load:
        request()

    def evening() -> Answer:
        *_, known = [request() for request in load * 2]
        token = read_token(known.json["sale"]["token"], sale_id=sale.pk, now_ms=now_ms())
        assert order(token, attempt=1)().status == 202
        return receipt(token)()

    return evening


@pytest.fixture(autouse=True)
def warm(monkeypatch: pytest.MonkeyPatch) -> None:
    """Connections are open and scripts known; what a process remembers does not grow old."""
    monkeypatch.setattr(door, "FRESH_S", 3600.0)
    monkeypatch.setattr(sold_out_cache._answers, "for_s", 3600.0)
    monkeypatch.setattr(shells, "FRESH_S", 3600.0)
    monkeypatch.setattr(public_sales._known, "for_s", 3600.0)
    for prepare in (
        *(the_first_of_a_burst, one_who_has_an_order, one_who_looks_at_the_sale),
        *(one_who_enters_a_draw, one_who_has_entered),
    ):
        prepare(make_buyer())()
    empty_broker()


@pytest.mark.parametrize(
    ("prepare", "status", "cost"),
    slow_after(
        3,
        [
            (one_who_wins, 202, Cost(redis=1)),
            (the_first_of_a_burst, 202, Cost(redis=1, messages=1)),
            (a_winner_who_asks_again, 202, Cost(redis=1)),
            (one_who_has_ordered, 409, Cost(redis=1)),
            (one_who_comes_too_late, 409, Cost(redis=1)),
            (the_next_who_comes_too_late, 409, Cost(redis=0)),
            (one_who_comes_too_early, 409, Cost(redis=1)),
            (one_with_the_token_of_another_sale, 403, Cost(redis=0)),
            (one_who_waits_in_the_queue, 200, Cost(redis=1)),
            (one_who_has_an_order, 200, Cost(redis=1)),
            (one_who_enters_a_draw, 202, Cost(redis=1)),
            (one_who_has_entered, 200, Cost(redis=1)),
            (one_whose_page_asks_again_in_a_draw, 200, Cost(redis=1, cache=1)),
            (one_who_looks_at_the_sale, 200, Cost(redis=1)),
            (the_next_who_looks_at_the_sale, 200, Cost(redis=0)),
            (one_who_reloads_the_page, 200, Cost(redis=0)),
            (one_whose_page_asks_again, 200, Cost(redis=1, cache=1)),
            (one_whom_the_cache_has_forgotten, 200, Cost(redis=1, cache=6, sql=2)),
            (one_with_a_whole_evening, 200, Cost(redis=4, cache=2)),
        ],
    ),
)
def test_request_costs_no_more_than_its_budget(
    prepare: Callable[[User], Request],
    status: int,
    cost: Cost,
    django_assert_num_queries: DjangoAssertNumQueries,
) -> None:
    request = prepare(make_buyer())
    empty_broker()
    with redis_commands() as commands, django_assert_num_queries(cost.sql):
        answer = request()
    assert answer.status == status
    assert len(commands.ledger) == cost.redis
    assert len(commands.cache) == cost.cache
    assert len(commands.broker) == broker_length() == cost.messages


def test_order_without_its_replica_costs_one_command_more(settings: Settings) -> None:
    sale = begun()
    settings.SECKILL_LEDGER_REPLICAS, settings.SECKILL_LEDGER_REPLICAS_MS = 1, 1  # no replica
    order(token_for(sale, make_buyer()))()  # on the connection of such orders
    request = order(token_for(sale, make_buyer()))
    with redis_commands() as commands:
        answer = request()
    assert answer.status == 503
    assert len(commands.ledger) == 2
