"""Notices that readers ask for: a reminder of a sale's start, and that a unit is free again.

A request is told once, and is spent then. The rows are the outbox: a task sends what is due, and
looks only at sales with requests. The path of an order knows nothing of them.

Entries of draws that did not win get a row unasked (``orders/draws/drawing.py``). Their mails come
last, and are noted as sent before they are: a worker that dies repeats none. Buyers whose vouchers
have their last day soon get one, too (``last_days.py``).
"""

import datetime as dt
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from django.conf import settings
from django.contrib.auth.models import User
from django.core import signing
from django.db import IntegrityError, transaction
from django.db.models import Count, Exists, F, OuterRef, Q, QuerySet, Subquery
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils import timezone, translation

from accounts.contacts import Contact, confirmed_contact, confirmed_contacts
from locks import LockBusy, RedisLock
from orders.lifecycle.outbox import Delivery, Letter, Message, channel_to, deliver
from orders.models import Notice, OrderEvent, OrderStatus, VoucherOrder, WaitingEntry
from seckill_site.clocks.machine import from_epoch_ms
from seckill_site.failpoints import failpoint
from seckill_site.formatting import date_and_time
from seckill_site.web.responses import absolute_url
from seckill_site.web.text_files import read_texts
from vouchers.catalogue.listing import public_sale
from vouchers.inventory.passes import alone
from vouchers.inventory.rebuild import snapshot_or_load
from vouchers.inventory.reservations import SaleEnded, SalePaused
from vouchers.inventory.sale_state import Snapshot, snapshots
from vouchers.inventory.waiting_list import UnitAvailable
from vouchers.models import SaleMode, SaleStage, SaleState, SeckillVoucher
from vouchers.templatetags.seckill import day

Kind = Notice.Kind

AT_ONCE, PASS_S = 200, 1.0
"""The most messages of one pass, and the time after which it leaves the worker to orders."""

RETRY_AFTER = dt.timedelta(minutes=1)
AGAIN_AFTER = dt.timedelta(hours=1)
"""A reader is told at most once in this time that a sale has a unit again."""

_STOP_SALT = "orders.notices.stop"
_SUBJECTS = read_texts(Path(__file__).with_name("notice_texts.toml"))


class TooLate(Exception):
    """The sale starts so soon that its reminders have been sent."""


class NoContact(Exception):
    """The reader has confirmed neither an address nor a phone number."""


class BadStopLink(Exception):
    """The link that stops notices is not one of this shop's."""


@dataclass(frozen=True)
class Offer:
    """What a reader may be told of a sale; ``kind`` is None if there is nothing, for a ``reason``.

    ``asked`` is true while the reader has a live request of that kind. ``address`` is where they
    would be told; empty if there is no confirmed one.
    """

    sale: SeckillVoucher
    kind: Notice.Kind | None
    reason: Exception | None
    asked: bool
    address: str


# --- Asking and stopping --------------------------------------------------------------------------


def notice_offer(*, sale_id: int, user: User) -> Offer:
    """Return what this reader may be told of a sale, and whether they have asked.

    :raises SeckillVoucher.DoesNotExist: there is no such sale for buyers.
    :raises LedgerUnavailable: Redis did not respond.
    """
    sale = public_sale(sale_id=sale_id)
    kind, reason = None, None
    try:
        kind = _kind_now(snapshot_or_load(sale_id=sale_id))
    except (SaleEnded, TooLate, SalePaused, UnitAvailable) as error:
        reason = error
    live = Notice.objects.filter(seckill_voucher=sale_id, user=user, live=True)
    # It is too late for a new request, but one made earlier may still be sent.
    shown = Kind.START if isinstance(reason, TooLate) else kind
    asked = shown is not None and live.filter(kind=shown).exists()
    channel_and_address = channel_to(user.pk, confirmed_contact(user))
    return Offer(sale, kind, reason, asked, channel_and_address[1] if channel_and_address else "")


