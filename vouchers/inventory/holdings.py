"""The units that buyers hold in a ledger: read for pages, read and repaired by reconciling.

A mistyped command may leave members that cannot be parsed. They are put aside as they are met, and
never block their sale. If one stood for a buyer, reconciling makes the entry again.
"""

import logging
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from math import isfinite
from operator import attrgetter
from typing import NamedTuple, Self, TypeVar

from locks.lua_script import LuaScript, ScriptCall
from seckill_site.metrics import counter
from seckill_site.redis.ledger_connection import ledger_connection
from vouchers.inventory.keys import (
    STATE,
    LedgerKeys,
    ledger_errors,
    ledger_script,
    run_script,
    send_many,
)
from vouchers.inventory.purchases import purchase_of
from vouchers.inventory.waiting_room import Place, Visitor, read_place, remember_line, visit_args
from vouchers.models import MAX_LIMIT

_READ_HOLDINGS = ledger_script("read_buyer_holdings")
_READ_BUYER = ledger_script("read_buyer")
_MAKE_PENDING = ledger_script("make_pending")
_RESTORE_BUYER = ledger_script("restore_buyer")
_PUT_JUNK_ASIDE = ledger_script("put_junk_aside")
_SCAN_COUNT = 2_000

MOST_JUNK, JUNK_KEPT_MS = 1_000, 7 * 24 * 60 * 60 * 1000
"""How many entries that were put aside a sale keeps for staff to look at, and how long."""

MEMBER = re.compile(r"([1-9][0-9]{0,18}):([1-9][0-9]{0,18}):([1-9][0-9]?)")

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Holding:
    """One unit of one user under one order id."""

    order_id: int
    user_id: int
    unit: int

    @classmethod
    def parse(cls, member: str) -> Self | None:
        """Return what a member of ``pending`` says; None if it cannot be parsed."""
        match = MEMBER.fullmatch(member)
        return cls(*map(int, match.groups())) if match else None

    @property
    def field(self) -> str:
        """The field of ``buyers``."""
        return f"{self.user_id}:{self.unit}"

    @property
    def member(self) -> str:
        """The member of ``pending``."""
        return f"{self.order_id}:{self.field}"

    @property
    def purchase(self) -> int:
        """The id of the purchase that this unit belongs to."""
        return purchase_of(self.order_id)


H = TypeVar("H", bound=Holding)


def by_purchase(holdings: Iterable[H]) -> list[list[H]]:
    """Return these units purchase by purchase; those of one purchase are side by side."""
    return [list(units) for _, units in groupby(holdings, key=attrgetter("purchase"))]


@dataclass(frozen=True)
class HeldUnit(Holding):
    """A unit that a buyer holds. Its queue position counts from 1; None once its row is written."""

    queue_position: int | None


class BuyerHoldings(NamedTuple):
    """The units of one buyer, and any entry in a draw, at one moment by the clock of Redis."""

    now_ms: int
    units: list[HeldUnit]
    entry_id: int = 0


def read_buyer_holdings(*, sale_id: int, user_id: int) -> BuyerHoldings:
    """Return what this buyer holds, even if the ledger is not whole."""
    return read_holdings(sale_ids=[sale_id], user_id=user_id)[0]


def read_holdings(*, sale_ids: Iterable[int], user_id: int) -> list[BuyerHoldings]:
    """Return what this buyer holds in each of these sales, in one round trip."""

    def read(reply: list[str]) -> BuyerHoldings:
        numbers = map(int, reply)
        now_ms = next(numbers)
        units = [
            HeldUnit(order_id, user_id, unit, position or None)
            for unit, order_id, position in zip(numbers, numbers, numbers, strict=True)
        ]
        return BuyerHoldings(now_ms, units)

    keys = [[it.buyers, it.pending] for it in map(LedgerKeys, sale_ids)]
    args = (str(user_id), MAX_LIMIT)
    return send_many([ScriptCall(_READ_HOLDINGS, them, args, read) for them in keys])


class KnownBuyer(NamedTuple):
    """What the ledger of a loaded sale says about one buyer, and the terms that matter to them.

    ``barred_by`` is the ended order that rules out another, or 0. ``copies`` has what is cached of
    the rows of the units, by order id. ``line`` is the length of the waiting list. ``place`` is the
    buyer's in the waiting room, None without one. ``is_draw``: the sale draws its buyers.
    """

    holdings: BuyerHoldings
    limit: int
    ends_at_ms: int
    identity: int
    barred_by: int
    line: int
    copies: dict[int, str]
    place: Place | None = None
    is_draw: bool = False


def known_buyer_call(
    *, sale_id: int, user_id: int, visitor: Visitor
) -> ScriptCall[KnownBuyer | None]:
    """Build the call that reads a buyer in one command; None if the sale is not loaded.

    If the sale has a waiting room, a buyer who may buy joins its line as this visitor.
    """

    def read(reply: list[str]) -> KnownBuyer | None:
        about, *parts = reply
        if not about:
            return None
        *figures, of_mode = about.split(" ", 6) if about.count(" ") > 5 else (*about.split(" "), "")
        now_ms, limit, ends_at_ms, identity, barred_by, line = map(int, figures)
        units, copies = [], {}
        for unit, order, place, copy in zip(*[iter(parts)] * 4, strict=True):
            units.append(HeldUnit(int(order), user_id, int(unit), int(place) or None))
            if copy:
                copies[int(order)] = copy
        terms, _, entry_id = of_mode.partition(" ")
        is_draw = terms.endswith("d")
        place = read_place(of_mode) if of_mode and not is_draw else None
        return KnownBuyer(
            holdings=BuyerHoldings(now_ms, units, int(entry_id) if is_draw else 0),
            limit=limit,
            ends_at_ms=ends_at_ms,
            identity=identity,
            barred_by=barred_by,
            line=line,
            copies=copies,
            place=place,
            is_draw=is_draw,
        )

    def finish(known: KnownBuyer | None) -> KnownBuyer | None:
        if known is None or known.place is None:
            return known
        line = remember_line(known.place.line, sale_id=sale_id)
        return known._replace(place=known.place._replace(line=line))

    args = [str(user_id), *visit_args(sale_id=sale_id, visitor=visitor)]
    return ScriptCall(_READ_BUYER, _keys_of_buyers(sale_id), args, read, finish=finish)


