"""Order ids: unique, increasing and cheap, minted in Redis when a purchase token is issued.

An id is 31 bits of seconds since our own epoch above 32 bits of a daily sequence. It gives
strangers nothing: only its owner gets the receipt. A token with which a buyer may take several
units gets a block of ids: Note [Blocks of order ids] in ``vouchers/inventory/purchases.py``.
"""

import datetime as dt
from pathlib import Path

from locks.lua_script import LuaScript, ScriptCall
from vouchers.inventory.keys import send
from vouchers.inventory.purchases import BLOCK_MARK, BLOCK_MARK_AT, BLOCK_SIZE, BLOCKS_A_SECOND

EPOCH = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
_EPOCH_S = int(EPOCH.timestamp())
SEQUENCE_BITS = 32

_KEY, _BLOCKS_KEY = "seckill:order-ids", "seckill:order-blocks"
_IDS_A_MICROSECOND, _BLOCKS_A_MICROSECOND = 4_000, 4
"""More than Redis can mint in that time."""

_MARK = BLOCK_MARK << BLOCK_MARK_AT
_MINT = LuaScript(Path(__file__).parent / "lua" / "mint_order_ids.lua")


def mint_order_ids(*, count: int, blocks: bool = False) -> list[int]:
    """Return ``count`` new order ids, increasing, in one round trip; each with a block if wanted.

    :raises LedgerUnavailable: Redis did not respond.
    """
    return send(mint_call(count=count, blocks=blocks))


def mint_call(*, count: int, key: str = "", blocks: bool = False) -> ScriptCall[list[int]]:
    """Build the call of :func:`mint_order_ids`; the lab counts with a key of its own."""
    mark, size = (_MARK, BLOCK_SIZE) if blocks else (0, 1)

    def read(reply: list[int]) -> list[int]:
        seconds, first = reply
        base = seconds << SEQUENCE_BITS | mark
        return [base | (first + offset) * size for offset in range(count)]

    if blocks:
        args = [_EPOCH_S, count, BLOCKS_A_SECOND, _BLOCKS_A_MICROSECOND]
    else:
        args = [_EPOCH_S, count, _MARK, _IDS_A_MICROSECOND]
    return ScriptCall(
        script=_MINT, keys=[key or (_BLOCKS_KEY if blocks else _KEY)], args=args, read=read
    )


def minted_ms(order_id: int) -> int:
    """Return the second in which this order id was minted, in milliseconds since 1970."""
    return (_EPOCH_S + (order_id >> SEQUENCE_BITS)) * 1000


def first_id_after(moment: dt.datetime) -> int:
    """Return the lowest id that can be minted in the second after this moment, or the largest."""
    seconds = (moment - EPOCH) // dt.timedelta(seconds=1) + 1
    return min(max(seconds, 0) << SEQUENCE_BITS, 2**63 - 1)
