"""Many threads reserve at once: one script call keeps the count exact."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from pytest_django import Settings

from seckill_site.redis.ledger_connection import ledger_connection
from tests.concurrency.sales import make_sale
from tests.support.sales import reserve
from vouchers.inventory.keys import LedgerKeys
from vouchers.inventory.reservations import OrdersLimited, Reservation, SoldOut
from vouchers.inventory.sale_state import snapshot
from vouchers.models import SeckillVoucher

pytestmark = [pytest.mark.concurrency, pytest.mark.django_db(transaction=True)]

THREADS = 50
STOCK = 20


def at_once(calls: list[Callable[[], Reservation]]) -> list[object]:
    """Start all calls together in threads; return what each returned or raised."""
    start = threading.Barrier(THREADS)

    def run(mine: list[Callable[[], Reservation]]) -> list[object]:
        start.wait()
        outcomes: list[object] = []
        for call in mine:
            try:
                outcomes.append(call())
            except Exception as error:
                outcomes.append(error)
        return outcomes

    with ThreadPoolExecutor(THREADS) as threads:
        results = threads.map(run, [calls[n::THREADS] for n in range(THREADS)])
        return [outcome for result in results for outcome in result]


def reserving(
    sale: SeckillVoucher, *, order_id: int, user_id: int, address: str = ""
) -> Callable[[], Reservation]:
    ids = {"sale_id": sale.pk, "order_id": order_id, "user_id": user_id}
    return lambda: reserve(**ids, address=address)


def test_concurrent_buyers_reserve_exactly_the_stock() -> None:
    sale = make_sale(stock=STOCK)
    buyers = range(1, 10 * STOCK + 1)
    outcomes = at_once([reserving(sale, order_id=user, user_id=user) for user in buyers])
    assert sum(isinstance(outcome, Reservation) for outcome in outcomes) == STOCK
    assert sum(isinstance(outcome, SoldOut) for outcome in outcomes) == 9 * STOCK
    assert (snapshot(sale_id=sale.pk).taken, snapshot(sale_id=sale.pk).pending) == (STOCK, STOCK)


@pytest.mark.usefixtures("young_window")
def test_crowd_from_one_address_gets_exactly_its_limit(settings: Settings) -> None:
    settings.SECKILL_ORDERS_PER_ADDRESS = 7
    sale = make_sale(stock=STOCK)
    buyers = range(1, 10 * STOCK + 1)
    calls = [reserving(sale, order_id=user, user_id=user, address="203.0.113.7") for user in buyers]
    outcomes = at_once(calls)
    assert sum(isinstance(outcome, Reservation) for outcome in outcomes) == 7
    assert sum(isinstance(outcome, OrdersLimited) for outcome in outcomes) == 10 * STOCK - 7


def test_concurrent_reservations_set_one_kick() -> None:
    sale = make_sale(stock=200)
    outcomes = at_once([reserving(sale, order_id=n, user_id=n) for n in range(1, 201)])
    assert sum(isinstance(o, Reservation) and o.kick_due for o in outcomes) == 1


def test_control_check_and_write_in_two_calls_oversell() -> None:
    """Do what the script does, but read first and write afterwards."""
    sale = make_sale(stock=1)
    keys, both_have_read = LedgerKeys(sale.pk), threading.Barrier(2)

    def reserve_in_two_calls(user_id: int) -> bool:
        client = ledger_connection()
        left = snapshot(sale_id=sale.pk).terms.total - (client.hlen(keys.buyers) - 1)
        both_have_read.wait()
        if left > 0:
            client.hset(keys.buyers, f"{user_id}:1", str(user_id))
        return left > 0

    with ThreadPoolExecutor(2) as threads:
        sold = list(threads.map(reserve_in_two_calls, (1, 2)))
    assert sold == [True, True]
    assert snapshot(sale_id=sale.pk).taken == 2 > sale.stock
