"""The waiting list in the ledger: the next unit that comes back goes to the first buyer on it.

The script that frees a unit gives it away in the same step (``docs/adr/0011``): the buyer's
reservation is the offer, and becomes an order with its own time to pay.

If Redis does not respond, every function raises ``LedgerUnavailable`` and is safe to repeat.
"""

from enum import StrEnum
from functools import partial
from typing import Any

from seckill_site.redis.ledger_connection import ledger_connection
from vouchers.inventory.keys import LedgerKeys, ledger_errors, ledger_script, run_script
from vouchers.inventory.reservations import REFUSALS, AlreadyOrdered

_JOIN = ledger_script("join_waiting")
_LEAVE = ledger_script("leave_waiting")
_SCAN_COUNT = 2_000


class JoinCode(StrEnum):
    """The codes of ``join_waiting.lua``."""

    WAITING = "WAITING"
    ACCEPTED = "ACCEPTED"
    ALREADY_ORDERED = "ALREADY_ORDERED"
    AVAILABLE = "AVAILABLE"
    NOT_LOADED = "NOT_LOADED"
    NOT_STARTED = "NOT_STARTED"
    ENDED = "ENDED"


class UnitAvailable(Exception):
    """A unit is free and nobody waits: the buyer can order it at once."""


class NoLongerWaiting(Exception):
    """This order id has its unit, or had it and has ended."""


def join_waiting(
    *, sale_id: int, order_id: int, user_id: int, joined_at_ms: int, restoring: bool = False
) -> int:
    """Put a buyer on the waiting list and return the position, from 1. Safe to repeat.

    ``restoring`` puts back an entry that was lost, even if a unit is free.

    :raises NoLongerWaiting: the order id has been given a unit already.
    :raises AlreadyOrdered: the buyer holds as many units as the limit allows, or is barred.
    :raises UnitAvailable: a unit is free and nobody waits.
    :raises NotStarted: the sale has not started.
    :raises SaleEnded: the sale has ended.
    :raises NotLoaded: the sale has to be loaded first.
    """
    keys = LedgerKeys(sale_id).contents
    args = (str(order_id), str(user_id), joined_at_ms, int(restoring))
    return run_script(_JOIN, keys, *args, read=partial(_read_position, sale_id))


def _read_position(sale_id: int, reply: list[Any]) -> int:
    match JoinCode(reply[0]):
        case JoinCode.WAITING:
            return int(reply[2])
        case JoinCode.ALREADY_ORDERED:
            raise AlreadyOrdered(int(reply[1]))
        case JoinCode.ACCEPTED:
            raise NoLongerWaiting(f"sale {sale_id} has given the order id its unit")
        case JoinCode.AVAILABLE:
            raise UnitAvailable(f"sale {sale_id} has a free unit")
        case code:
            kind, text = REFUSALS[code]
            raise kind(f"sale {sale_id} {text}")


def leave_waiting(*, sale_id: int, order_id: int, user_id: int) -> bool:
    """Take a buyer off the waiting list; False if they were not on it."""
    waiting = LedgerKeys(sale_id).waiting
    return run_script(_LEAVE, [waiting], f"{order_id}:{user_id}", read=bool)


def waiting_position(*, sale_id: int, order_id: int, user_id: int) -> int | None:
    """Return a buyer's position on the waiting list, from 1, or None if they are not on it."""
    with ledger_errors():
        key = LedgerKeys(sale_id).waiting
        ahead = ledger_connection().zrank(key, f"{order_id}:{user_id}")
    return None if ahead is None else int(ahead) + 1


def waiting_order_ids(*, sale_id: int) -> set[int]:
    with ledger_errors():
        members = ledger_connection().zscan_iter(LedgerKeys(sale_id).waiting, count=_SCAN_COUNT)
        return {int(member.partition(":")[0]) for member, _ in members}


def clear_waiting_list(*, sale_id: int) -> None:
    """Empty the waiting list of a sale that has ended."""
    with ledger_errors():
        ledger_connection().unlink(LedgerKeys(sale_id).waiting)
