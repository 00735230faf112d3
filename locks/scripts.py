"""Runs the Lua scripts of ``locks/lua``; the only place that knows their calling convention.

What a lock looks like in Redis is told in ``lua/_lock.lua``. Every script may be sent again after a
lost reply, and none is sent again by itself. Every function here may raise ``redis.RedisError``,
which means *unknown*, never *failed*. The client must have ``decode_responses=True``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from redis import Redis, ResponseError

from locks.lua_script import Argument, Command, LuaScript
from locks.owner import process_name
from locks.protocol import (
    CHANNEL,
    NOT_WAITING,
    RELEASED_MS,
    AcquireResult,
    Answer,
    LookResult,
    ReleaseResult,
    RenewResult,
    Request,
    Take,
    Waiting,
    beside,
    check_fence,
    readers_key,
)

_FOLDER = Path(__file__).parent / "lua"


def _script(name: str) -> LuaScript:
    return LuaScript(_FOLDER / f"{name}.lua", prelude=_FOLDER / "_lock.lua")


_ACQUIRE = _script("acquire")
_ACQUIRE_FAIR = _script("acquire_fair")
_ACQUIRE_MANY = _script("acquire_many")
_ACQUIRE_READ = _script("acquire_read")
_ACQUIRE_WRITE = _script("acquire_write")
_LEAVE_QUEUE = _script("leave_queue")
_LOOK = _script("look")
_RAISE_FENCE = _script("raise_fence")
_RELEASE = _script("release")
_RELEASE_FAIR = _script("release_fair")
_RELEASE_MANY = _script("release_many")
_RELEASE_READ = _script("release_read")
_RENEW = _script("renew")
_WAKE = _script("wake")


def acquire(client: Redis, name: str, request: Request) -> Answer:
    """Take one lock if it is free, and with it a fencing token where a counter is named."""
    keys = [beside(name, "waiting"), *_counter(request)]
    args: list[Argument] = [request.fence.floor, *_note(request.waiting)]
    return _ask(client, _ACQUIRE, name, request, keys, args)


def acquire_fair(client: Redis, name: str, request: Request) -> Answer:
    """Take one lock if it is free and this owner's turn; one that waits keeps its place."""
    keys = [*_queue(name), *_counter(request)]
    patience_ms = request.waiting.stay_ms if request.waiting.if_busy > 0 else 0
    return _ask(client, _ACQUIRE_FAIR, name, request, keys, [request.fence.floor, patience_ms])


def acquire_write(client: Redis, name: str, request: Request) -> Answer:
    """Take a lock for writing if nobody reads or writes."""
    keys = [*_read_write(name), *_counter(request)]
    args: list[Argument] = [request.fence.floor, *_note(request.waiting)]
    return _ask(client, _ACQUIRE_WRITE, name, request, keys, args)


def acquire_read(client: Redis, name: str, request: Request, *, writer: str) -> Answer:
    """Take a lock for reading, unless somebody else than ``writer`` writes or waits to write."""
    args: list[Argument] = [writer, *_note(request.waiting)]
    return _ask(client, _ACQUIRE_READ, name, request, _read_write(name), args)


def acquire_many(client: Redis, names: Sequence[str], request: Request, *, take: Take) -> Answer:
    """Take many locks; the answer's names are those that are had now, or the first busy one."""
    keys = [_marker(names[0], request.owner), *names]
    if request.waiting is not NOT_WAITING:
        keys += [beside(name, "waiting") for name in names]
    process, if_busy, _, stay_ms = _note(request.waiting)
    how: list[Argument] = [take.value, len(names), process, if_busy, stay_ms]
    code, *rest = _ACQUIRE_MANY.run(client, keys=keys, args=[request.owner, request.lease_ms, *how])
    result = AcquireResult(code)
    if result is AcquireResult.BUSY:
        return Answer(result, left_ms=rest[1], names=(names[rest[0] - 1],))
    return Answer(result, names=tuple(rest))


def release(
    client: Redis, name: str, owner: str, *, forced: bool = False
) -> tuple[ReleaseResult, bool]:
    """Let go of one lock and wake one who waits; says whether this process has to, by itself.

    Repeated within ``RELEASED_MS``, the same answer. Forced, here and below, is the release by
    somebody else, which its owner's own release shall not take for its first one.
    """
    keys = [_marker(name, owner), name, beside(name, "waiting")]
    code, *here = _RELEASE.run(client, keys=keys, args=_releasing(owner, forced))
    return ReleaseResult(code), bool(here)


