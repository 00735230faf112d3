"""The contents of a ledger, buyer by buyer: read and mended by reconciling."""

from __future__ import annotations

from collections.abc import Iterable

from seckill_site.ledger_connection import ledger_connection
from vouchers.inventory.keys import SENTINEL, Holding, LedgerKeys, ledger_errors, ledger_script

_MAKE_PENDING = ledger_script("make_pending")
_RESTORE_BUYER = ledger_script("restore_buyer")
_SCAN = 2_000


def read_buyers(*, sale_id: int) -> set[Holding]:
    """Return every buyer, read in steps so that Redis serves others in between."""
    with ledger_errors():
        fields = dict(ledger_connection().hscan_iter(LedgerKeys(sale_id).buyers, count=_SCAN))
    fields.pop(SENTINEL, None)
    return {Holding(int(order_id), *_user_and_unit(field)) for field, order_id in fields.items()}


def read_pending(*, sale_id: int) -> set[Holding]:
    """Return every pending entry, read in steps so that Redis serves others in between."""
    with ledger_errors():
        members = ledger_connection().zscan_iter(LedgerKeys(sale_id).pending, count=_SCAN)
        return {_holding(member) for member, _ in members}


def still_held(*, sale_id: int, holdings: Iterable[Holding]) -> list[tuple[bool, bool]]:
    """Say of each, now and at one moment, whether it is among the buyers and among the pending."""
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
    """Put buyers that are neither ordered nor pending back to pending: fulfilment decides."""
    keys = LedgerKeys(sale_id)
    calls = [([keys.buyers, keys.pending], [h.field, str(h.order_id)]) for h in holdings]
    with ledger_errors():
        _MAKE_PENDING.run_many(ledger_connection(), calls)


def add_buyers(*, sale_id: int, holdings: Iterable[Holding]) -> None:
    """Enter live orders that the ledger lacks; never over another buyer's entry."""
    with ledger_errors(), ledger_connection().pipeline(transaction=False) as pipe:
        for holding in holdings:
            pipe.hsetnx(LedgerKeys(sale_id).buyers, holding.field, str(holding.order_id))
        pipe.execute()


def restore_buyers(*, sale_id: int, holdings: Iterable[Holding]) -> None:
    """Enter pending entries among the buyers again: their units would be offered twice."""
    keys = LedgerKeys(sale_id)
    calls = [([keys.buyers, keys.pending], [h.field, str(h.order_id)]) for h in holdings]
    with ledger_errors():
        _RESTORE_BUYER.run_many(ledger_connection(), calls)


def _holding(member: str) -> Holding:
    order_id, _, field = member.partition(":")
    return Holding(int(order_id), *_user_and_unit(field))


def _user_and_unit(field: str) -> tuple[int, int]:
    user_id, _, unit = field.partition(":")
    return int(user_id), int(unit)
