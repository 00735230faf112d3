"""The waiting list in the ledger: who gets the next unit that comes back, first come, first served.

The script that releases a unit gives it to the first in line, in the same breath: the offer is that
buyer's entry in the ledger, and becomes an order with a time to pay of its own.
"""

from __future__ import annotations

from enum import StrEnum

from seckill_site.ledger_connection import ledger_connection
from vouchers.inventory.keys import LedgerKeys, NotLoaded, ledger_errors, ledger_script
from vouchers.inventory.reservations import AlreadyOrdered, NotStarted, SaleEnded

_JOIN = ledger_script("join_waiting")
_SCAN = 2_000


class _Code(StrEnum):
    """What ``join_waiting.lua`` answers."""

    WAITING = "WAITING"
    ACCEPTED = "ACCEPTED"
    ALREADY_ORDERED = "ALREADY_ORDERED"
    AVAILABLE = "AVAILABLE"
    NOT_LOADED = "NOT_LOADED"
    NOT_STARTED = "NOT_STARTED"
    ENDED = "ENDED"


class UnitAvailable(Exception):
    """A unit is free and nobody waits: it can be bought at once."""


class TurnCame(Exception):
    """The buyer waits no more under this order id: it has its unit, or has had it."""


def join_waiting(
    *, sale_id: int, order_id: int, user_id: int, joined_at_ms: int, was_in_line: bool = False
) -> int:
    """Put a buyer in line, or find them there, and return their place, from 1. Safe to repeat.

    One who ``was_in_line`` before it was lost is put back also where a unit is free.

    :raises TurnCame: the order id has been given a unit already.
    :raises AlreadyOrdered: the buyer holds as many units as the limit allows, or is barred.
    :raises UnitAvailable: nobody needs to wait.
    :raises NotStarted: there is nothing to wait for yet.
    :raises SaleEnded: nothing will come back on sale.
    :raises NotLoaded: the sale has to be loaded first.
    :raises LedgerUnavailable: unknown; the same call again is safe.
    """
    with ledger_errors():
        code, found_id, place = _JOIN.run(
            ledger_connection(),
            keys=LedgerKeys(sale_id).contents,
            args=[str(order_id), str(user_id), joined_at_ms, int(was_in_line)],
        )
    match _Code(code):
        case _Code.WAITING:
            return int(place)
        case _Code.ALREADY_ORDERED:
            raise AlreadyOrdered(int(found_id))
        case other:
            raise _REFUSALS[other]


_REFUSALS: dict[_Code, type[Exception]] = {
    _Code.ACCEPTED: TurnCame,
    _Code.AVAILABLE: UnitAvailable,
    _Code.NOT_LOADED: NotLoaded,
    _Code.NOT_STARTED: NotStarted,
    _Code.ENDED: SaleEnded,
}


def leave_waiting(*, sale_id: int, order_id: int, user_id: int) -> bool:
    """Take a buyer out of line; False where they were not in it (any more).

    :raises LedgerUnavailable: unknown; the same call again is safe.
    """
    with ledger_errors():
        key = LedgerKeys(sale_id).waiting
        return bool(ledger_connection().zrem(key, f"{order_id}:{user_id}"))


def place_in_line(*, sale_id: int, order_id: int, user_id: int) -> int | None:
    """Return a buyer's place in line, from 1, or None where they do not wait.

    :raises LedgerUnavailable: Redis did not answer.
    """
    with ledger_errors():
        key = LedgerKeys(sale_id).waiting
        place = ledger_connection().zrank(key, f"{order_id}:{user_id}")
    return None if place is None else int(place) + 1


def line_of(*, sale_id: int) -> set[int]:
    """Return the order ids of all who wait.

    :raises LedgerUnavailable: Redis did not answer.
    """
    with ledger_errors():
        members = ledger_connection().zscan_iter(LedgerKeys(sale_id).waiting, count=_SCAN)
        return {int(member.partition(":")[0]) for member, _ in members}


def forget_line(*, sale_id: int) -> None:
    """Let nobody wait any more, as the sale is over.

    :raises LedgerUnavailable: Redis did not answer.
    """
    with ledger_errors():
        ledger_connection().unlink(LedgerKeys(sale_id).waiting)
