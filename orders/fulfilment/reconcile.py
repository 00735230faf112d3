"""Reconciling: does the ledger say what the database says, and if not, repair it.

Compared by ids: the buyers in Redis against the live orders and what is pending. Orders move while
one reads, so a difference counts only if it is still there when its ids are read again.
"""

from __future__ import annotations

import datetime as dt
import logging
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass

from django.db import DatabaseError, transaction

from orders.models import VoucherOrder
from seckill_site.failpoints import failpoint
from vouchers.inventory.audit import (
    add_buyers,
    check_holdings,
    make_pending,
    read_buyers,
    read_pending,
    restore_buyers,
)
from vouchers.inventory.keys import Holding, LedgerUnavailable
from vouchers.inventory.rebuild import load_sale
from vouchers.inventory.sale_state import LedgerTerms, Snapshot, snapshots
from vouchers.lock_objects import lock_seckill_voucher
from vouchers.models import SeckillVoucher

logger = logging.getLogger(__name__)

BY_IDS_UP_TO = 10_000
"""Up to so many units sold, beat compares by ids every time."""


@dataclass(frozen=True)
class Comparison:
    """A sale in both places. ``remaining`` is None and the ledger's counts 0 while not loaded.

    ``difference`` counts what fits nowhere: buyers without an order or a promise, orders and
    promises without a buyer, and how far ``sold`` and ``total`` are off.
    """

    voucher_id: int
    total: int
    sold: int
    live_orders: int
    buyers: int
    pending: int
    remaining: int | None
    difference: int

    def as_dict(self) -> dict[str, int | None]:
        return asdict(self)


@dataclass(frozen=True)
class _Differences:
    stray_buyers: list[Holding]
    missing_buyers: list[Holding]
    promised_only: list[Holding]
    figures_off: int
    sold_off: int

    @property
    def size(self) -> int:
        return (
            len(self.stray_buyers)
            + len(self.missing_buyers)
            + len(self.promised_only)
            + self.figures_off
            + self.sold_off
        )


def reconcile(*, sale_id: int, repair: bool = False) -> Comparison:
    """Compare one sale without stopping it, and where asked repair what is different.

    Repairing is idempotent: a stray buyer goes back to pending, never to release; a live order is
    entered among the buyers; figures are copied from the row; ``sold`` is counted again.

    :raises SeckillVoucher.DoesNotExist: there is no such sale.
    :raises LedgerUnavailable: Redis did not answer.
    """
    comparison, differences = _compare(sale_id)
    if not repair or (comparison.remaining is not None and not differences.size):
        return comparison
    if differences.size:
        logger.warning("sale %s differs by %s, repairing", sale_id, differences.size)
    failpoint("reconcile.compared")
    if comparison.remaining is not None:  # else they come with the loading
        # First, because whatever seems to be free is given to those who wait.
        _add_live_buyers(sale_id, differences.missing_buyers)
        failpoint("reconcile.added")
    load_sale(sale_id=sale_id)
    failpoint("reconcile.loaded")
    make_pending(sale_id=sale_id, holdings=differences.stray_buyers)
    failpoint("reconcile.made_pending")
    restore_buyers(sale_id=sale_id, holdings=differences.promised_only)
    _count_sold_again(sale_id, write=True)
    return _compare(sale_id)[0]


def reconcile_many(*, sale_ids: Sequence[int], repair: bool) -> Iterator[Comparison]:
    """Reconcile these sales one after the other, or every sale where none is named; lazily.

    :raises SeckillVoucher.DoesNotExist: one of them does not exist; none was compared.
    :raises LedgerUnavailable: Redis did not answer.
    """
    known = list(SeckillVoucher.objects.order_by("pk").values_list("pk", flat=True))
    unknown = sorted(set(sale_ids) - set(known))
    if unknown:
        raise SeckillVoucher.DoesNotExist(f"there is no seckill voucher {unknown[0]}")
    for sale_id in sale_ids or known:
        yield reconcile(sale_id=sale_id, repair=repair)


def reconcile_running(*, now: dt.datetime) -> list[Comparison]:
    """Reconcile and repair every sale that is not long over; for beat.

    A sale with many buyers is compared by ids only where its counts do not fit, so that this can be
    done often. One sale that fails does not stop the rest.
    """
    recent = SeckillVoucher.objects.filter(SeckillVoucher.still_active(now))
    results = []
    for sale in recent.order_by("pk"):
        try:
            if sale.sold <= BY_IDS_UP_TO or not _counts_fit(sale):
                results.append(reconcile(sale_id=sale.pk, repair=True))
        except SeckillVoucher.DoesNotExist:
            continue
        except (LedgerUnavailable, DatabaseError) as error:
            logger.warning("sale %s is not reconciled now: %s", sale.pk, error)
        # Whatever somebody wrote into one ledger by hand, the others are looked at.
        except ValueError:
            logger.exception("sale %s cannot be reconciled", sale.pk)
    return results


