"""Buyers are reminded of the last day of unused vouchers, once, three days before."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest
from django.core import mail
from django.utils import timezone

from orders import tasks
from orders.lifecycle.last_days import note_last_days
from orders.lifecycle.notices import live_notices, send_notices, stop_notices
from orders.models import Notice, OrderStatus, VoucherOrder
from seckill_site.failpoints import FailpointReached, armed
from seckill_site.process_memory import forget_everything
from tests.support.notices import make_notice, make_reader
from tests.support.orders import make_buyer, make_order, make_sale
from tests.support.tiers import slow_after
from vouchers.models import SaleStage, SeckillVoucher, Voucher

pytestmark = pytest.mark.django_db

LAST_DAY = dt.date(2030, 11, 11)
THE_DAY = dt.datetime(2030, 11, 8, 2, 0, tzinfo=dt.UTC)
"""Ten o'clock in Shanghai, three days before."""

DAY, SECOND = dt.timedelta(days=1), dt.timedelta(seconds=1)


@pytest.fixture(autouse=True)
def in_shanghai(settings: Any) -> None:
    settings.TIME_ZONE = "Asia/Shanghai"
    settings.SECKILL_SITE_URL = "https://shop.example"


def sale_until(last_day: dt.date | None = LAST_DAY, **fields: Any) -> SeckillVoucher:
    sale = make_sale(**fields)
    fields = {"title": "火锅", "title_en": "Hotpot", "valid_until": last_day}
    Voucher.objects.filter(pk=sale.voucher_id).update(**fields)
    return sale


def paid(sale: SeckillVoucher, *, unit: int = 1, user: Any = None, **reader: Any) -> VoucherOrder:
    return make_order(sale, user or make_reader(**reader), unit=unit, status=OrderStatus.PAID)


def note(now: dt.datetime = THE_DAY) -> None:
    while note_last_days(now=now):
        pass


def remind(now: dt.datetime = THE_DAY) -> list[str]:
    """Let beat's tasks note and send what is due, and return who got a mail."""
    mail.outbox.clear()
    note(now)
    send_notices(now=now)
    return [to for message in mail.outbox for to in message.to]


def test_buyer_is_reminded_once_three_days_before() -> None:
    sale = sale_until()
    order = paid(sale)
    assert order.user

    assert remind(THE_DAY - SECOND) == [], "nobody's phone rings at midnight"
    assert remind() == [f"{order.user.username}@example.com"]
    for later in (SECOND, DAY, 3 * DAY):
        assert remind(THE_DAY + later) == []


def test_reminder_says_how_many_until_when_and_what_then() -> None:
    sale = sale_until()
    one = paid(sale)
    paid(sale, unit=2, user=one.user)
    paid(sale, language="zh-hans")
    remind()
    english, chinese = mail.outbox
    assert english.subject == "Hotpot: use it by 11 Nov 2030"
    assert (
        "You have 2 vouchers that you have not used. Their last day is 11 Nov 2030." in english.body
    )
    assert "What you do not use is refunded automatically after that day." in english.body
    assert "https://shop.example/orders/codes/\n" in english.body
    assert "You asked for this message" not in english.body
    assert chinese.subject == "火锅：请在 2030年11月11日 前（含当天）使用"
    assert "您有 1 份优惠券尚未使用，有效期至 2030年11月11日。" in chinese.body
    assert "过期未使用的，将自动退款。" in chinese.body


@pytest.mark.parametrize(
    "fields", slow_after(1, [{"refund_unused": None}, {"refund_unused": False}]), ids=str
)
def test_reminder_promises_no_refund_where_there_is_none(fields: dict[str, Any]) -> None:
    paid(sale_until(**fields))
    assert len(remind()) == 1
    assert "refunded automatically" not in mail.outbox[0].body


def test_free_voucher_promises_no_refund() -> None:
    paid(sale_until())
    Voucher.objects.update(price_cents=0)
    assert len(remind()) == 1
    assert "refunded automatically" not in mail.outbox[0].body


