"""Notices: each request is told once, at its time, and only at a confirmed address."""

from __future__ import annotations

import datetime as dt
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest
from allauth.account.models import EmailAddress
from django.contrib.auth.models import User
from django.core import mail
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from redis import Redis

from accounts import phones
from locks import RedisLock
from orders.lifecycle import notices, outbox
from orders.lifecycle.cancellation import cancel_order
from orders.lifecycle.notices import (
    BadStopLink,
    NoContact,
    TooLate,
    ask_notice,
    live_notices,
    notice_offer,
    reader_of_stop_link,
    send_notices,
    stop_link,
    stop_notices,
)
from orders.lifecycle.transitions import Actor
from orders.models import Notice, VoucherOrder
from tests.support.notices import make_notice, make_reader, move_start
from tests.support.orders import at_once, make_buyer, make_sale
from tests.support.passes import without_lock
from tests.support.payments import make_unpaid_order
from tests.support.sales import change_stock, make_waiting
from tests.support.tiers import slow_after
from vouchers.inventory.keys import LedgerUnavailable
from vouchers.inventory.reservations import SaleEnded, SalePaused
from vouchers.inventory.waiting_list import UnitAvailable
from vouchers.models import SeckillVoucher

pytestmark = pytest.mark.django_db

START, BACK = Notice.Kind.START, Notice.Kind.BACK
SOON_S, LATER_S = 300, 3_600
"""Seconds until a start: within the time of its reminders, and before it."""


def send(*, in_s: float = 0) -> list[str]:
    """Send what is due, and return who got a mail."""
    mail.outbox.clear()
    send_notices(now=timezone.now() + dt.timedelta(seconds=in_s))
    return [to for message in mail.outbox for to in message.to]


def sold_out() -> tuple[SeckillVoucher, VoucherOrder]:
    """Return a sale whose only unit is an unpaid order."""
    sale = make_sale(stock=1)
    return sale, make_unpaid_order(sale)


def give_back(order: VoucherOrder) -> None:
    cancel_order(order_id=order.pk, by=Actor.staff(None), why="", now=timezone.now())


def address_of(user: User) -> str:
    return f"{user.username}@example.com"


# --- Asking ---------------------------------------------------------------------------------------


def test_before_start_a_reminder_is_offered() -> None:
    sale, reader = make_sale(begins_in_s=LATER_S, ends_in_s=9_000), make_reader()

    offer = notice_offer(sale_id=sale.pk, user=reader)
    assert (offer.kind, offer.asked, offer.address) == (START, False, address_of(reader))
    ask_notice(sale_id=sale.pk, user=reader)

    assert notice_offer(sale_id=sale.pk, user=reader).asked


def test_sold_out_sale_offers_to_tell_of_a_unit() -> None:
    sale, _ = sold_out()
    reader = make_reader()

    ask_notice(sale_id=sale.pk, user=reader)

    offer = notice_offer(sale_id=sale.pk, user=reader)
    assert (offer.kind, offer.asked) == (BACK, True)


@pytest.mark.parametrize(
    ("fields", "error"),
    slow_after(
        2,
        [
            ({"begins_in_s": SOON_S}, TooLate),
            ({}, UnitAvailable),
            ({"paused": True}, SalePaused),
            ({"begins_in_s": -60, "ends_in_s": -1}, SaleEnded),
            ({"stage": "draft"}, SeckillVoucher.DoesNotExist),
        ],
    ),
)
def test_other_sales_have_nothing_to_tell(fields: dict[str, Any], error: type[Exception]) -> None:
    sale, reader = make_sale(**fields), make_reader()

    with pytest.raises(error):
        ask_notice(sale_id=sale.pk, user=reader)

    assert not Notice.objects.exists()


def test_unconfirmed_address_is_no_contact() -> None:
    sale, reader = make_sale(begins_in_s=LATER_S, ends_in_s=9_000), make_reader()
    EmailAddress.objects.update(verified=False)

    with pytest.raises(NoContact):
        ask_notice(sale_id=sale.pk, user=reader)
    assert notice_offer(sale_id=sale.pk, user=reader).address == ""


@pytest.mark.django_db(transaction=True)
def test_concurrent_clicks_are_one_request() -> None:
    sale, reader = make_sale(begins_in_s=LATER_S, ends_in_s=9_000), make_reader()

    at_once(*[partial(ask_notice, sale_id=sale.pk, user=reader)] * 8)

    assert Notice.objects.filter(live=True).count() == 1


