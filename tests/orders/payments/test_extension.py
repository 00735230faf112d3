"""More time to pay: once, in the last two minutes, and never past an expiry."""

from __future__ import annotations

import datetime as dt
import threading
from typing import Any

import pytest
from django.db.models import Q
from django.utils import timezone
from pytest_django import Settings

from orders.lifecycle.cancellation import end_orders
from orders.lifecycle.transitions import WrongState, note
from orders.models import EventCode, OrderEvent, OrderStatus, VoucherOrder
from orders.payments import expiry, extension
from orders.payments.extension import extend_time
from orders.payments.service import code_to_scan, start_payment
from orders.receipts.service import cached_receipt, find_receipt, receipt_of
from seckill_site.clocks.steps import Clocks
from tests.support.inspection import assert_conserved
from tests.support.orders import at_once, both_at, make_sale, race
from tests.support.payments import (
    ADDRESSES,
    buyer_of,
    expire_all,
    let_time_run_out,
    make_payment,
    make_unpaid_order,
    owner_of,
    status_of,
    use_fake,
)
from tests.support.tiers import slow_after
from vouchers.models import SeckillVoucher

pytestmark = pytest.mark.django_db(transaction=True)

MINUTE = dt.timedelta(minutes=1)


def ending_order(*, left: dt.timedelta = MINUTE, **terms: Any) -> VoucherOrder:
    """Return an unpaid order that has so much time left to pay."""
    order = make_unpaid_order(make_sale(**terms))
    let_time_run_out(order, left)
    return order


def extend(order: VoucherOrder, *, now: dt.datetime | None = None) -> None:
    extend_time(order_id=order.pk, by=buyer_of(order), now=now or timezone.now())


@pytest.mark.parametrize(
    ("pay_within_s", "minutes"), slow_after(2, [(900, 10), (3600, 10), (300, 5), (60, 1)])
)
def test_extension_gives_at_most_ten_minutes(pay_within_s: int, minutes: int) -> None:
    order = ending_order(left=MINUTE / 2, pay_within_s=pay_within_s)
    before = order.pay_by
    assert before
    extend(order)
    order.refresh_from_db()
    assert order.pay_by == before + minutes * MINUTE


def test_extension_is_in_the_history_without_a_mail() -> None:
    order = ending_order()
    extend(order)
    event = OrderEvent.objects.get(order=order, code=EventCode.EXTENDED)
    assert (event.before, event.after) == ("unpaid", "unpaid")
    assert event.actor_id == owner_of(order).pk
    assert event.notified_at is not None
    assert event.webhooks_due is None


def test_time_is_extended_once() -> None:
    order = ending_order()
    extend(order)
    order.refresh_from_db()
    assert order.pay_by
    before = order.pay_by
    extend(order, now=before - MINUTE)
    order.refresh_from_db()
    assert order.pay_by == before


@pytest.mark.parametrize(
    ("left", "terms"), [(3 * MINUTE, {}), (MINUTE, {"extendable": False})], ids=["early", "sale"]
)
def test_extension_is_refused(left: dt.timedelta, terms: dict[str, Any]) -> None:
    order = ending_order(left=left, **terms)
    with pytest.raises(WrongState):
        extend(order)
    before = order.pay_by
    order.refresh_from_db()
    assert order.pay_by == before


def test_expired_or_paid_order_is_not_extended(monkeypatch: pytest.MonkeyPatch) -> None:
    order = ending_order()
    assert order.pay_by
    late = order.pay_by + MINUTE
    monkeypatch.setattr("orders.payments.time_to_pay.settled_clocks", lambda: both_at(late))
    with pytest.raises(WrongState):
        extend(order, now=late)
    VoucherOrder.objects.filter(pk=order.pk).update(status=OrderStatus.PAID)
    with pytest.raises(WrongState):
        extend(order)


def test_extended_order_expires_at_its_new_time() -> None:
    order = ending_order()
    assert order.pay_by
    extend(order)
    assert expire_all(clocks=both_at(order.pay_by + 9 * MINUTE)) == 0
    assert expire_all(clocks=both_at(order.pay_by + 10 * MINUTE)) == 1
    assert_conserved(SeckillVoucher.objects.get(pk=order.seckill_voucher_id))


def test_copy_of_a_receipt_never_shows_the_old_time() -> None:
    order = ending_order()
    its: dict[str, Any] = {"sale_id": order.seckill_voucher_id, "order_id": order.pk}
    its["user_id"] = owner_of(order).pk
    old = find_receipt(**its, has_token=True)
    assert cached_receipt(**its) == old
    assert not old.extended
    extend(order)
    for _ in range(2):
        new = find_receipt(**its, has_token=True)
        assert new.extended
        assert new.pay_by_ms == receipt_of(VoucherOrder.objects.get(pk=order.pk)).pay_by_ms
        assert cached_receipt(**its) is None


