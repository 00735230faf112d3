"""Reconciling: real differences are repaired, orders in flight are none."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any
from unittest.mock import Mock

import pytest
from django.contrib.auth.models import User
from django.db import OperationalError, connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from redis import Redis

from orders.draws.entries import store_entries
from orders.fulfilment import reconcile as reconciling
from orders.fulfilment import worker
from orders.fulfilment.reconcile import Comparison, reconcile, reconcile_many, reconcile_running
from orders.fulfilment.worker import fulfil_sale
from orders.models import OrderStatus, VoucherOrder
from tests.support.draws import entered_draw, in_redis
from tests.support.inspection import (
    assert_conserved,
    buyers_of,
    ended_of,
    ledger_contents,
    live_ids,
    pending_ids,
    rows,
)
from tests.support.orders import (
    another_session,
    at_once,
    hold_row,
    id_minted,
    ids,
    make_buyer,
    make_buyers,
    make_order,
    make_sale,
    reserved,
    written_orders,
)
from tests.support.passes import cut_after_one
from tests.support.sales import change_state
from tests.support.tiers import slow_after
from vouchers.inventory.holdings import add_buyers
from vouchers.inventory.keys import LedgerKeys, LedgerUnavailable, NotLoaded
from vouchers.inventory.reservations import PendingEntry, Release, release
from vouchers.inventory.sale_state import snapshot
from vouchers.models import SeckillVoucher

pytestmark = pytest.mark.django_db


def sale_with(*, ordered: int, waiting: int = 0, stock: int = 20) -> SeckillVoucher:
    """Return a healthy sale with this many orders and pending entries."""
    sale = make_sale(stock=stock)
    written_orders(sale, make_buyers(ordered))
    if waiting:
        reserved(sale, make_buyers(waiting))
    sale.refresh_from_db()
    return sale


def difference(sale: SeckillVoucher) -> int:
    return reconcile(sale_id=sale.pk).difference


# --- What it finds -------------------------------------------------------------------------------


def test_healthy_sale_has_no_difference() -> None:
    sale = sale_with(ordered=3, waiting=2)
    assert reconcile(sale_id=sale.pk) == Comparison(
        voucher_id=sale.pk,
        total=20,
        sold=3,
        live_orders=3,
        buyers=5,
        pending=2,
        remaining=15,
        difference=0,
    )


def test_ended_orders_are_no_difference() -> None:
    sale = sale_with(ordered=2)
    make_order(sale, make_buyer(), status=OrderStatus.CANCELLED)
    make_order(sale, None, status=OrderStatus.REFUSED, reason="inactive_buyer")
    assert difference(sale) == 0


def a_stray_buyer(ledger: Redis, sale: SeckillVoucher) -> int:
    """Add a buyer with neither an order nor a pending entry."""
    (token,) = reserved(sale, [make_buyer()])
    ledger.zrem(LedgerKeys(sale.pk).pending, f"{token.order_id}:{token.user_id}:1")
    return token.order_id


def a_missing_buyer(ledger: Redis, sale: SeckillVoucher) -> int:
    """Remove a live order from the ledger."""
    order = VoucherOrder.objects.filter(seckill_voucher=sale, live=True)[0]
    ledger.hdel(LedgerKeys(sale.pk).buyers, f"{order.user_id}:{order.unit}")
    return order.pk


def test_stray_buyer_goes_back_to_pending(ledger: Redis) -> None:
    sale = sale_with(ordered=1)
    order_id = a_stray_buyer(ledger, sale)
    assert difference(sale) == 1
    repaired = reconcile(sale_id=sale.pk, repair=True)
    assert (repaired.difference, repaired.pending, repaired.buyers) == (0, 1, 2)
    assert pending_ids(sale) == [order_id]
    fulfil_sale(sale_id=sale.pk)
    assert order_id in live_ids(sale)
    assert_conserved(sale)


def test_stray_buyer_of_cancelled_order_gets_no_second(ledger: Redis) -> None:
    sale = sale_with(ordered=2)
    order = VoucherOrder.objects.filter(seckill_voucher=sale)[0]
    VoucherOrder.objects.filter(pk=order.pk).update(status="cancelled", live=None)
    SeckillVoucher.objects.filter(pk=sale.pk).update(sold=1)
    assert difference(sale) == 1
    assert reconcile(sale_id=sale.pk, repair=True).difference == 0
    fulfil_sale(sale_id=sale.pk)
    assert ended_of(sale) == {order.pk: f"{order.user_id}:cancelled"}
    assert_conserved(sale)


def test_pending_entry_without_buyer_is_a_difference(ledger: Redis) -> None:
    sale = sale_with(ordered=1)
    (token,) = reserved(sale, [make_buyer()])
    before = buyers_of(sale)
    ledger.hdel(LedgerKeys(sale.pk).buyers, f"{token.user_id}:1")
    assert difference(sale) == 1
    assert reconcile(sale_id=sale.pk, repair=True).difference == 0
    assert buyers_of(sale) == before
    assert pending_ids(sale) == [token.order_id]


@pytest.mark.parametrize("off", slow_after(1, [-2, 2]))
def test_wrong_sold_count_is_recounted(off: int) -> None:
    sale = sale_with(ordered=3)
    SeckillVoucher.objects.filter(pk=sale.pk).update(sold=3 + off)
    assert difference(sale) == 2
    assert reconcile(sale_id=sale.pk, repair=True).difference == 0
    sale.refresh_from_db()
    assert sale.sold == 3


@pytest.mark.parametrize(("total", "off"), slow_after(2, [(17, 3), (23, 3), (20, 0)]))
def test_wrong_total_is_copied_from_the_row(ledger: Redis, total: int, off: int) -> None:
    sale = sale_with(ordered=3)
    change_state(sale.pk, total=total)
    assert difference(sale) == off
    assert reconcile(sale_id=sale.pk, repair=True).difference == 0
    assert snapshot(sale_id=sale.pk).terms.total == 20


@pytest.mark.parametrize("name", slow_after(1, ["begins_at_ms", "ends_at_ms", "limit", "paused"]))
def test_other_wrong_term_counts_one_and_is_copied(ledger: Redis, name: str) -> None:
    sale = sale_with(ordered=1)
    key = LedgerKeys(sale.pk).sale
    before = ledger.hgetall(key)
    change_state(sale.pk, **{name: 1 if name == "paused" else 12})
    assert difference(sale) == 1
    assert reconcile(sale_id=sale.pk, repair=True).difference == 0
    assert ledger.hgetall(key) == before


def test_unloaded_sale_is_loaded(ledger: Redis) -> None:
    sale = sale_with(ordered=3)
    ledger.flushdb()
    found = reconcile(sale_id=sale.pk)
    assert (found.remaining, found.buyers, found.pending, found.difference) == (None, 0, 0, 3)
    with pytest.raises(NotLoaded):
        snapshot(sale_id=sale.pk)  # comparing alone changes nothing
    repaired = reconcile(sale_id=sale.pk, repair=True)
    assert (repaired.remaining, repaired.buyers, repaired.difference) == (17, 3, 0)


def test_all_differences_at_once_are_repaired(ledger: Redis) -> None:
    sale = sale_with(ordered=4, waiting=2)
    a_stray_buyer(ledger, sale)
    a_stray_buyer(ledger, sale)
    a_missing_buyer(ledger, sale)
    change_state(sale.pk, total=25)
    SeckillVoucher.objects.filter(pk=sale.pk).update(sold=1)
    assert difference(sale) == 2 + 1 + 5 + 3
    repaired = reconcile(sale_id=sale.pk, repair=True)
    assert repaired.difference == 0
    before = ledger_contents(), rows()
    assert reconcile(sale_id=sale.pk, repair=True) == repaired
    assert (ledger_contents(), rows()) == before, "the second time there is nothing to repair"
    fulfil_sale(sale_id=sale.pk)
    assert len(live_ids(sale)) == 8
    assert_conserved(sale)


# --- Keys of a wrong type ------------------------------------------------------------------------

WRITE_AS: dict[str, Callable[[Redis, str], object]] = {
    "string": lambda client, key: client.set(key, "mistyped"),
    "list": lambda client, key: client.rpush(key, "mistyped"),
    "set": lambda client, key: client.sadd(key, "mistyped"),
    "hash": lambda client, key: client.hset(key, "state", "mistyped"),
    "zset": lambda client, key: client.zadd(key, {"mistyped": 1}),
    "stream": lambda client, key: client.xadd(key, {"mistyped": 1}),
}
"""A command for each type that a key may have."""


def break_key(ledger: Redis, key: str, kind: str) -> None:
    ledger.delete(key)
    WRITE_AS[kind](ledger, key)


def sale_before_its_start() -> SeckillVoucher:
    return make_sale(begins_in_s=600)


def running_sale() -> SeckillVoucher:
    sale = sale_with(ordered=2, waiting=2)
    cancel_one(sale)  # from here on the scripts look at all keys
    return sale


def sold_out_sale() -> SeckillVoucher:
    return sale_with(ordered=3, stock=3)


def sale_that_is_over() -> SeckillVoucher:
    sale = sale_with(ordered=2)
    SeckillVoucher.objects.filter(pk=sale.pk).update(ends_at=timezone.now())
    reconcile(sale_id=sale.pk, repair=True)
    return sale


@pytest.mark.parametrize("kind", slow_after(1, WRITE_AS))
@pytest.mark.parametrize(
    "make", slow_after(2, [sale_before_its_start, running_sale, sold_out_sale, sale_that_is_over])
)
def test_each_key_of_a_wrong_type_is_mended_and_named_once(
    ledger: Redis, caplog: pytest.LogCaptureFixture, make: Callable[[], SeckillVoucher], kind: str
) -> None:
    sale = make()
    types, buyers, waiting = LedgerKeys(sale.pk).types, buyers_of(sale), pending_ids(sale)
    ended = ended_of(sale)
    for key, right in types.items():
        if right == kind:
            continue
        caplog.clear()
        break_key(ledger, key, kind)

        reconcile_running(now=timezone.now())
        reconcile_running(now=timezone.now())

        assert ledger.type(key) in (right, "none")
        named = [record for record in caplog.records if key in record.getMessage()]
        assert len(named) == 1
        assert (buyers_of(sale), pending_ids(sale), ended_of(sale)) == (buyers, waiting, ended)
        assert_conserved(sale)


@pytest.mark.parametrize("off", slow_after(1, [0, 1]))
def test_keys_of_a_large_sale_are_mended_too(
    ledger: Redis, monkeypatch: pytest.MonkeyPatch, off: int
) -> None:
    monkeypatch.setattr(reconciling, "BY_IDS_UP_TO", 2)
    sale = sale_with(ordered=3)
    SeckillVoucher.objects.filter(pk=sale.pk).update(sold=3 + off)
    for name in ("buyers", "limits"):
        break_key(ledger, getattr(LedgerKeys(sale.pk), name), "list")
    reconcile_running(now=timezone.now())
    assert not ledger.exists(LedgerKeys(sale.pk).limits)
    assert_conserved(sale)


@pytest.mark.parametrize("name", slow_after(1, ["buyers", "pending"]))
def test_wrong_type_is_no_failure_of_a_comparison(ledger: Redis, name: str) -> None:
    sale = sale_with(ordered=3)
    break_key(ledger, getattr(LedgerKeys(sale.pk), name), "string")
    found = reconcile(sale_id=sale.pk)
    assert (found.remaining, found.live_orders) == (None, 3)


def test_entries_of_a_wrong_type_come_back_from_rows(ledger: Redis) -> None:
    sale, tokens = entered_draw(make_buyers(3))
    store_entries(sale_id=sale.pk)
    for name in ("entries", "fresh"):
        break_key(ledger, getattr(LedgerKeys(sale.pk), name), "string")
    reconcile_running(now=timezone.now())
    assert in_redis(sale) == ids(tokens)


def test_comparison_changes_nothing(ledger: Redis) -> None:
    sale = sale_with(ordered=3, waiting=1)
    a_stray_buyer(ledger, sale)
    a_missing_buyer(ledger, sale)
    before = ledger_contents(), rows()
    assert difference(sale) == 2
    assert (ledger_contents(), rows()) == before


# --- No false alarm ------------------------------------------------------------------------------


def reserve_one(sale: SeckillVoucher) -> None:
    reserved(sale, [make_buyer()])


def fulfil_all(sale: SeckillVoucher) -> None:
    fulfil_sale(sale_id=sale.pk)


def reserve_and_fulfil(sale: SeckillVoucher) -> None:
    reserve_one(sale)
    fulfil_all(sale)


def refuse_all(sale: SeckillVoucher) -> None:
    User.objects.update(is_active=False)
    fulfil_sale(sale_id=sale.pk)


def cancel_one(sale: SeckillVoucher) -> None:
    """Cancel in the database first, then in Redis, like the product."""
    order = VoucherOrder.objects.filter(seckill_voucher=sale, live=True).order_by("pk")[0]
    VoucherOrder.objects.filter(pk=order.pk).update(status="cancelled", live=None)
    sold = VoucherOrder.objects.filter(seckill_voucher=sale, live=True).count()
    SeckillVoucher.objects.filter(pk=sale.pk).update(sold=sold)
    assert order.user_id is not None
    entry = PendingEntry(order.pk, order.user_id, order.unit, 0)
    release(sale_id=sale.pk, releases=[Release(entry, "cancelled")])


@pytest.mark.parametrize(
    "step", slow_after(1, ["snapshots", "read_buyers", "read_pending", "_live_holdings"])
)
@pytest.mark.parametrize(
    "meanwhile",
    slow_after(2, [reserve_one, fulfil_all, reserve_and_fulfil, refuse_all, cancel_one]),
)
def test_change_during_comparison_is_no_difference(
    step: str,
    meanwhile: Callable[[SeckillVoucher], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sale = sale_with(ordered=3, waiting=3)
    read = getattr(reconciling, step)
    done: list[str] = []

    def read_then_something_moves(*args: Any, **kwargs: Any) -> Any:
        result = read(*args, **kwargs)
        if not done:
            done.append(step)
            meanwhile(sale)
        return result

    monkeypatch.setattr(reconciling, step, read_then_something_moves)
    found = reconcile(sale_id=sale.pk, repair=True)
    assert done
    assert found.difference == 0
    fulfil_sale(sale_id=sale.pk)
    assert_conserved(sale)


@pytest.mark.parametrize("step", slow_after(1, ["confirm", "release"]))
def test_committed_unconfirmed_order_is_no_difference(
    step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sale = sale_with(ordered=1)
    active, closed = make_buyers(2)
    reserved(sale, [active, closed])
    User.objects.filter(pk=closed.pk).update(is_active=False)
    tell = getattr(worker, step)
    seen: list[int] = []

    def told(**kwargs: Any) -> None:
        seen.append(difference(sale))
        tell(**kwargs)

    monkeypatch.setattr(worker, step, told)
    fulfil_sale(sale_id=sale.pk)
    assert seen == [0]


@pytest.mark.django_db(transaction=True)
@pytest.mark.concurrency
def test_reconcile_under_load_repairs_nothing_in_flight() -> None:
    sale = make_sale(stock=200)
    crowds = [make_buyers(40) for _ in range(3)]
    over = threading.Event()

    def buy(crowd: list[User]) -> Callable[[], None]:
        def run() -> None:
            for first in range(0, len(crowd), 5):
                written_orders(sale, crowd[first : first + 5])

        return run

    def buyers_then_over() -> None:
        try:
            assert at_once(*map(buy, crowds)) == [None] * 3
        finally:
            over.set()

    def watch() -> list[int]:
        seen: list[int] = []
        while not over.is_set():
            seen.append(reconcile(sale_id=sale.pk, repair=len(seen) % 2 == 0).difference)
        return seen

    nothing, seen = at_once(buyers_then_over, watch)
    assert nothing is None
    assert len(seen) >= 3
    assert set(seen) == {0}
    fulfil_sale(sale_id=sale.pk)
    assert len(live_ids(sale)) == 120
    assert_conserved(sale)


@pytest.mark.django_db(transaction=True)
def test_live_order_cannot_be_cancelled_while_it_is_added(
    ledger: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cancel in between would free a unit that is then added as taken for good."""
    sale = sale_with(ordered=2)
    a_missing_buyer(ledger, sale)
    enter = add_buyers
    refused: list[int] = []

    def entered(**kwargs: Any) -> None:
        with another_session() as session, pytest.raises(OperationalError) as caught:
            hold_row(session, sale, how="NOWAIT")
        refused.append(caught.value.args[0])
        enter(**kwargs)

    monkeypatch.setattr(reconciling, "add_buyers", entered)
    assert reconcile(sale_id=sale.pk, repair=True).difference == 0
    assert refused == [1205]


