"""The waiting list in the ledger: the next unit that comes back goes to the first buyer on it.

The script that frees a unit gives it away in the same step (``docs/adr/0011``): the buyer's
reservation is the offer, and becomes an order with its own time to pay.

Note [Several units in line]
~~~~~~~~~~~~~~~~~~~~~~~~~~~~
A buyer who waits for several units has as many blocks of order ids, one after the other (Note
[Blocks of order ids] in ``purchases.py``). What comes at one time is a purchase under the next of
them, and the rest waits on at its place, under the one after that. So which units came is known
from their ids alone, also after a loss, and a row of the waiting list never changes.
A buyer who wants all or none is passed over until all are free at once. The score of a buyer
says how many are still wanted, and which of the two (``lua/include/line_scores.lua``).

If Redis does not respond, every function raises ``LedgerUnavailable`` and is safe to repeat.
"""

from collections.abc import Container
from enum import StrEnum
from functools import partial
from typing import Any, NamedTuple

from seckill_site.redis.ledger_connection import ledger_connection
from vouchers.inventory.keys import LedgerKeys, ledger_errors, ledger_script, run_script
from vouchers.inventory.purchases import BLOCK_SIZE, blocks_from
from vouchers.inventory.reservations import REFUSALS, AlreadyOrdered, TooFew

_JOIN = ledger_script("join_waiting")
_LEAVE = ledger_script("leave_waiting")
_READ_PLACE = ledger_script("read_place")
_SCAN_COUNT = 2_000
_ALL_OF = 10**13
"""As in ``lua/include/line_scores.lua``."""


class JoinCode(StrEnum):
    """The codes of ``join_waiting.lua``."""

    WAITING = "WAITING"
    ACCEPTED = "ACCEPTED"
    ALREADY_ORDERED = "ALREADY_ORDERED"
    TOO_FEW = "TOO_FEW"
    AVAILABLE = "AVAILABLE"
    NOT_LOADED = "NOT_LOADED"
    NOT_STARTED = "NOT_STARTED"
    ENDED = "ENDED"


class UnitAvailable(Exception):
    """Enough units are free, and nobody waits who can have them: the buyer can order at once."""


class NoLongerWaiting(Exception):
    """All units wanted under this order id were given; some may have ended."""


class LinePlace(NamedTuple):
    """A position on the waiting list, from 1, and how many units are still wanted there."""

    place: int
    quantity: int


def join_waiting(
    *,
    sale_id: int,
    order_id: int,
    user_id: int,
    joined_at_ms: int,
    quantity: int = 1,
    all_or_none: bool = False,
    restoring: bool = False,
) -> LinePlace:
    """Put a buyer on the waiting list and return the place. Safe to repeat.

    For several units, ``order_id`` is the first of as many blocks. ``restoring`` puts back an entry
    that was lost, even if a unit is free; without what it was given already.

    :raises NoLongerWaiting: the buyer has been given all of it already.
    :raises AlreadyOrdered: the buyer holds as many units as the limit allows, or is barred.
    :raises TooFew: the buyer wants all or none, and more than the sale's limit.
    :raises UnitAvailable: the units are free and nobody waits who can have them.
    :raises NotStarted: the sale has not started.
    :raises SaleEnded: the sale has ended.
    :raises NotLoaded: the sale has to be loaded first.
    """
    keys = LedgerKeys(sale_id)
    ids, wanted = (str(order_id), str(user_id)), (quantity, int(all_or_none))
    args = (*ids, joined_at_ms, int(restoring), *wanted)
    return run_script(
        _JOIN, [*keys.contents, keys.sale], *args, read=partial(_read_joined, sale_id)
    )


def _read_joined(sale_id: int, reply: list[Any]) -> LinePlace:
    match JoinCode(reply[0]):
        case JoinCode.WAITING:
            return LinePlace(*map(int, reply[2:]))
        case JoinCode.ALREADY_ORDERED:
            raise AlreadyOrdered(int(reply[1]))
        case JoinCode.TOO_FEW:
            raise TooFew(int(reply[1]))
        case JoinCode.ACCEPTED:
            raise NoLongerWaiting(f"sale {sale_id} has given what the order id was to get")
        case JoinCode.AVAILABLE:
            raise UnitAvailable(f"sale {sale_id} has free units")
        case code:
            kind, text = REFUSALS[code]
            raise kind(f"sale {sale_id} {text}")


def leave_waiting(*, sale_id: int, order_id: int, user_id: int, quantity: int = 1) -> bool:
    """Take a buyer off the waiting list; False if they were not on it."""
    members = _members(order_id, user_id, quantity)
    return run_script(_LEAVE, [LedgerKeys(sale_id).waiting], *members, read=bool)


def waiting_position(
    *, sale_id: int, order_id: int, user_id: int, quantity: int = 1
) -> LinePlace | None:
    """Return a buyer's place on the waiting list, or None if they are not on it."""
    members = _members(order_id, user_id, quantity)
    return run_script(_READ_PLACE, [LedgerKeys(sale_id).waiting], *members, read=_read_place)


def _members(order_id: int, user_id: int, quantity: int) -> list[str]:
    return [f"{it}:{user_id}" for it in blocks_from(order_id, count=quantity)]


def _read_place(reply: list[Any]) -> LinePlace | None:
    return LinePlace(*map(int, reply)) if reply else None


def stored_place(
    order_id: int, joined_at_ms: int, *, quantity: int, all_or_none: bool, served: Container[str]
) -> tuple[int, float] | None:
    """Return the order id and the score of a waiting buyer for a ledger that is built.

    ``served`` are the order ids that were given a unit. None: the buyer waits for nothing more.
    """
    while quantity and str(order_id) in served:
        came = range(order_id, order_id + quantity)
        quantity -= next((n for n, it in enumerate(came) if str(it) not in served), quantity)
        if all_or_none:
            return None
        order_id += BLOCK_SIZE
    if not quantity:
        return None
    if all_or_none and quantity > 1:
        return order_id, quantity * _ALL_OF + joined_at_ms
    return order_id, joined_at_ms + (quantity - 1) / 32


def waiting_order_ids(*, sale_id: int) -> set[int]:
    with ledger_errors():
        members = ledger_connection().zscan_iter(LedgerKeys(sale_id).waiting, count=_SCAN_COUNT)
        return {int(member.partition(":")[0]) for member, _ in members}


def clear_waiting_list(*, sale_id: int) -> None:
    """Empty the waiting list of a sale that has ended."""
    with ledger_errors():
        ledger_connection().unlink(LedgerKeys(sale_id).waiting)
