"""Waiting for several units: parts and the rest, losses, all or none, and how it ends."""

from __future__ import annotations

import datetime as dt
import time
from typing import Any

import pytest
from allauth.account.models import EmailAddress
from django.contrib.auth.models import User
from django.core import mail
from django.utils import timezone
from redis import Redis

from orders.fulfilment.worker import fulfil_sale
from orders.lifecycle.cancellation import cancel_order
from orders.lifecycle.notices import send_notices
from orders.lifecycle.notifications import tell_buyers
from orders.lifecycle.personal_data import data_of
from orders.lifecycle.transitions import SYSTEM
from orders.lifecycle.waiting_list import (
    WaitingListPlace,
    join,
    leave,
    place_of,
    price_when_joining,
    restore_lines,
)
from orders.models import Notice, VoucherOrder, WaitingEntry
from seckill_site.redis.ledger_connection import ledger_connection
from tests.support.inspection import assert_conserved, live_ids
from tests.support.notices import make_notice, make_reader
from tests.support.orders import make_buyer, make_sale, token_for, written_orders
from tests.support.tiers import slow_after
from vouchers.inventory.keys import LedgerKeys
from vouchers.inventory.purchases import BLOCK_SIZE, is_in_block
from vouchers.inventory.rebuild import load_sale
from vouchers.inventory.reservations import TooFew
from vouchers.inventory.sale_state import snapshot
from vouchers.inventory.waiting_list import waiting_order_ids
from vouchers.models import SeckillVoucher

pytestmark = pytest.mark.django_db


def sold_out(units: int = 4, **terms: Any) -> tuple[SeckillVoucher, list[int]]:
    """Return a sale whose units are sold, one to a buyer, and these orders."""
    sale = make_sale(stock=units, **{"limit": 6, **terms})
    buyers = [make_buyer() for _ in range(units)]
    return sale, [it.order_id for it in written_orders(sale, buyers)]


def wait_in(sale: SeckillVoucher, buyer: User, **wants: Any) -> WaitingListPlace:
    text, now_ms = token_for(sale, buyer).sign(), time.time_ns() // 1_000_000
    return join(token_text=text, sale_id=sale.pk, user_id=buyer.pk, now_ms=now_ms, **wants)


def come_back(sale: SeckillVoucher, *orders: int) -> None:
    for order_id in orders:
        cancel_order(order_id=order_id, by=SYSTEM, now=timezone.now())
    fulfil_sale(sale_id=sale.pk)


def orders_of(buyer: User) -> list[int]:
    return list(VoucherOrder.objects.filter(user=buyer).order_by("pk").values_list("pk", flat=True))


def add_units(sale: SeckillVoucher, count: int) -> None:
    """Let units come at one time, as an edit of the stock does."""
    row = SeckillVoucher.objects.get(pk=sale.pk)
    SeckillVoucher.objects.filter(pk=sale.pk).update(stock=row.stock + count)
    load_sale(sale_id=sale.pk)
    fulfil_sale(sale_id=sale.pk)


def test_unit_too_few_for_who_waits_is_told_to_others() -> None:
    sale, held = sold_out()
    reader = make_reader()
    make_notice(sale, reader, Notice.Kind.BACK)
    wait_in(sale, make_buyer(), quantity=2, all_or_none=True)
    come_back(sale, held[0])
    mail.outbox.clear()
    send_notices(now=timezone.now())
    assert [message.to for message in mail.outbox] == [[f"{reader.username}@example.com"]]


def test_two_of_three_come_and_the_rest_waits_on() -> None:
    sale, held = sold_out()
    buyer, behind = make_buyer(), make_buyer()
    place = wait_in(sale, buyer, quantity=3)
    wait_in(sale, behind)
    first = place.order_id
    assert place == WaitingListPlace(first, 1, quantity=3)
    assert is_in_block(first)

    add_units(sale, 2)
    assert orders_of(buyer) == [first, first + 1]
    waits = place_of(sale_id=sale.pk, user_id=buyer.pk)
    assert waits == WaitingListPlace(first, 1, quantity=3, given=2)

    come_back(sale, held[0])
    second = first + BLOCK_SIZE
    assert orders_of(buyer) == [first, first + 1, second], "a purchase of its own"
    done = place_of(sale_id=sale.pk, user_id=buyer.pk)
    assert (done.order_id, done.place, done.offered) == (second, None, True)
    assert place_of(sale_id=sale.pk, user_id=behind.pk).place == 1
    assert_conserved(sale)


