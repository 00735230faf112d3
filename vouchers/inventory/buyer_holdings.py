"""What one buyer holds in a sale's ledger, with queue positions."""

from __future__ import annotations

from dataclasses import dataclass

from locks.lua_script import ScriptCall
from vouchers.inventory.keys import Holding, LedgerKeys, ledger_script, send
from vouchers.models import MAX_LIMIT

_READ_HOLDINGS = ledger_script("read_buyer_holdings")


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
    """Return what this buyer holds, even if the ledger is not whole.

    :raises LedgerUnavailable: Redis did not answer.
    """

    def read(reply: list[str]) -> BuyerHoldings:
        numbers = map(int, reply)
        now_ms = next(numbers)
        units = [
            HeldUnit(order_id, user_id, unit, position or None)
            for unit, order_id, position in zip(numbers, numbers, numbers, strict=True)
        ]
        return BuyerHoldings(now_ms, units)

    keys = LedgerKeys(sale_id)
    return send(
        ScriptCall(
            script=_READ_HOLDINGS,
            keys=[keys.buyers, keys.pending],
            args=[str(user_id), MAX_LIMIT],
            read=read,
        )
    )
