"""Many threads reserve at once: one script call keeps the count exact."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from operator import attrgetter
from typing import Any

import pytest
from pytest_django import Settings

from orders.placing.tokens import PurchaseToken, issue_tokens
from seckill_site.redis.ledger_connection import ledger_connection
from tests.concurrency.sales import make_sale
from tests.support.orders import pending
from tests.support.sales import reserve
from tests.support.tiers import slow_after
from vouchers.inventory.holdings import by_purchase
from vouchers.inventory.keys import LedgerKeys
from vouchers.inventory.purchases import further_ids, is_all_or_none
from vouchers.inventory.reservations import OrdersLimited, Reservation, SoldOut, TooFew
from vouchers.inventory.sale_state import snapshot
from vouchers.models import SeckillVoucher

pytestmark = [pytest.mark.concurrency, pytest.mark.django_db(transaction=True)]

THREADS = 50
STOCK = 20


def at_once(calls: Sequence[Callable[[], Reservation]]) -> list[object]:
    """Start all calls together in threads; return what each returned or raised."""
    start = threading.Barrier(THREADS)

    def run(mine: Sequence[Callable[[], Reservation]]) -> list[object]:
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


# --- Several units in one press ------------------------------------------------------------------


def test_one_token_with_different_quantities_is_one_purchase() -> None:
    """Fifty presses of each token, for one to five units, all or what is left: one counts."""
    sale = make_sale(stock=500, limit=5)
    tokens = issue_tokens(sale=sale, user_ids=range(1, 9))
    presses: list[Callable[[], Reservation]] = [
        partial(press, token, quantity=1 + n % 5, all_or_none=n % 2 == 1)
        for n in range(THREADS)
        for token in tokens
    ]

    outcomes = at_once(presses)

    assert {it.order_id for it in outcomes if isinstance(it, Reservation)} == ids(tokens)
    units = by_purchase(sorted(pending(sale), key=attrgetter("order_id")))
    assert [it[0].purchase for it in units] == sorted(ids(tokens))
    for purchase in units:
        further = [it.order_id for it in purchase[1:]]
        whole = any(map(is_all_or_none, further))
        first, size = purchase[0].order_id, len(purchase)
        assert further == list(further_ids(first, quantity=size, all_or_none=whole))


@pytest.mark.parametrize("stock", slow_after(1, [7, 20, 41]))
def test_last_units_go_whole_or_one_by_one_exactly(stock: int) -> None:
    sale = make_sale(stock=stock, limit=4)
    tokens = issue_tokens(sale=sale, user_ids=range(1, 51))
    wants = {token.order_id: 1 + n % 4 for n, token in enumerate(tokens)}

    outcomes = at_once(
        [partial(press, it, quantity=wants[it.order_id], all_or_none=True) for it in tokens]
    )

    sizes = {units[0].purchase: len(units) for units in by_purchase(pending(sale))}
    assert sizes == {it: wants[it] for it in sizes}, "a purchase got a part of what it wanted"
    assert len(sizes) == sum(isinstance(it, Reservation) for it in outcomes)
    left = stock - sum(sizes.values())
    assert left == snapshot(sale_id=sale.pk).remaining >= 0
    refused = [it for it in outcomes if isinstance(it, TooFew)]
    assert left == 0 or refused, "a purchase that fits was refused"
    single = issue_tokens(sale=sale, user_ids=range(100, 100 + left + 1))
    for token in single[:left]:
        press(token)
    with pytest.raises(SoldOut):
        press(single[-1])


def press(token: PurchaseToken, **wanted: Any) -> Reservation:
    return reserve(sale_id=token.sale_id, order_id=token.order_id, user_id=token.user_id, **wanted)


def ids(tokens: Sequence[PurchaseToken]) -> set[int]:
    return {token.order_id for token in tokens}


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
