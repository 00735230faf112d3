"""A sale's state in the ledger: its snapshot, and the terms copied from the sale's row.

Note [Derived stock]
~~~~~~~~~~~~~~~~~~~~
The units left are the total less the fields of ``buyers``; no counter exists (``docs/adr/0002``).
A counter would be a second truth: it would differ after each crash between the two writes, and each
edit of the stock would race with it. Derived, a release deletes one field, only if it still holds
the same order id, and an edit writes one number. Both are safe to repeat. The price is that a lost
``buyers`` would look like an unsold sale: Note [Epoch and state] in ``rebuild.py``.

An edit is safe only from a value that cannot change meanwhile. Terms are therefore written while
the sale's row is held ``FOR UPDATE``, from the row just read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple, assert_never

from locks.lua_script import ScriptCall
from seckill_site.clocks.ledger import ledger_now_ms
from seckill_site.clocks.machine import epoch_ms
from vouchers.inventory.keys import (
    ASIDE_MS,
    LedgerKeys,
    NotLoaded,
    ledger_script,
    run_script,
    send,
    send_many,
)
from vouchers.inventory.reservations import SaleEnded
from vouchers.inventory.waiting_room import Line, RoomTerms, read_line, remember_line, slower
from vouchers.models import SaleState, SeckillVoucher

_SNAPSHOT = ledger_script("snapshot")
_WRITE_TERMS = ledger_script("write_terms")

_STATE = re.compile(
    r"(?P<epoch>\d+):(?P<identity>\d+) (?P<total>\d+) (?P<begins_at_ms>\d+) (?P<ends_at_ms>\d+)"
    r" (?P<limit>\d+) (?P<paused>[01]) (?P<rebuy>[01]) (?P<plain>[01])"
    r" (?P<loaded_at_ms>\d+) (?P<batch>\d+) (?P<sold_out_at_ms>\d*)"
    r"(?: (?P<mode_terms>[0-9:asd]*)(?:\+(?P<per_address>\d+))?)?",
    re.ASCII,
)


_DRAW = re.compile(r"(\d+)d", re.ASCII)


class LedgerRemoved(SaleEnded, NotLoaded):
    """The sale is long over and its ledger was removed: its row answers (``docs/adr/0049``)."""

    def __init__(self, snapshot: Snapshot) -> None:
        super().__init__("the ledger was removed, as the sale is long over")
        self.snapshot = snapshot


class BelowTaken(Exception):
    """The new stock is below the units that are reserved or ordered already."""

    def __init__(self, taken: int) -> None:
        super().__init__(f"{taken} units are taken")
        self.taken = taken


class WriteCode(StrEnum):
    """The codes of ``write_terms.lua``."""

    WRITTEN = "WRITTEN"
    BELOW_TAKEN = "BELOW_TAKEN"
    NOT_LOADED = "NOT_LOADED"


@dataclass(frozen=True)
class LedgerTerms:
    """The terms that the ledger copies from a sale's row; times in milliseconds since 1970.

    The ``identity`` tells the sale from another with its id, which a restored backup may bring.
    ``per_address`` decides nothing about units: snapshots leave it out. They have the
    ``price_cents`` only if it is asked for: a key of its own, as the release before reads none.
    ``draw_gives_until_ms`` makes it a draw: until then units that come back are given away.
    """

    total: int
    begins_at_ms: int
    ends_at_ms: int
    limit: int
    paused: bool
    rebuy: bool
    identity: int = 0
    room: RoomTerms | None = None
    per_address: int | None = field(default=None, compare=False)
    draw_gives_until_ms: int = 0
    price_cents: int | None = field(default=None, compare=False)

    @classmethod
    def from_sale(cls, sale: SeckillVoucher) -> LedgerTerms:
        """Return the terms of this row."""
        return cls(
            total=sale.stock,
            begins_at_ms=epoch_ms(sale.begins_at),
            ends_at_ms=epoch_ms(sale.ends_at),
            limit=sale.limit,
            paused=sale.closed_by_shop,
            rebuy=sale.rebuy,
            identity=sale.identity,
            room=RoomTerms.from_sale(sale),
            per_address=sale.per_address,
            draw_gives_until_ms=epoch_ms(sale.gives_until) if sale.is_draw else 0,
            price_cents=sale.voucher.price_cents,
        )

    def narrowed_to(self, other: LedgerTerms) -> LedgerTerms:
        """Return what both allow: fewer units, later start, earlier end, any pause, any room."""
        return LedgerTerms(
            total=min(self.total, other.total),
            begins_at_ms=max(self.begins_at_ms, other.begins_at_ms),
            ends_at_ms=min(self.ends_at_ms, other.ends_at_ms),
            limit=min(self.limit, other.limit),
            paused=self.paused or other.paused,
            rebuy=self.rebuy and other.rebuy,
            identity=self.identity,
            room=slower(self.room, other.room),
            per_address=self.per_address,
            draw_gives_until_ms=self.draw_gives_until_ms or other.draw_gives_until_ms,
        )

    @property
    def last_words(self) -> list[str | int]:
        """The sale's own limit of orders per address, and the price, as the scripts take them."""
        return ["" if it is None else it for it in (self.per_address, self.price_cents)]

    def script_args(self) -> list[str | int]:
        """Return the terms in the order in which the scripts take them."""
        flags = [int(self.paused), int(self.rebuy), self.identity]
        mode_terms = self.room.word() if self.room else ""
        if self.draw_gives_until_ms:
            mode_terms = f"{self.draw_gives_until_ms}d"
        return [self.total, self.begins_at_ms, self.ends_at_ms, self.limit, *flags, mode_terms]


