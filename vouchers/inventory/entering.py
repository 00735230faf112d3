"""Entering a buyer in a draw: what :mod:`reservations` does for other sales."""

from enum import StrEnum
from functools import lru_cache, partial

from locks.lua_script import ScriptCall
from vouchers.inventory.keys import LedgerKeys, ledger_script
from vouchers.inventory.order_limits import LimitKind
from vouchers.inventory.reservations import (
    Reply,
    ReservationRefused,
    read_reply,
    replicated,
    reserve_settings,
)

_ENTER = ledger_script("enter")


class OneEntryOnly(ReservationRefused):
    """A draw takes one entry of each buyer, so that each has the same chance."""


class EnterCode(StrEnum):
    """The codes of ``enter.lua``."""

    ACCEPTED = "ACCEPTED"
    ALREADY_ORDERED = "ALREADY_ORDERED"
    NOT_LOADED = "NOT_LOADED"
    OTHER_SALE = "OTHER_SALE"
    OTHER_MODE = "OTHER_MODE"
    PAUSED = "PAUSED"
    NOT_STARTED = "NOT_STARTED"
    ENDED = "ENDED"
    LIMITED = "LIMITED"
    PRICE_CHANGED = "PRICE_CHANGED"


def enter_call(
    *,
    sale_id: int,
    order_id: int,
    user_id: int,
    identity: int = 0,
    address: str = "",
    price_cents: int | None = None,
) -> ScriptCall[Reply]:
    """Build the call that enters a buyer in a draw, like ``reserve_call``; its kick is never due.

    ``AlreadyOrdered`` is for an account that has another entry, ``SaleEnded`` for a closed list.
    """
    _, _, replicas, (most, _) = reserve_settings()
    subject = f"{LimitKind.ADDRESS}:{address}" if address else ""
    wait, price = 1 if replicas else "", "" if price_cents is None else price_cents
    call = ScriptCall(
        script=_ENTER,
        keys=_entry_keys(sale_id),
        args=[str(order_id), str(user_id), str(identity or ""), wait, subject, most, price],
        read=partial(read_reply, EnterCode, sale_id, ""),
    )
    return replicated(call, sale_id=sale_id, wanted=replicas) if replicas else call


@lru_cache(maxsize=1024)
def _entry_keys(sale_id: int) -> tuple[str, ...]:
    keys = LedgerKeys(sale_id)
    figures = (keys.limits, keys.limited, keys.price)
    return (*keys.contents, keys.entries, keys.fresh, *figures, keys.sale)
