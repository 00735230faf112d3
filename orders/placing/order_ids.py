"""Order ids: unique, increasing and cheap, minted in Redis when a purchase token is issued.

An id is 31 bits of seconds since our own epoch above 32 bits of a daily sequence. It gives
strangers nothing: only its owner gets the receipt.
"""

import datetime as dt
from pathlib import Path

from locks.lua_script import LuaScript, ScriptCall
from vouchers.inventory.keys import send

EPOCH = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
_EPOCH_S = int(EPOCH.timestamp())
SEQUENCE_BITS = 32

_KEY = "seckill:order-ids"
_MINT = LuaScript(Path(__file__).parent / "lua" / "mint_order_ids.lua")


def mint_order_ids(*, count: int) -> list[int]:
    """Return ``count`` new order ids, increasing, in one round trip.

    :raises LedgerUnavailable: Redis did not respond.
    """
    return send(mint_call(count=count))


def mint_call(*, count: int, key: str = _KEY) -> ScriptCall[list[int]]:
    """Build the call of :func:`mint_order_ids`; the lab counts with a key of its own."""

    def read(reply: list[int]) -> list[int]:
        seconds, first = reply
        base = seconds << SEQUENCE_BITS
        return [base | (first + offset) for offset in range(count)]

    args = [_EPOCH_S, count]
    return ScriptCall(script=_MINT, keys=[key], args=args, read=read)


def minted_ms(order_id: int) -> int:
    """Return the second in which this order id was minted, in milliseconds since 1970."""
    return (_EPOCH_S + (order_id >> SEQUENCE_BITS)) * 1000


def minted_at(order_id: int) -> dt.datetime:
    """Return the second in which this order id was minted."""
    return EPOCH + dt.timedelta(seconds=order_id >> SEQUENCE_BITS)


def first_id_after(moment: dt.datetime) -> int:
    """Return the lowest id that can be minted in the second after this moment, or the largest."""
    seconds = (moment - EPOCH) // dt.timedelta(seconds=1) + 1
    return min(max(seconds, 0) << SEQUENCE_BITS, 2**63 - 1)
