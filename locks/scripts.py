"""Calls of the Lua scripts in ``locks/lua``; only this module knows their arguments.

``lua/include/take.lua`` says what a lock looks like in Redis. Every script may be sent again after
a lost reply, but none is resent automatically. Every function here may raise ``redis.RedisError``,
which means *unknown*, never *failed*. An unknown code raises ``ValueError``. A function named
``…_call`` returns the call, which any sender may send.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from redis import Redis, ResponseError

from locks.lua_script import Argument, LuaScript, ScriptCall
from locks.protocol import (
    CHANNEL,
    NO_NOTE,
    RELEASED_MS,
    AcquireResult,
    Answer,
    LookResult,
    ReleaseResult,
    RenewResult,
    Request,
    WaitNote,
    WakeResult,
    check_fence,
    process_name,
    readers_key,
    side_key,
)

SCRIPTS = {path.stem: LuaScript(path) for path in (Path(__file__).parent / "lua").glob("*.lua")}


def acquire_call(name: str, request: Request) -> ScriptCall[Answer]:
    """Take one lock if it is free, and a fencing token if a counter is named."""
    args = [request.fence.floor, *_note(request.note)]
    return _acquire("acquire", name, request, [side_key(name, "waiting")], args)


def acquire_fair_call(name: str, request: Request) -> ScriptCall[Answer]:
    """Take one lock if it is free and this owner is first; a waiting owner keeps its place."""
    patience_ms = request.note.ttl_ms if request.note.if_busy > 0 else 0
    args = [request.fence.floor, patience_ms]
    return _acquire("acquire_fair", name, request, _queue(name), args)


def acquire_write(client: Redis, name: str, request: Request) -> Answer:
    """Take a lock for writing if nobody reads or writes."""
    args = [request.fence.floor, *_note(request.note)]
    return _acquire("acquire_write", name, request, _read_write(name), args).run(client)


def acquire_read(client: Redis, name: str, request: Request, *, writer: str) -> Answer:
    """Take a lock for reading, unless an owner other than ``writer`` writes or waits to write."""
    args: list[Argument] = [writer, *_note(request.note)]
    return _acquire("acquire_read", name, request, _read_write(name), args).run(client)


def acquire_many(
    client: Redis, names: Sequence[str], request: Request, *, all_or_none: bool
) -> Answer:
    """Take many locks; the answer has the names held now, or the first busy one."""
    keys = [_marker(names[0], request.owner), *names]
    if request.note is not NO_NOTE:
        keys += [side_key(name, "waiting") for name in names]
    process, if_busy, _, ttl_ms = _note(request.note)
    mode = "all" if all_or_none else "free"
    args: list[Argument] = [request.owner, request.lease_ms, mode, len(names)]
    args += [process, if_busy, ttl_ms]
    code, *rest = SCRIPTS["acquire_many"].run(client, keys=keys, args=args)
    result = AcquireResult(code)
    if result is AcquireResult.BUSY:
        return Answer(result, left_ms=rest[1], names=(names[rest[0] - 1],))
    return Answer(result, names=tuple(rest))


def release_call(
    name: str, owner: str, *, forced: bool = False, waker: str = ""
) -> ScriptCall[tuple[ReleaseResult, bool]]:
    """Release one lock and wake one waiter; the flag says that ``waker`` must wake it itself.

    ``waker`` is by default the process. A repeated call within ``RELEASED_MS`` gets the same
    answer. A forced release, here and below, is made by somebody else: the owner's own release must
    not mistake it for its first attempt.
    """
    keys = [_marker(name, owner), name, side_key(name, "waiting")]
    args = _release_args(owner, forced, waker)
    return ScriptCall(SCRIPTS["release"], keys, args, _released)


def _released(reply: list[int]) -> tuple[ReleaseResult, bool]:
    code, *here = reply
    return ReleaseResult(code), bool(here)


def release_many(client: Redis, names: Sequence[str], owner: str, *, first: str) -> ReleaseResult:
    """Release the names that are still this owner's, and wake all waiters.

    The released marker is beside ``first``, the first name that was asked for, granted or not.
    """
    if not names:
        return ReleaseResult.RELEASED
    keys, args = [_marker(first, owner), *names], _release_args(owner)
    return ReleaseResult(SCRIPTS["release_many"].run(client, keys=keys, args=args))


def release_fair_call(name: str, owner: str, *, forced: bool = False) -> ScriptCall[ReleaseResult]:
    """Release one fair lock, or a place in its queue."""
    keys, args = [_marker(name, owner), name, *_queue(name)], _release_args(owner, forced)
    return ScriptCall(SCRIPTS["release_fair"], keys, args, ReleaseResult)


def release_read(client: Redis, name: str, owner: str, *, forced: bool = False) -> ReleaseResult:
    """Release one reader."""
    keys, args = [_marker(name, owner), name, readers_key(name)], _release_args(owner, forced)
    return ReleaseResult(SCRIPTS["release_read"].run(client, keys=keys, args=args))


def leave_queue_call(name: str, owner: str) -> ScriptCall[int]:
    """Give up a place in the queue of a fair lock."""
    return ScriptCall(SCRIPTS["leave_queue"], [name, *_queue(name)], [owner, CHANNEL], int)


def pass_wake_up_on(client: Redis, name: str) -> bool:
    """Wake another waiter of a free lock; return whether this process must wake it."""
    keys, args = [name, side_key(name, "waiting")], [CHANNEL, process_name()]
    code = SCRIPTS["pass_wake_up_on"].run(client, keys=keys, args=args)
    return WakeResult(code) is WakeResult.WAKE_HERE


def renew(
    client: Redis, requests: Iterable[tuple[Sequence[str], str, int]]
) -> list[RenewResult | ResponseError]:
    """Renew many holds in one round trip; a request is ``(names, owner, lease_ms)``.

    An error of a single request is returned as a value.
    """
    calls = [(names, (owner, lease_ms)) for names, owner, lease_ms in requests]
    return renewed(SCRIPTS["renew"].run_each(client, calls))


def renewed(replies: Iterable[Any]) -> list[RenewResult | ResponseError]:
    """Return the results of many renewals."""
    return [it if isinstance(it, ResponseError) else RenewResult(it) for it in replies]


def look_call(name: str, owner: str = "") -> ScriptCall[LookResult]:
    """Return whether a lock is free, this owner's or another's at this moment."""
    return ScriptCall(SCRIPTS["look"], [name, readers_key(name)], [owner], LookResult)


def cap_leases(client: Redis, names: Sequence[str], lease_ms: int) -> None:
    """Shorten leases that are longer than this, or endless; those of living holders are renewed."""
    SCRIPTS["cap_leases"].run(client, keys=names, args=[lease_ms])


def raise_fence(client: Redis, fence_key: str, at_least: int) -> None:
    """Raise a fencing counter to at least this value, after a database has seen a higher token.

    :raises ValueError: the value is negative or not below 2^53 - 1
    :raises redis.RedisError: unknown whether it was done; the call can be repeated
    """
    check_fence(at_least)
    SCRIPTS["raise_fence"].run(client, keys=[fence_key], args=[at_least])


def _acquire(
    script: str, name: str, request: Request, keys: Sequence[str], args: Sequence[Argument]
) -> ScriptCall[Answer]:
    """Return the call of a script that acquires one lock, and waits for replicas if wanted."""
    wait = [("WAIT", request.replicas, request.replicas_ms)] if request.replicas else []
    counter = [] if request.fence.key is None else [request.fence.key]
    return ScriptCall(
        SCRIPTS[script],
        [_marker(name, request.owner), name, *keys, *counter],
        [request.owner, request.lease_ms, *args],
        _answer_and_replicas if wait else _answer,
        wait,
    )


def _answer_and_replicas(replies: list[Any]) -> Answer:
    reply, replicas = replies
    return _answer(reply)._replace(replicas=replicas)


def _answer(reply: list[Any]) -> Answer:
    code, *values = reply
    result = AcquireResult(code)
    if result is AcquireResult.BUSY:
        return Answer(result, left_ms=values[0])
    token = int(values[0]) if values and values[0] else None
    return Answer(result, token=token)


def _release_args(owner: str, forced: bool = False, waker: str = "") -> list[Argument]:
    return [owner, 0 if forced else RELEASED_MS, CHANNEL, waker or process_name()]


def _marker(name: str, owner: str) -> str:
    return side_key(name, f"released:{owner}")


def _queue(name: str) -> list[str]:
    return [side_key(name, "queue"), side_key(name, "alive")]


def _read_write(name: str) -> list[str]:
    return [side_key(name, "waiting"), readers_key(name), side_key(name, "writers")]


def _note(note: WaitNote) -> list[Argument]:
    return [note.waker or process_name(), note.if_busy, note.if_granted, note.ttl_ms]
