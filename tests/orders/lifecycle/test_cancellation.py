"""Ending orders: the unit returns to database and ledger once, also after crashes."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import OperationalError, connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from locks import RedisLock
from orders.fulfilment.reconcile import reconcile
from orders.fulfilment.worker import fulfil_sale
from orders.lifecycle import cancellation
from orders.lifecycle.cancellation import Busy, cancel_order, end_orders
from orders.lifecycle.transitions import SYSTEM, Actor, Change, WrongState
from orders.models import ActorKind, OrderEvent, OrderStatus, VoucherOrder
from orders.payments import expiry
from orders.payments.expiry import expire_orders
from seckill_site.failpoints import FailpointReached, armed
from seckill_site.redis.ledger_connection import ledger_connection
from tests.support.inspection import (
    assert_conserved,
    buyers_of,
    ended_of,
    ledger_contents,
    live_ids,
    rows,
    statements,
)
from tests.support.orders import (
    both_at,
    make_buyer,
    make_buyers,
    make_sale,
    reserved,
    reserved_purchase,
    token_for,
)
from tests.support.payments import expire_all
from tests.support.sales import reserve
from tests.support.tiers import slow_after
from vouchers.inventory.keys import LedgerKeys, LedgerUnavailable
from vouchers.inventory.sale_state import snapshot
from vouchers.models import SeckillVoucher

pytestmark = pytest.mark.django_db

STAFF = Actor(ActorKind.STAFF)


def won(sale: SeckillVoucher, buyers: list[User]) -> list[int]:
    """Create an unpaid order for each buyer; return the ids."""
    tokens = reserved(sale, buyers)
    fulfil_sale(sale_id=sale.pk)
    return [token.order_id for token in tokens]


def buy(sale: SeckillVoucher, buyer: User) -> int:
    token = token_for(sale, buyer)
    reserve(sale_id=sale.pk, order_id=token.order_id, user_id=buyer.pk)
    return token.order_id


def overdue(sale: SeckillVoucher) -> None:
    """End the time to pay of a sale's unpaid orders."""
    orders = VoucherOrder.objects.filter(seckill_voucher=sale, status=OrderStatus.UNPAID)
    orders.update(pay_by=timezone.now() - dt.timedelta(seconds=1))


def status_of(order_id: int) -> str:
    return VoucherOrder.objects.values_list("status", flat=True).get(pk=order_id)


# --- Cancelling ----------------------------------------------------------------------------------


def test_cancelled_order_returns_its_unit() -> None:
    sale, buyer = make_sale(stock=1), make_buyer()
    (order_id,) = won(sale, [buyer])
    assert snapshot(sale_id=sale.pk).remaining == 0
    now = timezone.now()

    cancel_order(order_id=order_id, by=Actor.buyer(buyer.pk), why="changed my mind", now=now)

    assert status_of(order_id) == "cancelled"
    assert live_ids(sale) == []
    assert snapshot(sale_id=sale.pk).remaining == 1
    assert ended_of(sale) == {order_id: f"{buyer.pk}:cancelled"}
    assert_conserved(sale)
    assert buy(sale, make_buyer())
    first, last = OrderEvent.objects.filter(order=order_id)
    assert (first.before, first.after, first.actor_kind) == ("", "unpaid", "system")
    assert (last.before, last.after, last.at) == ("unpaid", "cancelled", now)
    assert (last.actor_kind, last.actor_id) == ("buyer", buyer.pk)
    assert last.reason == "changed my mind"


def test_cancelling_one_unit_gives_back_its_unpaid_purchase() -> None:
    sale, buyer = make_sale(stock=9, limit=4), make_buyer()
    paid, *unpaid = reserved_purchase(sale, buyer, 3)
    other = reserved_purchase(sale, buyer, 1)
    fulfil_sale(sale_id=sale.pk)
    VoucherOrder.objects.filter(pk=paid).update(status=OrderStatus.PAID)

    cancel_order(order_id=unpaid[1], by=Actor.buyer(buyer.pk), now=timezone.now())

    assert [status_of(it) for it in (paid, *unpaid)] == ["paid", "cancelled", "cancelled"]
    assert live_ids(sale) == [paid, *other]
    assert_conserved(sale)