# --- Which sales ---------------------------------------------------------------------------------


def test_named_sales_are_compared_in_order_or_all() -> None:
    sales = [make_sale().pk for _ in range(3)]
    for named, expected in (([], sales), ([sales[2], sales[0]], [sales[2], sales[0]])):
        found = list(reconcile_many(sale_ids=named, repair=False))
        assert [comparison.voucher_id for comparison in found] == expected


def test_missing_named_sale_stops_before_any_comparison(ledger: Redis) -> None:
    sale = sale_with(ordered=1)
    a_missing_buyer(ledger, sale)
    before = ledger_contents()
    with pytest.raises(SeckillVoucher.DoesNotExist):
        list(reconcile_many(sale_ids=[sale.pk, sale.pk + 1], repair=True))
    assert ledger_contents() == before


def test_beat_repairs_active_sales(ledger: Redis) -> None:
    broken, never_loaded, just_over, long_over = (
        make_sale(),
        make_sale(loaded=False),
        make_sale(begins_in_s=-7_200, ends_in_s=-3_600),
        make_sale(begins_in_s=-200_000, ends_in_s=-100_000),
    )
    for sale in (broken, just_over, long_over):
        change_state(sale.pk, total=3)
    healthy = sale_with(ordered=2, waiting=1)
    assert not reconcile_running(now=timezone.now())
    changing = [broken, never_loaded, just_over, healthy]
    assert {difference(sale) for sale in changing} == {0}
    assert_conserved(never_loaded)
    assert difference(long_over) == 7