def test_without_redis_nothing_is_asked(lose_ledger: Callable[[], None]) -> None:
    sale, reader = make_sale(begins_in_s=LATER_S, ends_in_s=9_000), make_reader()
    lose_ledger()

    with pytest.raises(LedgerUnavailable):
        ask_notice(sale_id=sale.pk, user=reader)


# --- Reminders ------------------------------------------------------------------------------------


def test_reminder_is_sent_once_at_its_time() -> None:
    sale, reader = make_sale(begins_in_s=LATER_S, ends_in_s=9_000), make_reader()
    ask_notice(sale_id=sale.pk, user=reader)

    assert send(in_s=LATER_S - 602) == []
    assert send(in_s=LATER_S - 598) == [address_of(reader)]
    assert send(in_s=LATER_S - 597) == []
    assert Notice.objects.get().told_at


def test_reminder_is_in_the_readers_language(settings: Any) -> None:
    settings.SECKILL_SITE_URL = "https://shop.example"
    settings.SECKILL_SHOP_NAME, settings.SECKILL_SHOP_NAME_EN = "好券集市", "Voucher Market"
    sale = make_sale(begins_in_s=SOON_S)
    for language in ("en", "zh-hans"):
        make_notice(sale, make_reader(language=language))

    send()

    english, chinese = mail.outbox
    assert "-- \nVoucher Market · https://shop.example/" in english.body
    assert "-- \n好券集市 · https://shop.example/" in chinese.body
    assert "the sale starts" in english.subject
    assert "开始" in chinese.subject
    assert "starts" not in chinese.body
    for message in mail.outbox:
        assert f"https://shop.example/vouchers/{sale.pk}/\n" in message.body


def test_reminder_has_a_link_that_stops() -> None:
    reader = make_reader()
    make_notice(make_sale(begins_in_s=SOON_S), reader)

    send()

    (message,) = mail.outbox
    url = message.extra_headers["List-Unsubscribe"].strip("<>")
    assert url in message.body
    assert message.extra_headers["List-Unsubscribe-Post"] == "List-Unsubscribe=One-Click"
    assert reader_of_stop_link(url.rstrip("/").rpartition("/")[2]) == reader.pk


def test_moved_start_moves_the_reminder() -> None:
    sale, reader = make_sale(begins_in_s=LATER_S, ends_in_s=9_000), make_reader()
    make_notice(sale, reader)

    move_start(sale, begins_in_s=2 * LATER_S)
    assert send(in_s=LATER_S - SOON_S) == []
    move_start(sale, begins_in_s=SOON_S)
    assert send() == [address_of(reader)]


def test_start_moved_after_the_reminder_can_be_asked_for_again() -> None:
    sale, reader = make_sale(begins_in_s=LATER_S, ends_in_s=9_000), make_reader()
    make_notice(sale, reader, live=False, told_at=timezone.now())

    ask_notice(sale_id=sale.pk, user=reader)

    assert send(in_s=LATER_S - SOON_S) == [address_of(reader)]


@pytest.mark.parametrize(
    "change", slow_after(1, [{"paused": True}, {"stage": "draft"}, {"begins_at": None}])
)
def test_no_reminder_of_such_a_sale(change: dict[str, Any]) -> None:
    sale = make_sale(begins_in_s=SOON_S)
    make_notice(sale, make_reader())
    if "begins_at" in change:
        change = {"begins_at": timezone.now() - dt.timedelta(seconds=1)}
    SeckillVoucher.objects.filter(pk=sale.pk).update(**change)

    assert send() == []


@pytest.mark.parametrize("gone", slow_after(1, ["address", "account", "request"]))
def test_reader_who_went_away_gets_nothing(gone: str) -> None:
    reader = make_reader()
    notice = make_notice(make_sale(begins_in_s=SOON_S), reader)
    if gone == "address":
        EmailAddress.objects.update(verified=False)
    elif gone == "account":
        User.objects.filter(pk=reader.pk).update(is_active=False)
    else:
        stop_notices(user_id=reader.pk)

    assert send() == []

    notice.refresh_from_db()
    assert (notice.live, notice.told_at) == (False, None)


