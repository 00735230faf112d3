"""Retrying a set-aside order on MariaDB: it becomes live once, or nothing changes."""

from __future__ import annotations

import datetime as dt
import threading
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import IntegrityError
from django.utils import timezone
from redis import Redis

from orders.fulfilment import retry as retrying
from orders.fulfilment.reconcile import reconcile
from orders.fulfilment.retry import (
    BuyerClosed,
    NotSetAside,
    Retry,
    retry_order,
    retry_orders,
    set_aside_orders,
)
from orders.fulfilment.worker import fulfil_sale
from orders.lifecycle.transitions import Actor, Change
from orders.models import ActorKind, OrderEvent, OrderStatus, VoucherOrder
from orders.receipts.service import find_receipt
from seckill_site.failpoints import FailpointReached, armed
from tests.fixtures.site import RedisGone
from tests.support.inspection import (
    assert_conserved,
    buyers_of,
    ended_of,
    ledger_contents,
    live_ids,
    pending_ids,
    refusals_of,
    rows,
    tries_of,
)
from tests.support.orders import (
    at_once,
    make_buyer,
    make_buyers,
    make_order,
    make_sale,
    pending,
    poison,
    reserved,
    reserved_sale,
    token_for,
    written_orders,
)
from tests.support.sales import change_state, reserve
from tests.support.tiers import slow_after
from vouchers import chain
from vouchers.inventory.batch_journal import count_failure
from vouchers.inventory.keys import LedgerKeys, LedgerUnavailable
from vouchers.inventory.reservations import (
    AlreadyOrdered,
    Release,
    SoldOut,
    StillPending,
    release,
    retake,
)
from vouchers.inventory.sale_state import snapshot
from vouchers.models import SeckillVoucher

pytestmark = pytest.mark.django_db


def set_aside(sale: SeckillVoucher, buyer: User | None = None) -> int:
    """Create an accepted order, set it aside like the worker, and return its id."""
    (token,) = reserved(sale, [buyer or make_buyer()])
    (entry,) = (it for it in pending(sale) if it.order_id == token.order_id)
    row = VoucherOrder.objects.create(
        id=token.order_id,
        user_id=token.user_id,
        seckill_voucher=sale,
        unit=entry.unit,
        status=OrderStatus.REFUSED,
        live=None,
        reason="failed",
        price_cents=sale.voucher.price_cents,
        accepted_at=timezone.now(),
    )
    release(sale_id=sale.pk, releases=[Release(entry, "failed")])
    return row.pk


def history_of(order_id: int) -> list[tuple[str, str]]:
    """Return the state before and after each change, oldest first."""
    events = OrderEvent.objects.filter(order=order_id).order_by("pk")
    return list(events.values_list("before", "after"))


def assert_nothing_changes(order_id: int, error: type[Exception]) -> Exception:
    """Assert that the retry raises this error and writes nothing."""
    before = ledger_contents(), rows()
    with pytest.raises(error) as refused:
        retry_order(order_id=order_id, now=timezone.now())
    assert (ledger_contents(), rows()) == before
    return refused.value


# --- What it does --------------------------------------------------------------------------------