def test_beat_compares_large_sale_by_ids_if_counts_differ(
    ledger: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    by_ids = Mock(side_effect=reconcile)
    monkeypatch.setattr("orders.fulfilment.reconcile.BY_IDS_UP_TO", 1)
    monkeypatch.setattr("orders.fulfilment.reconcile.reconcile", by_ids)
    sale = sale_with(ordered=2, waiting=1)
    reconcile_running(now=timezone.now())
    assert by_ids.call_count == 0
    a_missing_buyer(ledger, sale)
    reconcile_running(now=timezone.now())
    assert (by_ids.call_count, difference(sale)) == (1, 0)
    reconcile_running(now=timezone.now())
    assert by_ids.call_count == 1


def test_beat_finds_differences_with_equal_counts(ledger: Redis) -> None:
    """The stray buyer was accepted, and only reconcile can still create the order."""
    sale = sale_with(ordered=2)
    stray_id = a_stray_buyer(ledger, sale)
    a_missing_buyer(ledger, sale)
    reconcile_running(now=timezone.now())
    fulfil_sale(sale_id=sale.pk)
    assert stray_id in live_ids(sale)
    assert_conserved(sale)


@pytest.mark.slow
def test_cut_pass_is_continued_by_the_next(ledger: Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    cut_after_one(monkeypatch)
    sales = [sale_with(ordered=1) for _ in range(3)]
    for sale in sales:
        a_missing_buyer(ledger, sale)
    found, left = [], []
    for _ in sales:
        left.append(reconcile_running(now=timezone.now()))
        found.append(sorted(difference(sale) for sale in sales))
    assert found == [[0, 1, 1], [0, 0, 1], [0, 0, 0]]
    assert left == [True, True, False]


@pytest.mark.parametrize(("trusted_s", "passes"), [(600.0, 1), (0.0, 3)])
@pytest.mark.parametrize("by_ids_up_to", slow_after(1, [0, 10_000]))
def test_beat_leaves_an_unchanged_sale_for_a_while(
    ledger: Redis,
    monkeypatch: pytest.MonkeyPatch,
    trusted_s: float,
    passes: int,
    by_ids_up_to: int,
) -> None:
    monkeypatch.setattr(reconciling, "BY_IDS_UP_TO", by_ids_up_to)
    monkeypatch.setattr(reconciling._alike, "for_s", trusted_s)
    sale_with(ordered=2)
    with CaptureQueriesContext(connection) as queries:
        for _ in range(3):
            reconcile_running(now=timezone.now())
    read = [it["sql"] for it in queries if "orders_voucherorder" in it["sql"]]
    assert len(read) == passes


@pytest.mark.parametrize("change", slow_after(1, [a_stray_buyer, a_missing_buyer]))
def test_beat_compares_a_sale_again_once_it_has_changed(
    ledger: Redis, change: Callable[[Redis, SeckillVoucher], object]
) -> None:
    sale = sale_with(ordered=2)
    for _ in range(2):
        reconcile_running(now=timezone.now())
    change(ledger, sale)
    reconcile_running(now=timezone.now())
    assert_conserved(sale)


def test_failing_sale_does_not_stop_the_rest(ledger: Redis) -> None:
    broken, sale = make_sale(), sale_with(ordered=1)
    ledger.hset(LedgerKeys(broken.pk).buyers, "written by hand", "x")
    a_missing_buyer(ledger, sale)
    reconcile_running(now=timezone.now())
    assert_conserved(sale)


def test_without_redis_ledger_is_unavailable(lose_ledger: Callable[[], None]) -> None:
    sale = make_sale()
    lose_ledger()
    with pytest.raises(LedgerUnavailable):
        reconcile(sale_id=sale.pk)


def test_stray_with_unminted_id_becomes_an_order(ledger: Redis) -> None:
    sale, buyer = make_sale(), make_buyer()
    order_id = id_minted(seconds_ago=5)
    ledger.hset(LedgerKeys(sale.pk).buyers, f"{buyer.pk}:1", order_id)
    reconcile(sale_id=sale.pk, repair=True)
    fulfil_sale(sale_id=sale.pk)
    assert live_ids(sale) == [order_id]
    assert_conserved(sale)
