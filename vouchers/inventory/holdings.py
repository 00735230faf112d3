"""The units that buyers hold in a ledger: read for pages, read and repaired by reconciling."""

from collections.abc import Iterable
from dataclasses import dataclass

from locks.lua_script import LuaScript, ScriptCall
from seckill_site.ledger_connection import ledger_connection
from vouchers.inventory.keys import (
    SENTINEL,
    LedgerKeys,
    ledger_errors,
    ledger_script,
    run_script,
    send_many,
)
from vouchers.models import MAX_LIMIT

_READ_HOLDINGS = ledger_script("read_buyer_holdings")
_MAKE_PENDING = ledger_script("make_pending")
_RESTORE_BUYER = ledger_script("restore_buyer")
_SCAN_COUNT = 2_000


@dataclass(frozen=True)
class Holding:
    """One unit of one user under one order id."""

    order_id: int
    user_id: int
    unit: int

    @property
    def field(self) -> str:
        """The field of ``buyers``."""
        return f"{self.user_id}:{self.unit}"

    @property
    def member(self) -> str:
        """The member of ``pending``."""
        return f"{self.order_id}:{self.field}"


@dataclass(frozen=True)
class HeldUnit(Holding):
    """A unit that a buyer holds. Its queue position counts from 1; None once its row is written."""

    queue_position: int | None


@dataclass(frozen=True)
class BuyerHoldings:
    """The units that one buyer holds at one moment by the clock of Redis."""

    now_ms: int
    units: list[HeldUnit]


def read_buyer_holdings(*, sale_id: int, user_id: int) -> BuyerHoldings:
    """Return what this buyer holds, even if the ledger is not whole."""

    def read(reply: list[str]) -> BuyerHoldings:
        numbers = map(int, reply)
        now_ms = next(numbers)
        units = [
            HeldUnit(order_id, user_id, unit, position or None)
            for unit, order_id, position in zip(numbers, numbers, numbers, strict=True)
        ]
        return BuyerHoldings(now_ms, units)

    keys = LedgerKeys(sale_id)
    return run_script(
        _READ_HOLDINGS, [keys.buyers, keys.pending], str(user_id), MAX_LIMIT, read=read
    )


def held_order_ids(*, sale_id: int, user_id: int) -> list[int]:
    """Return the order ids that this buyer holds in the ledger, unit by unit."""
    return [unit.order_id for unit in read_buyer_holdings(sale_id=sale_id, user_id=user_id).units]


def read_buyers(*, sale_id: int) -> set[Holding]:
    """Return every buyer, read in steps so that Redis serves others in between."""
    with ledger_errors():
        buyers = LedgerKeys(sale_id).buyers
        fields = dict(ledger_connection().hscan_iter(buyers, count=_SCAN_COUNT))
    fields.pop(SENTINEL, None)
    return {Holding(*map(int, (order_id, *name.split(":")))) for name, order_id in fields.items()}


def read_pending(*, sale_id: int) -> set[Holding]:
    """Return every pending entry, read in steps so that Redis serves others in between."""
    with ledger_errors():
        members = ledger_connection().zscan_iter(LedgerKeys(sale_id).pending, count=_SCAN_COUNT)
        return {Holding(*map(int, member.split(":"))) for member, _ in members}


def check_holdings(*, sale_id: int, holdings: Iterable[Holding]) -> list[tuple[bool, bool]]:
    """Return for each holding whether it is a buyer and whether it is pending, at one moment."""
    holdings, keys = list(holdings), LedgerKeys(sale_id)
    with ledger_errors(), ledger_connection().pipeline(transaction=True) as pipe:
        for holding in holdings:
            pipe.hget(keys.buyers, holding.field)
            pipe.zscore(keys.pending, holding.member)
        answers = pipe.execute()
    return [
        (held == str(holding.order_id), score is not None)
        for holding, held, score in zip(holdings, answers[::2], answers[1::2], strict=True)
    ]


def make_pending(*, sale_id: int, holdings: Iterable[Holding]) -> None:
    """Put buyers that are neither ordered nor pending back into pending: fulfilment decides."""
    _repair(_MAKE_PENDING, LedgerKeys(sale_id), holdings)


def restore_buyers(*, sale_id: int, holdings: Iterable[Holding]) -> None:
    """Add the buyers of pending entries again; otherwise their units would be sold twice."""
    _repair(_RESTORE_BUYER, LedgerKeys(sale_id), holdings)


def _repair(script: LuaScript, keys: LedgerKeys, holdings: Iterable[Holding]) -> None:
    calls = [([keys.buyers, keys.pending], [it.field, str(it.order_id)]) for it in holdings]
    send_many([ScriptCall(script=script, keys=k, args=args, read=int) for k, args in calls])


def add_buyers(*, sale_id: int, holdings: Iterable[Holding]) -> None:
    """Add live orders that the ledger lacks; never over another buyer's entry."""
    with ledger_errors(), ledger_connection().pipeline(transaction=False) as pipe:
        for holding in holdings:
            pipe.hsetnx(LedgerKeys(sale_id).buyers, holding.field, str(holding.order_id))
        pipe.execute()