def release_many(client: Redis, names: Sequence[str], owner: str, *, first: str) -> ReleaseResult:
    """Let go of what is still this owner's, and wake all who wait for any of it.

    ``first`` is the first name that was asked for, whether had or not: the marker is beside it.
    """
    if not names:
        return ReleaseResult.RELEASED
    keys = [_marker(first, owner), *names]
    return ReleaseResult(_RELEASE_MANY.run(client, keys=keys, args=_releasing(owner, False)))


def release_fair(client: Redis, name: str, owner: str, *, forced: bool = False) -> ReleaseResult:
    """Let go of one fair lock, or of a place in its queue."""
    keys = [_marker(name, owner), name, *_queue(name)]
    return ReleaseResult(_RELEASE_FAIR.run(client, keys=keys, args=_releasing(owner, forced)[:3]))


def release_read(client: Redis, name: str, owner: str, *, forced: bool = False) -> ReleaseResult:
    """End one owner's reading."""
    keys = [_marker(name, owner), name, readers_key(name)]
    return ReleaseResult(_RELEASE_READ.run(client, keys=keys, args=_releasing(owner, forced)))


def leave_queue(client: Redis, name: str, owner: str) -> None:
    """Give up a place in the queue of a fair lock."""
    _LEAVE_QUEUE.run(client, keys=[name, *_queue(name)], args=[owner, CHANNEL])


def pass_on(client: Redis, name: str) -> bool:
    """Wake somebody else for a lock that is free; says whether this process has to, by itself."""
    keys = [name, beside(name, "waiting")]
    return bool(_WAKE.run(client, keys=keys, args=[CHANNEL, process_name()]))


def renew(
    client: Redis, requests: Iterable[tuple[Sequence[str], str, int]]
) -> list[RenewResult | ResponseError]:
    """Renew many holds in one round trip; a request is ``(names, owner, lease_ms)``.

    What Redis says to one of them, it says to no other: an error is a value among the answers.
    """
    calls: list[tuple[Sequence[str], Sequence[Argument]]] = [
        (names, [owner, lease_ms]) for names, owner, lease_ms in requests
    ]
    return [
        it if isinstance(it, ResponseError) else RenewResult(it)
        for it in _RENEW.run_each(client, calls)
    ]


def look(client: Redis, name: str, owner: str = "") -> LookResult:
    """Tell whether a lock is free, this owner's or another's at this moment."""
    return LookResult(_LOOK.run(client, keys=[name, readers_key(name)], args=[owner]))


def raise_fence(client: Redis, fence_key: str, at_least: int) -> None:
    """Raise a fencing counter to at least this value, after a database has seen a higher token.

    :raises ValueError: the value is negative or not below 2^53 - 1
    :raises redis.RedisError: unknown whether it was done; it can be sent again
    """
    check_fence(at_least)
    _RAISE_FENCE.run(client, keys=[fence_key], args=[at_least])


def _ask(
    client: Redis,
    script: LuaScript,
    name: str,
    request: Request,
    keys: Sequence[str],
    args: Sequence[Argument],
) -> Answer:
    """Run a script that acquires one lock, and where replicas are wanted wait for them with it."""
    wait: list[Command] = []
    if request.replicas:
        wait = [("WAIT", request.replicas, request.replicas_ms)]
    reply = script.run(
        client,
        keys=[_marker(name, request.owner), name, *keys],
        args=[request.owner, request.lease_ms, *args],
        then=wait,
    )
    (code, *values), replicas = reply if wait else (reply, 0)
    result = AcquireResult(code)
    if result is AcquireResult.BUSY:
        return Answer(result, left_ms=values[0])
    token = int(values[0]) if values and values[0] else None
    return Answer(result, token=token, replicas=replicas)


def _releasing(owner: str, forced: bool) -> list[Argument]:
    return [owner, 0 if forced else RELEASED_MS, CHANNEL, process_name()]


def _marker(name: str, owner: str) -> str:
    return beside(name, f"released:{owner}")


def _counter(request: Request) -> list[str]:
    return [] if request.fence.key is None else [request.fence.key]


def _queue(name: str) -> list[str]:
    return [beside(name, "queue"), beside(name, "alive")]


def _read_write(name: str) -> list[str]:
    return [beside(name, "waiting"), readers_key(name), beside(name, "writers")]


def _note(waiting: Waiting) -> list[Argument]:
    return [process_name(), waiting.if_busy, waiting.if_had, waiting.stay_ms]