@pytest.mark.django_db(transaction=True)
def test_poison_entry_is_live_after_fix_and_retry(
    monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    """From acceptance to receipt, with the real worker."""
    settings.SECKILL_MAX_TRIES = 1
    sale, (token,) = reserved_sale([make_buyer()])
    with monkeypatch.context() as patch:
        poison(patch, token.order_id)
        for _ in range(2):
            fulfil_sale(sale_id=sale.pk)
    mine: dict[str, Any] = {
        "sale_id": sale.pk, "order_id": token.order_id, "user_id": token.user_id,
    }  # fmt: skip
    assert (find_receipt(**mine).status, find_receipt(**mine).reason) == ("refused", "failed")
    assert list(set_aside_orders()) == [VoucherOrder.objects.get(pk=token.order_id)]

    retry_order(order_id=token.order_id, now=timezone.now())

    assert (find_receipt(**mine).status, find_receipt(**mine).reason) == ("unpaid", "")
    assert not set_aside_orders()
    assert live_ids(sale) == [token.order_id]
    assert_conserved(sale)
    assert reconcile(sale_id=sale.pk).difference == 0


def test_retried_order_keeps_id_unit_price_and_time() -> None:
    sale = make_sale(limit=2)
    buyer = make_buyer()
    reserved(sale, [buyer])
    order_id = set_aside(sale, buyer)
    count_failure(sale_id=sale.pk, order_id=order_id)
    before = VoucherOrder.objects.get(pk=order_id)

    retry_order(order_id=order_id, now=timezone.now())

    after = VoucherOrder.objects.get(pk=order_id)
    assert (after.status, after.live, after.reason) == ("unpaid", True, "")
    for name in ("user_id", "seckill_voucher_id", "unit", "price_cents", "accepted_at"):
        assert getattr(after, name) == getattr(before, name)
    assert after.unit == 2
    assert buyers_of(sale)[f"{buyer.pk}:2"] == str(order_id)
    assert (ended_of(sale), tries_of(sale)) == ({}, {})
    assert_conserved(sale)


@pytest.mark.parametrize("by_staff", [False, True], ids=["system", "staff"])
def test_retry_and_its_actor_are_in_the_history(by_staff: bool) -> None:
    sale, clerk = make_sale(), make_buyer()
    order_id = set_aside(sale)
    before = timezone.now()

    retry_order(
        order_id=order_id, now=timezone.now(), **({"by": Actor.staff(clerk.pk)} if by_staff else {})
    )

    event = OrderEvent.objects.get(order=order_id)
    assert (event.before, event.after, event.code) == ("refused", "unpaid", "retried")
    assert before <= event.at <= timezone.now()
    expected = (ActorKind.STAFF, clerk.pk) if by_staff else (ActorKind.SYSTEM, None)
    assert (event.actor_kind, event.actor_id) == expected


def test_retried_order_gets_full_time_to_pay() -> None:
    sale = make_sale(pay_within_s=600)
    order_id = set_aside(sale)
    before = timezone.now()

    retry_order(order_id=order_id, now=timezone.now())

    allowed = dt.timedelta(seconds=600)
    pay_by = VoucherOrder.objects.get(pk=order_id).pay_by
    assert pay_by is not None
    assert before + allowed <= pay_by <= timezone.now() + allowed


def test_retry_loads_an_unloaded_sale(ledger: Redis) -> None:
    sale = make_sale()
    order_id = set_aside(sale)
    ledger.flushdb()
    retry_order(order_id=order_id, now=timezone.now())
    assert buyers_of(sale)
    assert_conserved(sale)


def test_refused_retry_does_not_stop_the_rest() -> None:
    sale = make_sale()
    first, second = set_aside(sale), set_aside(sale)
    results = list(retry_orders(order_ids=[first, first, 404, second]))
    assert [(it.order_id, type(it.refusal)) for it in results] == [
        (first, type(None)),
        (first, NotSetAside),
        (404, VoucherOrder.DoesNotExist),
        (second, type(None)),
    ]
    assert results[0] == Retry(first)
    assert_conserved(sale)


# --- What it refuses, changing nothing -----------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "reason"),
    slow_after(
        2,
        [(OrderStatus.UNPAID, ""), (OrderStatus.CANCELLED, ""), (OrderStatus.REFUSED, "sold_out")],
    ),
)
def test_only_set_aside_orders_are_retried(status: OrderStatus, reason: str) -> None:
    order = make_order(make_sale(), make_buyer(), status=status, reason=reason)
    assert_nothing_changes(order.pk, NotSetAside)


@pytest.mark.parametrize("order_id", slow_after(1, [404, 0, -1, 10**30]))
def test_retry_of_missing_order_is_refused(order_id: int) -> None:
    make_sale()
    assert_nothing_changes(order_id, VoucherOrder.DoesNotExist)


def test_closed_account_gets_no_retried_order() -> None:
    sale, buyer = make_sale(), make_buyer()
    order_id = set_aside(sale, buyer)
    User.objects.filter(pk=buyer.pk).update(is_active=False)
    assert_nothing_changes(order_id, BuyerClosed)


def test_deleted_account_gets_no_retried_order() -> None:
    order = make_order(make_sale(), None, status=OrderStatus.REFUSED, reason="failed")
    assert_nothing_changes(order.pk, BuyerClosed)


def test_resold_unit_is_not_sold_twice() -> None:
    sale = make_sale(stock=1)
    order_id = set_aside(sale)
    reserved(sale, make_buyers(1))
    assert_nothing_changes(order_id, SoldOut)
    fulfil_sale(sale_id=sale.pk)
    assert_nothing_changes(order_id, SoldOut)
    assert_conserved(sale)


def test_retry_is_sold_out_by_the_database(ledger: Redis) -> None:
    sale = make_sale(stock=1)
    order_id = set_aside(sale)
    written_orders(sale, make_buyers(1))
    change_state(sale.pk, total=5)
    assert snapshot(sale_id=sale.pk).remaining == 4
    assert_nothing_changes(order_id, SoldOut)


