"""Limits of new orders of a sale: which requests the ledger counts, who is at a limit, lifting it.

The script that reserves counts (``lua/reserve.lua``), per address and per account, in windows of a
thousand seconds.

Note [First orders]
~~~~~~~~~~~~~~~~~~~
To count an order costs Redis as much as a third of the order. Nearly all of a crowd have an address
of their own, and order once. So a web process names an address only from its second order of a sale
on; the script counts the first together with it, once. A first order that is refused is no order.
One of several units is counted at once.
An address gets its limit, and at worst one more for each further process that it reached only once.
"""

import secrets
from collections.abc import Iterable
from enum import StrEnum
from typing import NamedTuple

from redis.exceptions import ResponseError

from seckill_site.clocks.ledger import ledger_now_ms
from seckill_site.process_memory import ProcessMemory
from seckill_site.redis.ledger_connection import ledger_connection
from vouchers.inventory.keys import LedgerKeys, LedgerUnavailable, ledger_errors

WINDOW_MS = 1_000_000
"""A window; the script takes its number from the digits of the time."""

MOST_SEEN = 100_000
"""The most addresses that a process remembers; above that, it starts anew."""


class LimitKind(StrEnum):
    """What a limit counts. A subject of the script is one of these, a colon, and its name."""

    ADDRESS = "a"
    ACCOUNT = "u"


class _Seen(ProcessMemory):
    """The addresses from which this process has sent an order, with its sale, in this window."""

    def forget(self) -> None:
        self.process, self.window = secrets.token_hex(6), 0
        self.subjects: dict[tuple[int, str], bool] = {}

    def see(self, sale_id: int, address: str, *, several: bool) -> tuple[bool, bool]:
        """Return whether this order is the first, and whether the first was not counted at once."""
        window = ledger_now_ms(may_wait=False) // WINDOW_MS
        if window != self.window or len(self.subjects) >= MOST_SEEN:
            self.window, self.subjects = window, {}
        size = len(self.subjects)
        waits = self.subjects.setdefault((sale_id, address), not several)
        return len(self.subjects) > size, waits


_seen = _Seen()


def forget_first_order(*, sale_id: int, address: str) -> None:
    """Take back that an address has sent its first order, because that was refused."""
    _seen.subjects.pop((sale_id, address), None)


def counted_subject(*, sale_id: int, address: str, quantity: int = 1) -> tuple[str, str]:
    """Return what the script counts an order of this address for, and the name of its first one.

    The name is empty if there is no first one that waits to be counted.
    """
    if not address:
        return "", ""
    is_first, first_waits = _seen.see(sale_id, address, several=quantity > 1)
    if is_first and first_waits:
        return "", ""
    first = f"f:{_seen.process}:{address}" if first_waits else ""
    return f"{LimitKind.ADDRESS}:{address}", first


class LimitedSubject(NamedTuple):
    """An address or account id at its limit in a sale, and the orders refused for it."""

    kind: LimitKind
    name: str
    refused: int

    @property
    def subject(self) -> str:
        """The subject as the script names it."""
        return f"{self.kind}:{self.name}"


def limited_subjects(*, sale_id: int, most: int) -> list[LimitedSubject]:
    """Return those at their limit now, the most refused first."""
    key = LedgerKeys(sale_id).limited
    try:
        with ledger_errors():
            scored = ledger_connection().zrevrange(key, 0, most - 1, withscores=True)
    except LedgerUnavailable as error:
        if isinstance(error.__cause__, ResponseError):  # a key of a wrong type lists nobody
            return []
        raise
    parts = [(subject.partition(":"), int(refused)) for subject, refused in scored]
    return [LimitedSubject(LimitKind(kind), name, refused) for (kind, _, name), refused in parts]


def lift_order_limits(*, sale_id: int, subjects: Iterable[str]) -> None:
    """Count the orders of these anew from now on. Safe to repeat."""
    keys, subjects = LedgerKeys(sale_id), list(subjects)
    window = ledger_now_ms() // WINDOW_MS
    if subjects:
        with ledger_errors(), ledger_connection().pipeline(transaction=True) as pipe:
            pipe.hdel(keys.limits, *[f"{window}{subject}" for subject in subjects])
            pipe.zrem(keys.limited, *subjects)
            pipe.execute()
