"""Notifications: buyers who confirmed an address get a mail about each change of their orders.

The history is the outbox: ``beat`` sends what was not sent yet. A mail may come twice, if the
worker dies between sending and recording it, but none is lost.
"""

import datetime as dt
from collections.abc import Iterable, Sequence
from contextlib import suppress

from django.conf import settings
from django.db.models import Case, Exists, OuterRef, Subquery, Value, When
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils import translation
from django.utils.translation import gettext

from accounts.contacts import Contact, confirmed_contacts, has_confirmed_email
from locks import LockBusy, RedisLock
from orders.lifecycle.outbox import Delivery, Letter, Mail, Message, deliver
from orders.lifecycle.redemption import written_code
from orders.models import DrawEntry, OrderEvent, OrderStatus, WaitingEntry
from seckill_site.web.responses import absolute_url
from vouchers.inventory.passes import alone
from vouchers.templatetags.buyer_texts import MAIL_SUBJECTS

MAILS_AT_ONCE, SKIPPED_AT_ONCE = 200, 2_000

RETRY_AFTER = dt.timedelta(minutes=10)
RETRY_FOR = dt.timedelta(days=1)
"""The pause before retrying a mail that the server may accept later, and the limit on retrying."""


def tell_buyers(*, now: dt.datetime) -> int:
    """Send mails about the changes that were not notified yet; return how many were sent.

    Only one process at a time sends: two would send every mail twice.

    :raises OSError: the mail server did not respond; the next call continues.
    :raises LedgerUnavailable: Redis (for the lock) did not respond; the next call continues.
    """
    if OrderEvent.objects.filter(notified_at=None).exists():
        with suppress(LockBusy), alone("notifications") as lock:
            _skip_buyers_without_address(now)
            return _send_all(_events_due(now), lock, now)
    return 0


def _skip_buyers_without_address(now: dt.datetime) -> None:
    """Mark events whose buyer confirmed no address as notified: in a big sale, most of them."""
    nobody = ~has_confirmed_email("order__user")
    events = OrderEvent.objects.filter(nobody, notified_at=None).order_by("pk")
    _mark_notified(events.values_list("pk", flat=True)[:SKIPPED_AT_ONCE], now)


def _events_due(now: dt.datetime) -> list[OrderEvent]:
    events = OrderEvent.to_tell(now=now).order_by("pk")
    events = events.select_related("order__user", "order__seckill_voucher__voucher__merchant")
    drawn = DrawEntry.objects.filter(pk=OuterRef("order"))
    waited = WaitingEntry.objects.filter(order_id=OuterRef("order"))
    joined = Subquery(waited.values("price_cents"))
    # Who left the line may have ordered with the same id.
    offered = waited.exclude(outcome=WaitingEntry.Outcome.LEFT)
    new = {"before": "", "after": OrderStatus.UNPAID}
    turn = When(Exists(offered), **new, then=Value("turn"))
    won = When(Exists(drawn), **new, then=Value("won"))
    events = events.annotate(joined_cents=joined, kind=Case(turn, won, default="after"))
    return list(events[:MAILS_AT_ONCE])


def _send_all(events: Sequence[OrderEvent], lock: RedisLock, now: dt.datetime) -> int:
    """Send the mails of these events; record those sent even if the server goes away."""
    contacts = confirmed_contacts(it.order.user_id for it in events if it.order.user_id)
    by_mail = Mail()
    letters = [
        Letter(event.pk, by_mail, to.email, _message(event, to))
        for event in events
        if (to := contacts.get(event.order.user_id or 0)) and to.email
    ]
    unreachable = {event.pk for event in events} - {letter.key for letter in letters}
    too_old = {event.pk for event in events if event.at <= now - RETRY_FOR}

    def record(delivery: Delivery) -> None:
        given_up = too_old.intersection(delivery.later)
        later = set(delivery.later) - given_up
        if later:
            OrderEvent.objects.filter(pk__in=later).update(notify_at=now + RETRY_AFTER)
        _mark_notified([*unreachable, *given_up, *delivery.done], now)

    return deliver(letters, lock=lock, record=record).sent


def _mark_notified(ids: Iterable[int], now: dt.datetime) -> None:
    OrderEvent.objects.filter(pk__in=list(ids)).update(notified_at=now)


def _message(event: OrderEvent, to: Contact) -> Message:
    """Return the mail about an event, in its buyer's language."""
    order, kind = event.order, getattr(event, "kind", event.after)
    with translation.override(to.language):
        goes_to_log = settings.EMAIL_BACKEND == "django.core.mail.backends.console.EmailBackend"
        context = {
            "event": event,
            "kind": kind,
            "order": order,
            "voucher": order.seckill_voucher.voucher,
            # The worker's log gets none.
            "code": written_code(order.code) if order.code and not goes_to_log else "",
            "url": absolute_url(reverse("receipt", args=[order.seckill_voucher_id, order.pk])),
        }
        subject = gettext("%(voucher)s: %(status)s") % {
            "voucher": order.seckill_voucher.voucher.local_title,
            "status": MAIL_SUBJECTS.get(kind) or OrderStatus(event.after).label,
        }
        return Message(subject, render_to_string("orders/mail.txt", context))
