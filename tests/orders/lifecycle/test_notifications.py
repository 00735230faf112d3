"""Mails about changes of orders: one for each change, none lost."""

from __future__ import annotations

import datetime as dt
import re
import smtplib
from collections.abc import Callable
from typing import Any

import pytest
from allauth.account.models import EmailAddress
from django.conf import settings as django_settings
from django.contrib.auth.models import User
from django.core import mail
from django.core.mail import EmailMessage
from django.core.mail.backends.locmem import EmailBackend
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone, translation
from django.utils.translation import gettext
from redis import Redis

from accounts.contacts import Contact
from accounts.models import Reader
from locks import RedisLock
from orders.fulfilment.worker import fulfil_sale
from orders.lifecycle import notifications
from orders.lifecycle.cancellation import cancel_order
from orders.lifecycle.notifications import tell_buyers
from orders.lifecycle.redemption import written_code
from orders.lifecycle.transitions import PROVIDER, Actor, Change, note
from orders.models import ActorKind, EventCode, OrderEvent, OrderStatus, VoucherOrder
from orders.payments.refunds import refund_order
from tests.support.orders import (
    make_buyers,
    make_order,
    make_sale,
    reserved_purchase,
    written_orders,
)
from tests.support.payments import (
    make_unpaid_order,
    owner_of,
    pay,
    pay_all,
    use_and_undo,
)
from tests.support.tiers import slow_after
from vouchers.inventory.keys import LedgerUnavailable
from vouchers.models import Merchant, Voucher

pytestmark = pytest.mark.django_db

NOW = timezone.now()


class Server(EmailBackend):
    """A mail server that calls a function of the test before it accepts a mail."""

    before: Callable[[EmailMessage], None] = staticmethod(lambda message: None)
    opened = 0

    def open(self) -> bool:
        Server.opened += 1
        return True

    def send_messages(self, messages: Any) -> int:
        for message in messages:
            Server.before(message)
        return int(super().send_messages(messages))


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, settings: Any) -> type[Server]:
    settings.EMAIL_BACKEND = f"{__name__}.Server"
    monkeypatch.setattr(Server, "before", staticmethod(lambda message: None))
    monkeypatch.setattr(Server, "opened", 0)
    return Server


def buyers_with_addresses(count: int) -> list[User]:
    found = make_buyers(count)
    for user in found:
        user.email = f"{user.username}@example.com"
    EmailAddress.objects.bulk_create(
        [EmailAddress(user=it, email=it.email, verified=True, primary=True) for it in found]
    )
    return found


def orders_won(count: int) -> list[VoucherOrder]:
    """Return new orders of buyers with addresses, whose events were not notified yet."""
    sale = make_sale(stock=count)
    orders = [make_order(sale, user) for user in buyers_with_addresses(count)]
    for order in orders:
        an_event(order, OrderStatus.UNPAID)
    return orders


def an_event(order: VoucherOrder, after: OrderStatus, **more: Any) -> OrderEvent:
    fields = {"at": timezone.now(), "actor_kind": ActorKind.SYSTEM, **more}
    return OrderEvent.objects.create(order=order, after=after, **fields)


def tell() -> int:
    return tell_buyers(now=NOW)


def untold() -> int:
    return OrderEvent.objects.filter(notified_at=None).count()


def recipients() -> list[str]:
    return [message.to[0] for message in mail.outbox]


# --- What is written ------------------------------------------------------------------------------


def test_each_change_sends_one_mail(settings: Any) -> None:
    settings.SECKILL_SITE_URL = "https://shop.example"
    (buyer,) = buyers_with_addresses(1)
    order = make_unpaid_order(make_sale(), [buyer])
    assert tell() == 1
    pay(order)
    assert tell() == 1
    refund_order(order_id=order.pk, by=Actor.buyer(buyer.pk), now=timezone.now())
    assert tell() == 2
    subjects = [message.subject.rpartition("：")[2] for message in mail.outbox]
    assert subjects == ["待支付", "已支付", "退款中", "已退款"]
    assert {message.to[0] for message in mail.outbox} == {buyer.email}
    url = f"https://shop.example/vouchers/{order.seckill_voucher_id}/orders/{order.pk}/"
    assert all(url in message.body for message in mail.outbox)


def test_mail_shows_position_and_head_of_the_order() -> None:
    sale = make_sale()
    written_orders(sale, make_buyers(2))
    [token] = written_orders(sale, buyers_with_addresses(1))
    sale.refresh_from_db()
    assert tell() == 1
    assert sale.chain_head in mail.outbox[0].body
    assert VoucherOrder.objects.get(pk=token.order_id).position == 3
    assert re.search(r"：3\n.*：" + sale.chain_head, str(mail.outbox[0].body))


