"""Runs the Lua scripts of ``locks/lua``; the only place that knows their calling convention.

What a lock looks like in Redis is told in ``lua/acquire.lua``. Every script may be sent again after
a lost reply. Every function here may raise ``redis.RedisError``, which means *unknown*, never
*failed*. The client must have ``decode_responses=True``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import Enum
from pathlib import Path
from typing import cast

from redis import Redis

from seckill_site.lua import Argument, LuaScript

_FOLDER = Path(__file__).parent / "lua"
_ACQUIRE = LuaScript(_FOLDER / "acquire.lua")
_ACQUIRE_MANY = LuaScript(_FOLDER / "acquire_many.lua")
_RELEASE = LuaScript(_FOLDER / "release.lua")
_RENEW = LuaScript(_FOLDER / "renew.lua")
_RAISE_FENCE = LuaScript(_FOLDER / "raise_fence.lua")

FENCE_LIMIT = 2**53 - 1
"""Fencing tokens stay below this, since an integer in Lua is a double."""

RELEASED_MS = 5_000
"""How long a release can be asked for again: longer than a client goes on trying."""


class AcquireResult(Enum):
    """The answers of ``acquire.lua`` and ``acquire_many.lua``."""

    GRANTED = 1
    BUSY = 2
    ENDED = 3


class ReleaseResult(Enum):
    """The answers of ``release.lua``."""

    RELEASED = 1
    NOT_OWNED = 2


class RenewResult(Enum):
    """The answers of ``renew.lua``."""

    RENEWED = 1
    LOST = 2


class Take(Enum):
    """How ``acquire_many.lua`` chooses."""

    FREE = "free"
    ALL = "all"


def acquire(
    client: Redis, name: str, owner: str, *, lease_ms: int, fence_key: str | None, fence_floor: int
) -> tuple[AcquireResult, int | None]:
    """Take one lock if it is free; the number is its fencing token, where a fence was named."""
    keys = [_marker(name, owner), name]
    if fence_key is not None:
        keys.append(fence_key)
    code, token = _ACQUIRE.run(client, keys=keys, args=[owner, lease_ms, fence_floor])
    return AcquireResult(code), int(token) if token else None


def acquire_many(
    client: Redis, names: Sequence[str], owner: str, *, lease_ms: int, take: Take
) -> tuple[AcquireResult, list[str]]:
    """Take many locks in one call; the list holds those that are the owner's now."""
    if not names:
        return AcquireResult.GRANTED, []
    keys = [_marker(names[0], owner), *names]
    code, *held = _ACQUIRE_MANY.run(client, keys=keys, args=[owner, lease_ms, take.value])
    return AcquireResult(code), held


def release(client: Redis, names: Sequence[str], owner: str) -> ReleaseResult:
    """Let go of what is still this owner's; repeated within ``RELEASED_MS``, the same answer."""
    if not names:
        return ReleaseResult.RELEASED
    keys = [_marker(names[0], owner), *names]
    return ReleaseResult(_RELEASE.run(client, keys=keys, args=[owner, RELEASED_MS]))


def renew(client: Redis, requests: Iterable[tuple[Sequence[str], str, int]]) -> list[RenewResult]:
    """Renew many holds in one round trip; a request is ``(names, owner, lease_ms)``."""
    calls: list[tuple[Sequence[str], Sequence[Argument]]] = [
        (names, [owner, lease_ms]) for names, owner, lease_ms in requests
    ]
    return [RenewResult(code) for code in _RENEW.run_many(client, calls)]


def is_owner(client: Redis, name: str, owner: str) -> bool:
    """Tell whether the lock is this owner's at this moment, in Redis."""
    value = cast("list[str | None]", client.mget([name]))[0]
    return value is not None and value.startswith(f"{owner} ")


def raise_fence(client: Redis, fence_key: str, at_least: int) -> None:
    """Raise a fencing counter to at least this value, after a database has seen a higher token.

    :raises ValueError: the value is negative or not below 2^53 - 1
    :raises redis.RedisError: unknown whether it was done; it can be sent again
    """
    check_fence(at_least)
    _RAISE_FENCE.run(client, keys=[fence_key], args=[at_least])


def check_fence(value: int) -> None:
    """Refuse what Lua cannot count on from.

    :raises ValueError: the value is negative or not below 2^53 - 1
    """
    if not 0 <= value < FENCE_LIMIT:
        raise ValueError(f"a fencing token is at least 0 and below 2^53 - 1, not {value}")


def _marker(name: str, owner: str) -> str:
    """Return the owner's released marker, in the cluster slot of ``name``.

    :raises ValueError: the name has braces, but no hash tag
    """
    if "{" not in name and "}" not in name:
        return f"{{{name}}}:released:{owner}"
    _, _, rest = name.partition("{")
    if rest.find("}") < 1:
        raise ValueError(f"braces, but no hash tag, in the lock's name {name!r}")
    return f"{name}:released:{owner}"