def test_all_or_none_waits_until_all_are_free_at_once() -> None:
    sale, held = sold_out()
    parent, behind = make_buyer(), make_buyer()
    place = wait_in(sale, parent, quantity=2, all_or_none=True)
    wait_in(sale, behind)

    come_back(sale, held[0])
    assert (len(orders_of(parent)), len(orders_of(behind))) == (0, 1)
    waits = place_of(sale_id=sale.pk, user_id=parent.pk)
    assert waits == WaitingListPlace(place.order_id, 1, quantity=2, all_or_none=True)

    come_back(sale, held[1])
    assert orders_of(parent) == [], "one is free, and for sale"
    assert snapshot(sale_id=sale.pk).remaining == 1
    restore_lines(now=timezone.now())
    come_back(sale, held[2])
    assert orders_of(parent) == [place.order_id, place.order_id + 33]
    assert place_of(sale_id=sale.pk, user_id=parent.pk).offered
    assert_conserved(sale)


@pytest.mark.parametrize("lost", slow_after(1, ["everything", "line"]))
def test_loss_of_redis_keeps_the_rest_in_place(ledger: Redis, lost: str) -> None:
    sale, _ = sold_out()
    buyer, parent, behind = make_buyer(), make_buyer(), make_buyer()
    first = wait_in(sale, buyer, quantity=3).order_id
    whole = wait_in(sale, parent, quantity=2, all_or_none=True).order_id
    last = wait_in(sale, behind).order_id
    add_units(sale, 2)
    before = [place_of(sale_id=sale.pk, user_id=it.pk) for it in (buyer, parent, behind)]

    if lost == "everything":
        ledger.flushdb()
        load_sale(sale_id=sale.pk)
    else:
        ledger.delete(LedgerKeys(sale.pk).waiting)
        restore_lines(now=timezone.now())

    assert waiting_order_ids(sale_id=sale.pk) == {first + BLOCK_SIZE, whole, last}
    assert [place_of(sale_id=sale.pk, user_id=it.pk) for it in (buyer, parent, behind)] == before
    assert [it.place for it in before] == [1, 2, 3]
    add_units(sale, 3)
    assert orders_of(buyer) == [first, first + 1, first + BLOCK_SIZE]
    assert orders_of(parent) == [whole, whole + 33]
    assert_conserved(sale)


def test_lost_place_is_restored_by_who_asks_for_it(ledger: Redis) -> None:
    sale, held = sold_out()
    buyer = make_buyer()
    wait_in(sale, buyer, quantity=3)
    come_back(sale, held[0])
    ledger.delete(LedgerKeys(sale.pk).waiting)
    place = place_of(sale_id=sale.pk, user_id=buyer.pk)
    assert (place.place, place.given) == (1, 1)


def test_cancelled_part_is_not_offered_again(ledger: Redis) -> None:
    sale, held = sold_out()
    buyer = make_buyer()
    first = wait_in(sale, buyer, quantity=2).order_id
    come_back(sale, held[0])
    SeckillVoucher.objects.filter(pk=sale.pk).update(paused=True)
    load_sale(sale_id=sale.pk)
    come_back(sale, first)
    ledger.flushdb()
    load_sale(sale_id=sale.pk)
    assert waiting_order_ids(sale_id=sale.pk) == {first + BLOCK_SIZE}
    assert place_of(sale_id=sale.pk, user_id=buyer.pk).given == 1


def test_leaving_gives_up_the_rest_alone() -> None:
    sale, held = sold_out()
    buyer = make_buyer()
    wait_in(sale, buyer, quantity=3)
    come_back(sale, held[0])
    assert not leave(sale_id=sale.pk, user_id=buyer.pk).offered
    come_back(sale, held[1])
    assert len(orders_of(buyer)) == 1
    assert WaitingEntry.objects.get(user=buyer).outcome == "left"
    assert snapshot(sale_id=sale.pk).remaining == 1


def test_who_left_is_taken_out_of_line_with_the_rest(ledger: Redis) -> None:
    sale, held = sold_out()
    buyer, other = make_buyer(), make_buyer()
    first = wait_in(sale, buyer, quantity=3).order_id
    wait_in(sale, other)
    come_back(sale, held[0])
    WaitingEntry.objects.filter(user=buyer).update(live=None, outcome="left")
    assert first + BLOCK_SIZE in waiting_order_ids(sale_id=sale.pk)
    restore_lines(now=timezone.now())
    assert waiting_order_ids(sale_id=sale.pk).isdisjoint({first, first + BLOCK_SIZE})


