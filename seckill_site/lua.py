"""Loads the Lua scripts of the apps and runs them through django-redis.

A script is one file. It is sent by its SHA-1 and, where the server does not know it (a new server,
``SCRIPT FLUSH``, a failover), once more in full, which also makes the server remember it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from django_redis import get_redis_connection
from redis import Redis
from redis.exceptions import NoScriptError

Argument = str | int


def ledger_connection() -> Any:
    """Return the raw client of the Redis that holds ledger and locks (``REDIS_URL``).

    A ``redis.Redis`` whose replies are decoded, which redis-py's own types cannot say: hence Any.
    """
    return get_redis_connection("ledger")


class LuaScript:
    """One Lua file, runnable on any client; the calling convention stands in the file's header."""

    def __init__(self, path: Path, *, prelude: Path | None = None) -> None:
        """Read the script; ``prelude`` is put in front of it, for functions that several share."""
        self.name = path.stem
        parts = [prelude, path] if prelude else [path]
        self.source = "\n".join(part.read_text(encoding="utf-8") for part in parts)
        self.sha = hashlib.sha1(self.source.encode(), usedforsecurity=False).hexdigest()

    def run(self, client: Redis, *, keys: Sequence[str], args: Sequence[Argument]) -> Any:
        """Run the script in one round trip, two where the server has to be told it first."""
        try:
            return client.evalsha(self.sha, len(keys), *keys, *args)
        except NoScriptError:
            return client.eval(self.source, len(keys), *keys, *args)

    def run_many(
        self, client: Redis, calls: Iterable[tuple[Sequence[str], Sequence[Argument]]]
    ) -> list[Any]:
        """Run the script once for each pair of keys and arguments, all in one round trip."""
        calls = list(calls)
        if not calls:
            return []
        try:
            return self._pipelined(client, calls)
        except NoScriptError:
            client.script_load(self.source)
            return self._pipelined(client, calls)

    def _pipelined(
        self, client: Redis, calls: list[tuple[Sequence[str], Sequence[Argument]]]
    ) -> list[Any]:
        with client.pipeline(transaction=False) as pipe:
            for keys, args in calls:
                pipe.evalsha(self.sha, len(keys), *keys, *args)
            return pipe.execute()
