"""The waiting list: one place per buyer, in order of joining, never lost."""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Callable

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.utils import timezone
from redis import Redis

from orders.fulfilment.reconcile import reconcile
from orders.fulfilment.sweep import sweep
from orders.fulfilment.worker import fulfil_sale
from orders.lifecycle import cancellation, waiting_list
from orders.lifecycle.cancellation import cancel_order
from orders.lifecycle.transitions import SYSTEM, Actor, WrongState
from orders.lifecycle.waiting_list import (
    NotWaiting,
    WaitingListPlace,
    join,
    leave,
    place_of,
    restore_lines,
)
from orders.models import VoucherOrder, WaitingEntry
from orders.payments.refunds import refund_order
from orders.placing.tokens import BadToken, MalformedToken, PurchaseToken
from orders.receipts.service import NoReceipt, find_receipt
from seckill_site.redis.ledger_connection import ledger_connection
from tests.support.inspection import (
    assert_conserved,
    broker_length,
    buyers_of,
    empty_broker,
    live_ids,
    refusals_of,
)
from tests.support.orders import (
    at_once,
    both_at,
    id_minted,
    make_buyer,
    make_buyers,
    make_sale,
    race,
    token_for,
    written_orders,
)
from tests.support.payments import expire_all, pay
from tests.support.sales import change_state, lose_state
from tests.support.tiers import slow_after
from vouchers.inventory.keys import STATE, LedgerKeys, LedgerUnavailable
from vouchers.inventory.rebuild import load_sale
from vouchers.inventory.reservations import SaleEnded
from vouchers.inventory.sale_state import snapshot
from vouchers.inventory.waiting_list import (
    LinePlace,
    UnitAvailable,
    join_waiting,
    waiting_order_ids,
)
from vouchers.models import SeckillVoucher

pytestmark = pytest.mark.django_db


def sold_out(**terms: object) -> tuple[SeckillVoucher, int]:
    """Return a sale whose only unit is sold, and that order."""
    sale = make_sale(stock=1, **terms)  # type: ignore[arg-type]
    (token,) = written_orders(sale, [make_buyer()])
    return sale, token.order_id


def wait_in(
    sale: SeckillVoucher, buyer: User, token: PurchaseToken | None = None
) -> WaitingListPlace:
    token = token or token_for(sale, buyer)
    now_ms = time.time_ns() // 1_000_000
    return join(token_text=token.sign(), sale_id=sale.pk, user_id=buyer.pk, now_ms=now_ms)


def outcomes() -> list[str]:
    entries = WaitingEntry.objects.filter(live=None).order_by("pk")
    return list(entries.values_list("outcome", flat=True))


def test_returned_unit_becomes_the_first_buyers_order() -> None:
    sale, held = sold_out(pay_within_s=300)
    buyers = make_buyers(2)
    first, second = [wait_in(sale, buyer) for buyer in buyers]
    cancel_order(order_id=held, by=SYSTEM, now=timezone.now())
    assert snapshot(sale_id=sale.pk).remaining == 0, "it was never on sale in between"
    fulfil_sale(sale_id=sale.pk)
    assert live_ids(sale) == [first.order_id]
    order = VoucherOrder.objects.get(pk=first.order_id)
    assert order.user_id == buyers[0].pk
    assert order.pay_by
    assert order.pay_by > timezone.now() + dt.timedelta(seconds=280)
    assert place_of(sale_id=sale.pk, user_id=buyers[0].pk) == WaitingListPlace(
        first.order_id, None, True
    )
    assert place_of(sale_id=sale.pk, user_id=buyers[1].pk) == WaitingListPlace(second.order_id, 1)
    assert outcomes() == ["offered"]
    assert_conserved(sale)


def test_unpaid_offer_goes_to_the_next() -> None:
    sale, held = sold_out()
    first, second = [wait_in(sale, buyer) for buyer in make_buyers(2)]
    cancel_order(order_id=held, by=SYSTEM, now=timezone.now())
    fulfil_sale(sale_id=sale.pk)
    VoucherOrder.objects.filter(pk=first.order_id).update(pay_by=timezone.now())
    assert expire_all(clocks=both_at(timezone.now())) == 1
    fulfil_sale(sale_id=sale.pk)
    assert live_ids(sale) == [second.order_id]
    assert_conserved(sale)