def test_end_of_the_sale_tells_who_was_offered_something() -> None:
    sale, held = sold_out()
    buyer, parent = make_buyer(), make_buyer()
    wait_in(sale, buyer, quantity=3)
    wait_in(sale, parent, quantity=4, all_or_none=True)
    come_back(sale, held[0])
    now = timezone.now()
    begins_at = now - dt.timedelta(hours=2)
    SeckillVoucher.objects.filter(pk=sale.pk).update(begins_at=begins_at, ends_at=now)
    load_sale(sale_id=sale.pk)
    restore_lines(now=now)
    outcomes = dict(WaitingEntry.objects.values_list("user", "outcome"))
    assert outcomes == {buyer.pk: "offered", parent.pk: "over"}


def test_joining_again_keeps_what_was_asked_for() -> None:
    sale, _ = sold_out()
    buyer = make_buyer()
    place = wait_in(sale, buyer, quantity=3)
    assert wait_in(sale, buyer, quantity=1) == place


def test_limit_bounds_what_can_be_waited_for() -> None:
    sale, _ = sold_out(limit=2)
    buyer, parent = make_buyer(), make_buyer()
    assert wait_in(sale, buyer, quantity=5).quantity == 2
    with pytest.raises(TooFew):
        wait_in(sale, parent, quantity=3, all_or_none=True)
    assert not WaitingEntry.objects.filter(user=parent, live=True).exists()


def test_row_of_an_earlier_release_waits_for_one() -> None:
    sale, held = sold_out()
    buyer = make_buyer()
    token = token_for(sale, buyer)
    with_defaults = WaitingEntry(
        seckill_voucher=sale, user=buyer, order_id=token.order_id, joined_at=timezone.now()
    )
    WaitingEntry.objects.bulk_create([with_defaults])
    ledger_connection().flushdb()
    load_sale(sale_id=sale.pk)
    come_back(sale, held[0])
    assert orders_of(buyer) == [token.order_id]
    assert held[0] not in live_ids(sale)


def test_each_unit_tells_the_price_at_joining() -> None:
    sale, held = sold_out()
    buyer = make_buyer()
    first = wait_in(sale, buyer, quantity=3).order_id
    add_units(sale, 2)
    come_back(sale, held[0])
    WaitingEntry.objects.filter(user=buyer).update(price_cents=123)
    assert [price_when_joining(order_id=it) for it in orders_of(buyer)] == [123] * 3
    assert price_when_joining(order_id=first + 3 * BLOCK_SIZE) is None
    assert price_when_joining(order_id=first - 1) is None


@pytest.mark.parametrize("all_or_none", [False, True])
def test_mail_says_that_the_rest_keeps_its_place(all_or_none: bool) -> None:
    sale, _ = sold_out()
    buyer = make_buyer()
    EmailAddress.objects.create(user=buyer, email="ann@example.com", verified=True, primary=True)
    User.objects.filter(pk=buyer.pk).update(email="ann@example.com")
    wait_in(sale, buyer, quantity=3, all_or_none=all_or_none)
    add_units(sale, 3 if all_or_none else 2)
    tell_buyers(now=timezone.now())
    assert mail.outbox
    for letter in mail.outbox:
        assert "候补轮到您了" in letter.subject
        assert ("您候补了 3 份优惠券" in letter.body) is not all_or_none


def test_mail_about_all_promises_no_rest() -> None:
    sale, _ = sold_out()
    buyer = make_buyer()
    EmailAddress.objects.create(user=buyer, email="ann@example.com", verified=True, primary=True)
    User.objects.filter(pk=buyer.pk).update(email="ann@example.com")
    wait_in(sale, buyer, quantity=2)
    add_units(sale, 2)
    tell_buyers(now=timezone.now())
    assert mail.outbox
    assert all("您候补了" not in letter.body for letter in mail.outbox)


def test_download_names_what_was_waited_for() -> None:
    sale, _ = sold_out()
    buyer = make_buyer()
    wait_in(sale, buyer, quantity=3)
    assert data_of(buyer)["waiting_lists"][0]["quantity"] == 3
