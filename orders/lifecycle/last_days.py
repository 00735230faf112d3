"""Reminders of a voucher's last day: whom to remind, three days before; ``notices`` sends them."""

import datetime as dt

from django.db import transaction
from django.db.models import F, Q
from django.utils import timezone

from accounts.contacts import confirmed_contacts
from orders.lifecycle.outbox import channel_to
from orders.models import Notice, OrderStatus, VoucherOrder
from seckill_site.failpoints import failpoint
from seckill_site.process_memory import Memory
from vouchers.inventory.passes import Passes
from vouchers.models import SaleStage, SeckillVoucher

BEFORE = dt.timedelta(days=3)
FROM = dt.time(10)
"""The time of the day, in the shop's zone, from which readers are reminded: not in the night."""

ORDERS_AT_ONCE = 500

_passes = Passes("last_days")
_reached: Memory[tuple[int, dt.date], int] = Memory(most=1_000, for_s=60.0)
"""The last order that was noted, by sale and last day; without it a pass starts anew, in vain."""


def note_last_days(*, now: dt.datetime) -> bool:
    """Note, for the time of a pass, which buyers to remind; return whether to go on at once.

    Each sale whose last day is near is noted once. Later buyers know the day. If it is moved,
    buyers are reminded of the new one, too.
    """
    local = timezone.localtime(now)
    nearest = local.date() + BEFORE - dt.timedelta(days=local.time() < FROM)
    sales = SeckillVoucher.objects.exclude(stage=SaleStage.REHEARSAL).select_related("voucher")
    near = sales.filter(voucher__valid_until__range=(local.date(), nearest))
    new = near.filter(Q(reminded_for=None) | ~Q(reminded_for=F("voucher__valid_until")))
    by_id = {sale.pk: sale for sale in new}
    return _passes.work(_passes.in_turn(by_id), lambda sale_id: _note(by_id[sale_id]))


def _note(sale: SeckillVoucher) -> bool:
    """Note some buyers of a sale; return whether it may have more."""
    last_day = sale.voucher.valid_until
    assert last_day is not None
    # What was noted for this day has this time, however often a worker died in between.
    asked_at = timezone.make_aware(dt.datetime.combine(last_day - BEFORE, FROM))
    orders = VoucherOrder.objects.filter(seckill_voucher=sale, live=True, status=OrderStatus.PAID)
    rest = orders.filter(pk__gt=_reached.recall((sale.pk, last_day)) or 0).order_by("pk")
    if rows := list(rest.values_list("pk", "user")[:ORDERS_AT_ONCE]):
        _note_buyers(sale, {user_id for _, user_id in rows if user_id}, asked_at)
        _reached.keep((sale.pk, last_day), rows[-1][0])
    else:
        SeckillVoucher.objects.filter(pk=sale.pk).update(reminded_for=last_day)
    return bool(rows)


def _note_buyers(sale: SeckillVoucher, user_ids: set[int], asked_at: dt.datetime) -> None:
    """Note those of these buyers who can be reached, and anew those with an earlier reminder."""
    contacts = confirmed_contacts(user_ids)
    reached = {it for it, to in contacts.items() if channel_to(it, to)}
    about = {"seckill_voucher": sale, "kind": Notice.Kind.LAST_DAY}
    with transaction.atomic(durable=True):
        known = Notice.objects.filter(**about, user__in=reached)
        new = sorted(reached.difference(known.values_list("user", flat=True)))
        known.exclude(asked_at=asked_at).update(live=True, asked_at=asked_at, notify_at=None)
        Notice.objects.bulk_create(Notice(user_id=it, asked_at=asked_at, **about) for it in new)
    failpoint("last_days.noted")
