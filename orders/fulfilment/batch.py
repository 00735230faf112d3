"""One transaction of the back half: pending entries of one sale become rows.

The sale's row is locked first and everything is checked after that, so two workers can never both
see the last unit, whatever the locks in Redis do. The number of statements does not depend on the
number of entries.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from django.db import transaction

from orders.audience.rule_uses import RuleUses, open_rule_uses
from orders.fulfilment.bulk_insert import NewOrder, insert_orders, nothing, pay_by
from orders.fulfilment.existing_orders import (
    ExistingOrder,
    active_flags,
    orders_by_id,
    orders_of_buyers,
)
from orders.models import BARRING_STATUSES, OrderStatus, RefusalReason
from orders.receipts.row_copy import ReceiptRow
from seckill_site.clocks.machine import epoch_ms, from_epoch_ms
from seckill_site.failpoints import failpoint
from seckill_site.web.url_converters import LARGEST_ID
from vouchers.chain import CHAIN_FIELDS, add_entries, entry_line
from vouchers.inventory.purchases import is_all_or_none
from vouchers.inventory.reservations import PendingEntry, Release
from vouchers.lock_objects import lock_seckill_voucher
from vouchers.models import SeckillVoucher


class StaleFence(Exception):
    """A newer holder of the sale's lock has written; ``stored`` is its fencing token."""

    def __init__(self, stored: int) -> None:
        super().__init__(f"a holder with fencing token {stored} has written")
        self.stored = stored


class StaleBatchNumber(Exception):
    """The ledger gave a batch number that is not above the row's.

    An equal number proves that the ledger went back in time (``proven``). A lower one may also come
    from a worker that was overtaken after a lock was lost.
    """

    def __init__(self, *, number: int, stored: int) -> None:
        super().__init__(f"batch {number} is not above {stored}")
        self.proven = number == stored


class LockLost(Exception):
    """A Redis lock was lost before the commit, so nothing was written."""


class OrderIdTaken(Exception):
    """The order id belongs to another buyer's or sale's order."""


@dataclass
class BatchOutcome:
    """The outcome of a batch, for the ledger after the commit.

    ``rows`` has the text of each new live order's row, for the receipt cache. ``number`` is that of
    the batch, or 0 if it has none.
    """

    done: list[PendingEntry] = field(default_factory=list)
    rows: dict[int, str] = field(default_factory=dict)
    releases: list[Release] = field(default_factory=list)
    number: int = 0

    @property
    def sold_out_early(self) -> bool:
        """Whether the database found the sale sold out before the ledger did."""
        return any(item.reason == RefusalReason.SOLD_OUT for item in self.releases)


@dataclass
class _Existing:
    """The existing orders and buyers of a batch, read under the row's lock."""

    rows: dict[int, ExistingOrder | NewOrder]
    live: dict[tuple[int, int], int]
    active: dict[int, bool]
    barred: set[int]

    def holder(self, entry: PendingEntry) -> int | None:
        """Return the live order that holds the entry's unit."""
        return self.live.get((entry.user_id, entry.unit))


