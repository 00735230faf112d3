"""Reconciling: compare ledger and database by ids, and repair what differs.

The buyers in Redis are compared with the live orders and the pending entries. Orders move during
the comparison, so a difference counts only if it is still there when its ids are read again.
"""

import datetime as dt
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from django.db import transaction

from orders.models import VoucherOrder
from seckill_site.failpoints import failpoint
from seckill_site.metrics import counter
from seckill_site.process_memory import Memory
from vouchers.inventory.holdings import (
    Holding,
    add_buyers,
    check_holdings,
    make_pending,
    read_buyers,
    read_pending,
    restore_buyers,
)
from vouchers.inventory.keys import LedgerUnavailable
from vouchers.inventory.passes import Passes
from vouchers.inventory.rebuild import drop_wrong_types, load_unless_removed
from vouchers.inventory.sale_state import LedgerTerms, Snapshot, snapshots
from vouchers.lock_objects import lock_seckill_voucher
from vouchers.models import SeckillVoucher

logger = logging.getLogger(__name__)

BY_IDS_UP_TO = 10_000
"""Beat compares larger sales by ids only if their counts differ."""

_passes = Passes("reconcile")
_alike = Memory[int, tuple[object, ...]](most=10_000, for_s=600.0)
"""The figures of sales without a difference; only a manual edit makes one and leaves them all."""


@dataclass(frozen=True)
class Comparison:
    """A sale in ledger and database. If not loaded, ``remaining`` is None and ledger counts are 0.

    ``difference`` counts buyers without an order or a pending entry, orders and pending entries
    without a buyer, and by how much ``sold`` and ``total`` are off.
    """

    voucher_id: int
    total: int
    sold: int
    live_orders: int
    buyers: int
    pending: int
    remaining: int | None
    difference: int


@dataclass(frozen=True)
class _Differences:
    stray_buyers: list[Holding]
    missing_buyers: list[Holding]
    only_pending: list[Holding]
    terms_off: int
    sold_off: int

    @property
    def size(self) -> int:
        holdings = (self.stray_buyers, self.missing_buyers, self.only_pending)
        return sum(map(len, holdings)) + self.terms_off + self.sold_off


def reconcile(*, sale_id: int, repair: bool = False) -> Comparison:
    """Compare one sale without stopping it; with ``repair``, repair what differs.

    A ledger that was removed is not compared, and stays away: only ``sold`` may be off then.
    Repairs are idempotent: a key of a wrong type is deleted; a stray buyer goes back to pending,
    never to release; a live order is added to the buyers; the terms are copied from the row;
    ``sold`` is counted again.

    :raises SeckillVoucher.DoesNotExist: there is no such sale.
    :raises LedgerUnavailable: Redis did not respond.
    """
    if SeckillVoucher.objects.filter(pk=sale_id, ledger_removed_at__isnull=False).exists():
        return _count_rows(sale_id, repair=repair)
    if repair:
        drop_wrong_types(sale_ids=[sale_id])
    comparison, differences = _compare(sale_id)
    if not repair or (comparison.remaining is not None and not differences.size):
        return comparison
    if differences.size:
        counter("differences").inc(differences.size)
        logger.warning("sale %s differs by %s, repairing", sale_id, differences.size)
    failpoint("reconcile.compared")
    if comparison.remaining is not None:  # otherwise loading adds them
        # First, because loading gives units that look free to the waiting list.
        _add_live_buyers(sale_id, differences.missing_buyers)
        failpoint("reconcile.added")
    load_unless_removed(sale_id=sale_id)
    failpoint("reconcile.loaded")
    make_pending(sale_id=sale_id, holdings=differences.stray_buyers)
    failpoint("reconcile.made_pending")
    restore_buyers(sale_id=sale_id, holdings=differences.only_pending)
    _recount_sold(sale_id, write=True)
    return _compare(sale_id)[0]


