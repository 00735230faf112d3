"""The contents of a ledger, buyer by buyer: read and repaired by reconciling."""

from __future__ import annotations

from collections.abc import Iterable

from locks.lua_script import LuaScript, ScriptCall
from seckill_site.ledger_connection import ledger_connection
from vouchers.inventory.keys import (
    SENTINEL,
    Holding,
    LedgerKeys,
    ledger_errors,
    ledger_script,
    send_many,
)

_MAKE_PENDING = ledger_script("make_pending")
_RESTORE_BUYER = ledger_script("restore_buyer")
_SCAN_COUNT = 2_000


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
    send_many([_repair_call(_MAKE_PENDING, sale_id, holding) for holding in holdings])


def restore_buyers(*, sale_id: int, holdings: Iterable[Holding]) -> None:
    """Add the buyers of pending entries again: their units would be offered twice."""
    send_many([_repair_call(_RESTORE_BUYER, sale_id, holding) for holding in holdings])


def add_buyers(*, sale_id: int, holdings: Iterable[Holding]) -> None:
    """Add live orders that the ledger lacks; never over another buyer's entry."""
    with ledger_errors(), ledger_connection().pipeline(transaction=False) as pipe:
        for holding in holdings:
            pipe.hsetnx(LedgerKeys(sale_id).buyers, holding.field, str(holding.order_id))
        pipe.execute()


def _repair_call(script: LuaScript, sale_id: int, holding: Holding) -> ScriptCall[int]:
    keys = LedgerKeys(sale_id)
    return ScriptCall(
        script=script,
        keys=[keys.buyers, keys.pending],
        args=[holding.field, str(holding.order_id)],
        read=int,
    )