def several(count: int = 3) -> tuple[User, list[VoucherOrder]]:
    """Return a reader of English, and their written orders of one press."""
    (buyer,) = buyers_with_addresses(1)
    Reader.objects.create(user=buyer, language="en")
    sale = make_sale(limit=4)
    ids = reserved_purchase(sale, buyer, count)
    fulfil_sale(sale_id=sale.pk)
    return buyer, list(VoucherOrder.objects.filter(pk__in=ids).order_by("pk"))


def test_orders_of_one_press_have_one_mail_for_each_change() -> None:
    _, orders = several()
    assert tell() == 1
    new = mail.outbox.pop()
    assert " × 3: " in new.subject
    assert "We're holding 3 vouchers for you." in new.body
    assert "To pay: ¥240.00" in new.body
    assert all(str(it.pk) in new.body for it in orders)
    assert new.body.count("/vouchers/") == 1
    pay_all(orders)
    assert tell() == 1
    paid = mail.outbox.pop()
    assert all(written_code(it.code or "") in paid.body for it in orders)
    assert untold() == 0


def test_mail_about_one_order_of_several_is_about_that_one() -> None:
    buyer, orders = several()
    pay_all(orders)
    tell()
    mail.outbox.clear()
    refund_order(order_id=orders[1].pk, by=Actor.buyer(buyer.pk), now=timezone.now())
    assert tell() == 2
    first = mail.outbox[0]
    assert " × " not in first.subject
    assert "¥80.00" in first.body
    assert [str(it.pk) in first.body.partition("http")[0] for it in orders] == [False, True, False]


def test_mail_of_several_that_is_refused_is_tried_again_whole(server: type[Server]) -> None:
    _, orders = several()

    def full(message: EmailMessage) -> None:
        raise smtplib.SMTPRecipientsRefused({message.to[0]: (450, b"full")})

    server.before = staticmethod(full)
    assert tell() == 0
    times = OrderEvent.objects.filter(order__in=orders).values_list("notify_at", flat=True)
    assert set(times) == {NOW + notifications.RETRY_AFTER}


def test_purchase_is_not_cut_by_the_end_of_a_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    orders_won(1)
    several()
    monkeypatch.setattr(notifications, "MAILS_AT_ONCE", 3)
    assert [tell(), tell()] == [1, 1]
    assert " × 3" in mail.outbox[1].subject


def test_same_change_twice_of_one_order_sends_two_mails() -> None:
    (order,) = orders_won(1)
    an_event(order, OrderStatus.UNPAID)
    assert tell() == 2


def test_undone_use_has_a_mail_of_its_own(settings: Any) -> None:
    settings.LANGUAGE_CODE = "en"
    (buyer,) = buyers_with_addresses(1)
    Reader.objects.create(user=buyer, language="en")
    order = make_unpaid_order(make_sale(), [buyer])
    pay(order)
    tell()
    mail.outbox.clear()
    use_and_undo(order)
    assert tell() == 2
    order.refresh_from_db()
    unused = mail.outbox[1]
    assert unused.subject.endswith(": Ready to use again")
    assert "redeemed by mistake" in unused.body
    assert "We have received your payment" not in unused.body
    assert written_code(order.code or "") in unused.body


def test_undone_use_after_the_last_day_promises_the_money(settings: Any) -> None:
    settings.LANGUAGE_CODE = "en"
    (buyer,) = buyers_with_addresses(1)
    Reader.objects.create(user=buyer, language="en")
    order = make_unpaid_order(make_sale(), [buyer])
    pay(order)
    use_and_undo(order)
    tell()
    Voucher.objects.update(valid_until=timezone.localdate() - dt.timedelta(days=1))
    undone = order.events.filter(before=OrderStatus.USED)
    undone.update(notified_at=None)
    mail.outbox.clear()
    assert tell() == 1
    order.refresh_from_db()
    [late] = mail.outbox
    assert late.subject.endswith(": Use taken back")
    assert "Its last day is over, so you get your money back automatically." in late.body
    assert written_code(order.code or "") not in late.body


@pytest.mark.parametrize(
    ("backend", "has_code"), [("console", False), ("smtp", True), ("locmem", True)]
)
def test_mail_in_the_workers_log_has_no_code(settings: Any, backend: str, has_code: bool) -> None:
    order = make_unpaid_order(make_sale(), buyers_with_addresses(1))
    pay(order)
    order.refresh_from_db()
    settings.EMAIL_BACKEND = f"django.core.mail.backends.{backend}.EmailBackend"
    event = OrderEvent.objects.get(order=order, after="paid")
    message = notifications._message([event], Contact(email="ann@example.org"))
    assert (written_code(order.code or "") in message.text) is has_code


