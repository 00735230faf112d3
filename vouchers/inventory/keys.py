"""The ledger in Redis: the names of a sale's keys, and the two ways in which it may be missing.

``ARCHITECTURE.md`` says what each key holds. All keys of a sale share one hash tag, so they live in
one slot of a cluster and one script may touch them all.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from redis.exceptions import RedisError

from locks.lua_script import LuaScript

_LUA = Path(__file__).parent / "lua"

SENTINEL = "epoch"
"""The field of ``buyers`` that says for which epoch it was built."""


def ledger_script(name: str) -> LuaScript:
    """Return the script of that name."""
    return LuaScript(_LUA / f"{name}.lua")


class LedgerUnavailable(Exception):
    """Redis did not answer: what was asked may or may not have happened. Ask again."""


class NotLoaded(Exception):
    """The sale's ledger is not in Redis, or not whole."""


@contextmanager
def ledger_errors() -> Iterator[None]:
    """Turn what the Redis client raises into :class:`LedgerUnavailable`."""
    try:
        yield
    except RedisError as error:
        raise LedgerUnavailable(str(error)) from error


@dataclass(frozen=True)
class Holding:
    """One unit of one user under one order id."""

    order_id: int
    user_id: int
    unit: int

    @property
    def field(self) -> str:
        """Its field in ``buyers``."""
        return f"{self.user_id}:{self.unit}"

    @property
    def member(self) -> str:
        """Its entry in ``pending``."""
        return f"{self.order_id}:{self.field}"


@dataclass(frozen=True)
class LedgerKeys:
    """The keys of one sale."""

    sale_id: int

    def _key(self, name: str) -> str:
        return f"seckill:{{{self.sale_id}}}:{name}"

    @property
    def sale(self) -> str:
        return self._key("sale")

    @property
    def buyers(self) -> str:
        return self._key("buyers")

    @property
    def pending(self) -> str:
        return self._key("pending")

    @property
    def ended(self) -> str:
        return self._key("ended")

    @property
    def tries(self) -> str:
        return self._key("tries")

    @property
    def barred(self) -> str:
        return self._key("barred")

    @property
    def waiting(self) -> str:
        return self._key("waiting")

    @property
    def trying(self) -> str:
        return self._key("trying")

    @property
    def swept(self) -> str:
        return self._key("swept")

    @property
    def tally(self) -> str:
        return self._key("tally")

    @property
    def contents(self) -> list[str]:
        """The keys that hold a sale, in the order in which the scripts take them."""
        return [
            self.sale,
            self.buyers,
            self.pending,
            self.ended,
            self.tries,
            self.barred,
            self.waiting,
        ]

    @property
    def kick(self) -> str:
        return self._key("kick")

    @property
    def loading(self) -> str:
        return self._key("loading")

    @property
    def copies(self) -> list[str]:
        """The two hashes of copies, which rotate (``lua/include/cache_rows.lua``)."""
        return [self._key("copies:0"), self._key("copies:1")]

    @property
    def changing(self) -> str:
        return self._key("changing")

    def side(self, name: str, build: str) -> str:
        """Return the key under which one build of the ledger prepares ``name``."""
        return self._key(f"{name}:{build}")

    @property
    def sale_lock(self) -> str:
        return f"lock:{self._key('sale')}"

    @property
    def fence(self) -> str:
        return f"lock:{self._key('fence')}"

    def user_lock(self, user_id: int) -> str:
        return f"lock:{self._key(f'user:{user_id}')}"
