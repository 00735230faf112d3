"""After a restore: compare rows, ledger and the providers' lists, and repair the database.

The orders accepted after the point of the restore are those that the ledger or a list knows and no
row has. They are noted before the repair, so that one which was interrupted can be repeated.
"""

import datetime as dt
import logging
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from django.contrib.auth.models import User
from django.core.cache import cache
from django.db import connection
from django.db.models import F, Max, Q, QuerySet
from django.utils import timezone

from orders.fulfilment.reconcile import reconcile
from orders.fulfilment.worker import fulfil_sale
from orders.lifecycle.cancellation import end_orders
from orders.lifecycle.transitions import SYSTEM, Change
from orders.models import MoneyDirection, OrderStatus, Payment, RestoredOrder, VoucherOrder
from orders.payments.providers import (
    ProviderUnavailable,
    bounds_of_day,
    call_provider,
    offered_providers,
)
from orders.payments.service import UNPAID, adopt_payment, order_in
from orders.payments.settlement import LISTED_FROM
from seckill_site.installation import REPAIRING
from seckill_site.models import Installation
from vouchers.inventory.holdings import read_buyers, read_pending
from vouchers.inventory.rebuild import close_restored, ledgers_there
from vouchers.inventory.reservations import ended_reasons, pending_entries
from vouchers.models import SeckillVoucher

logger = logging.getLogger(__name__)

Outcome = RestoredOrder.Outcome
_List = tuple[str, dt.date, dt.datetime]
"""A list of payments: its provider, its day, and from when on it is there."""

IDS_AHEAD, EPOCHS_AHEAD = 1_000_000, 1_000
"""How far ids of users and epochs go up: some were used that the database has forgotten."""

MARGIN = dt.timedelta(hours=2)
"""The time to pay after the last list is there, for the run that reads it."""

PAUSES, PAUSE_S = 100, 0.1
"""How often and how long a sale is waited for: a backoff or a dead worker's lock is soon over."""

NOT_YET = "not written yet"


class NotRestored(Exception):
    """Nothing has marked this database as a restored one."""


@dataclass(frozen=True)
class Report:
    """The orders accepted after the restore's point, payments found, and lists that come later."""

    orders: dict[int, RestoredOrder]
    payments: dict[int, str] = field(default_factory=dict)
    unknown: list[_List] = field(default_factory=list)


def after_restore(*, repair: bool, now: dt.datetime) -> Report:
    """Compare; with ``repair``, also write what can be, and end the mark.

    Without it nothing changes, but the ledgers are closed, as by whoever meets the mark.

    :raises NotRestored: there is nothing to compare.
    :raises LedgerUnavailable: Redis did not respond; run it again.
    """
    marked = Installation.objects.exclude(restored_at=None).first()
    if marked is None:
        raise NotRestored("the database has no mark: deploy/restore sets it")
    is_open, lists = close_restored(), list(_lists(marked, now))
    token = REPAIRING.set(True)
    try:
        if is_open and repair:
            _repair(until=max((it[-1] for it in lists), default=now) + MARGIN, now=now)
        noted = RestoredOrder.objects.filter(noted_at__gte=marked.restored_at)
        if repair:
            _settle(noted)
        report = Report({it.pk: it for it in (noted if repair or not is_open else _missing(now))})
        for it in lists:
            _compare_list(report, it, repair=repair, now=now)
    finally:
        REPAIRING.reset(token)
    if is_open and repair:
        Installation.objects.update(repaired_at=now)
    return report


def _missing(now: dt.datetime) -> Iterator[RestoredOrder]:
    """Yield the orders that a ledger names and no row has, with what a repair makes of them."""
    users = set(User.objects.values_list("pk", flat=True))
    for sale_id in ledgers_there():
        held = read_buyers(sale_id=sale_id) | read_pending(sale_id=sale_id)
        named = {pk: f"had ended: {why}" for pk, why in ended_reasons(sale_id=sale_id).items()}
        named |= {it.order_id: f"user {it.user_id}" for it in held}
        kept = {it.order_id for it in held if it.user_id in users}
        known = VoucherOrder.objects.filter(seckill_voucher=sale_id).values_list("pk", flat=True)
        has_row = SeckillVoucher.objects.filter(pk=sale_id).exists()
        for pk in sorted(named.keys() - set(known)):
            outcome = Outcome.WRITTEN if pk in kept and has_row else Outcome.LOST
            yield RestoredOrder(pk, sale_id, outcome, named[pk], now)