def ask_notice(*, sale_id: int, user: User) -> None:
    """Remind this reader of the start, or, once the sale is sold out, tell them of a free unit.

    Safe to repeat: there is one request of each kind.

    :raises NoContact: the reader has no confirmed address.
    :raises TooLate: the sale starts too soon.
    :raises UnitAvailable: a unit is free and can be bought.
    :raises SalePaused: the sale is paused, and has units.
    :raises SaleEnded: the sale has ended.
    :raises SeckillVoucher.DoesNotExist: there is no such sale for buyers.
    :raises LedgerUnavailable: Redis did not respond.
    """
    public_sale(sale_id=sale_id)
    ledger = snapshot_or_load(sale_id=sale_id)
    kind = _kind_now(ledger)
    if channel_to(user.pk, confirmed_contact(user)) is None:
        raise NoContact
    own = Notice.objects.filter(seckill_voucher=sale_id, user=user, kind=kind)
    asked = {"live": True, "asked_at": from_epoch_ms(ledger.now_ms), "notify_at": None}
    own.filter(live=False).update(**asked)
    if not own.exists():
        # A concurrent click may have created it.
        with suppress(IntegrityError), transaction.atomic():
            Notice.objects.create(seckill_voucher_id=sale_id, user=user, kind=kind, **asked)


def _kind_now(ledger: Snapshot) -> Notice.Kind:
    terms = ledger.terms
    if ledger.now_ms >= terms.ends_at_ms:
        raise SaleEnded
    if ledger.now_ms < terms.begins_at_ms:
        if ledger.now_ms >= terms.begins_at_ms - settings.SECKILL_REMIND_BEFORE_S * 1000:
            raise TooLate
        return Kind.START
    if ledger.remaining == 0 or ledger.waiting:
        return Kind.BACK
    raise SalePaused if terms.paused else UnitAvailable


def stop_notices(*, user_id: int, sale_id: int | None = None) -> None:
    """Tell this reader nothing of a sale, or of any sale; until they ask again."""
    own = Notice.objects.filter(user=user_id, live=True).exclude(kind__in=Notice.UNASKED)
    if sale_id is not None:
        own = own.filter(seckill_voucher=sale_id)
    own.update(live=False)


def live_notices(*, user_id: int, now: dt.datetime) -> QuerySet[Notice]:
    """Return the reader's requests that may still be told."""
    own = Notice.objects.filter(user=user_id, live=True, seckill_voucher__ends_at__gt=now)
    others = Q(kind=Kind.START, seckill_voucher__begins_at__lte=now)
    others |= Q(kind__in=Notice.UNASKED)
    return own.exclude(others).select_related("seckill_voucher__voucher").order_by("pk")


def stop_link(user_id: int) -> str:
    """Return the absolute address that stops all notices of this reader, without signing in."""
    token = signing.dumps(user_id, salt=_STOP_SALT)
    return absolute_url(reverse("stop-notices", args=[token]))


def reader_of_stop_link(token: str) -> int:
    """Return whose notices a link stops.

    :raises BadStopLink: it is not one of this shop's.
    """
    try:
        return int(signing.loads(token, salt=_STOP_SALT))
    except (signing.BadSignature, TypeError, ValueError) as error:
        raise BadStopLink from error


# --- Sending --------------------------------------------------------------------------------------


def send_notices(*, now: dt.datetime) -> bool:
    """Send the notices that are due, for about a second; return whether any may be left.

    Only one process at a time sends: two would send every message twice.

    :raises OSError: a server did not respond; the next call continues.
    :raises LedgerUnavailable: Redis did not respond; the next call continues.
    """
    if notices_due(now=now):
        with suppress(LockBusy), alone("notices") as lock:
            return _send_all(notices_due(now=now), lock, now)
    return False