@pytest.mark.parametrize("after", slow_after(1, OrderStatus))
def test_every_status_has_a_plain_text_mail(settings: Any, after: OrderStatus) -> None:
    settings.LANGUAGE_CODE = "en"
    (user,) = buyers_with_addresses(1)
    reason = "sold_out" if after == "refused" else ""
    order = make_order(make_sale(), user, status=after, reason=reason)
    an_event(order, after)
    assert tell() == 1
    body = mail.outbox[0].body
    assert str(order.pk) in body
    assert "<" not in body
    assert "\n\n\n\n" not in body


def test_unpaid_mail_has_price_deadline_and_link(settings: Any, in_shanghai: None) -> None:
    settings.LANGUAGE_CODE = "en"
    order = make_unpaid_order(make_sale(), buyers_with_addresses(1))
    tell()
    assert order.pay_by
    time = f"{timezone.localtime(order.pay_by):%-d %b, %H:%M} (UTC+8)"
    assert f"To pay: ¥80.00, until {time}" in mail.outbox[0].body


def test_paid_mail_names_merchant_validity_and_shop(settings: Any) -> None:
    settings.LANGUAGE_CODE = "en"
    settings.SECKILL_SHOP_NAME_EN = "Voucher & Market"
    settings.SECKILL_SHOP_CONTACT = "help@shop.example"
    order = make_unpaid_order(make_sale(), buyers_with_addresses(1))
    merchant = Merchant.objects.create(
        name="Old Street", address="18 Old Street", contact="021-5555 0118"
    )
    Voucher.objects.update(
        title_en="Hot tea",
        merchant=merchant,
        valid_until=dt.date(2030, 12, 31),
        rules="Book a day ahead.",
    )
    pay(order)
    tell()
    sent = mail.outbox[-1]
    assert sent.subject == "Hot tea: paid"
    assert sent.body.startswith("Hot tea · Old Street\n")
    terms = "At 18 Old Street · valid until 31 Dec 2030 · refundable until used"
    assert (
        f"{terms}, automatically after the last day\nContact: 021-5555 0118\nBook a day ahead.\n"
        in sent.body
    )
    assert "-- \nVoucher & Market · " in sent.body
    assert "Contact: help@shop.example" in sent.body


def test_code_of_refunded_order_is_not_sent() -> None:
    (buyer,) = buyers_with_addresses(1)
    order = make_unpaid_order(make_sale(), [buyer])
    pay(order)
    refund_order(order_id=order.pk, by=Actor.buyer(buyer.pk), now=timezone.now())
    tell()
    code = VoucherOrder.objects.get(pk=order.pk).code or "?"
    assert not any(written_code(code) in message.body for message in mail.outbox)


def test_refused_mail_has_the_reason(settings: Any) -> None:
    settings.LANGUAGE_CODE = "en"
    (user,) = buyers_with_addresses(1)
    order = make_order(make_sale(), user, status=OrderStatus.REFUSED, reason="sold_out")
    an_event(order, OrderStatus.REFUSED)
    tell()
    assert "The last voucher went to someone ahead of you." in mail.outbox[0].body


def test_staff_reason_is_in_the_mail() -> None:
    order = make_unpaid_order(make_sale(), buyers_with_addresses(1))
    cancel_order(
        order_id=order.pk, by=Actor.staff(None), why="the kitchen burnt down", now=timezone.now()
    )
    tell()
    assert "the kitchen burnt down" in mail.outbox[-1].body


def test_title_cannot_break_the_subject() -> None:
    (order,) = orders_won(1)
    voucher = order.seckill_voucher.voucher
    voucher.title = "Fish & <chips>\nBcc: all@example.com"
    voucher.save()
    assert tell() == 1
    assert "Fish & <chips>" in mail.outbox[0].body
    assert "\n" not in mail.outbox[0].subject
    assert mail.outbox[0].recipients() == [owner_of(order).email]


# --- Once, and not never --------------------------------------------------------------------------


def test_without_news_no_mail_server_is_contacted(server: type[Server]) -> None:
    orders_won(3)
    assert [tell(), tell(), tell()] == [3, 0, 0]
    assert len(mail.outbox) == 3
    assert server.opened == 1


def test_deleted_account_counts_as_told() -> None:
    order = make_order(make_sale(), None, status=OrderStatus.REFUSED, reason="inactive_buyer")
    an_event(order, OrderStatus.REFUSED)
    assert tell() == 0
    assert untold() == 0