def test_buyer_who_left_is_skipped() -> None:
    sale, held = sold_out()
    first, second = make_buyers(2)
    wait_in(sale, first)
    expected = wait_in(sale, second)
    assert leave(sale_id=sale.pk, user_id=first.pk).offered is False
    with pytest.raises(NotWaiting):
        place_of(sale_id=sale.pk, user_id=first.pk)
    cancel_order(order_id=held, by=SYSTEM, now=timezone.now())
    fulfil_sale(sale_id=sale.pk)
    assert live_ids(sale) == [expected.order_id]
    assert outcomes() == ["left"]


def test_leaving_after_an_offer_returns_the_offer() -> None:
    sale, held = sold_out()
    buyer = make_buyer()
    place = wait_in(sale, buyer)
    cancel_order(order_id=held, by=SYSTEM, now=timezone.now())
    assert leave(sale_id=sale.pk, user_id=buyer.pk) == WaitingListPlace(
        place.order_id, None, offered=True
    )
    fulfil_sale(sale_id=sale.pk)
    assert live_ids(sale) == [place.order_id]


def test_joining_with_free_unit_is_refused() -> None:
    sale, buyer = make_sale(stock=1), make_buyer()
    with pytest.raises(UnitAvailable):
        wait_in(sale, buyer)
    assert not WaitingEntry.objects.filter(live=True).exists()


def test_other_buyers_token_cannot_join() -> None:
    sale, _ = sold_out()
    mine, theirs = make_buyers(2)
    with pytest.raises(BadToken):
        wait_in(sale, mine, token_for(sale, theirs))
    with pytest.raises(MalformedToken):
        join(token_text=None, sale_id=sale.pk, user_id=mine.pk, now_ms=0)
    assert not WaitingEntry.objects.exists()


def test_joining_without_redis_can_be_repeated(lose_ledger: Callable[[], None]) -> None:
    sale, _ = sold_out()
    buyer = make_buyer()
    token = token_for(sale, buyer)
    lose_ledger()
    with pytest.raises(LedgerUnavailable):
        wait_in(sale, buyer, token)
    assert WaitingEntry.objects.get(user=buyer).live


# --- A line that was lost ------------------------------------------------------------------------


def test_lost_line_is_restored_in_order(ledger: Redis) -> None:
    sale, _ = sold_out()
    buyers = make_buyers(3)
    places = [wait_in(sale, buyer) for buyer in buyers]
    ledger.delete(LedgerKeys(sale.pk).waiting)
    assert not restore_lines(now=timezone.now())
    assert waiting_order_ids(sale_id=sale.pk) == {place.order_id for place in places}
    assert [place_of(sale_id=sale.pk, user_id=buyer.pk) for buyer in buyers] == places


def test_long_lost_line_is_restored_in_parts(
    ledger: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting_list, "RESTORED_AT_ONCE", 2)
    sale, _ = sold_out()
    places = [wait_in(sale, buyer) for buyer in make_buyers(5)]
    ledger.delete(LedgerKeys(sale.pk).waiting)
    lengths = []
    while restore_lines(now=timezone.now()):
        lengths.append(snapshot(sale_id=sale.pk).waiting)
    assert lengths == [2, 4]
    assert waiting_order_ids(sale_id=sale.pk) == {place.order_id for place in places}


def test_line_that_cannot_be_restored_is_left_to_beat(
    ledger: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting_list, "RESTORED_AT_ONCE", 2)
    sale, _ = sold_out()
    for buyer in make_buyers(5):
        wait_in(sale, buyer)
    ledger.delete(LedgerKeys(sale.pk).waiting)
    change_state(sale.pk, ends_at_ms=1)
    assert not restore_lines(now=timezone.now())