def notices_due(*, now: dt.datetime) -> list[Notice]:
    """Return the first requests that are due: of the next start first, in the order of asking.

    Results of draws come after these, and after the mails of orders.
    """
    due: list[Notice] = []
    for sale_id in _sales_about_to_start(now):
        due += _asked(sale_id, Kind.START, now)[: AT_ONCE - len(due)]
    for sale_id in _sales_with_a_free_unit(now):
        told_lately = Q(told_at__gt=now - AGAIN_AFTER)
        due += _asked(sale_id, Kind.BACK, now).exclude(told_lately)[: AT_ONCE - len(due)]
    own = {"seckill_voucher": OuterRef("seckill_voucher"), "user": OuterRef("user")}
    unused = VoucherOrder.objects.filter(**own, live=True, status=OrderStatus.PAID)
    counts = unused.order_by().values("user").annotate(count=Count("pk")).values("count")
    for sale_id in _sales_near_their_last_day(now):
        last_days = _asked(sale_id, Kind.LAST_DAY, now).annotate(unused=Subquery(counts))
        due += last_days[: AT_ONCE - len(due)]
    if drawn := _sales_with_results():
        waits = Exists(WaitingEntry.objects.filter(**own, live=True))
        for sale_id in drawn if not OrderEvent.to_tell(now=now).exists() else ():
            due += _asked(sale_id, Kind.RESULT, now).annotate(waits=waits)[: AT_ONCE - len(due)]
    return due


def notices_waiting_since(*, now: dt.datetime) -> dt.datetime | None:
    """Return since when the reminder of a start that is most overdue waits, if one does."""
    ahead = dt.timedelta(seconds=settings.SECKILL_REMIND_BEFORE_S)
    first = [_asked(pk, Kind.START, now).first() for pk in _sales_about_to_start(now)]
    due = (
        max(it.seckill_voucher.begins_at - ahead, it.notify_at or it.asked_at) for it in first if it
    )
    return min(due, default=None)


def _asked(sale_id: int, kind: Notice.Kind, now: dt.datetime) -> QuerySet[Notice]:
    notices = Notice.objects.filter(seckill_voucher=sale_id, kind=kind, live=True)
    notices = notices.filter(Q(notify_at=None) | Q(notify_at__lte=now))
    return notices.select_related("user", "seckill_voucher__voucher__merchant").order_by("pk")


def _sales_with_requests(kind: Notice.Kind, now: dt.datetime) -> QuerySet[SeckillVoucher]:
    asked = Notice.objects.filter(seckill_voucher=OuterRef("pk"), kind=kind, live=True)
    sales = SeckillVoucher.objects.filter(stage=SaleStage.PUBLIC, paused=False, ends_at__gt=now)
    return sales.filter(Exists(asked))


def _sales_about_to_start(now: dt.datetime) -> list[int]:
    ahead = now + dt.timedelta(seconds=settings.SECKILL_REMIND_BEFORE_S)
    sales = _sales_with_requests(Kind.START, now).filter(begins_at__gt=now, begins_at__lte=ahead)
    return list(sales.order_by("begins_at").values_list("pk", flat=True))


def _sales_with_a_free_unit(now: dt.datetime) -> list[int]:
    """Return the sales in which anybody can buy: the waiting list gets its units first.

    Buyers who wait for all of several units take none if too few are free.
    """
    waiting = WaitingEntry.objects.filter(
        seckill_voucher=OuterRef("pk"), live=True, all_or_none=False
    )
    sales = _sales_with_requests(Kind.BACK, now).filter(~Exists(waiting), begins_at__lte=now)
    ids = list(sales.values_list("pk", flat=True))
    ledgers = snapshots(sale_ids=ids) if ids else {}
    return [sale_id for sale_id in ids if (it := ledgers[sale_id]) and it.state is SaleState.OPEN]


def _sales_near_their_last_day(now: dt.datetime) -> list[int]:
    """Return the sales with reminders to send; after the last day they are of no use."""
    noted = Notice.objects.filter(seckill_voucher=OuterRef("pk"), kind=Kind.LAST_DAY, live=True)
    today = timezone.localdate(now)
    near = SeckillVoucher.objects.filter(Exists(noted), reminded_for=F("voucher__valid_until"))
    near = near.filter(voucher__valid_until__gte=today)
    return list(near.order_by("reminded_for", "pk").values_list("pk", flat=True))


def _sales_with_results() -> list[int]:
    results = Notice.objects.filter(seckill_voucher=OuterRef("pk"), kind=Kind.RESULT, live=True)
    drawn = SeckillVoucher.objects.filter(Exists(results), mode=SaleMode.DRAW)
    return list(drawn.order_by("ends_at").values_list("pk", flat=True))