def test_crash_amid_a_cancellation_leaves_the_purchase_whole() -> None:
    sale = make_sale(stock=9, limit=4)
    units = reserved_purchase(sale, make_buyer(), 3)
    fulfil_sale(sale_id=sale.pk)
    for point, status in [("end.before_commit", "unpaid"), ("end.committed", "cancelled")]:
        with armed(f"{point}=raise"), pytest.raises(FailpointReached):
            cancel_order(order_id=units[0], by=STAFF, now=timezone.now())
        assert {status_of(it) for it in units} == {status}
    reconcile(sale_id=sale.pk, repair=True)
    fulfil_sale(sale_id=sale.pk)
    assert_conserved(sale)


@pytest.mark.parametrize("status", ["paid", "cancelled"])
def test_only_unpaid_orders_are_cancelled(status: str) -> None:
    sale = make_sale()
    (order_id,) = won(sale, [make_buyer()])
    live = status == "paid" or None
    VoucherOrder.objects.filter(pk=order_id).update(status=status, live=live)
    before = ledger_contents(), rows(), OrderEvent.objects.count()
    with pytest.raises(WrongState) as refused:
        cancel_order(order_id=order_id, by=STAFF, now=timezone.now())
    assert refused.value.status == status
    assert (ledger_contents(), rows(), OrderEvent.objects.count()) == before


@pytest.mark.slow
def test_cancelling_waits_for_fulfilments_user_lock() -> None:
    sale, buyer = make_sale(), make_buyer()
    (order_id,) = won(sale, [buyer])
    key = LedgerKeys(sale.pk).user_lock(buyer.pk)
    # Another process: this thread itself would enter its own lock again.
    ledger_connection().set(key, "a worker", px=60_000)
    with pytest.raises(Busy):
        cancel_order(order_id=order_id, by=STAFF, now=timezone.now())
    assert status_of(order_id) == "unpaid"
    ledger_connection().delete(key)
    cancel_order(order_id=order_id, by=STAFF, now=timezone.now())
    assert_conserved(sale)


def test_user_lock_is_released_after_cancel_and_refusal() -> None:
    sale, buyer = make_sale(), make_buyer()
    (order_id,) = won(sale, [buyer])
    cancel_order(order_id=order_id, by=STAFF, now=timezone.now())
    with pytest.raises(WrongState):
        cancel_order(order_id=order_id, by=STAFF, now=timezone.now())
    key = LedgerKeys(sale.pk).user_lock(buyer.pk)
    assert not RedisLock(ledger_connection(), key).locked()


def test_cancelling_needs_redis(lose_ledger: Callable[[], None]) -> None:
    sale = make_sale()
    (order_id,) = won(sale, [make_buyer()])
    lose_ledger()
    with pytest.raises(LedgerUnavailable):
        cancel_order(order_id=order_id, by=STAFF, now=timezone.now())
    assert status_of(order_id) == "unpaid"


# --- Expiring ------------------------------------------------------------------------------------


def test_order_expires_at_its_deadline() -> None:
    sale = make_sale(stock=2, pay_within_s=600)
    early, late = won(sale, make_buyers(2))
    now = timezone.now()
    pay_by = VoucherOrder.objects.values_list("pay_by", flat=True).get(pk=early)
    assert pay_by is not None
    assert now + dt.timedelta(seconds=590) < pay_by <= now + dt.timedelta(seconds=600)
    assert expire_all(clocks=both_at(now)) == 0
    VoucherOrder.objects.filter(pk=early).update(pay_by=now)
    assert expire_all(clocks=both_at(now)) == 1
    assert (status_of(early), status_of(late)) == ("expired", "unpaid")
    assert_conserved(sale)
    assert snapshot(sale_id=sale.pk).remaining == 1


def test_paid_order_does_not_expire() -> None:
    sale = make_sale()
    (order_id,) = won(sale, [make_buyer()])
    VoucherOrder.objects.filter(pk=order_id).update(status="paid")
    VoucherOrder.objects.filter(pk=order_id).update(pay_by=timezone.now() - dt.timedelta(days=1))
    assert expire_all(clocks=both_at(timezone.now())) == 0


def test_failing_sale_does_not_stop_expiry_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    bad, good = make_sale(), make_sale()
    for sale in (bad, good):
        won(sale, make_buyers(2))
        overdue(sale)

    def fails_for_one(change: Change, *, sale_id: int, **options: Any) -> object:
        if sale_id == bad.pk:
            raise OperationalError(1205, "by the test")
        return end_orders(change, sale_id=sale_id, **options)

    monkeypatch.setattr(expiry, "end_orders", fails_for_one)
    assert expire_all(clocks=both_at(timezone.now())) == 2
    assert len(live_ids(bad)) == 2
    assert live_ids(good) == []


