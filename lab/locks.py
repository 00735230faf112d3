"""The lock in Redis as the course develops it: its forms with their flaws, and a typo.

Behind them are two forms in the database. None of them is the lock of the shop (``locks/``). Use a
lock object once: ``take`` it, and if that returns True, ``release`` it.
"""

import os
import secrets
import threading
import uuid
from functools import cache
from pathlib import Path

from django.db import connection
from redis.exceptions import RedisError

from lab.waiting import wait_until
from locks.lua_script import LuaScript
from seckill_site.redis.ledger_connection import ledger_connection

LEASE_MS = 400
"""Milliseconds that a lock lasts without renewal; short, so that you can watch it expire."""

_LUA = Path(__file__).parent / "lua"
_DELETE_IF_OWN = LuaScript(_LUA / "delete_if_own.lua")
_DELETE_MISTYPED = LuaScript(_LUA / "delete_mistyped.lua")
_RENEW_IF_OWN = LuaScript(_LUA / "renew_if_own.lua")


class NamedLock:
    """What all forms have in common.

    ``token`` is a number above that of every earlier holder, if the form has one. ``setting`` has
    the URL of a server that only this form uses; ``absent`` says what to do without it.
    """

    token: int | None = None
    setting = absent = ""

    def __init__(self, name: str) -> None:
        self._name = name

    def take(self) -> bool:
        """Take the lock if it is free; return whether it was."""
        raise NotImplementedError

    def take_within(self, wait_s: float) -> bool:
        """Take the lock as soon as it is free; return whether it was in time."""
        return wait_until(self.take, within_s=wait_s)

    def release(self) -> None:
        raise NotImplementedError

    def is_lost(self) -> bool:
        """Return whether this process knows that it has lost the lock; does not ask."""
        return False


class SetnxLock(NamedLock):
    """SETNX and DEL: if the holder dies, nobody releases the lock."""

    def take(self) -> bool:
        return bool(ledger_connection().set(self._name, "1", nx=True))  # breaks: stuck, undersold

    def release(self) -> None:
        ledger_connection().delete(self._name)


class ExpiringLock(NamedLock):
    """SET NX PX and DEL: it expires, and then the DEL of a late holder deletes another's lock."""

    def take(self) -> bool:
        return bool(ledger_connection().set(self._name, "1", nx=True, px=LEASE_MS))

    def release(self) -> None:
        ledger_connection().delete(self._name)  # breaks: doubled


class OwnedLock(NamedLock):
    """A value of its own, compared before the DEL; but the work may take longer than the lease."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._value = secrets.token_hex(8)

    def take(self) -> bool:
        redis = ledger_connection()
        return bool(redis.set(self._name, self._value, nx=True, px=LEASE_MS))  # breaks: doubled

    def release(self) -> None:
        _DELETE_IF_OWN.run(ledger_connection(), keys=[self._name], args=[self._value])

    def renew(self) -> bool:
        """Start the lease again; return False if another holder has the lock."""
        args: list[str | int] = [self._value, LEASE_MS]
        return bool(_RENEW_IF_OWN.run(ledger_connection(), keys=[self._name], args=args))


class ThreadIdLock(OwnedLock):
    """The value is the id of the thread: a thread of another process may have the same one."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._value = str(threading.get_ident())  # breaks: doubled


class UuidLock(OwnedLock):
    """The value is a UUID of the process and the id of the thread, as in Redisson."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._value = f"{_uuid_of(os.getpid())}-{threading.get_ident()}"


@cache
def _uuid_of(pid: int) -> str:
    """Return the UUID of a process; one made at import would be that of all forks."""
    return uuid.uuid4().hex


class MistypedLock(OwnedLock):
    """An owned lock whose script to release it has a typo: Redis stops it with an error."""

    def release(self) -> None:
        _DELETE_MISTYPED.run(ledger_connection(), keys=[self._name], args=[self._value])


class WatchdogLock(OwnedLock):
    """An owned lock that a thread renews while the process runs; but a process may freeze.

    It then continues and writes, and nothing rejects the write: the lock gives it no fencing token
    that the database could compare.
    """

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._over = threading.Event()

    def take(self) -> bool:
        taken = super().take()
        if taken:
            threading.Thread(target=self._keep_renewing, name="lab-watchdog", daemon=True).start()
        return taken

    def release(self) -> None:
        self._over.set()
        super().release()

    def _keep_renewing(self) -> None:
        """Renew every third of the lease, until the lock is released or lost."""
        while not self._over.wait(LEASE_MS / 3_000):
            try:
                if not self.renew():  # breaks: doubled
                    return
            except RedisError:
                continue  # unknown: the next round will tell


class RowLock(NamedLock):
    """A row with a lease and a token; a holder that freezes for longer writes all the same."""

    def take(self) -> bool:
        lease_us = LEASE_MS * 1_000
        with connection.cursor() as cursor:
            cursor.execute(_TAKE_ROW, [lease_us, self._name])  # breaks: doubled
            if not cursor.rowcount:  # it is taken, or nobody ever had it
                cursor.execute(_MAKE_ROW, [self._name, lease_us])
            self.token = cursor.lastrowid if cursor.rowcount else None
        return self.token is not None

    def release(self) -> None:
        with connection.cursor() as cursor:
            cursor.execute(_FREE_ROW, [self._name, self.token])


# LAST_INSERT_ID(x) returns x with the statement's own reply. The row stays, and with it the token.
_TAKE_ROW = """
    UPDATE lab_lablock
    SET token = LAST_INSERT_ID(token + 1), expires_at = NOW(6) + INTERVAL %s MICROSECOND
    WHERE name = %s AND expires_at <= NOW(6)"""
_MAKE_ROW = """
    INSERT IGNORE INTO lab_lablock (name, token, expires_at)
    VALUES (%s, LAST_INSERT_ID(1), NOW(6) + INTERVAL %s MICROSECOND)"""
_FREE_ROW = "UPDATE lab_lablock SET expires_at = NOW(6) WHERE name = %s AND token = %s"


class ConnectionLock(NamedLock):
    """``GET_LOCK``: no lease, because it ends with the connection; a frozen holder keeps it."""

    def take(self) -> bool:
        return self.take_within(0)

    def take_within(self, wait_s: float) -> bool:
        return self._ask("SELECT GET_LOCK(%s, %s)", self._name, wait_s)

    def release(self) -> None:
        self._ask("SELECT RELEASE_LOCK(%s)", self._name)

    @staticmethod
    def _ask(sql: str, *arguments: str | float) -> bool:
        with connection.cursor() as cursor:
            cursor.execute(sql, arguments)
            return bool(cursor.fetchone()[0])


def is_held(name: str) -> bool:
    """Return whether a lock of any form with this name has a holder."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT IS_USED_LOCK(%s) IS NOT NULL"
            " OR EXISTS (SELECT 1 FROM lab_lablock WHERE name = %s AND expires_at > NOW(6))",
            [name, name],
        )
        return bool(cursor.fetchone()[0] or ledger_connection().exists(name))
