"""Notifications: buyers who confirmed an address get a mail about each change of their orders.

What happens to several orders of a purchase at the same time is one mail.

The history is the outbox: ``beat`` sends what was not sent yet. A mail may come twice, if the
worker dies between sending and recording it, but none is lost.
"""

import datetime as dt
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress

from django.db.models import Case, Exists, OuterRef, Subquery, Value, When
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils import timezone, translation
from django.utils.translation import gettext

from accounts.contacts import Contact, confirmed_contacts, has_confirmed_email
from accounts.mails import has_mail_server
from locks import LockBusy, RedisLock
from orders.lifecycle.outbox import Delivery, Letter, Mail, Message, deliver
from orders.lifecycle.redemption import written_code
from orders.models import (
    UNUSED,
    DrawEntry,
    OrderEvent,
    OrderStatus,
    VoucherOrder,
    WaitingEntry,
)
from orders.proof.publishing import head_of_order
from seckill_site.web.responses import absolute_url
from vouchers.inventory.passes import alone
from vouchers.inventory.purchases import BLOCK_SIZE, is_in_block, purchase_of
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


class NotSendable(Exception):
    """The voucher is not paid, its buyer has no verified address, or there is no mail server."""


def send_voucher_again(*, order_id: int) -> None:
    """Let the mail with a paid voucher's code be sent once more.

    :raises NotSendable: it cannot be sent.
    """
    paid = OrderEvent.objects.filter(before=OrderStatus.UNPAID, after=OrderStatus.PAID)
    paid = paid.filter(has_confirmed_email("order__user"), order__status=OrderStatus.PAID)
    paid = paid.filter(order=order_id)
    if not (has_mail_server() and paid.update(notified_at=None, notify_at=None)):
        raise NotSendable


def _skip_buyers_without_address(now: dt.datetime) -> None:
    """Mark events whose buyer confirmed no address as notified: in a big sale, most of them."""
    nobody = ~has_confirmed_email("order__user")
    events = OrderEvent.objects.filter(nobody, notified_at=None).order_by("pk")
    _mark_notified(events.values_list("pk", flat=True)[:SKIPPED_AT_ONCE], now)


def _events_due(now: dt.datetime) -> list[OrderEvent]:
    events = OrderEvent.to_tell(now=now).order_by("pk")
    events = events.select_related("order__user", "order__seckill_voucher__voucher__merchant")
    drawn = DrawEntry.objects.filter(pk=OuterRef("order"))
    waited = WaitingEntry.of_order(OuterRef("order__pk"))
    joined = Subquery(waited.values("price_cents"))
    several = waited.filter(quantity__gt=1, all_or_none=False, live=True)
    wanted, line_id = Subquery(several.values("quantity")), Subquery(several.values("order_id"))
    # Who left the line may have ordered with the same id.
    offered = waited.exclude(outcome=WaitingEntry.Outcome.LEFT)
    new = {"before": "", "after": OrderStatus.UNPAID}
    turn = When(Exists(offered), **new, then=Value("turn"))
    won = When(Exists(drawn), **new, then=Value("won"))
    unused = When(before=OrderStatus.USED, after=OrderStatus.PAID, then=Value(UNUSED))
    kind, head = Case(turn, won, unused, default="after"), head_of_order("order__")
    events = events.annotate(joined_cents=joined, wanted=wanted, line_id=line_id)
    events = events.annotate(kind=kind, head=head)
    due: list[OrderEvent] = [*events[:MAILS_AT_ONCE]]
    if len(due) == MAILS_AT_ONCE and is_in_block(due[-1].order_id):
        last = purchase_of(due[-1].order_id)  # it may go on: the next mails have it whole
        due = [it for it in due if purchase_of(it.order_id) != last] or due
    return due


def _by_purchase(events: Sequence[OrderEvent]) -> list[list[OrderEvent]]:
    """Return the events that one mail tells: the same change of several orders of a purchase."""
    mails: dict[tuple[object, ...], list[OrderEvent]] = {}
    seen = Counter[tuple[object, ...]]()
    for event in events:
        change = (event.before, getattr(event, "kind", event.after), event.text)
        seen[event.order_id, *change] += 1  # an order may have changed like this before
        key = (purchase_of(event.order_id), *change, seen[event.order_id, *change])
        mails.setdefault(key, []).append(event)
    return list(mails.values())


def _send_all(events: Sequence[OrderEvent], lock: RedisLock, now: dt.datetime) -> int:
    """Send the mails of these events; record those sent even if the server goes away."""
    contacts = confirmed_contacts(it.order.user_id for it in events if it.order.user_id)
    by_mail, told = Mail(), {it[0].pk: it for it in _by_purchase(events)}
    letters = [
        Letter(key, by_mail, to.email, _message(of_mail, to))
        for key, of_mail in told.items()
        if (to := contacts.get(of_mail[0].order.user_id or 0)) and to.email
    ]
    unreachable = told.keys() - {letter.key for letter in letters}
    too_old = {key for key, of_mail in told.items() if of_mail[0].at <= now - RETRY_FOR}

    def events_of(keys: Iterable[int]) -> list[int]:
        return [event.pk for key in keys for event in told[key]]

    def record(delivery: Delivery) -> None:
        given_up = too_old.intersection(delivery.later)
        later = set(delivery.later) - given_up
        if later:
            later_events = OrderEvent.objects.filter(pk__in=events_of(later))
            later_events.update(notify_at=now + RETRY_AFTER)
        _mark_notified(events_of([*unreachable, *given_up, *delivery.done]), now)

    return deliver(letters, lock=lock, record=record).sent


def _mark_notified(ids: Iterable[int], now: dt.datetime) -> None:
    OrderEvent.objects.filter(pk__in=list(ids)).update(notified_at=now)


def _waits_on(event: OrderEvent) -> bool:
    """Return whether more is to come of what the buyer waits for, one after the other."""
    first, wanted = getattr(event, "line_id", None), getattr(event, "wanted", None) or 0
    if event.after != OrderStatus.UNPAID or not first:
        return False
    came = VoucherOrder.objects.filter(pk__gte=first, pk__lt=first + wanted * BLOCK_SIZE)
    return came.count() < wanted


def _message(events: Sequence[OrderEvent], to: Contact) -> Message:
    """Return the mail about the same change of one order or several, in their buyer's language."""
    event, orders = events[0], [it.order for it in events]
    order, kind = event.order, getattr(event, "kind", event.after)
    sale, day = order.seckill_voucher, timezone.localdate(event.at)
    if kind == UNUSED and sale.refund_unused and order.price_cents and sale.voucher.is_past(day):
        kind = "unused_late"
    with translation.override(to.language):
        context = {
            "event": event,
            "kind": kind,
            "order": order,
            "orders": orders,
            "count": len(orders),
            "total_cents": sum(it.price_cents for it in orders),
            "positions": [str(it.position) for it in orders if it.position],
            "head": getattr(events[-1], "head", ""),  # the last one covers those before it
            "waits_on": _waits_on(event),
            "voucher": order.seckill_voucher.voucher,
            # The worker's log gets none.
            "codes": [written_code(it.code) for it in orders if it.code and has_mail_server()],
            "url": absolute_url(reverse("receipt", args=[sale.pk, purchase_of(order.pk)])),
        }
        title = order.seckill_voucher.voucher.local_title
        subject = gettext("%(voucher)s: %(status)s") % {
            "voucher": f"{title} × {len(orders)}" if len(orders) > 1 else title,
            "status": MAIL_SUBJECTS.get(kind) or OrderStatus(event.after).label,
        }
        return Message(subject, render_to_string("orders/mail.txt", context))
