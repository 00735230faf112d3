"""Order ids: unique, increasing and cheap, minted in Redis when a purchase token is issued.

The layout is the classic one: 31 bits of seconds since an epoch of ours, then 32 bits of a daily
sequence. It tells a stranger nothing, as a receipt answers its owner only.
"""

from __future__ import annotations

import datetime as dt
from pathlib import Path

from locks.lua_script import LuaScript
from seckill_site.ledger_connection import ledger_connection
from vouchers.inventory.keys import ledger_errors

EPOCH = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
SEQUENCE_BITS = 32

_KEY = "seckill:order-ids"
_MINT = LuaScript(Path(__file__).parent / "lua" / "mint_order_ids.lua")


def mint_order_ids(*, count: int) -> list[int]:
    """Return ``count`` new order ids, increasing, in one round trip.

    :raises LedgerUnavailable: Redis did not answer.
    """
    with ledger_errors():
        seconds, first = _MINT.run(
            ledger_connection(), keys=[_KEY], args=[int(EPOCH.timestamp()), count]
        )
    base = int(seconds) << SEQUENCE_BITS
    return [base | (int(first) + offset) for offset in range(count)]


def minted_at(order_id: int) -> dt.datetime:
    """Return the second in which this order id was minted."""
    return EPOCH + dt.timedelta(seconds=order_id >> SEQUENCE_BITS)