def _counts_fit(sale: SeckillVoucher) -> bool:
    found = snapshots(sale_ids=[sale.pk])[sale.pk]
    live = VoucherOrder.objects.filter(seckill_voucher=sale, live=True).count()
    return (
        found is not None
        and found.taken == live + found.pending
        and found.terms == LedgerTerms.from_sale(sale)
        and sale.sold == live
    )


def _compare(sale_id: int) -> tuple[Comparison, _Differences]:
    # In this order, because a reservation leaves pending only after its order is committed.
    found = snapshots(sale_ids=[sale_id])[sale_id]
    buyers = read_buyers(sale_id=sale_id) if found else set()
    pending = read_pending(sale_id=sale_id) if found else set()
    sale = SeckillVoucher.objects.get(pk=sale_id)
    live = _live(sale_id)
    differences = _Differences(
        stray_buyers=_still_stray(sale_id, buyers - pending - live),
        missing_buyers=_still_missing(sale_id, live - buyers),
        promised_only=_still_promised_only(sale_id, pending - buyers - live),
        figures_off=_figures_off(sale_id, sale, found),
        sold_off=0 if sale.sold == len(live) else _count_sold_again(sale_id, write=False),
    )
    return (
        Comparison(
            voucher_id=sale_id,
            total=sale.stock,
            sold=sale.sold,
            live_orders=len(live),
            buyers=len(buyers),
            pending=len(pending),
            remaining=found.remaining if found else None,
            difference=differences.size,
        ),
        differences,
    )


def _live(sale_id: int, ids: list[int] | None = None) -> set[Holding]:
    orders = VoucherOrder.objects.filter(seckill_voucher=sale_id, live=True)
    if ids is not None:
        orders = orders.filter(pk__in=ids)
    rows = orders.values_list("pk", "user_id", "unit")
    return {Holding(pk, user_id, unit) for pk, user_id, unit in rows if user_id is not None}


def _still_stray(sale_id: int, holdings: set[Holding]) -> list[Holding]:
    """Of these buyers, return those that have neither a promise nor a live order even now."""
    if not holdings:
        return []
    ordered = sorted(holdings, key=lambda holding: holding.order_id)
    state = check_holdings(sale_id=sale_id, holdings=ordered)
    live = _live(sale_id, [holding.order_id for holding in ordered])
    return [
        holding
        for holding, (held, pending) in zip(ordered, state, strict=True)
        if held and not pending and holding not in live
    ]


def _still_missing(sale_id: int, holdings: set[Holding]) -> list[Holding]:
    """Of these live orders, return those that are live and without a buyer even now."""
    if not holdings:
        return []
    live = sorted(
        _live(sale_id, [holding.order_id for holding in holdings]),
        key=lambda holding: holding.order_id,
    )
    state = check_holdings(sale_id=sale_id, holdings=live)
    return [holding for holding, (held, _) in zip(live, state, strict=True) if not held]


def _still_promised_only(sale_id: int, holdings: set[Holding]) -> list[Holding]:
    """Of these pending entries, return those that are pending and no buyers even now."""
    ordered = sorted(holdings, key=lambda holding: holding.order_id)
    state = check_holdings(sale_id=sale_id, holdings=ordered)
    return [
        holding
        for holding, (held, pending) in zip(ordered, state, strict=True)
        if pending and not held
    ]


def _figures_off(sale_id: int, sale: SeckillVoucher, found: Snapshot | None) -> int:
    """Return how far the ledger's total is off, or 1 where only another figure is."""
    if found is None or found.terms == LedgerTerms.from_sale(sale):
        return 0
    with transaction.atomic():
        sale = lock_seckill_voucher(sale_id=sale_id)
        found = snapshots(sale_ids=[sale_id])[sale_id]
    if found is None or found.terms == LedgerTerms.from_sale(sale):
        return 0
    return abs(found.terms.total - sale.stock) or 1


def _add_live_buyers(sale_id: int, holdings: list[Holding]) -> None:
    """Enter live orders into the ledger; the row is held, so none is cancelled meanwhile."""
    if not holdings:
        return
    with transaction.atomic():
        lock_seckill_voucher(sale_id=sale_id)
        live = _live(sale_id, [holding.order_id for holding in holdings])
        add_buyers(sale_id=sale_id, holdings=live)


def _count_sold_again(sale_id: int, *, write: bool) -> int:
    """Return how far ``sold`` is from the live orders while the row is held; write it if asked."""
    with transaction.atomic():
        sale = lock_seckill_voucher(sale_id=sale_id)
        live = VoucherOrder.objects.filter(seckill_voucher=sale, live=True).count()
        off = abs(sale.sold - live)
        if off and write:
            sale.sold = live
            sale.save(update_fields=["sold"])
    return off