def test_phone_is_told_if_there_is_no_address(capsys: pytest.CaptureFixture[str]) -> None:
    sale = make_sale(begins_in_s=SOON_S)
    make_notice(sale, make_reader(email=False, phone="+8613800000001"))
    make_notice(sale, make_reader(phone="+8613800000002"))

    assert len(send()) == 1

    printed = capsys.readouterr().out
    assert "+8613800000002" not in printed
    (text,) = printed.splitlines()
    assert text.startswith("SMS to +8613800000001: ")
    assert text.endswith(f"/vouchers/{sale.pk}/")


def test_next_start_comes_first() -> None:
    far, near = make_sale(begins_in_s=500), make_sale(begins_in_s=100)
    readers = [make_reader(), make_reader(), make_reader()]
    for sale, reader in zip((far, near, far), readers, strict=True):
        make_notice(sale, reader)

    assert send() == [address_of(readers[it]) for it in (1, 0, 2)]


# --- A unit is back -------------------------------------------------------------------------------


def test_reader_is_told_once_that_a_unit_is_free() -> None:
    sale, order = sold_out()
    reader = make_reader()
    ask_notice(sale_id=sale.pk, user=reader)

    assert send() == []
    give_back(order)
    assert send() == [address_of(reader)]
    assert "First come, first served" in mail.outbox[0].body
    assert send() == []


@pytest.mark.django_db(transaction=True)  # the ledger is written after the commit
def test_more_stock_is_a_free_unit() -> None:
    sale, _ = sold_out()
    reader = make_reader()
    make_notice(sale, reader, BACK)

    change_stock(sale_id=sale.pk, stock=2)

    assert send() == [address_of(reader)]


def test_waiting_list_comes_before_the_notice() -> None:
    sale, order = sold_out()
    make_notice(sale, make_reader(), BACK)
    waiting = make_waiting(sale, make_buyer(), order_id=1)

    give_back(order)
    assert send() == []
    waiting.delete()
    assert len(send()) == 1


@pytest.mark.parametrize("change", ["paused", "ended"])
def test_closed_sale_has_no_free_unit(change: str) -> None:
    sale = make_sale()
    make_notice(sale, make_reader(), BACK)
    past = timezone.now() - dt.timedelta(seconds=1)
    fields = {"paused": True} if change == "paused" else {"ends_at": past}
    SeckillVoucher.objects.filter(pk=sale.pk).update(**fields)

    assert send() == []


def test_reader_is_told_once_an_hour() -> None:
    sale, reader = make_sale(), make_reader()
    notice = make_notice(sale, reader, BACK, told_at=timezone.now() - dt.timedelta(minutes=59))

    assert send() == []
    assert send(in_s=90) == [address_of(reader)]
    notice.refresh_from_db()
    assert not notice.live


def test_who_holds_the_limit_is_not_told() -> None:
    sale, reader, other = make_sale(), make_reader(), make_reader()
    make_unpaid_order(sale, [reader])
    for user in (reader, other):
        make_notice(sale, user, BACK)

    assert send() == [address_of(other)]


def test_without_requests_redis_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    make_sale()
    monkeypatch.setattr(notices, "snapshots", lambda **_: pytest.fail("the ledger was asked"))

    assert send() == []


# --- Stopping and forgetting ----------------------------------------------------------------------


def test_stop_is_for_one_sale_or_all() -> None:
    reader, other = make_reader(), make_reader()
    sales = [make_sale(begins_in_s=LATER_S, ends_in_s=9_000) for _ in range(2)]
    for sale in sales:
        for user in (reader, other):
            make_notice(sale, user)

    def left(user: User) -> int:
        return live_notices(user_id=user.pk, now=timezone.now()).count()

    stop_notices(user_id=reader.pk, sale_id=sales[0].pk)
    assert left(reader) == 1
    stop_notices(user_id=reader.pk)
    assert (left(reader), left(other)) == (0, 2)


@pytest.mark.parametrize("token", ["", "1", "x:y:z"])
def test_forged_stop_link_is_refused(token: str) -> None:
    with pytest.raises(BadStopLink):
        reader_of_stop_link(token)


def test_stop_link_with_a_cut_signature_is_refused() -> None:
    token = stop_link(1).rstrip("/").rpartition("/")[2]
    assert reader_of_stop_link(token) == 1

    with pytest.raises(BadStopLink):
        reader_of_stop_link(token[:-3])