def _count_rows(sale_id: int, *, repair: bool) -> Comparison:
    sale = SeckillVoucher.objects.get(pk=sale_id)
    live = VoucherOrder.objects.filter(seckill_voucher=sale, live=True).count()
    off = sale.sold != live and _recount_sold(sale_id, write=repair)
    sold = live if repair else sale.sold
    return Comparison(sale_id, sale.stock, sold, live, 0, 0, None, 0 if repair else int(off))


def reconcile_many(*, sale_ids: Sequence[int], repair: bool) -> Iterator[Comparison]:
    """Reconcile these sales, or every sale if none is named, lazily.

    :raises SeckillVoucher.DoesNotExist: a sale does not exist; none was compared.
    :raises LedgerUnavailable: Redis did not respond.
    """
    known = list(SeckillVoucher.objects.order_by("pk").values_list("pk", flat=True))
    unknown = sorted(set(sale_ids) - set(known))
    if unknown:
        raise SeckillVoucher.DoesNotExist(f"there is no sale {unknown[0]}")
    for sale_id in sale_ids or known:
        yield reconcile(sale_id=sale_id, repair=repair)


def reconcile_running(*, now: dt.datetime) -> bool:
    """Reconcile and repair the sales that may still change, for the time of a pass; for beat.

    Return whether some are left, which the next pass begins with. A sale that is as it was when
    nothing differed is left for a while. One with many buyers is compared by ids only if its counts
    differ, so that this can run often. One sale that fails does not stop the rest.
    """
    active = SeckillVoucher.objects.filter(SeckillVoucher.still_active(now))
    sales = active.select_related("voucher").in_bulk()
    ledgers = _ledgers(list(sales))
    changed = [pk for pk, sale in sales.items() if not _is_unchanged(sale, ledgers.get(pk))]
    return _passes.work(_passes.in_turn(changed), lambda pk: _mend(sales[pk], ledgers.get(pk)))


def _mend(sale: SeckillVoucher, ledger: Snapshot | None) -> None:
    try:
        is_alike = ledger and sale.sold > BY_IDS_UP_TO and _counts_agree(sale, ledger)
        if not is_alike:
            found = reconcile(sale_id=sale.pk, repair=True)
            is_alike = not found.pending and not found.difference
        if is_alike and (figures := _figures(sale, ledger)):
            _alike.keep(sale.pk, figures)
        counter("reconciled", "ok").inc()
    except ValueError:  # a ledger edited by hand
        counter("reconciled", "failed").inc()
        logger.exception("sale %s cannot be reconciled", sale.pk)


def _is_unchanged(sale: SeckillVoucher, ledger: Snapshot | None) -> bool:
    figures = _figures(sale, ledger)
    return figures is not None and _alike.recall(sale.pk) == figures


def _figures(sale: SeckillVoucher, ledger: Snapshot | None) -> tuple[object, ...] | None:
    """Return what changes with every order of a sale; None while orders are pending."""
    if ledger is None or ledger.pending:
        return None
    terms = LedgerTerms.from_sale(sale)
    prices = terms.price_cents, ledger.terms.price_cents
    return sale.sold, sale.batch, terms, prices, ledger._replace(now_ms=0, line=None)


def _ledgers(sale_ids: Sequence[int]) -> dict[int, Snapshot | None]:
    """Return these ledgers without keys of a wrong type; none if one of them cannot be read."""
    try:
        drop_wrong_types(sale_ids=sale_ids)
        return snapshots(sale_ids=sale_ids, with_price=True)
    except (LedgerUnavailable, ValueError):
        return {}


def _counts_agree(sale: SeckillVoucher, ledger: Snapshot) -> bool:
    live = VoucherOrder.objects.filter(seckill_voucher=sale, live=True).count()
    return (
        ledger.taken == live + ledger.pending and _has_terms_of(sale, ledger) and sale.sold == live
    )