@pytest.mark.parametrize("is_lost", [True, False])
def test_ended_sale_closes_a_long_line(
    ledger: Redis, monkeypatch: pytest.MonkeyPatch, is_lost: bool
) -> None:
    monkeypatch.setattr(waiting_list, "RESTORED_AT_ONCE", 2)
    sale, _ = sold_out()
    for buyer in make_buyers(5):
        wait_in(sale, buyer)
    now = timezone.now()
    begins_at = now - dt.timedelta(hours=2)
    SeckillVoucher.objects.filter(pk=sale.pk).update(begins_at=begins_at, ends_at=now)
    load_sale(sale_id=sale.pk)
    if is_lost:
        ledger.delete(LedgerKeys(sale.pk).waiting)
    passes = 1
    while restore_lines(now=now):
        passes += 1
    assert passes == (3 if is_lost else 1)
    assert outcomes() == ["over"] * 5


def test_line_lost_during_a_return_is_served(ledger: Redis) -> None:
    sale, held = sold_out()
    places = [wait_in(sale, buyer) for buyer in make_buyers(3)]
    ledger.delete(LedgerKeys(sale.pk).waiting)
    cancel_order(order_id=held, by=SYSTEM, now=timezone.now())
    restore_lines(now=timezone.now())
    fulfil_sale(sale_id=sale.pk)
    assert live_ids(sale) == [places[0].order_id]
    assert snapshot(sale_id=sale.pk).waiting == 2
    assert_conserved(sale)