def test_unsent_mail_follows_with_the_next_call(server: type[Server]) -> None:
    orders = orders_won(3)

    def away_after_the_first(message: EmailMessage) -> None:
        if mail.outbox:
            raise smtplib.SMTPServerDisconnected("by the test")

    server.before = staticmethod(away_after_the_first)
    with pytest.raises(OSError, match="by the test"):
        tell()
    assert (len(mail.outbox), untold()) == (1, 2)
    server.before = staticmethod(lambda message: None)
    assert tell() == 2
    assert recipients() == [order.user.email for order in orders if order.user]


@pytest.mark.parametrize(
    "error",
    slow_after(
        1,
        [
            smtplib.SMTPRecipientsRefused({"x": (550, b"no such user")}),
            smtplib.SMTPDataError(554, b"no"),
            smtplib.SMTPNotSupportedError("no SMTPUTF8"),
            ValueError("no address"),
        ],
    ),
)
def test_rejected_mail_does_not_stop_the_others(server: type[Server], error: Exception) -> None:
    first, second = orders_won(2)
    refuse(server, first, error)
    assert tell() == 1
    assert recipients() == [owner_of(second).email]
    assert untold() == 0


def refuse(server: type[Server], order: VoucherOrder, error: Exception) -> None:
    def before(message: EmailMessage) -> None:
        if order.user and message.to == [order.user.email]:
            raise error

    server.before = staticmethod(before)


def test_temporary_refusal_is_retried_for_a_day(server: type[Server]) -> None:
    first, second = orders_won(2)
    refuse(server, first, smtplib.SMTPRecipientsRefused({"x": (450, b"later")}))
    assert tell() == 1
    assert recipients() == [owner_of(second).email]
    assert untold() == 1
    assert tell_buyers(now=timezone.now() + dt.timedelta(days=2)) == 0
    assert untold() == 0


@pytest.mark.parametrize("error", [smtplib.SMTPSenderRefused(550, b"", "we")])
def test_mail_server_down_marks_nothing_as_told(server: type[Server], error: Exception) -> None:
    (order,) = orders_won(1)
    refuse(server, order, error)
    with pytest.raises(smtplib.SMTPException):
        tell()
    assert untold() == 1


def test_only_one_process_sends_mails(ledger: Redis, elsewhere: Callable[..., Any]) -> None:
    orders_won(1)
    theirs = RedisLock(ledger, "lock:notifications")
    elsewhere(theirs.acquire)
    assert tell() == 0
    assert untold() == 1
    elsewhere(theirs.release)
    assert tell() == 1


def test_without_redis_no_mail_is_sent(lose_ledger: Callable[[], None]) -> None:
    orders_won(1)
    lose_ledger()
    with pytest.raises(LedgerUnavailable):
        tell()
    assert (len(mail.outbox), untold()) == (0, 1)


def test_mail_batch_takes_seven_statements() -> None:
    def statements() -> int:
        with CaptureQueriesContext(connection) as captured:
            tell()
        return len(captured)

    orders_won(1)
    one = statements()
    orders_won(20)
    assert statements() == one == 7


@pytest.mark.parametrize("has_code", [True, False], ids=["code", "from-before"])
def test_late_payment_mail_announces_the_refund(has_code: bool) -> None:
    (order,) = orders_won(1)
    tell()
    mail.outbox.clear()
    VoucherOrder.objects.filter(pk=order.pk).update(status="expired", live=None)
    why = "The payment arrived too late and is being refunded."
    late = Change(OrderStatus.EXPIRED, PROVIDER, timezone.now(), "" if has_code else why)
    late = late._replace(code=EventCode.LATE_PAYMENT if has_code else None)
    note(late, order_ids=[order.pk], before="expired")
    assert tell() == 1
    (message,) = mail.outbox
    with translation.override(django_settings.LANGUAGE_CODE):
        assert message.body.count(gettext(why)) == 1


def test_buyers_without_address_delay_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notifications, "MAILS_AT_ONCE", 2)
    silent = orders_won(5)
    owners = [order.user_id for order in silent]
    EmailAddress.objects.filter(user_id__in=owners).update(verified=False)
    (order,) = orders_won(1)
    assert tell() == 1
    assert order.user
    assert recipients() == [order.user.email]
    assert not OrderEvent.objects.filter(notified_at=None).exists()


def test_one_call_sends_a_limited_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notifications, "MAILS_AT_ONCE", 2)
    orders = orders_won(5)
    assert [tell(), tell(), tell(), tell()] == [2, 2, 1, 0]
    assert recipients() == [order.user.email for order in orders if order.user]