def test_payment_made_later_gets_the_new_time(settings: Settings) -> None:
    fake, order = use_fake(settings), ending_order()
    assert order.pay_by
    now = timezone.now()

    def pay_at(now: dt.datetime) -> str:
        return start_payment(order_id=order.pk, **ADDRESSES, now=now)

    old = pay_at(now)
    extend(order, now=now + MINUTE / 120)
    new = pay_at(now + MINUTE / 60)
    assert new != old
    assert [it.pay_by for it in fake.charges.values()] == [order.pay_by, order.pay_by + 10 * MINUTE]
    assert pay_at(now + MINUTE / 30) == new, "one charge with the new time is enough"


def test_code_with_the_old_time_is_shown_no_more(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake, order, now = use_fake(settings), ending_order(), timezone.now()
    monkeypatch.setattr(fake, "code_apps", {"https://": "WeChat"})

    def code_at(now: dt.datetime) -> bool:
        return code_to_scan(order_id=order.pk, now=now) is not None

    start_payment(order_id=order.pk, **ADDRESSES, now=now)
    assert code_at(now)
    extend(order, now=now + MINUTE / 120)
    assert not code_at(now + MINUTE / 60)
    start_payment(order_id=order.pk, **ADDRESSES, now=now + MINUTE / 60)
    assert code_at(now + MINUTE / 60)


# --- Against an expiry ----------------------------------------------------------------------------


@pytest.mark.parametrize("being_paid", [False, True])
@pytest.mark.parametrize("guarded", [True, False], ids=["guarded", "control"])
def test_expiry_that_looked_before_spares_an_extended_order(
    monkeypatch: pytest.MonkeyPatch, *, being_paid: bool, guarded: bool
) -> None:
    """The buyer is on time, and the expiry finds the order due just before the extension."""
    order = ending_order()
    assert order.pay_by
    if being_paid:
        make_payment(order)
    clocks = both_at(order.pay_by)

    def end_after_the_extension(*arguments: Any, only: Q, **options: Any) -> Any:
        extend(order)
        return end_orders(*arguments, only=only if guarded else Q(), **options)

    monkeypatch.setattr(expiry, "end_orders", end_after_the_extension)
    assert expire_all(clocks=clocks) == (0 if guarded else 1)
    assert status_of(order) == ("unpaid" if guarded else "expired")


@race
@pytest.mark.parametrize("guarded", [True, False], ids=["guarded", "control"])
def test_expiry_that_waits_for_an_extension_spares_the_order(
    monkeypatch: pytest.MonkeyPatch, *, guarded: bool
) -> None:
    order = ending_order()
    assert order.pay_by
    clocks: Clocks = both_at(order.pay_by)
    is_locked, is_seen = threading.Event(), threading.Event()

    def note_slowly(*arguments: Any, **options: Any) -> None:
        is_locked.set()
        assert is_seen.wait(20)
        note(*arguments, **options)

    def end_while_it_is_locked(*arguments: Any, only: Q, **options: Any) -> Any:
        is_seen.set()
        return end_orders(*arguments, only=only if guarded else Q(), **options)

    def expire() -> int:
        assert is_locked.wait(20)
        return expire_all(clocks=clocks)

    monkeypatch.setattr(extension, "note", note_slowly)
    monkeypatch.setattr(expiry, "end_orders", end_while_it_is_locked)
    assert at_once(lambda: extend(order), expire) == [None, 0 if guarded else 1]
    assert status_of(order) == ("unpaid" if guarded else "expired")


@race
@pytest.mark.parametrize("guarded", [True, False], ids=["lock", "control"])
def test_two_presses_at_once_extend_once(monkeypatch: pytest.MonkeyPatch, *, guarded: bool) -> None:
    order = ending_order()
    assert order.pay_by
    both = threading.Barrier(2)
    if not guarded:

        def look_without_lock(*, order_id: int) -> VoucherOrder:
            found = VoucherOrder.objects.get(pk=order_id)
            both.wait(20)
            return found

        monkeypatch.setattr(extension, "lock_order", look_without_lock)
    assert at_once(lambda: extend(order), lambda: extend(order)) == [None, None]
    assert OrderEvent.objects.filter(code=EventCode.EXTENDED).count() == (1 if guarded else 2)