def test_phone_gets_a_text_if_there_is_no_mail(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[tuple[str, str]] = []
    monkeypatch.setattr(
        "orders.lifecycle.outbox.send_text", lambda number, text: sent.append((number, text))
    )
    paid(sale_until(), email=False, phone="+8613800000001")
    assert remind() == []
    text = "Hotpot: use it by 11 Nov 2030 https://shop.example/orders/codes/"
    assert sent == [("+8613800000001", text)]


@pytest.mark.parametrize("status", slow_after(1, sorted(set(OrderStatus) - {OrderStatus.PAID})))
def test_only_who_holds_an_unused_voucher_is_reminded(status: OrderStatus) -> None:
    reason = "sold_out" if status == OrderStatus.REFUSED else ""
    make_order(sale_until(), make_reader(), status=status, reason=reason)
    assert remind() == []
    assert not Notice.objects.exists()


def test_voucher_used_after_it_was_noted_reminds_nobody() -> None:
    paid(sale_until())
    note()
    VoucherOrder.objects.update(status=OrderStatus.USED)
    assert remind() == []
    assert not Notice.objects.filter(live=True).exists()


@pytest.mark.parametrize(
    ("last_day", "fields"),
    slow_after(
        2,
        [
            (None, {}),
            (LAST_DAY + DAY, {}),
            (LAST_DAY - 4 * DAY, {}),
            (LAST_DAY, {"stage": SaleStage.REHEARSAL}),
        ],
    ),
    ids=str,
)
def test_other_sales_remind_nobody(last_day: dt.date | None, fields: dict[str, Any]) -> None:
    paid(sale_until(last_day, **fields))
    assert remind() == []
    assert not Notice.objects.exists()


def test_buyer_without_a_confirmed_contact_gets_no_row() -> None:
    make_order(sale_until(), make_buyer(), status=OrderStatus.PAID)
    assert remind() == []
    assert not Notice.objects.exists()


@pytest.mark.slow
def test_late_worker_reminds_until_the_last_day() -> None:
    paid(sale_until())
    assert len(remind(THE_DAY + 3 * DAY)) == 1
    paid(sale_until())
    assert remind(THE_DAY + 4 * DAY) == []
    paid(sale_until())
    note()
    assert remind(THE_DAY + 4 * DAY) == [], "noted in time, and not sent"


def test_who_buys_after_the_reminders_knows_the_day() -> None:
    sale = sale_until()
    paid(sale)
    assert len(remind()) == 1
    paid(sale)
    assert remind(THE_DAY + DAY) == []


@pytest.mark.slow
def test_moved_last_day_is_reminded_of_anew() -> None:
    sale = sale_until()
    paid(sale)
    note()
    Voucher.objects.filter(pk=sale.voucher_id).update(valid_until=LAST_DAY + 10 * DAY)
    assert remind() == [], "the noted day is no longer the last"
    assert len(remind(THE_DAY + 10 * DAY)) == 1
    Voucher.objects.filter(pk=sale.voucher_id).update(valid_until=LAST_DAY + 20 * DAY)
    assert len(remind(THE_DAY + 20 * DAY)) == 1
    assert remind(THE_DAY + 20 * DAY) == []


@pytest.mark.slow
def test_worker_that_dies_while_noting_reminds_nobody_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("orders.lifecycle.last_days.ORDERS_AT_ONCE", 1)
    sale = sale_until()
    for _ in range(3):
        paid(sale)
    with armed("last_days.noted:2=raise"), pytest.raises(FailpointReached):
        note()
    sale.refresh_from_db()
    assert sale.reminded_for is None
    note()
    assert len(remind()) == 3
    assert remind(THE_DAY + SECOND) == []


def test_sale_that_is_noted_again_reminds_nobody_twice() -> None:
    """Another process has looked for sales before this one was noted, and waited for the lock."""
    sale = sale_until()
    paid(sale)
    assert len(remind()) == 1
    SeckillVoucher.objects.filter(pk=sale.pk).update(reminded_for=None)
    forget_everything()
    assert remind() == []


@pytest.mark.parametrize("in_one_process", [True, False])
def test_many_buyers_are_noted_in_several_passes(
    monkeypatch: pytest.MonkeyPatch, *, in_one_process: bool
) -> None:
    monkeypatch.setattr("orders.lifecycle.last_days.ORDERS_AT_ONCE", 2)
    sale = sale_until()
    for _ in range(3):
        paid(sale)
    counts = []
    for _ in range(3):
        is_left = note_last_days(now=THE_DAY)
        counts.append((is_left, Notice.objects.count()))
        if not in_one_process:
            forget_everything()
    assert counts == [(True, 2), *([(True, 3), (False, 3)] if in_one_process else [(True, 2)] * 2)]
    assert len(remind()) == 3
    assert remind(THE_DAY + SECOND) == []


def test_reminder_waits_for_nothing_that_the_reader_stops() -> None:
    sale = sale_until()
    order = paid(sale)
    assert order.user
    note()
    stop_notices(user_id=order.user.pk)
    assert not live_notices(user_id=order.user.pk, now=timezone.now())
    assert len(remind()) == 1


def test_reader_who_waits_for_another_unit_is_reminded_too() -> None:
    sale = sale_until(stock=1, limit=1)
    order = paid(sale)
    assert order.user
    make_notice(sale, order.user, Notice.Kind.BACK)
    assert len(remind()) == 1


def test_task_notes_by_both_clocks() -> None:
    sale = sale_until(timezone.localdate())
    tasks.note_last_days()
    sale.refresh_from_db()
    assert sale.reminded_for == timezone.localdate()
