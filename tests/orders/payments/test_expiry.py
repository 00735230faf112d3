"""Expiry in passes: how much one does, who does it, and what comes before the rest."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from django.db import OperationalError
from django.utils import timezone
from redis import Redis

from orders import tasks
from orders.fulfilment import worker
from orders.lifecycle import cancellation
from orders.models import VoucherOrder
from orders.payments import expiry
from orders.payments.expiry import expire_being_paid, expire_orders
from tests.support.inspection import assert_conserved, broker_length, empty_broker, live_ids
from tests.support.orders import (
    at_once,
    both_at,
    make_buyers,
    make_sale,
    race,
    reserved,
    reserved_purchase,
)
from tests.support.passes import cut_after_one, without_lock
from tests.support.patience import wait_for
from tests.support.payments import make_payment, make_unpaid_order, status_of
from tests.support.worker_here import worker_here
from vouchers.inventory.passes import WRITING, note_writing
from vouchers.models import SeckillVoucher

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def small_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a pass be one transaction of two orders."""
    cut_after_one(monkeypatch)
    monkeypatch.setattr(expiry, "EXPIRE_AT_ONCE", 2)


def overdue_sale(units: int) -> SeckillVoucher:
    sale = make_sale(stock=units)
    make_unpaid_order(sale, make_buyers(units))
    VoucherOrder.objects.update(pay_by=timezone.now())
    empty_broker()
    return sale


def expire() -> bool:
    return expire_orders(clocks=both_at(timezone.now()))


def test_pass_leaves_the_rest_to_the_next_ones() -> None:
    sale = overdue_sale(5)
    left = []
    while expire():
        left.append(len(live_ids(sale)))
    assert left == [3, 1]
    assert_conserved(sale)


@pytest.mark.parametrize(
    ("most", "is_guarded", "left"), [(3, True, 3), (4, True, 3), (5, True, 3), (4, False, 2)]
)
def test_purchase_expires_in_one_transaction(
    monkeypatch: pytest.MonkeyPatch, most: int, is_guarded: bool, left: int
) -> None:
    sale = make_sale(stock=20, limit=4)
    for buyer in make_buyers(2):
        reserved_purchase(sale, buyer, 3)
    worker.fulfil_sale(sale_id=sale.pk)
    VoucherOrder.objects.update(pay_by=timezone.now())
    monkeypatch.setattr(expiry, "EXPIRE_AT_ONCE", most)
    if not is_guarded:
        monkeypatch.setattr(expiry, "is_in_block", lambda order_id: False)

    assert expire()

    assert len(live_ids(sale)) == left
    assert_conserved(sale)


def test_cut_pass_publishes_one_task_as_beat_does() -> None:
    overdue_sale(5)
    tasks.expire()
    tasks.expire()
    assert broker_length() == 1
    empty_broker()
    tasks.expire()
    assert broker_length() == 0


@pytest.mark.slow
def test_fulfil_message_is_served_before_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is one process of one worker, and the message came while the pass was under way."""
    overdue = overdue_sale(6)
    sale = make_sale()
    end_orders = cancellation.end_orders
    left_at_row: list[int] = []

    def end_while_an_order_comes(*arguments: Any, **options: Any) -> Any:
        if not VoucherOrder.objects.filter(seckill_voucher=sale).exists() and not left_at_row:
            reserved(sale, make_buyers(1))
            tasks.fulfil_sale.delay(sale_id=sale.pk)
            left_at_row.append(0)
        return end_orders(*arguments, **options)

    def noting(*, sale_id: int) -> bool:
        left_at_row[0] = len(live_ids(overdue))
        return fulfil(sale_id=sale_id)

    fulfil = worker.fulfil_sale
    monkeypatch.setattr(worker, "fulfil_sale", noting)
    monkeypatch.setattr(expiry, "end_orders", end_while_an_order_comes)
    with worker_here():
        tasks.expire.delay()
        wait_for(lambda: len(live_ids(overdue)) == 2, what="the second pass")
    assert left_at_row == [4]
    assert len(live_ids(sale)) == 1
    assert broker_length() == 0, "the rest is left to beat: an order was written a moment ago"


def test_rest_waits_for_beat_while_orders_are_written(ledger: Redis) -> None:
    overdue_sale(5)
    note_writing()
    tasks.expire()
    assert broker_length() == 0
    ledger.delete(WRITING)
    tasks.expire()
    assert broker_length() == 1


def test_failing_sale_comes_after_all_others(monkeypatch: pytest.MonkeyPatch) -> None:
    failing, whole = overdue_sale(2), overdue_sale(2)
    end_orders = cancellation.end_orders

    def fail_one(*arguments: Any, sale_id: int, **options: Any) -> Any:
        if sale_id == failing.pk:
            raise OperationalError(1205, "lock wait timeout")
        return end_orders(*arguments, sale_id=sale_id, **options)

    with monkeypatch.context() as broken:
        broken.setattr(expiry, "end_orders", fail_one)
        assert expire()
        assert not expire()
        assert (len(live_ids(failing)), live_ids(whole)) == (2, [])
    expire()
    assert live_ids(failing) == []


def test_asking_task_leaves_what_nobody_pays() -> None:
    idle, being_paid = make_unpaid_order(make_sale()), make_unpaid_order(make_sale())
    make_payment(being_paid)
    VoucherOrder.objects.update(pay_by=timezone.now())
    expire_being_paid(clocks=both_at(timezone.now()))
    assert (status_of(idle), status_of(being_paid)) == ("unpaid", "expired")


@race
@pytest.mark.parametrize("guarded", [True, False], ids=["lock", "control"])
def test_two_expiries_at_once_do_not_both_work(
    monkeypatch: pytest.MonkeyPatch, guarded: bool
) -> None:
    if not guarded:
        without_lock(monkeypatch)
    sale = overdue_sale(4)
    end_orders = cancellation.end_orders
    second_is_over, both = threading.Event(), threading.Barrier(2)
    working = threading.Semaphore(0)

    def end_slowly(*arguments: Any, **options: Any) -> Any:
        working.release()
        if guarded:
            assert second_is_over.wait(20)
        else:
            both.wait(20)  # the control: both are about to expire the same orders
        return end_orders(*arguments, **options)

    def second() -> bool:
        assert working.acquire(timeout=20)
        if not guarded:
            return expire()
        is_left = expire()
        second_is_over.set()
        return is_left

    monkeypatch.setattr(expiry, "end_orders", end_slowly)
    assert at_once(expire, second) == [True, not guarded]
    assert not working.acquire(blocking=False) if guarded else working.acquire(blocking=False)
    assert len(live_ids(sale)) == 2