def write_batch(
    *,
    sale_id: int,
    entries: Sequence[PendingEntry],
    fencing_token: int,
    number: int,
    lost: Callable[[], bool],
    refuse_as: RefusalReason | None = None,
    beside: Callable[[], object] = nothing,
) -> BatchOutcome:
    """Write a row for each entry: a live order, or a refused one with its reason.

    Safe to repeat: an entry that has its row is reported again. ``number`` is the ledger's number
    of this batch. ``lost`` is called just before the commit. ``refuse_as`` refuses all entries.
    ``beside`` is called while the database inserts rows, if there are any; its errors are raised.
    Time to pay is counted from when the sale's row was locked, by the clock of the database.

    :raises StaleFence: a newer holder has written to this sale.
    :raises StaleBatchNumber: the number is not above the row's.
    :raises LockLost: ``lost`` returned true.
    :raises OrderIdTaken: an id belongs to another order.
    :raises django.db.Error: nothing was written.
    """
    with _sale_to_write(sale_id, fencing_token, number, lost) as sale:
        existing = _read(sale, entries)
        known, active = existing.rows, existing.active
        new = [it for it in entries if it.order_id not in known and active.get(it.user_id)]
        uses = RuleUses() if refuse_as else open_rule_uses(sale, new)
        outcome, rows = _decide(sale, entries, existing, uses, refuse_as)
        uses.save()
        if rows:
            lines = [entry_line(it.id, it.accepted_at_ms, refused=bool(it.reason)) for it in rows]
            places, now = add_entries(sale, lines), sale.locked_at
            insert_orders(sale=sale, orders=rows, now=now, positions=places, beside=beside)
            outcome.rows = _receipt_copies(sale, rows)
        taken_ms = [row.accepted_at_ms for row in rows if row.live]
        if taken_ms:
            sale.sold += len(taken_ms)
            sale.note_sold_out(from_epoch_ms(max(taken_ms)))
        outcome.number = number
    failpoint("batch.committed")
    return outcome


def write_control(
    *, sale_id: int, fencing_token: int, number: int, lost: Callable[[], bool]
) -> None:
    """Write what a batch writes, for no buyer; its row is rolled back, the rest is committed.

    If this succeeds, the database takes orders of this sale: Note [Who is at fault] in
    ``attempts.py``. Raises what :func:`write_batch` raises.
    """
    with _sale_to_write(sale_id, fencing_token, number, lost) as sale:
        # First: a node of Galera without a binary log sends the first write of a connection to the
        # others although it is rolled back to a savepoint (tests/faults/test_galera_binary_log.py).
        sale.save(update_fields=["fence", "batch"])
        before = transaction.savepoint()  # noqa: TID251
        # Above all ids, so that it needs a place in the same page of the table as new orders.
        failed, now = RefusalReason.FAILED.value, sale.locked_at
        row = NewOrder(LARGEST_ID - sale_id, None, sale_id, 1, failed, epoch_ms(now))
        insert_orders(sale=sale, orders=[row], now=now)
        transaction.savepoint_rollback(before)


@contextmanager
def _sale_to_write(
    sale_id: int, fencing_token: int, number: int, lost: Callable[[], bool]
) -> Iterator[SeckillVoucher]:
    """Lock the sale's row, and commit what the ``with`` block writes with its fence and number."""
    with transaction.atomic(durable=True):
        sale = lock_seckill_voucher(sale_id=sale_id)
        if fencing_token < sale.fence:
            raise StaleFence(sale.fence)
        if number <= sale.batch:
            raise StaleBatchNumber(number=number, stored=sale.batch)
        sale.fence, sale.batch = fencing_token, number
        yield sale
        sale.save(update_fields=["sold", "sold_out_at", "fence", "batch", *CHAIN_FIELDS])
        failpoint("batch.before_commit")
        if lost():
            raise LockLost(f"a lock of sale {sale_id} was lost before the commit")


def _receipt_copies(sale: SeckillVoucher, rows: Sequence[NewOrder]) -> dict[int, str]:
    # Read once: a model's pk and the value of a choice cost as much as the rest of a copy.
    sale_id, price_cents = sale.pk, sale.voucher.price_cents
    until_ms, to_pay_ms = epoch_ms(pay_by(sale, sale.locked_at)), sale.pay_within_s * 1000
    unpaid, copies = OrderStatus.UNPAID.value, {}
    for row in rows:
        if row.live:
            at_ms = row.accepted_at_ms
            shown_ms = max(until_ms, at_ms + to_pay_ms)  # as row_copy.pay_by_ms does
            copy = ReceiptRow(row.user_id, sale_id, unpaid, "", price_cents, at_ms, shown_ms)
            copies[row.id] = copy.pack()
    return copies