@lru_cache(maxsize=1024)
def _keys_of_buyers(sale_id: int) -> tuple[str, ...]:
    keys = LedgerKeys(sale_id)
    return (*keys.contents, *keys.copies, keys.room, keys.visits, keys.entries)


def held_order_ids(*, sale_id: int, user_id: int) -> list[int]:
    """Return the order ids that this buyer holds in the ledger, unit by unit."""
    return [unit.order_id for unit in read_buyer_holdings(sale_id=sale_id, user_id=user_id).units]


def read_buyers(*, sale_id: int) -> set[Holding]:
    """Return every buyer, read in steps so that Redis serves others in between."""
    with ledger_errors():
        buyers = LedgerKeys(sale_id).buyers
        fields = dict(ledger_connection().hscan_iter(buyers, count=_SCAN_COUNT))
    fields.pop(STATE, None)
    members = ((name, f"{order_id}:{name}") for name, order_id in fields.items())
    return parse_holdings(sale_id=sale_id, members=members)


def read_pending(*, sale_id: int) -> set[Holding]:
    """Return every pending entry, read in steps so that Redis serves others in between."""
    with ledger_errors():
        members = ledger_connection().zscan_iter(LedgerKeys(sale_id).pending, count=_SCAN_COUNT)
        names = [(it, it if isfinite(time) else "") for it, time in members]
    return parse_holdings(sale_id=sale_id, members=names)


def parse_holdings(*, sale_id: int, members: Iterable[tuple[str, str]]) -> set[Holding]:
    """Parse these pairs of name and member; put aside those that cannot be parsed."""
    parsed = [(name, Holding.parse(member)) for name, member in members]
    put_junk_aside(sale_id=sale_id, names=[name for name, holding in parsed if holding is None])
    return {holding for _, holding in parsed if holding is not None}


def put_junk_aside(*, sale_id: int, names: Sequence[str]) -> None:
    """Take fields of ``buyers`` or members of ``pending`` out that are no entries, and log them."""
    if not names:
        return
    keys, kept = LedgerKeys(sale_id), (MOST_JUNK, JUNK_KEPT_MS)
    raw = [name.encode(errors="surrogateescape") for name in names]
    count = run_script(
        _PUT_JUNK_ASIDE, [keys.buyers, keys.pending, keys.junk], *kept, *raw, read=int
    )
    counter("ledger_junk").inc(count)
    logger.error("sale %s: put %s aside, no entries of a ledger: %r", sale_id, count, names[:5])


def check_holdings(*, sale_id: int, holdings: Iterable[Holding]) -> list[tuple[bool, bool]]:
    """Return for each holding whether it is a buyer and whether it is pending, at one moment.

    A key of a wrong type counts as missing.
    """
    holdings, keys = list(holdings), LedgerKeys(sale_id)
    with ledger_errors(), ledger_connection().pipeline(transaction=True) as pipe:
        for holding in holdings:
            pipe.hget(keys.buyers, holding.field)
            pipe.zscore(keys.pending, holding.member)
        answers = pipe.execute(raise_on_error=False)
    return [
        (held == str(holding.order_id), isinstance(score, float))
        for holding, held, score in zip(holdings, answers[::2], answers[1::2], strict=True)
    ]


def make_pending(*, sale_id: int, holdings: Iterable[Holding]) -> None:
    """Put buyers that are neither ordered nor pending back into pending: fulfilment decides.

    The units of a purchase go back together, at one time.
    """
    _repair(_MAKE_PENDING, LedgerKeys(sale_id), by_purchase(holdings))


def restore_buyers(*, sale_id: int, holdings: Iterable[Holding]) -> None:
    """Add the buyers of pending entries again; otherwise their units would be sold twice."""
    _repair(_RESTORE_BUYER, LedgerKeys(sale_id), [[it] for it in holdings])


def _repair(script: LuaScript, keys: LedgerKeys, purchases: Iterable[Sequence[Holding]]) -> None:
    calls = [
        ScriptCall(
            script=script,
            keys=[keys.buyers, keys.pending],
            args=[text for unit in units for text in (unit.field, str(unit.order_id))],
            read=int,
        )
        for units in purchases
    ]
    send_many(calls)


def add_buyers(*, sale_id: int, holdings: Iterable[Holding]) -> None:
    """Add live orders that the ledger lacks; never over another buyer's entry."""
    with ledger_errors(), ledger_connection().pipeline(transaction=False) as pipe:
        for holding in holdings:
            pipe.hsetnx(LedgerKeys(sale_id).buyers, holding.field, str(holding.order_id))
        pipe.execute()