def _send_all(notices: Sequence[Notice], lock: RedisLock, now: dt.datetime) -> bool:
    if not notices:
        return False
    contacts = confirmed_contacts(it.user_id for it in notices if it.user.is_active)
    done_with = _who_hold_enough(notices)
    letters = [
        Letter(notice.pk, *reached, _message(notice, to), partial(_claim, notice, now))
        for notice in notices
        if (to := contacts.get(notice.user_id))
        and not _is_needless(notice, done_with)
        and (reached := channel_to(notice.user_id, to))
    ]
    needless = {it.pk for it in notices} - {letter.key for letter in letters}

    def record(delivery: Delivery) -> None:
        failpoint("notices.sent")
        unsent = Notice.objects.filter(pk__in=[it.pk for it in notices], told_at=now)
        unsent.exclude(pk__in=delivery.done).update(live=True, told_at=None)
        Notice.objects.filter(pk__in=needless).update(live=False)
        Notice.objects.filter(pk__in=delivery.done).update(live=False, told_at=now)
        if delivery.later:
            later = Notice.objects.filter(pk__in=delivery.later)
            later.update(notify_at=now + RETRY_AFTER)

    delivery = deliver(letters, lock=lock, record=record, for_s=PASS_S)
    handled = len(needless) + len(delivery.done) + len(delivery.later)
    return len(notices) == AT_ONCE or handled < len(notices)


def _claim(notice: Notice, now: dt.datetime) -> bool:
    """Note a result as told, just before it is."""
    own = Notice.objects.filter(pk=notice.pk, live=True)
    return notice.kind != Kind.RESULT or bool(own.update(live=False, told_at=now))


def _is_needless(notice: Notice, done_with: Collection[tuple[int, int]]) -> bool:
    if notice.kind == Kind.LAST_DAY:
        return not getattr(notice, "unused", None)  # used or returned meanwhile
    return (notice.seckill_voucher_id, notice.user_id) in done_with


def _who_hold_enough(notices: Sequence[Notice]) -> set[tuple[int, int]]:
    """Return sale and reader where the reader can buy no more, or has an order from a draw."""
    hopes = [it for it in notices if it.kind in (Kind.BACK, Kind.RESULT)]
    if not hopes:
        return set()
    sales, users = {it.seckill_voucher_id for it in hopes}, {it.user_id for it in hopes}
    # Of an order from a draw its buyer has heard, even if it is over.
    counts = Q(live=True) | Q(seckill_voucher__mode=SaleMode.DRAW)
    orders = VoucherOrder.objects.filter(counts, seckill_voucher__in=sales, user__in=users)
    held = orders.values("seckill_voucher", "user", limit=F("seckill_voucher__limit"))
    held = held.annotate(units=Count("pk")).filter(units__gte=F("limit"))
    return set(held.values_list("seckill_voucher", "user"))


def _message(notice: Notice, to: Contact) -> Message:
    """Return what a reader is told, in their language."""
    sale, last_day = notice.seckill_voucher, notice.seckill_voucher.voucher.valid_until
    stop_url = "" if notice.kind in Notice.UNASKED else stop_link(notice.user_id)
    page = "own-entry" if notice.kind == Kind.RESULT else "purchase"
    path = reverse("codes") if notice.kind == Kind.LAST_DAY else reverse(page, args=[sale.pk])
    with translation.override(to.language):
        words = {"voucher": sale.voucher.local_title, "time": date_and_time(sale.begins_at)}
        words["day"] = day(last_day) if last_day else ""
        subject = _SUBJECTS["waits" if getattr(notice, "waits", False) else notice.kind]
        subject, url = str(subject) % words, absolute_url(path)
        context = {"notice": notice, "sale": sale, "url": url, "stop_url": stop_url}
        text = render_to_string("orders/notice.txt", context)
    short = f"{' '.join(subject.split())} {url}"
    return Message(subject, text, short=short, stop_url=stop_url)
