"""Entries in draws: copying them from Redis into rows, and withdrawing one."""

import datetime as dt
from collections.abc import Iterable, Iterator, Sequence
from functools import partial

from django.contrib.auth.models import User
from django.db import transaction

from orders.models import DrawEntry
from seckill_site.failpoints import failpoint
from seckill_site.mysql.bulk_rows import AT_ONCE, insert_new
from vouchers.inventory.draw_entries import (
    Entry,
    count_fresh,
    forget_fresh,
    fresh_entries,
    read_entries,
    withdraw_entry,
)
from vouchers.inventory.keys import NotLoaded
from vouchers.inventory.rebuild import once_loaded
from vouchers.inventory.reservations import SaleEnded
from vouchers.inventory.sale_state import snapshot
from vouchers.lock_objects import lock_seckill_voucher
from vouchers.models import Draw, SeckillVoucher

Outcome = DrawEntry.Outcome

COLUMNS = ("order_id", "user_id", "seckill_voucher_id")
_EPOCH = dt.datetime(1970, 1, 1)


def store_entries(*, sale_id: int) -> bool:
    """Copy the next ``AT_ONCE`` of what is new of a draw's entries into rows. Safe to repeat.

    Return whether more may be left.

    :raises LedgerUnavailable: Redis did not respond; the next call continues.
    :raises SeckillVoucher.DoesNotExist: there is no such sale.
    """
    fresh, members = fresh_entries(sale_id=sale_id, most=AT_ONCE)
    if members:
        with transaction.atomic(durable=True):
            _insert(lock_seckill_voucher(sale_id=sale_id), fresh)
            failpoint("draw.before_store")
        failpoint("draw.stored")
        forget_fresh(sale_id=sale_id, members=members)
    if len(members) == AT_ONCE:
        return True
    _store_forgotten(sale_id)
    return False


def _store_forgotten(sale_id: int) -> None:
    """Store what is not in the log although no row has it: the log alone was lost."""
    try:
        count = snapshot(sale_id=sale_id).entries
    except NotLoaded:
        return
    rows = DrawEntry.objects.filter(seckill_voucher=sale_id, live=True)
    if count <= rows.count() + count_fresh(sale_id=sale_id):
        return
    with transaction.atomic(durable=True):
        store_all(sale=lock_seckill_voucher(sale_id=sale_id))


def store_all(*, sale: SeckillVoucher) -> None:
    """Copy all entries that Redis has and no row. The caller holds the sale's row.

    This has no bound, because a list is closed as a whole. Nearly all of them are rows by then.
    """
    fresh, _ = fresh_entries(sale_id=sale.pk, most=0)
    for some in _chunks(fresh):
        _insert(sale, some)
    known = set(DrawEntry.objects.filter(seckill_voucher=sale).values_list("order_id", flat=True))
    entries = read_entries(sale_id=sale.pk)
    for some in _chunks([entry for entry in entries if entry.order_id not in known]):
        _insert(sale, some)


def _chunks(entries: Sequence[Entry]) -> Iterator[Sequence[Entry]]:
    return (entries[start : start + AT_ONCE] for start in range(0, len(entries), AT_ONCE))


def _insert(sale: SeckillVoucher, entries: Sequence[Entry]) -> None:
    """Write rows for entries in the order of events; a known id keeps its row.

    The caller holds the sale's row, so that no list is closed meanwhile.
    """
    gone = {entry.order_id for entry in entries if entry.withdrawn}
    entered = {it.order_id: it for it in entries if it.order_id not in gone}
    is_closed = Draw.objects.filter(seckill_voucher=sale, closed_at__isnull=False).exists()
    if not is_closed:  # a closed list keeps what it has
        withdraw_rows(sale, [it for it in entries if it.withdrawn])
    late = Outcome.LATE if is_closed else ""
    _create(sale, entered.values(), late)
    if not is_closed:
        rows = DrawEntry.objects.filter(order_id__in=entered)
        known = set(rows.values_list("order_id", flat=True))
        # The unique key kept these out: after a loss an account has entered twice.
        second = [it for order_id, it in entered.items() if order_id not in known]
        _create(sale, second, Outcome.SECOND)


def _create(sale: SeckillVoucher, entries: Iterable[Entry], outcome: str) -> None:
    """Insert rows for these entries; skip ids that have a row, and second live entries of a buyer.

    With an ``outcome``, they are not in the list.
    """
    entries = list(entries)
    users = User.objects.filter(pk__in={it.user_id for it in entries})
    known, live = set(users.values_list("pk", flat=True)), "NULL" if outcome else "1"
    rows = [
        f"({it.order_id:d},{it.user_id if it.user_id in known else 'NULL'},{sale.pk:d},"
        f"{sql_time(it.entered_at_ms)},{live},%(outcome)s)"
        for it in entries
    ]
    insert_new(DrawEntry, (*COLUMNS, "entered_at", "live", "outcome"), rows, outcome=outcome)


def sql_time(ms: int) -> str:
    """Return milliseconds since 1970 as a time in a row."""
    return f"'{_EPOCH + dt.timedelta(milliseconds=ms)!s}'"


def withdraw_rows(sale: SeckillVoucher, entries: Sequence[Entry]) -> None:
    """Mark these entries as withdrawn in their rows, which are written if they are new."""
    if entries:
        _create(sale, entries, Outcome.WITHDRAWN)
        rows = DrawEntry.objects.filter(order_id__in=[it.order_id for it in entries], live=True)
        rows.filter(seckill_voucher=sale).update(live=None, outcome=Outcome.WITHDRAWN)


def withdraw(*, sale_id: int, order_id: int, user_id: int, now_ms: int) -> None:
    """Take a buyer's entry out of a draw that takes entries. Safe to repeat.

    :raises NoEntry: the buyer has no such entry.
    :raises SaleEnded: the draw takes no entries any more.
    :raises LedgerUnavailable: the outcome is unknown; the same call again is safe.
    :raises SeckillVoucher.DoesNotExist: there is no such sale.
    """
    # Redis first: from then on a list that is closed has the entry as withdrawn.
    withdraw_it = partial(withdraw_entry, sale_id=sale_id, order_id=order_id, user_id=user_id)
    once_loaded(withdraw_it, sale_id=sale_id)
    failpoint("draw.withdrawn")
    with transaction.atomic(durable=True):
        sale = lock_seckill_voucher(sale_id=sale_id)
        if not Draw.of(sale).closed_at:
            withdraw_rows(sale, [Entry(order_id, user_id, now_ms, withdrawn=True)])
            return
    if DrawEntry.objects.filter(order_id=order_id, live=True).exists():
        raise SaleEnded("the list was closed before the withdrawal was stored")