def _compare(sale_id: int) -> tuple[Comparison, _Differences]:
    # In this order, because a reservation leaves pending only after its order is committed.
    ledger = snapshots(sale_ids=[sale_id], with_price=True)[sale_id]
    buyers = read_buyers(sale_id=sale_id) if ledger else set()
    pending = read_pending(sale_id=sale_id) if ledger else set()
    sale = SeckillVoucher.objects.get(pk=sale_id)
    live = _live_holdings(sale_id)
    stray, missing, only_pending = _still_differing(sale_id, buyers, pending, live)
    differences = _Differences(
        stray_buyers=stray,
        missing_buyers=missing,
        only_pending=only_pending,
        terms_off=_terms_off(sale, ledger),
        sold_off=0 if sale.sold == len(live) else _recount_sold(sale_id, write=False),
    )
    comparison = Comparison(
        voucher_id=sale_id,
        total=sale.stock,
        sold=sale.sold,
        live_orders=len(live),
        buyers=len(buyers),
        pending=len(pending),
        remaining=ledger.remaining if ledger else None,
        difference=differences.size,
    )
    return comparison, differences


def _live_holdings(sale_id: int, ids: list[int] | None = None) -> set[Holding]:
    orders = VoucherOrder.objects.filter(seckill_voucher=sale_id, live=True)
    if ids is not None:
        orders = orders.filter(pk__in=ids)
    rows = orders.values_list("pk", "user_id", "unit")
    return {Holding(pk, user_id, unit) for pk, user_id, unit in rows if user_id is not None}


def _still_differing(
    sale_id: int, buyers: set[Holding], pending: set[Holding], live: set[Holding]
) -> Iterator[list[Holding]]:
    """Yield stray buyers, missing buyers and what is only pending, if still so at a second look."""
    first = (buyers - pending - live, live - buyers, pending - buyers - live)
    again = sorted(set().union(*first), key=lambda holding: holding.order_id)
    # The ledger first, as in the comparison.
    state = dict(zip(again, check_holdings(sale_id=sale_id, holdings=again), strict=True))
    live = _live_holdings(sale_id, [holding.order_id for holding in again])
    buyers = {holding for holding, (held, _) in state.items() if held}
    pending = {holding for holding, (_, is_pending) in state.items() if is_pending}
    second = (buyers - pending - live, live - buyers, pending - buyers)
    for before, now in zip(first, second, strict=True):
        yield [holding for holding in again if holding in before & now]


def _terms_off(sale: SeckillVoucher, ledger: Snapshot | None) -> int:
    """Return by how much the ledger's total is off, or 1 if only another term is."""
    if ledger is None or _has_terms_of(sale, ledger):
        return 0
    with transaction.atomic(durable=True):
        sale = lock_seckill_voucher(sale_id=sale.pk)
        ledger = snapshots(sale_ids=[sale.pk], with_price=True)[sale.pk]
    if ledger is None or _has_terms_of(sale, ledger):
        return 0
    return abs(ledger.terms.total - sale.stock) or 1


def _has_terms_of(sale: SeckillVoucher, ledger: Snapshot) -> bool:
    """Return whether a ledger has the terms of this row, the price included."""
    terms = LedgerTerms.from_sale(sale)
    return (ledger.terms, ledger.terms.price_cents) == (terms, terms.price_cents)


def _add_live_buyers(sale_id: int, holdings: list[Holding]) -> None:
    """Add live orders to the ledger while the row is held, so that none ends meanwhile."""
    if not holdings:
        return
    with transaction.atomic(durable=True):
        lock_seckill_voucher(sale_id=sale_id)
        live = _live_holdings(sale_id, [holding.order_id for holding in holdings])
        add_buyers(sale_id=sale_id, holdings=live)


def _recount_sold(sale_id: int, *, write: bool) -> int:
    """Return how far ``sold`` is off from the live orders, under the lock; fix it if ``write``."""
    with transaction.atomic(durable=True):
        sale = lock_seckill_voucher(sale_id=sale_id)
        live = VoucherOrder.objects.filter(seckill_voucher=sale, live=True).count()
        off = abs(sale.sold - live)
        if off and write:
            sale.sold = live
            sale.save(update_fields=["sold"])
    return off
