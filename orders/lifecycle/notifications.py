"""Telling: a buyer with an e-mail address is written to when something becomes of an order.

The history is the outbox: a change that nobody was told of yet is told by ``beat``. A mail may come
twice where the worker died between sending and noting it, but never not at all.
"""

from __future__ import annotations

import datetime as dt
import logging
import smtplib
from collections.abc import Iterable, Iterator, Sequence

from django.conf import settings
from django.core.mail import EmailMessage, get_connection
from django.core.mail.backends.base import BaseEmailBackend
from django.db.models import Q, QuerySet
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils import translation
from django.utils.translation import gettext

from locks import LockBusy, RedisLock
from orders.lifecycle.redemption import written_code
from orders.models import OrderEvent, OrderStatus
from seckill_site.ledger_connection import ledger_connection
from vouchers.inventory.keys import ledger_errors

logger = logging.getLogger(__name__)

TOLD_AT_ONCE, PASSED_OVER_AT_ONCE = 200, 5_000

SERVER_TIMEOUT_S = 10
"""So long the mail server may be silent."""

TRIED_AGAIN_AFTER = dt.timedelta(minutes=10)
TRIED_FOR = dt.timedelta(days=1)
"""So long a mail is tried again that the server does not take now, but may take later."""


class NotNow(Exception):
    """The mail server does not take mails for this address at the moment."""


def tell_buyers(*, now: dt.datetime) -> int:
    """Write to the buyers of the changes that they were not told of; return how many mails went.

    One process at a time does so: two would send every mail twice.

    :raises OSError: the mail server does not answer; the next call goes on.
    :raises LedgerUnavailable: Redis, which keeps the lock, does not answer; likewise.
    """
    with ledger_errors():
        lock = RedisLock(ledger_connection(), "lock:telling", lease_ms=settings.SECKILL_LEASE_MS)
        try:
            with lock:
                _pass_over_who_has_no_address(now)
                return _tell(_untold(now), lock, now)
        except LockBusy:
            return 0


def _pass_over_who_has_no_address(now: dt.datetime) -> None:
    """Note the changes of which nobody can be told: most buyers of a big sale give no address."""
    nobody = Q(order__user=None) | Q(order__user__email="")
    untold = OrderEvent.objects.filter(nobody, told_at=None).order_by("pk")
    _note_told(untold.values_list("pk", flat=True)[:PASSED_OVER_AT_ONCE], now)


def _untold(now: dt.datetime) -> list[OrderEvent]:
    due = Q(tell_at=None) | Q(tell_at__lte=now)
    untold = OrderEvent.objects.filter(due, told_at=None).order_by("pk")
    events = untold.select_related("order__user", "order__seckill_voucher__voucher")
    return list(events[:TOLD_AT_ONCE])


def _tell(events: Sequence[OrderEvent], lock: RedisLock, now: dt.datetime) -> int:
    """Send the mails of these changes; note who was told also where the server goes away."""
    mails = {event: mail for event in events if (mail := _message(event))}
    told = [event.pk for event in events if event not in mails]
    sent = 0
    try:
        for event, mail in _with_server(mails):
            if lock.lost:
                break
            try:
                sent += _send(mail)
            except NotNow as error:
                logger.warning("a mail is tried again later: %s", error)
                if event.at > now - TRIED_FOR:
                    later = OrderEvent.objects.filter(pk=event.pk)
                    later.update(tell_at=now + TRIED_AGAIN_AFTER)
                    continue
            told.append(event.pk)
    finally:
        _note_told(told, now)
    return sent


def _with_server(
    mails: dict[OrderEvent, EmailMessage],
) -> Iterator[tuple[OrderEvent, EmailMessage]]:
    """Give out the mails on one open connection, which is not opened for none."""
    if not mails:
        return
    server: BaseEmailBackend = get_connection(timeout=SERVER_TIMEOUT_S)
    with server:
        for event, mail in mails.items():
            mail.connection = server
            yield event, mail


def _send(mail: EmailMessage) -> int:
    """Send a mail and return 1; or 0 where it would be refused again and again.

    :raises NotNow: this one may be taken later.
    :raises OSError: no mail goes out at the moment.
    """
    try:
        return mail.send()
    except smtplib.SMTPRecipientsRefused as error:
        codes = [code for code, _ in error.recipients.values()]
        if any(code < 500 for code in codes):
            raise NotNow from error
        logger.warning("a mail was refused for good: %s", codes)
    except smtplib.SMTPDataError as error:
        if error.smtp_code < 500:
            raise NotNow from error
        logger.warning("a mail was refused for good: %s", error.smtp_code)
    except (smtplib.SMTPNotSupportedError, ValueError) as error:
        logger.warning("a mail cannot be sent: %r", error)
    return 0


def _note_told(ids: Iterable[int], now: dt.datetime) -> None:
    found: QuerySet[OrderEvent] = OrderEvent.objects.filter(pk__in=list(ids))
    found.update(told_at=now)


def _message(event: OrderEvent) -> EmailMessage | None:
    """Return the mail about a change, or None where there is nobody to write to."""
    order = event.order
    if order.user is None or not order.user.email:
        return None
    with translation.override(settings.LANGUAGE_CODE):
        context = {
            "event": event,
            "order": order,
            "voucher": order.seckill_voucher.voucher,
            "code": written_code(order.code) if order.code else "",
            "url": settings.SECKILL_SITE_URL
            + reverse("receipt", args=[order.seckill_voucher_id, order.pk]),
        }
        subject = gettext("%(voucher)s: %(status)s") % {
            "voucher": order.seckill_voucher.voucher,
            "status": OrderStatus(event.after).label,
        }
        body = render_to_string("orders/mail.txt", context)
    one_line = " ".join(subject.split())  # a header has no line breaks, a title may
    return EmailMessage(one_line, body, to=[order.user.email])