def _read(sale: SeckillVoucher, entries: Sequence[PendingEntry]) -> _Existing:
    user_ids = {entry.user_id for entry in entries}
    rows = orders_by_id(order_ids=[entry.order_id for entry in entries])
    # Ended orders matter only if they may bar another: Note [Ended orders].
    theirs = orders_of_buyers(sale_id=sale.pk, user_ids=user_ids, only_live=sale.rebuy)
    return _Existing(
        rows={row.id: row for row in rows},
        live={(row.user_id, row.unit): row.id for row in theirs if row.live and row.user_id},
        active=active_flags(user_ids=user_ids),
        barred={row.user_id for row in theirs if row.user_id and row.status in BARRING_STATUSES},
    )


def _decide(
    sale: SeckillVoucher,
    entries: Sequence[PendingEntry],
    existing: _Existing,
    uses: RuleUses,
    refuse_as: RefusalReason | None,
) -> tuple[BatchOutcome, list[NewOrder]]:
    outcome, rows = BatchOutcome(), []
    sale_id, units_left = sale.pk, sale.stock - sale.sold
    whole = _whole_purchases(entries, existing)
    refusals: dict[int, RefusalReason | None] = {}
    for entry in entries:
        if entry.order_id in existing.rows:
            _report_again(sale_id, entry, existing, outcome)
            continue
        purchase = entry.purchase if whole else entry.order_id
        units = whole.get(purchase, [entry])
        if entry is units[0]:
            refusals[purchase] = refuse_as or _refusal(units, existing, units_left, uses)
        reason = refusals[purchase]
        row = _row(sale_id, entry, existing, reason)
        rows.append(row)
        existing.rows[entry.order_id] = row
        if reason is None:
            units_left -= 1
            uses.take(entry)
            existing.live[entry.user_id, entry.unit] = entry.order_id
            outcome.done.append(entry)
        else:
            outcome.releases.append(Release(entry, reason, existing.holder(entry)))
    return outcome, rows


def _whole_purchases(
    entries: Sequence[PendingEntry], existing: _Existing
) -> dict[int, list[PendingEntry]]:
    """Return the new units of each purchase whose buyer wants all or none."""
    wanted = {it.purchase for it in entries if is_all_or_none(it.order_id)}
    whole: dict[int, list[PendingEntry]] = {}
    # One that was put back alone is not beside the others.
    for entry in entries if wanted else ():
        if entry.purchase in wanted and entry.order_id not in existing.rows:
            whole.setdefault(entry.purchase, []).append(entry)
    return whole


def _report_again(
    sale_id: int, entry: PendingEntry, existing: _Existing, outcome: BatchOutcome
) -> None:
    """Report the row that an earlier attempt has committed."""
    row = existing.rows[entry.order_id]
    same_buyer = row.user_id in (entry.user_id, None) and row.unit == entry.unit
    if row.seckill_voucher_id != sale_id or not same_buyer:
        raise OrderIdTaken(f"order id {entry.order_id} belongs to another order")
    if row.live:
        outcome.done.append(entry)
    else:
        reason, had_order = row.reason or row.status, row.status in BARRING_STATUSES
        outcome.releases.append(Release(entry, reason, existing.holder(entry), had_order=had_order))


def _refusal(
    units: Sequence[PendingEntry], existing: _Existing, units_left: int, uses: RuleUses
) -> RefusalReason | None:
    """Return why these units, which are ordered together, are refused, if one of them is."""
    for before, entry in enumerate(units):
        if not existing.active.get(entry.user_id, False):
            return RefusalReason.INACTIVE_BUYER
        if existing.holder(entry) is not None or entry.user_id in existing.barred:
            return RefusalReason.ALREADY_ORDERED
        if units_left - before <= 0:
            return RefusalReason.SOLD_OUT
        if reason := uses.refusal(entry, before=before):
            return reason
    return None


def _row(
    sale_id: int, entry: PendingEntry, existing: _Existing, reason: RefusalReason | None
) -> NewOrder:
    return NewOrder(
        id=entry.order_id,
        user_id=entry.user_id if entry.user_id in existing.active else None,
        seckill_voucher_id=sale_id,
        unit=entry.unit,
        reason=reason.value if reason else "",
        accepted_at_ms=entry.accepted_at_ms,
    )
