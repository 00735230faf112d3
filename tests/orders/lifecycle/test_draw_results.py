"""Mails about the result of a draw: one for each entry, after the mails of orders."""

from __future__ import annotations

import datetime as dt
import smtplib
from contextlib import suppress
from typing import Any

import pytest
from allauth.account.models import EmailAddress
from django.contrib.auth.models import User
from django.core import mail
from django.core.mail import EmailMessage
from django.utils import timezone

from orders.draws import drawing
from orders.draws.drawing import advance_draws, take_due_steps
from orders.draws.entries import withdraw
from orders.fulfilment.worker import fulfil_sale
from orders.lifecycle.cancellation import cancel_order
from orders.lifecycle.notices import live_notices, send_notices, stop_notices
from orders.lifecycle.notifications import tell_buyers
from orders.lifecycle.outbox import TemporarilyRefused
from orders.lifecycle.transitions import Actor
from orders.models import DrawEntry, Notice, OrderEvent, VoucherOrder, WaitingEntry
from seckill_site.clocks.ledger import ledger_now_ms
from seckill_site.failpoints import FailpointReached, armed
from tests.support.draws import draw_to_the_end, end, entered_draw, listed
from tests.support.notices import make_notice, make_reader
from tests.support.orders import make_sale
from tests.support.payments import make_unpaid_order, owner_of
from tests.support.sales import make_waiting
from tests.support.tiers import slow_after
from vouchers.models import Draw, SeckillVoucher

pytestmark = pytest.mark.django_db

WON, TURN = "You won the draw", "It is your turn on the waiting list"
OUT, WAITING = "no luck this time", "not drawn, but you are on the waiting list"


def drawn(readers: int = 4, **fields: Any) -> SeckillVoucher:
    """Return a draw of two vouchers that is over, with its losers noted."""
    sale, _ = entered_draw([make_reader() for _ in range(readers)], **fields)
    end(sale)
    finish(sale)
    return sale


def finish(sale: SeckillVoucher) -> None:
    draw_to_the_end(sale)
    while take_due_steps(sale_id=sale.pk):
        pass


def send(*, in_s: float = 0) -> dict[str, str]:
    """Send what is due, orders' mails first, and return who was told what."""
    mail.outbox.clear()
    now = timezone.now() + dt.timedelta(seconds=in_s)
    tell_buyers(now=now)
    send_notices(now=now)
    assert len({it.to[0] for it in mail.outbox}) == len(mail.outbox)
    return {it.to[0]: it.subject.partition(": ")[2] for it in mail.outbox}


def addresses(order_ids: Any) -> set[str]:
    users = DrawEntry.objects.filter(pk__in=order_ids).values_list("user", flat=True)
    return set(EmailAddress.objects.filter(user__in=users).values_list("email", flat=True))


def winners(sale: SeckillVoucher) -> set[str]:
    return addresses(VoucherOrder.objects.filter(seckill_voucher=sale).values("pk"))


def test_each_entry_is_told_its_result_once() -> None:
    sale = drawn()
    told = send()
    assert {to for to, what in told.items() if what == WON} == winners(sale)
    assert {to for to, what in told.items() if what == OUT} == addresses(listed(sale)) - winners(
        sale
    )
    assert send(in_s=7_200) == {}


def test_winner_is_told_what_to_pay_and_until_when() -> None:
    drawn(2)
    send()
    assert "You won the draw." in mail.outbox[0].body
    assert "To pay: ¥" in mail.outbox[0].body


def test_result_is_in_the_readers_language() -> None:
    sale, _ = entered_draw([make_reader(language="zh-hans") for _ in range(3)])
    end(sale)
    finish(sale)
    send()
    subjects = sorted(it.subject.partition("：")[2] for it in mail.outbox)
    assert subjects == ["很遗憾，未中签", "恭喜，您中签了", "恭喜，您中签了"]


def test_who_waits_hears_that_instead_and_then_their_turn() -> None:
    sale = drawn(4, stock=1, draw_wait_s=3_600)
    told = send()
    assert sorted(told.values()) == [WON, WAITING, WAITING, WAITING]
    first = VoucherOrder.objects.get(seckill_voucher=sale)
    cancel_order(order_id=first.pk, by=Actor.staff(None), why="", now=timezone.now())
    fulfil_sale(sale_id=sale.pk)
    told = send()
    assert TURN in told.values()
    assert OUT not in told.values()


@pytest.mark.slow
def test_offered_before_the_mail_hears_only_of_the_turn() -> None:
    sale = drawn(2, stock=1, draw_wait_s=3_600)
    first = VoucherOrder.objects.get(seckill_voucher=sale)
    cancel_order(order_id=first.pk, by=Actor.staff(None), why="", now=timezone.now())
    fulfil_sale(sale_id=sale.pk)
    OrderEvent.objects.filter(order=first).update(notified_at=timezone.now())
    WaitingEntry.objects.update(live=None, outcome=WaitingEntry.Outcome.OFFERED)
    assert list(send().values()) == [TURN]
    assert send() == {}


@pytest.mark.slow
def test_ended_offer_is_not_called_bad_luck() -> None:
    """All of it before the results are sent: the mails of a large draw take a while."""
    sale = drawn(2, stock=1, draw_wait_s=3_600)
    for _ in range(2):
        order = VoucherOrder.objects.get(seckill_voucher=sale, live=True)
        cancel_order(order_id=order.pk, by=Actor.staff(None), why="", now=timezone.now())
        fulfil_sale(sale_id=sale.pk)
    tell_buyers(now=timezone.now())
    mail.outbox.clear()
    send_notices(now=timezone.now())
    assert mail.outbox == []