# --- Once, and not never --------------------------------------------------------------------------


class FlakyPhones:
    """A provider of texts that fails for one number."""

    got: list[str] = []
    broken = ""

    def send(self, phone: str, text: str) -> None:
        if phone == FlakyPhones.broken:
            raise OSError("by the test")
        FlakyPhones.got.append(phone)


def test_refused_text_is_sent_a_minute_later(
    settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.SECKILL_SMS_BACKEND = f"{__name__}.FlakyPhones"
    phones._backend.cache_clear()
    first, second = "+8613800000001", "+8613800000002"
    monkeypatch.setattr(FlakyPhones, "got", [])
    monkeypatch.setattr(FlakyPhones, "broken", first)
    sale = make_sale(begins_in_s=SOON_S)
    for phone in (first, second):
        make_notice(sale, make_reader(email=False, phone=phone))

    send()
    assert FlakyPhones.got == [second]
    monkeypatch.setattr(FlakyPhones, "broken", "")
    send(in_s=30)
    assert FlakyPhones.got == [second]
    send(in_s=61)
    assert FlakyPhones.got == [second, first]


def test_mail_server_down_does_not_stop_texts(
    settings: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    settings.EMAIL_BACKEND = "django.core.mail.backends.smtp.EmailBackend"
    settings.EMAIL_HOST, settings.EMAIL_PORT = "127.0.0.1", 1  # nobody listens there
    sale = make_sale(begins_in_s=SOON_S)
    by_mail = make_notice(sale, make_reader())
    by_text = make_notice(sale, make_reader(email=False, phone="+8613800000001"))

    with pytest.raises(ConnectionRefusedError):
        send_notices(now=timezone.now())

    assert "SMS to" in capsys.readouterr().out
    by_mail.refresh_from_db()
    by_text.refresh_from_db()
    assert (by_mail.live, by_text.live) == (True, False)


def test_only_one_process_sends_notices(ledger: Redis, elsewhere: Callable[..., Any]) -> None:
    make_notice(make_sale(begins_in_s=SOON_S), make_reader())
    theirs = RedisLock(ledger, "lock:notices")
    elsewhere(theirs.acquire)
    assert send() == []
    elsewhere(theirs.release)
    assert len(send()) == 1


@pytest.mark.parametrize("guarded", [True, False])
@pytest.mark.django_db(transaction=True)
def test_two_tasks_send_one_mail(monkeypatch: pytest.MonkeyPatch, guarded: bool) -> None:
    make_notice(make_sale(begins_in_s=SOON_S), make_reader())
    sending, other_is_done = threading.Semaphore(0), threading.Event()
    sent: list[str] = []

    class Slow(outbox.Mail):
        def opened(self) -> Any:
            sending.release()
            other_is_done.wait(20)
            sent.append("mail")
            return super().opened()

    monkeypatch.setattr(outbox, "_channels", lambda paths: [Slow()])
    if not guarded:
        without_lock(monkeypatch)

    def run() -> None:
        try:
            send_notices(now=timezone.now())
        finally:
            connection.close()

    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(run)
        assert sending.acquire(timeout=20)
        second = pool.submit(run)
        if guarded:
            second.result(20)
        else:
            assert sending.acquire(timeout=20)  # the control: both are about to send
        other_is_done.set()
        first.result(20)
        second.result(20)

    assert len(sent) == (1 if guarded else 2)


def test_pass_is_limited_in_number_and_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notices, "AT_ONCE", 2)
    sale = make_sale(begins_in_s=SOON_S)
    for _ in range(3):
        make_notice(sale, make_reader())

    assert [send_notices(now=timezone.now()) for _ in range(2)] == [True, False]
    assert len(mail.outbox) == 3

    make_notice(sale, make_reader())
    monkeypatch.setattr(notices, "PASS_S", -1.0)
    assert send_notices(now=timezone.now())
    assert len(mail.outbox) == 3


def test_pass_takes_a_fixed_number_of_statements() -> None:
    sale = make_sale(begins_in_s=SOON_S)

    def statements(count: int) -> int:
        for _ in range(count):
            make_notice(sale, make_reader())
        with CaptureQueriesContext(connection) as captured:
            send_notices(now=timezone.now())
        return len(captured)

    assert statements(1) == statements(20)
    assert statements(0) == 4