def test_expiry_locks_the_sale_row_first() -> None:
    sale = make_sale()
    won(sale, make_buyers(2))
    overdue(sale)
    with CaptureQueriesContext(connection) as queries:
        expire_all(clocks=both_at(timezone.now()))
    locking = [sql for sql in statements(queries.captured_queries) if "FOR UPDATE" in sql]
    assert "vouchers_seckillvoucher" in locking[0]
    assert "orders_voucherorder" in locking[1]


@pytest.mark.parametrize("count", [1, 200])
def test_expiry_statements_do_not_grow_with_orders(count: int) -> None:
    sale = make_sale(stock=count)
    won(sale, make_buyers(count))
    overdue(sale)
    with CaptureQueriesContext(connection) as queries:
        expire_orders(clocks=both_at(timezone.now()))
    assert len(queries) == EXPIRY_STATEMENTS
    assert live_ids(sale) == []
    assert_conserved(sale)


EXPIRY_STATEMENTS = 11
"""To find the batch; the transaction; the look for another batch."""


def test_many_orders_expire_in_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expiry, "EXPIRE_AT_ONCE", 5)
    count = 4 * expiry.EXPIRE_AT_ONCE
    sale = make_sale(stock=count)
    reserved(sale, make_buyers(count))
    while snapshot(sale_id=sale.pk).pending:
        fulfil_sale(sale_id=sale.pk)
    overdue(sale)
    with CaptureQueriesContext(connection) as queries:
        expire_orders(clocks=both_at(timezone.now()))
    assert len(queries) < 4 * EXPIRY_STATEMENTS + EXPIRY_STATEMENTS
    assert live_ids(sale) == []
    assert OrderEvent.objects.filter(after="expired").count() == count
    assert snapshot(sale_id=sale.pk).remaining == count
    assert_conserved(sale)


# --- Whoever dies --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "point", slow_after(1, ["end.before_commit", "end.committed", "end.released"])
)
def test_crash_at_any_step_is_repaired_by_reconcile(point: str) -> None:
    sale = make_sale(stock=3)
    order_ids = won(sale, make_buyers(3))
    overdue(sale)
    with armed(f"{point}=raise"), pytest.raises(FailpointReached):
        expire_all(clocks=both_at(timezone.now()))
    gone = point != "end.before_commit"
    assert {status_of(order_id) for order_id in order_ids} == {"expired" if gone else "unpaid"}

    expire_all(clocks=both_at(timezone.now()))
    reconcile(sale_id=sale.pk, repair=True)
    fulfil_sale(sale_id=sale.pk)  # decides on what was made pending

    assert {status_of(order_id) for order_id in order_ids} == {"expired"}
    assert snapshot(sale_id=sale.pk).remaining == 3
    assert buyers_of(sale) == {}
    assert reconcile(sale_id=sale.pk).difference == 0
    assert_conserved(sale)


def test_unreleased_units_return_with_reconcile(monkeypatch: pytest.MonkeyPatch) -> None:
    sale = make_sale(stock=1)
    (order_id,) = won(sale, [make_buyer()])

    def away(**kwargs: object) -> None:
        raise LedgerUnavailable("by the test")

    with monkeypatch.context() as patch:
        patch.setattr(cancellation, "release", away)
        cancel_order(order_id=order_id, by=STAFF, now=timezone.now())
    assert status_of(order_id) == "cancelled"
    assert snapshot(sale_id=sale.pk).remaining == 0, "careful: nobody is sold what may not be there"
    reconcile(sale_id=sale.pk, repair=True)
    fulfil_sale(sale_id=sale.pk)
    assert snapshot(sale_id=sale.pk).remaining == 1
    assert_conserved(sale)


def test_already_ended_order_is_skipped() -> None:
    sale = make_sale()
    first, second = won(sale, make_buyers(2))
    cancel_order(order_id=first, by=STAFF, now=timezone.now())
    expired = Change(OrderStatus.EXPIRED, SYSTEM, timezone.now())
    ended = end_orders(expired, sale_id=sale.pk, order_ids=[first, second])
    assert [order.pk for order in ended] == [second]
    assert OrderEvent.objects.filter(order=first).count() == 2
    assert_conserved(sale)
