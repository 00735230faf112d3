"""One transaction of the back half: pending entries of one sale become rows.

The sale's row is locked before anything else and everything is checked after that, so two workers
can never both see the last unit, whatever the locks in Redis do. The number of statements does not
depend on the number of entries.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from django.db import transaction
from django.utils import timezone

from orders.fulfilment.bulk_insert import NewOrder, insert_orders, pay_by
from orders.fulfilment.existing_orders import KnownOrder, are_active, orders_by_id, orders_of_buyers
from orders.models import OrderStatus, RefusalReason
from orders.receipts.row_copy import ReceiptRow
from seckill_site.clock import epoch_ms
from seckill_site.failpoints import failpoint
from vouchers.inventory.reservations import PendingEntry, Release
from vouchers.lock_objects import lock_seckill_voucher
from vouchers.models import SeckillVoucher


class StaleFence(Exception):
    """Another holder of the sale's lock has written since; ``stored`` is its fencing token."""

    def __init__(self, stored: int) -> None:
        super().__init__(stored)
        self.stored = stored


class LedgerWentBack(Exception):
    """The ledger gave a batch number that the row has seen; ``proven`` where it gave one twice.

    A lower number may also be that of a worker which another one, without a lock, has overtaken.
    """

    def __init__(self, *, number: int, stored: int) -> None:
        super().__init__(number, stored)
        self.proven = number == stored


class LockLost(Exception):
    """The Redis lock was lost before the commit, so nothing was written."""


class OrderIdTaken(Exception):
    """The order id belongs to another buyer's or sale's order."""


@dataclass
class Verdict:
    """What became of a batch, to be told to the ledger after the commit.

    ``rows`` has the text of each new live order's row, for those who ask for its receipt.
    """

    done: list[PendingEntry] = field(default_factory=list)
    rows: dict[int, str] = field(default_factory=dict)
    releases: list[Release] = field(default_factory=list)

    @property
    def sold_out_early(self) -> bool:
        """Whether the database found the sale sold out before the ledger did."""
        return any(item.reason == RefusalReason.SOLD_OUT for item in self.releases)


@dataclass
class _Known:
    """What the database knows of a batch's ids and buyers, read under the row's lock."""

    rows: dict[int, KnownOrder | NewOrder]
    live: dict[tuple[int, int], int]
    active: dict[int, bool]
    barred: set[int]

    def holder(self, entry: PendingEntry) -> int | None:
        """Return the live order that stands where this entry would."""
        return self.live.get((entry.user_id, entry.unit))


def write_batch(
    *,
    sale_id: int,
    entries: Sequence[PendingEntry],
    fencing_token: int,
    number: int,
    lost: Callable[[], bool],
    refuse_as: RefusalReason | None = None,
) -> Verdict:
    """Write a row for each entry: a live order, or a refused one with its reason.

    ``number`` is the ledger's for this batch. An entry that has its row already is only reported
    again. ``lost`` is asked last before the commit. ``refuse_as`` refuses them all, for entries
    that could not be written otherwise.

    :raises StaleFence: a newer holder has written to this sale.
    :raises LedgerWentBack: the number is not above the row's.
    :raises LockLost: ``lost`` said so.
    :raises OrderIdTaken: an id of these is another's order.
    :raises django.db.Error: nothing was written.
    """
    with transaction.atomic(durable=True):
        sale = lock_seckill_voucher(sale_id=sale_id)
        if fencing_token < sale.fence:
            raise StaleFence(sale.fence)
        if number <= sale.batch:
            raise LedgerWentBack(number=number, stored=sale.batch)
        verdict, rows = _decide(sale, entries, _read(sale, entries), refuse_as)
        if rows:
            now = timezone.now()
            insert_orders(sale=sale, orders=rows, now=now)
            verdict.rows = _copies(sale, rows, now)
        sale.sold += sum(1 for row in rows if row.live)
        sale.fence, sale.batch = fencing_token, number
        sale.save(update_fields=["sold", "fence", "batch"])
        failpoint("batch.before_commit")
        if lost():
            raise LockLost
    failpoint("batch.committed")
    return verdict


def _copies(sale: SeckillVoucher, rows: Sequence[NewOrder], now: dt.datetime) -> dict[int, str]:
    # Once for all: a model's pk and the value of a choice cost as much as the rest of a copy.
    sale_id, price_cents, until_ms = sale.pk, sale.voucher.price_cents, epoch_ms(pay_by(sale, now))
    unpaid = OrderStatus.UNPAID.value
    return {
        row.id: ReceiptRow(
            row.user_id, sale_id, unpaid, "", price_cents, row.accepted_at_ms, until_ms
        ).pack()
        for row in rows
        if row.live
    }


def _read(sale: SeckillVoucher, entries: Sequence[PendingEntry]) -> _Known:
    user_ids = {entry.user_id for entry in entries}
    found = orders_by_id(order_ids=[entry.order_id for entry in entries])
    theirs = orders_of_buyers(sale_id=sale.pk, user_ids=user_ids, only_live=sale.rebuy)
    return _Known(
        rows={row.id: row for row in found},
        live={(row.user_id, row.unit): row.id for row in theirs if row.live and row.user_id},
        active=are_active(user_ids=user_ids),
        # Who has had an order, which may bar another.
        barred={
            row.user_id
            for row in theirs
            if row.user_id and not row.live and row.status != OrderStatus.REFUSED
        },
    )


def _decide(
    sale: SeckillVoucher,
    entries: Sequence[PendingEntry],
    known: _Known,
    refuse_as: RefusalReason | None,
) -> tuple[Verdict, list[NewOrder]]:
    verdict, rows = Verdict(), []
    sale_id, room = sale.pk, sale.stock - sale.sold
    for entry in entries:
        if entry.order_id in known.rows:
            _report_again(sale_id, entry, known, verdict)
            continue
        reason = refuse_as or _refusal(entry, known, room)
        row = _row(sale_id, entry, known, reason)
        rows.append(row)
        known.rows[entry.order_id] = row
        if reason is None:
            room -= 1
            known.live[entry.user_id, entry.unit] = entry.order_id
            verdict.done.append(entry)
            continue
        verdict.releases.append(Release(entry, reason, known.holder(entry)))
    return verdict, rows


def _report_again(sale_id: int, entry: PendingEntry, known: _Known, verdict: Verdict) -> None:
    """An earlier try got as far as the commit: say what it wrote."""
    row = known.rows[entry.order_id]
    same_buyer = row.user_id in (entry.user_id, None) and row.unit == entry.unit
    if row.seckill_voucher_id != sale_id or not same_buyer:
        raise OrderIdTaken(entry.order_id)
    if row.live:
        verdict.done.append(entry)
    else:
        reason = row.reason or row.status
        verdict.releases.append(
            Release(entry, reason, known.holder(entry), had_order=not row.reason)
        )


def _refusal(entry: PendingEntry, known: _Known, room: int) -> RefusalReason | None:
    if not known.active.get(entry.user_id, False):
        return RefusalReason.INACTIVE_BUYER
    if known.holder(entry) is not None or entry.user_id in known.barred:
        return RefusalReason.ALREADY_ORDERED
    if room <= 0:
        return RefusalReason.SOLD_OUT
    return None


def _row(
    sale_id: int, entry: PendingEntry, known: _Known, reason: RefusalReason | None
) -> NewOrder:
    return NewOrder(
        id=entry.order_id,
        user_id=entry.user_id if entry.user_id in known.active else None,
        seckill_voucher_id=sale_id,
        unit=entry.unit,
        reason=reason.value if reason else "",
        accepted_at_ms=entry.accepted_at_ms,
    )
