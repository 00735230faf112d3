"""A sale's figures in the ledger: how many are left, and how the row's values get there.

Stock left is derived from the total and the buyers (``docs/adr/0002``), so nothing here counts
down. Total, window and pause are written only while the sale's row is held ``FOR UPDATE``, from the
value just read: crossing edits would otherwise sell what is not there.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from seckill_site.clock import epoch_ms
from seckill_site.ledger_connection import ledger_connection
from vouchers.inventory.keys import LedgerKeys, NotLoaded, ledger_errors, ledger_script
from vouchers.models import SaleState, SeckillVoucher

_SNAPSHOT = ledger_script("snapshot")
_WRITE_FIGURES = ledger_script("write_terms")


class BelowTaken(Exception):
    """The new stock is below what is reserved or ordered already."""

    def __init__(self, taken: int) -> None:
        super().__init__(taken)
        self.taken = taken


class _Code(StrEnum):
    """What ``write_figures.lua`` answers."""

    WRITTEN = "WRITTEN"
    BELOW_TAKEN = "BELOW_TAKEN"
    NOT_LOADED = "NOT_LOADED"


@dataclass(frozen=True)
class Figures:
    """What the ledger copies from a sale's row; times in milliseconds since 1970."""

    total: int
    begins_at_ms: int
    ends_at_ms: int
    limit: int
    paused: bool
    rebuy: bool

    @classmethod
    def of(cls, sale: SeckillVoucher) -> Figures:
        """Return the figures as this row has them."""
        return cls(
            total=sale.stock,
            begins_at_ms=epoch_ms(sale.begins_at),
            ends_at_ms=epoch_ms(sale.ends_at),
            limit=sale.limit,
            paused=sale.closed_by_shop,
            rebuy=sale.rebuy,
        )

    def narrowed_to(self, other: Figures) -> Figures:
        """Return what both allow: the fewer units, the later begin, the earlier end, any pause."""
        return Figures(
            total=min(self.total, other.total),
            begins_at_ms=max(self.begins_at_ms, other.begins_at_ms),
            ends_at_ms=min(self.ends_at_ms, other.ends_at_ms),
            limit=min(self.limit, other.limit),
            paused=self.paused or other.paused,
            rebuy=self.rebuy and other.rebuy,
        )

    def as_arguments(self) -> list[str | int]:
        return [
            self.total,
            self.begins_at_ms,
            self.ends_at_ms,
            self.limit,
            int(self.paused),
            int(self.rebuy),
        ]


@dataclass(frozen=True)
class Snapshot:
    """A loaded sale at one moment, by the clock of Redis."""

    now_ms: int
    epoch: int
    figures: Figures
    loaded_at_ms: int
    taken: int
    pending: int
    oldest_pending_ms: int | None
    waiting: int

    @property
    def remaining(self) -> int:
        """Units left: the total less the buyers, never below none."""
        return max(0, self.figures.total - self.taken)

    @property
    def state(self) -> SaleState:
        if self.now_ms >= self.figures.ends_at_ms:
            return SaleState.ENDED
        if self.figures.paused:
            return SaleState.PAUSED
        if self.now_ms < self.figures.begins_at_ms:
            return SaleState.SCHEDULED
        return SaleState.SOLD_OUT if self.remaining == 0 else SaleState.OPEN


def snapshot(*, sale_id: int) -> Snapshot:
    """Return the sale as the ledger has it now.

    :raises NotLoaded: the ledger is missing or not whole.
    """
    found = snapshots(sale_ids=[sale_id])[sale_id]
    if found is None:
        raise NotLoaded
    return found


def snapshots(*, sale_ids: Iterable[int]) -> dict[int, Snapshot | None]:
    """Return several sales in one round trip; None stands for one that is not loaded."""
    sale_ids = list(sale_ids)
    no_args: list[str | int] = []
    calls = [(LedgerKeys(sale_id).contents, no_args) for sale_id in sale_ids]
    with ledger_errors():
        answers = _SNAPSHOT.run_many(ledger_connection(), calls)
    return dict(zip(sale_ids, map(_parse_snapshot, answers), strict=True))


def _parse_snapshot(answer: list[Any]) -> Snapshot | None:
    if len(answer) == 1:
        return None
    numbers = [int(float(value)) for value in answer]
    now, epoch, total, begins, ends, limit, paused, rebuy, loaded, *counts = numbers
    taken, pending, oldest, waiting = counts
    return Snapshot(
        now_ms=now,
        epoch=epoch,
        figures=Figures(total, begins, ends, limit, bool(paused), bool(rebuy)),
        loaded_at_ms=loaded,
        taken=taken,
        pending=pending,
        oldest_pending_ms=oldest or None,
        waiting=waiting,
    )


def write_figures(*, sale_id: int, figures: Figures, refuse_below_taken: bool = False) -> None:
    """Copy a sale's figures into the ledger. The caller holds the sale's row ``FOR UPDATE``.

    :raises BelowTaken: asked to refuse, and the total is below what is taken; nothing was written.
    :raises NotLoaded: there is no ledger to write to.
    """
    with ledger_errors():
        answer, taken = _WRITE_FIGURES.run(
            ledger_connection(),
            keys=LedgerKeys(sale_id).contents,
            args=[*figures.as_arguments(), int(refuse_below_taken)],
        )
    if _Code(answer) is _Code.NOT_LOADED:
        raise NotLoaded
    if _Code(answer) is _Code.BELOW_TAKEN:
        raise BelowTaken(int(taken))