class Snapshot(NamedTuple):
    """A loaded sale at one moment, by the clock of Redis.

    ``line`` is that of its waiting room, None without one. ``set_aside`` of the pending entries
    wait for a decision of staff. ``entries`` are those in a draw.
    """

    now_ms: int
    epoch: int
    terms: LedgerTerms
    loaded_at_ms: int
    taken: int
    pending: int
    oldest_pending_ms: int | None
    waiting: int
    set_aside: int = 0
    line: Line | None = None
    entries: int = 0

    @property
    def remaining(self) -> int:
        """Units left, never negative (Note [Derived stock])."""
        return max(0, self.terms.total - self.taken)

    @property
    def state(self) -> SaleState:
        """The state at that moment."""
        window = (self.terms.begins_at_ms, self.terms.ends_at_ms)
        return SaleState.at(
            self.now_ms, window=window, closed=self.terms.paused, sold_out=self.remaining == 0
        )


def parse_state(text: object) -> dict[str, str]:
    """Return the words of ``state`` in the ledger by name; none if it is missing or malformed.

    The scripts read and write it (``lua/include/state_words.lua``, ``write_state.lua``).
    """
    match = _STATE.fullmatch(text) if isinstance(text, str) else None
    return match.groupdict(default="") if match else {}


def snapshot(*, sale_id: int) -> Snapshot:
    """Return the sale as the ledger has it now.

    :raises NotLoaded: the ledger is missing or not whole.
    """
    ledger = send(snapshot_call(sale_id=sale_id))
    if ledger is None:
        raise NotLoaded(f"sale {sale_id} is not loaded")
    return ledger


def snapshots(*, sale_ids: Iterable[int], with_price: bool = False) -> dict[int, Snapshot | None]:
    """Return several sales in one round trip; None for one that is not loaded."""
    sale_ids = list(sale_ids)
    calls = [snapshot_call(sale_id=sale_id, with_price=with_price) for sale_id in sale_ids]
    ledgers = send_many(calls)
    return dict(zip(sale_ids, ledgers, strict=True))


def stored_snapshot(sale: SeckillVoucher) -> Snapshot:
    """Return a sale whose ledger was removed, as its row has it."""
    now_ms, terms = ledger_now_ms(may_wait=False), LedgerTerms.from_sale(sale)
    return Snapshot(now_ms, sale.epoch, terms, 0, sale.sold, 0, None, 0)