def test_withdrawn_entry_is_told_nothing() -> None:
    sale, [token, _] = entered_draw([make_reader(), make_reader()], stock=0)
    ids = {"order_id": token.order_id, "user_id": token.user_id}
    withdraw(sale_id=sale.pk, **ids, now_ms=ledger_now_ms())
    end(sale)
    finish(sale)
    assert set(send()) == addresses(listed(sale))
    assert Notice.objects.count() == 1


@pytest.mark.parametrize("email", [True, False])
def test_only_confirmed_addresses_get_results(email: bool) -> None:
    reader = make_reader(email=email, phone="+8613800000009")
    EmailAddress.objects.update(verified=False)
    sale, _ = entered_draw([reader], stock=0)
    end(sale)
    finish(sale)
    assert send() == {}


@pytest.mark.slow
def test_results_wait_for_the_mails_of_orders() -> None:
    drawn()
    now = timezone.now()
    send_notices(now=now)
    assert mail.outbox == []
    tell_buyers(now=now)
    send_notices(now=now)
    assert [it.subject.partition(": ")[2] for it in mail.outbox] == [WON, WON, OUT, OUT]


@pytest.mark.slow
def test_mail_that_waits_for_a_retry_holds_no_result_back() -> None:
    drawn()
    now = timezone.now()
    OrderEvent.objects.update(notify_at=now + dt.timedelta(minutes=9))
    send_notices(now=now)
    assert len(mail.outbox) == 2


@pytest.mark.slow
def test_worker_that_dies_repeats_no_result() -> None:
    drawn(6)
    tell_buyers(now=timezone.now())
    mail.outbox.clear()
    with armed("notices.sent=raise"), pytest.raises(FailpointReached):
        send_notices(now=timezone.now())
    assert len(mail.outbox) == 4
    send_notices(now=timezone.now())
    assert len(mail.outbox) == 4


def test_control_reminders_are_repeated_after_that() -> None:
    make_notice(make_sale(begins_in_s=300), make_reader())
    with armed("notices.sent=raise"), pytest.raises(FailpointReached):
        send_notices(now=timezone.now())
    send_notices(now=timezone.now())
    assert len(mail.outbox) == 2


@pytest.mark.parametrize(
    "error", slow_after(1, [smtplib.SMTPServerDisconnected, TemporarilyRefused])
)
def test_result_that_is_not_accepted_is_sent_later(
    error: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn(3)
    tell_buyers(now=timezone.now())
    mail.outbox.clear()

    def fail(self: EmailMessage, *args: Any) -> int:
        raise error

    with monkeypatch.context() as patched, suppress(OSError):
        patched.setattr(EmailMessage, "send", fail)
        send_notices(now=timezone.now())
    assert list(send(in_s=90).values()) == [OUT]


@pytest.mark.parametrize("at_once", slow_after(1, [1, 2, 500]))
def test_losers_are_noted_in_parts_and_once(at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drawing, "TOLD_AT_ONCE", at_once)
    sale = drawn(5, stock=2)
    assert Notice.objects.filter(kind=Notice.Kind.RESULT).count() == 3
    assert Draw.of(sale).told_to is None
    assert not take_due_steps(sale_id=sale.pk)


def test_two_processes_note_a_part_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drawing, "TOLD_AT_ONCE", 2)
    sale, _ = entered_draw([make_reader() for _ in range(4)], stock=0)
    end(sale)
    draw_to_the_end(sale)
    draw, same = Draw.of(sale), Draw.of(sale)
    drawing.note_losers(draw=draw)
    drawing.note_losers(draw=same)
    assert Notice.objects.count() == 2


def test_death_before_the_commit_notes_a_part_again() -> None:
    sale, _ = entered_draw([make_reader() for _ in range(3)], stock=0)
    end(sale)
    draw_to_the_end(sale)
    with armed("draw.before_notices=raise"), pytest.raises(FailpointReached):
        take_due_steps(sale_id=sale.pk)
    assert not Notice.objects.exists()
    finish(sale)
    assert Notice.objects.count() == 3


def test_beat_notes_the_losers_of_finished_draws() -> None:
    sale, _ = entered_draw([make_reader() for _ in range(3)], stock=0)
    end(sale)
    draw_to_the_end(sale)
    advance_draws()
    assert Notice.objects.count() == 3


def test_draws_of_an_earlier_release_send_nothing() -> None:
    sale, _ = entered_draw([make_reader()], stock=0)
    end(sale)
    draw_to_the_end(sale)
    Draw.objects.update(told_to=None)
    assert not take_due_steps(sale_id=sale.pk)
    assert not Notice.objects.exists()


def test_stopping_reminders_stops_no_result() -> None:
    sale = drawn(1, stock=0)
    reader = User.objects.get(draw_entries__seckill_voucher=sale)
    assert not live_notices(user_id=reader.pk, now=timezone.now()).exists()
    stop_notices(user_id=reader.pk)
    assert list(send().values()) == [OUT]


def test_who_left_the_line_and_ordered_is_not_told_of_a_turn() -> None:
    order = make_unpaid_order(make_sale(), [make_reader()])
    make_waiting(order.seckill_voucher, owner_of(order), order_id=order.pk)
    WaitingEntry.objects.update(live=None, outcome=WaitingEntry.Outcome.LEFT)
    assert TURN not in send().values()