def test_leaving_during_restore_stays_out(monkeypatch: pytest.MonkeyPatch, ledger: Redis) -> None:
    sale, held = sold_out()
    buyer = make_buyer()
    place = wait_in(sale, buyer)
    ledger.delete(LedgerKeys(sale.pk).waiting)

    def left_meanwhile(**kwargs: object) -> LinePlace:
        leave(sale_id=sale.pk, user_id=buyer.pk)
        return join_waiting(**kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(waiting_list, "join_waiting", left_meanwhile)
    restore_lines(now=timezone.now())
    cancel_order(order_id=held, by=SYSTEM, now=timezone.now())
    fulfil_sale(sale_id=sale.pk)
    assert not VoucherOrder.objects.filter(pk=place.order_id).exists()
    assert snapshot(sale_id=sale.pk).waiting == 0


def test_entry_with_closed_row_leaves_the_line(ledger: Redis) -> None:
    sale, held = sold_out()
    place = wait_in(sale, make_buyer())
    WaitingEntry.objects.update(live=None, outcome="left")
    restore_lines(now=timezone.now())  # nobody waits, so nothing is looked at
    other = wait_in(sale, make_buyer())
    restore_lines(now=timezone.now())
    cancel_order(order_id=held, by=SYSTEM, now=timezone.now())
    fulfil_sale(sale_id=sale.pk)
    assert live_ids(sale) == [other.order_id]
    assert not VoucherOrder.objects.filter(pk=place.order_id).exists()


def test_unfinished_edit_ends_no_waiting(ledger: Redis) -> None:
    """The edit has ended the sale in the ledger, but not in the row."""
    sale, _ = sold_out()
    buyer = make_buyer()
    wait_in(sale, buyer)
    keys = LedgerKeys(sale.pk)
    change_state(keys.sale_id, ends_at_ms=1)
    ledger.delete(keys.waiting)
    restore_lines(now=timezone.now())
    with pytest.raises(SaleEnded):
        wait_in(sale, buyer)
    load_sale(sale_id=sale.pk)  # as reconciling does
    restore_lines(now=timezone.now())
    assert place_of(sale_id=sale.pk, user_id=buyer.pk).place == 1


def test_waiting_buyers_receipt_is_never_lost(ledger: Redis) -> None:
    sale, _ = sold_out()
    buyer = make_buyer()
    token = token_for(sale, buyer)._replace(order_id=id_minted(seconds_ago=60))
    place = wait_in(sale, buyer, token)
    lose_state(sale.pk)
    load_sale(sale_id=sale.pk)
    with pytest.raises(NoReceipt):
        find_receipt(sale_id=sale.pk, order_id=place.order_id, user_id=buyer.pk)


def test_nonexistent_unit_is_not_passed_on(ledger: Redis) -> None:
    """The ledger lacks a buyer: one waiting buyer is refused, not each in turn."""
    sale, _ = sold_out()
    for buyer in make_buyers(3):
        wait_in(sale, buyer)
    keys = LedgerKeys(sale.pk)
    (field,) = [name for name in ledger.hkeys(keys.buyers) if name != STATE]
    ledger.hdel(keys.buyers, field)
    load_sale(sale_id=sale.pk)  # gives what seems to be free
    fulfil_sale(sale_id=sale.pk)
    assert list(refusals_of(sale).values()) == ["sold_out"]
    assert snapshot(sale_id=sale.pk).waiting == 2
    reconcile(sale_id=sale.pk, repair=True)
    assert_conserved(sale)


def test_rebuilt_ledger_has_its_line(ledger: Redis) -> None:
    sale, held = sold_out()
    buyers = make_buyers(3)
    places = [wait_in(sale, buyer) for buyer in buyers]
    cancel_order(order_id=held, by=SYSTEM, now=timezone.now())
    ledger.flushdb()
    load_sale(sale_id=sale.pk)
    # The promise to the first died with Redis before it was a row, and is given again.
    assert snapshot(sale_id=sale.pk).waiting == 2
    restore_lines(now=timezone.now())
    assert snapshot(sale_id=sale.pk).waiting == 2
    fulfil_sale(sale_id=sale.pk)
    assert live_ids(sale) == [places[0].order_id]
    assert_conserved(sale)


def test_beat_gives_a_free_unit_to_the_line(ledger: Redis) -> None:
    sale, held = sold_out()
    place = wait_in(sale, make_buyer())
    keys = LedgerKeys(sale.pk)
    begins_at_ms = snapshot(sale_id=sale.pk).terms.begins_at_ms
    change_state(keys.sale_id, begins_at_ms=2**52)  # an edit has moved the begin: nothing is given
    cancel_order(order_id=held, by=SYSTEM, now=timezone.now())
    change_state(keys.sale_id, begins_at_ms=begins_at_ms)
    assert (snapshot(sale_id=sale.pk).remaining, snapshot(sale_id=sale.pk).waiting) == (1, 1)
    empty_broker()
    restore_lines(now=timezone.now())
    assert broker_length() == 1
    fulfil_sale(sale_id=sale.pk)
    assert live_ids(sale) == [place.order_id]
    assert_conserved(sale)


def test_ended_sale_closes_the_line(ledger: Redis) -> None:
    sale, _ = sold_out()
    for buyer in make_buyers(2):
        wait_in(sale, buyer)
    now = timezone.now()
    SeckillVoucher.objects.filter(pk=sale.pk).update(
        begins_at=now - dt.timedelta(hours=2), ends_at=now - dt.timedelta(seconds=1)
    )
    load_sale(sale_id=sale.pk)
    restore_lines(now=now)
    assert outcomes() == ["over", "over"]
    entry = WaitingEntry.objects.latest("pk")
    assert place_of(sale_id=sale.pk, user_id=entry.user_id) == WaitingListPlace(
        entry.order_id, None
    )


# --- The fulfil task of a unit that was given --------------------------------------------------


def expire(order: VoucherOrder) -> None:
    VoucherOrder.objects.filter(pk=order.pk).update(pay_by=timezone.now())
    assert expire_all(clocks=both_at(timezone.now())) == 1


def cancel_as_buyer(order: VoucherOrder) -> None:
    buyer = Actor.buyer(order.user_id)
    cancel_order(order_id=order.pk, by=buyer, now=timezone.now())


def cancel_as_staff(order: VoucherOrder) -> None:
    cancel_order(order_id=order.pk, by=Actor.staff(None), now=timezone.now())


def refund_money(order: VoucherOrder) -> None:
    pay(order)
    refund_order(order_id=order.pk, by=Actor.staff(None), now=timezone.now())


def refund_without_money(order: VoucherOrder) -> None:
    VoucherOrder.objects.filter(pk=order.pk).update(status="paid")
    refund_order(order_id=order.pk, by=Actor.staff(None), now=timezone.now())


ENDS = (expire, cancel_as_buyer, cancel_as_staff, refund_money, refund_without_money)


@pytest.mark.parametrize("end", slow_after(1, ENDS))
def test_unit_given_to_the_line_sends_one_task(end: Callable[[VoucherOrder], None]) -> None:
    sale, held = sold_out()
    expected = wait_in(sale, make_buyer())
    empty_broker()
    end(VoucherOrder.objects.get(pk=held))
    assert broker_length() == 1
    fulfil_sale(sale_id=sale.pk)
    assert live_ids(sale) == [expected.order_id]


@pytest.mark.parametrize("end", slow_after(1, ENDS))
def test_returned_unit_without_a_line_sends_no_task(end: Callable[[VoucherOrder], None]) -> None:
    _, held = sold_out()
    empty_broker()
    end(VoucherOrder.objects.get(pk=held))
    assert broker_length() == 0


@pytest.mark.parametrize("kick", slow_after(1, ["1", "0"]))
def test_no_task_is_sent_beside_a_queued_or_running_one(
    monkeypatch: pytest.MonkeyPatch, kick: str
) -> None:
    """A running worker looks again at its end, after it has cleared the kick."""
    sale = make_sale(stock=3)
    held = [token.order_id for token in written_orders(sale, make_buyers(3))]
    for buyer in make_buyers(3):
        wait_in(sale, buyer)
    sent: list[int] = []
    monkeypatch.setattr(cancellation, "publish_fulfilment", lambda *, sale_id: sent.append(sale_id))
    for order_id in held[:2]:
        cancel_order(order_id=order_id, by=SYSTEM, now=timezone.now())
    assert sent == [sale.pk]
    ledger_connection().set(LedgerKeys(sale.pk).kick, kick)
    cancel_order(order_id=held[2], by=SYSTEM, now=timezone.now())
    assert sent == [sale.pk]


@pytest.mark.django_db(transaction=True)
def test_task_of_a_given_unit_is_sent_after_the_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    sale, held = sold_out()
    wait_in(sale, make_buyer())
    open_at_send: list[bool] = []
    monkeypatch.setattr(
        cancellation,
        "publish_fulfilment",
        lambda **_: open_at_send.append(connection.in_atomic_block),
    )
    cancel_order(order_id=held, by=SYSTEM, now=timezone.now())
    assert open_at_send == [False]


@pytest.mark.usefixtures("broker_refuses")
def test_unit_given_without_broker_waits_for_the_sweep() -> None:
    sale, held = sold_out()
    expected = wait_in(sale, make_buyer())
    cancel_order(order_id=held, by=SYSTEM, now=timezone.now())
    with pytest.raises(WrongState):
        cancel_order(order_id=held, by=SYSTEM, now=timezone.now())
    clear_kick_of(sale)
    assert sweep(now=timezone.now(), at_once=True) == [sale.pk]
    fulfil_sale(sale_id=sale.pk)
    assert live_ids(sale) == [expected.order_id]


def clear_kick_of(sale: SeckillVoucher) -> None:
    """Let the kick expire whose message was lost."""
    ledger_connection().delete(LedgerKeys(sale.pk).kick)


# --- At once -------------------------------------------------------------------------------------


@race
def test_concurrent_clicks_get_one_place() -> None:
    sale, _ = sold_out()
    buyer = make_buyer()
    tokens = [token_for(sale, buyer) for _ in range(8)]
    places = at_once(*[lambda token=token: wait_in(sale, buyer, token) for token in tokens])
    assert {place.place for place in places} == {1}
    assert len({place.order_id for place in places}) == 1
    assert snapshot(sale_id=sale.pk).waiting == 1


@race
def test_units_returned_while_joining_are_given_once() -> None:
    sale = make_sale(stock=8)
    held = [token.order_id for token in written_orders(sale, make_buyers(8))]
    buyers = make_buyers(8)

    def cancel(order_id: int) -> None:
        cancel_order(order_id=order_id, by=SYSTEM, now=timezone.now())

    at_once(
        *[lambda order_id=order_id: cancel(order_id) for order_id in held],
        *[lambda buyer=buyer: wait_in(sale, buyer) for buyer in buyers],
    )
    fulfil_sale(sale_id=sale.pk)
    found = snapshot(sale_id=sale.pk)
    assert found.waiting == 0 or found.remaining == 0, "nobody waits while a unit is free"
    assert len(buyers_of(sale)) + found.remaining == 8
    assert_conserved(sale)