@pytest.mark.parametrize("written", [False, True], ids=["promised", "written"])
def test_buyers_newer_order_is_kept(written: bool) -> None:
    sale, buyer = make_sale(), make_buyer()
    order_id = set_aside(sale, buyer)
    (new,) = reserved(sale, [buyer])
    if written:
        fulfil_sale(sale_id=sale.pk)
    refusal = assert_nothing_changes(order_id, AlreadyOrdered)
    assert isinstance(refusal, AlreadyOrdered)
    assert refusal.order_id == new.order_id


def a_live_order_that_the_ledger_lost(ledger: Redis) -> tuple[SeckillVoucher, int, int]:
    """Return a sale, a set-aside order, and its buyer's live order, which the ledger has lost."""
    sale, buyer = make_sale(), make_buyer()
    order_id = set_aside(sale, buyer)
    (new,) = written_orders(sale, [buyer])
    ledger.hdel(LedgerKeys(sale.pk).buyers, f"{buyer.pk}:1")
    return sale, order_id, new.order_id


def test_live_order_lost_by_ledger_refuses_the_retry(ledger: Redis) -> None:
    _, order_id, live_id = a_live_order_that_the_ledger_lost(ledger)
    refusal = assert_nothing_changes(order_id, AlreadyOrdered)
    assert isinstance(refusal, AlreadyOrdered)
    assert refusal.order_id == live_id