def _repair(*, until: dt.datetime, now: dt.datetime) -> None:
    highest = User.objects.aggregate(highest=Max("pk"))["highest"] or 0
    if connection.vendor == "mysql":
        with connection.cursor() as cursor:
            cursor.execute(f"ALTER TABLE auth_user AUTO_INCREMENT = {highest + IDS_AHEAD + 1}")
    cache.clear()
    RestoredOrder.objects.bulk_create(_missing(now), 5_000, ignore_conflicts=True)
    for sale_id in ledgers_there():
        _repair_sale(sale_id, now)
    # No order expires before its payment is known; a later charge has the new time.
    unpaid = VoucherOrder.objects.filter(status=OrderStatus.UNPAID, pay_by__lt=until)
    unpaid.update(pay_by=until, extended_at=now)


def _settle(noted: QuerySet[RestoredOrder]) -> None:
    """Note which orders have a row by now, and which were refused or still wait for a worker."""
    is_written = Q(pk__in=VoucherOrder.objects.filter(reason="").values("pk"))
    late = noted.filter(is_written, detail=NOT_YET)
    late.update(outcome=Outcome.WRITTEN, detail="by a worker, after the repair")
    for it in noted.filter(Q(outcome=Outcome.WRITTEN) | Q(detail=NOT_YET)).exclude(is_written):
        refused = VoucherOrder.objects.filter(pk=it.pk).first()
        it.outcome, it.detail = Outcome.LOST, refused.reason if refused else NOT_YET
        it.save()


def _repair_sale(sale_id: int, now: dt.datetime) -> None:
    """Write what its ledger has and the rows lack, and build the ledger anew."""
    if not SeckillVoucher.objects.filter(pk=sale_id).exists():
        logger.error("sale %s has a ledger and no row: it stays closed", sale_id)
        return
    # A ledger that is there is compared, even if it was removed before the restore's point.
    SeckillVoucher.objects.filter(pk=sale_id).update(
        epoch=F("epoch") + EPOCHS_AHEAD, ledger_removed_at=None
    )
    unpaid = VoucherOrder.objects.filter(seckill_voucher=sale_id, status=OrderStatus.UNPAID)
    unpaid_ids, reasons = set(unpaid.values_list("pk", flat=True)), ended_reasons(sale_id=sale_id)
    for status in (OrderStatus.CANCELLED, OrderStatus.EXPIRED):
        # Rows that live again: their units may be others' by now.
        again = [pk for pk, why in reasons.items() if why == status and pk in unpaid_ids]
        end_orders(Change(status, SYSTEM, now), sale_id=sale_id, order_ids=again)
    reconcile(sale_id=sale_id, repair=True)
    for _ in range(PAUSES):  # workers go on with what is left
        if not pending_entries(sale_id=sale_id, skip=0, count=1):
            break
        fulfil_sale(sale_id=sale_id)
        time.sleep(PAUSE_S)


def _lists(marked: Installation, now: dt.datetime) -> Iterator[_List]:
    """Yield the lists with the payments from the point of the restore to its repair."""
    assert marked.restored_point
    for provider in offered_providers():
        day = timezone.localtime(marked.restored_point, provider.zone).date()
        while day <= timezone.localtime(marked.repaired_at or now, provider.zone).date():
            over = bounds_of_day(day, provider.zone)[1]
            yield provider.name, day, dt.datetime.combine(over, LISTED_FROM, over.tzinfo)
            day += dt.timedelta(days=1)


def _compare_list(report: Report, of: _List, *, repair: bool, now: dt.datetime) -> None:
    """Add the payments that only this list has, and with ``repair`` write them again."""
    provider, day, known_at = of
    try:
        lines = call_provider(provider, lambda it: list(it.list_movements(day)))
    except ProviderUnavailable as error:
        logger.warning("%s has no list of %s: %s", provider, day, error)
        lines, known_at = [], max(known_at, now + dt.timedelta(hours=1))
    if now < known_at:
        report.unknown.append((provider, day, known_at))
    paid = {it.reference: it for it in lines if it.direction == MoneyDirection.PAYMENT}
    ours = Payment.objects.filter(reference__in=list(paid)).exclude(status__in=UNPAID)
    for reference in sorted(paid.keys() - set(ours.values_list("reference", flat=True))):
        order_id, line = order_in(reference), paid[reference]
        if order_id is None:
            continue
        row, known = VoucherOrder.objects.filter(pk=order_id).first(), report.orders.get(order_id)
        foreseen = OrderStatus.UNPAID if known and known.outcome == Outcome.WRITTEN else None
        is_unpaid = (row.status if row else foreseen) == OrderStatus.UNPAID
        if is_unpaid and (not repair or adopt_payment(provider, line, now=now)):
            report.payments[order_id] = "paid"
            continue
        detail = f"{provider} {reference} {line.amount_cents} {line.currency}"
        detail += f": its order is {row.status}" if row else ""
        sale_id = row.seckill_voucher_id if row else None
        human = RestoredOrder(order_id, sale_id, Outcome.PAID, detail, now)
        report.orders[order_id] = human
        if repair:
            human.save()
