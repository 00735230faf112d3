"""The lock in Redis as it grows up in the course: four forms, each with what is still wrong.

None of them is the lock of the shop (``locks/``). A lock object is for one holding: ``take`` it,
and where that was true, ``release`` it.
"""

from __future__ import annotations

import secrets
import threading
from pathlib import Path
from typing import Protocol

from redis.exceptions import RedisError

from locks.lua_script import LuaScript
from seckill_site.ledger_connection import ledger_connection

LEASE_MS = 400
"""How long a lock stands by itself; short, so that one can watch it run out."""

_LUA = Path(__file__).parent / "lua"
_DELETE_IF_OWN = LuaScript(_LUA / "delete_if_own.lua")
_RENEW_IF_OWN = LuaScript(_LUA / "renew_if_own.lua")


class Lock(Protocol):
    """What the four forms have in common."""

    def take(self) -> bool:
        """Take the lock if it is free; says whether."""

    def release(self) -> None:
        """Let go of it."""


class SetnxLock:
    """SETNX and DEL: where the holder dies, nobody lets go."""

    def __init__(self, name: str) -> None:
        self._name = name

    def take(self) -> bool:
        return bool(ledger_connection().set(self._name, "1", nx=True))  # breaks: stuck, undersold

    def release(self) -> None:
        ledger_connection().delete(self._name)


class ExpiringLock:
    """SET NX PX and DEL: ends by itself, and then the DEL of the late one takes another's."""

    def __init__(self, name: str) -> None:
        self._name = name

    def take(self) -> bool:
        return bool(ledger_connection().set(self._name, "1", nx=True, px=LEASE_MS))

    def release(self) -> None:
        ledger_connection().delete(self._name)  # breaks: doubled


class OwnedLock:
    """A value of its own, compared before the DEL: but the work may take longer than the lease."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._value = secrets.token_hex(8)

    def take(self) -> bool:
        redis = ledger_connection()
        return bool(redis.set(self._name, self._value, nx=True, px=LEASE_MS))  # breaks: doubled

    def release(self) -> None:
        _DELETE_IF_OWN.run(ledger_connection(), keys=[self._name], args=[self._value])

    def renew(self) -> bool:
        """Let it stand for a whole lease again; False where it is not this holder's any more."""
        args: list[str | int] = [self._value, LEASE_MS]
        return bool(_RENEW_IF_OWN.run(ledger_connection(), keys=[self._name], args=args))


class WatchdogLock:
    """An owned lock that a thread renews while the process runs: but a process may stand still.

    It goes on where it stood, writes, and nobody refuses it: the lock has nothing to show to the
    database by which that could tell.
    """

    def __init__(self, name: str) -> None:
        self._lock = OwnedLock(name)
        self._over = threading.Event()

    def take(self) -> bool:
        taken = self._lock.take()
        if taken:
            threading.Thread(target=self._renew, name="lab-watchdog", daemon=True).start()
        return taken

    def release(self) -> None:
        self._over.set()
        self._lock.release()

    def _renew(self) -> None:
        """Renew every third of the lease, until it is over or another's."""
        while not self._over.wait(LEASE_MS / 3_000):
            try:
                if not self._lock.renew():  # breaks: doubled
                    return
            except RedisError:
                continue  # unknown: the next round tells