def shown_snapshots(*, sales: Iterable[SeckillVoucher]) -> dict[int, Snapshot | None]:
    """Return several sales for a page: as :func:`snapshots`, and removed ledgers by their rows."""
    sales = list(sales)
    live = snapshots(sale_ids=[sale.pk for sale in sales if not sale.ledger_removed_at])
    return live | {sale.pk: stored_snapshot(sale) for sale in sales if sale.ledger_removed_at}


def check_not_removed(*, sale_id: int) -> None:
    """Raise LedgerRemoved if the ledger of a sale was removed."""
    removed = SeckillVoucher.objects.filter(pk=sale_id, ledger_removed_at__isnull=False)
    if sale := removed.select_related("voucher").first():
        raise LedgerRemoved(stored_snapshot(sale))


def snapshot_call(*, sale_id: int, with_price: bool = False) -> ScriptCall[Snapshot | None]:
    """Build the call that reads a snapshot, or None if the sale is not loaded.

    The price takes a command more, which the samples of ``live/`` do not need.
    """

    def finish(ledger: Snapshot | None) -> Snapshot | None:
        if ledger is None or ledger.line is None:
            return ledger
        return ledger._replace(line=remember_line(ledger.line, sale_id=sale_id))

    keys = LedgerKeys(sale_id)
    keys_to_read = [*keys.contents, keys.room, keys.entries, keys.sale]
    if with_price:
        keys_to_read.append(keys.price)
    return ScriptCall(_SNAPSHOT, keys_to_read, [ASIDE_MS], _read_snapshot, finish=finish)


def _read_snapshot(reply: list[Any]) -> Snapshot | None:
    if len(reply) == 1:
        return None
    *figures, mode_terms, tail, early, price = reply
    room, draw = RoomTerms.parse(mode_terms), _DRAW.fullmatch(mode_terms)
    numbers = [int(value) for value in figures]
    now_ms, epoch, total, begins, ends, limit, paused, rebuy, identity, loaded, *counts = numbers
    taken, pending, oldest, waiting, set_aside, entries = counts
    return Snapshot(
        now_ms=now_ms,
        epoch=epoch,
        terms=LedgerTerms(
            total=total,
            begins_at_ms=begins,
            ends_at_ms=ends,
            limit=limit,
            paused=bool(paused),
            rebuy=bool(rebuy),
            identity=identity,
            room=room,
            draw_gives_until_ms=int(draw[1]) if draw else 0,
            price_cents=int(price) if price else None,
        ),
        loaded_at_ms=loaded,
        taken=taken,
        pending=pending,
        oldest_pending_ms=oldest or None,
        waiting=waiting,
        set_aside=set_aside,
        line=read_line(room, tail, early) if room else None,
        entries=entries,
    )


def write_terms(*, sale_id: int, terms: LedgerTerms, refuse_below_taken: bool = False) -> None:
    """Copy a sale's terms into the ledger. The caller holds the sale's row ``FOR UPDATE``.

    :raises BelowTaken: with ``refuse_below_taken``, if the total is below the units taken.
    :raises NotLoaded: the sale has no ledger to write to.
    :raises LedgerUnavailable: the outcome is unknown.
    """

    def read(reply: list[Any]) -> None:
        match WriteCode(reply[0]):
            case WriteCode.WRITTEN:
                return
            case WriteCode.BELOW_TAKEN:
                raise BelowTaken(int(reply[1]))
            case WriteCode.NOT_LOADED:
                raise NotLoaded(f"sale {sale_id} is not loaded")
            case unknown:
                assert_never(unknown)

    args = (*terms.script_args(), int(refuse_below_taken), *terms.last_words)
    keys = LedgerKeys(sale_id)
    run_script(_WRITE_TERMS, [*keys.contents, keys.price, keys.sale], *args, read=read)