@pytest.mark.django_db(transaction=True)
def test_control_without_that_check_unique_key_holds(
    ledger: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    sale, order_id, live_id = a_live_order_that_the_ledger_lost(ledger)
    monkeypatch.setattr(retrying, "_live_order_at", lambda order: None)
    before = rows()
    with pytest.raises(IntegrityError, match="order_one_live_per_buyer_unit"):
        retry_order(order_id=order_id, now=timezone.now())
    assert rows() == before
    assert live_ids(sale) == [live_id]


def test_retry_before_release_is_refused_as_pending() -> None:
    """Otherwise the release would take the retried order's unit again."""
    sale, buyer = make_sale(), make_buyer()
    (token,) = reserved(sale, [buyer])
    make_order(sale, buyer, order_id=token.order_id, status=OrderStatus.REFUSED, reason="failed")
    assert_nothing_changes(token.order_id, StillPending)
    fulfil_sale(sale_id=sale.pk)  # finds the refused row and releases
    retry_order(order_id=token.order_id, now=timezone.now())
    assert_conserved(sale)


def test_retry_without_redis_writes_nothing_and_can_repeat(redis_gone: RedisGone) -> None:
    sale = make_sale()
    order_id = set_aside(sale)
    before = rows()
    with redis_gone(), pytest.raises(LedgerUnavailable):
        retry_order(order_id=order_id, now=timezone.now())
    assert rows() == before
    retry_order(order_id=order_id, now=timezone.now())
    assert_conserved(sale)


# --- A crash between the retake and the commit ----------------------------------------------------


def crash_after_the_retake(order_id: int) -> None:
    with armed("retry.claimed=raise"), pytest.raises(FailpointReached):
        retry_order(order_id=order_id, now=timezone.now())


@pytest.mark.django_db(transaction=True)
def test_crash_after_retake_is_repaired_by_reconcile() -> None:
    sale = make_sale(stock=1)
    order_id = set_aside(sale)
    before = rows()
    crash_after_the_retake(order_id)
    assert rows() == before
    assert list(buyers_of(sale).values()) == [str(order_id)]
    assert reconcile(sale_id=sale.pk).difference == 1

    assert reconcile(sale_id=sale.pk, repair=True).difference == 0
    assert pending_ids(sale) == [order_id]
    fulfil_sale(sale_id=sale.pk)

    assert (buyers_of(sale), pending_ids(sale)) == ({}, [])
    assert [reason.partition(":")[2] for reason in ended_of(sale).values()] == ["failed"]
    assert refusals_of(sale) == {order_id: "failed"}
    assert snapshot(sale_id=sale.pk).remaining == 1
    assert_conserved(sale)
    retry_order(order_id=order_id, now=timezone.now())
    assert_conserved(sale)


@pytest.mark.django_db(transaction=True)
def test_retry_after_crash_finds_its_own_unit() -> None:
    sale = make_sale(stock=1)
    order_id = set_aside(sale)
    crash_after_the_retake(order_id)
    retry_order(order_id=order_id, now=timezone.now())
    assert live_ids(sale) == [order_id]
    assert_conserved(sale)


@pytest.mark.django_db(transaction=True)
def test_reconcile_between_retake_and_commit_keeps_the_order(
    ledger: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reconcile sees a buyer without a live order; fulfilment finds the row live and confirms."""
    sale = make_sale(stock=1)
    order_id = set_aside(sale)

    def reconciled(name: str) -> None:
        member = next(f"{id}:{field}" for field, id in buyers_of(sale).items())
        ledger.zadd(LedgerKeys(sale.pk).pending, {member: 1})

    monkeypatch.setattr(retrying, "failpoint", reconciled)
    retry_order(order_id=order_id, now=timezone.now())
    assert pending_ids(sale) == [order_id]
    fulfil_sale(sale_id=sale.pk)
    assert live_ids(sale) == [order_id]
    assert pending_ids(sale) == []
    assert_conserved(sale)


# --- Two at once ---------------------------------------------------------------------------------


@pytest.mark.usefixtures("row_locks")
@pytest.mark.django_db(transaction=True)
def test_concurrent_retries_of_one_order_succeed_once() -> None:
    sale = make_sale(stock=5)
    for _ in range(5):
        order_id = set_aside(sale)
        outcomes = at_once(
            *[lambda order_id=order_id: retry_order(order_id=order_id, now=timezone.now())] * 2
        )
        assert sorted(type(outcome).__name__ for outcome in outcomes) == ["NoneType", "NotSetAside"]
        assert_conserved(sale)


def retried_at_once_without_row_locks(monkeypatch: pytest.MonkeyPatch, order_id: int) -> list[Any]:
    """Retry an order twice after both have found it set aside; return both outcomes."""
    both = threading.Barrier(2, timeout=10)

    def unlocked_sale(*, sale_id: int) -> SeckillVoucher:
        return SeckillVoucher.objects.get(pk=sale_id)

    def unlocked_order(*, order_id: int) -> VoucherOrder:
        return VoucherOrder.objects.get(pk=order_id)

    def retake_together(**which: Any) -> None:
        both.wait()  # each has found the order set aside
        retake(**which)

    monkeypatch.setattr(chain, "has_chain", lambda _: False)  # its numbers are a guard, too
    monkeypatch.setattr(retrying, "lock_seckill_voucher", unlocked_sale)
    monkeypatch.setattr(retrying, "lock_order", unlocked_order)
    monkeypatch.setattr(retrying, "retake", retake_together)
    return at_once(*[lambda: retry_order(order_id=order_id, now=timezone.now())] * 2)


@pytest.mark.usefixtures("row_locks")
@pytest.mark.django_db(transaction=True)
def test_without_row_locks_conditional_change_retries_once(monkeypatch: pytest.MonkeyPatch) -> None:
    sale = make_sale(stock=5)
    order_id = set_aside(sale)
    outcomes = retried_at_once_without_row_locks(monkeypatch, order_id)
    assert sorted(type(outcome).__name__ for outcome in outcomes) == ["NoneType", "WrongState"]
    assert history_of(order_id) == [("refused", "unpaid")]
    assert_conserved(sale)


@pytest.mark.usefixtures("row_locks")
@pytest.mark.django_db(transaction=True)
def test_control_without_locks_and_condition_both_retries_succeed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sale = make_sale(stock=5)
    order_id = set_aside(sale)

    def unconditional(change: Change, *, order_id: int, **fields: Any) -> None:
        told = {name: fields[name] for name in ("reason", "pay_by")}
        VoucherOrder.objects.filter(pk=order_id).update(status=change.to, live=True, **told)

    monkeypatch.setattr(retrying, "change_order", unconditional)
    assert retried_at_once_without_row_locks(monkeypatch, order_id) == [None, None]


@pytest.mark.usefixtures("row_locks")
@pytest.mark.django_db(transaction=True)
def test_retries_racing_new_buyers_never_oversell() -> None:
    sale = make_sale(stock=4)
    order_ids = [set_aside(sale) for _ in range(4)]
    tokens = [token_for(sale, buyer) for buyer in make_buyers(4)]

    def buy(token: Any) -> None:
        reserve(sale_id=sale.pk, order_id=token.order_id, user_id=token.user_id)
        fulfil_sale(sale_id=sale.pk)

    outcomes = at_once(
        *[lambda id=id: retry_order(order_id=id, now=timezone.now()) for id in order_ids],
        *[lambda token=token: buy(token) for token in tokens],
    )
    fulfil_sale(sale_id=sale.pk)
    assert {type(outcome) for outcome in outcomes} == {type(None), SoldOut}
    assert len(live_ids(sale)) == 4
    assert_conserved(sale)
