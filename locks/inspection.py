"""The locks that are held in Redis at this moment, and their release by force."""

import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

from redis import Redis

from locks import scripts
from locks.protocol import ReleaseResult, readers_key, side_key

Kind = Literal["exclusive", "read"]

SCAN_COUNT = 1_000
PIPELINE_NAMES = 500
"""Names in one pipeline, so that no pipeline blocks other clients for long."""

GONE, ENDLESS = -2, -1
"""The replies of PTTL that are not a time: no such key, and no expiry."""

_OWNER = r"(?P<owner>(?P<host>[^/ ]+)/(?P<process>[0-9]+)/(?P<thread>[0-9]+)/[0-9a-f]{16})"
OWNER = re.compile(_OWNER)
LOCK = re.compile(rf"{_OWNER} (?P<token>[0-9]*) (?P<since_ms>[0-9]+)")
"""The value of a lock; no counter, marker or other string looks like it."""

READERS = re.compile(r"\{(?P<bare>[^{}]+)\}:readers|(?P<tagged>.+):readers", re.DOTALL)


class NotHeldByOwner(Exception):
    """That owner does not hold the lock, or no longer does; nothing was changed."""


@dataclass(frozen=True, kw_only=True)
class HeldLock:
    """One hold of one lock; a lock with several readers has several."""

    name: str
    kind: Kind
    host: str
    process: int
    thread: int
    age_ms: int | None = None
    lease_left_ms: int | None
    waiters: int = 0
    token: int | None = None
    owner: str

    @property
    def age(self) -> str:
        """The time for which it has been held, as text; unknown for a reader."""
        return _seconds(self.age_ms)

    @property
    def lease_left(self) -> str:
        """The time for which it would last without another renewal, as text."""
        return _seconds(self.lease_left_ms)


def held_locks(client: Redis, *, match: str = "lock:*") -> list[HeldLock]:
    """Return every hold whose name matches the glob pattern, by name.

    :raises redis.RedisError: Redis did not respond
    """
    strings = _scan(client, match, type_="string")
    # If a name has no hash tag, the key of its readers wraps it in one.
    readers = _scan(client, f"{match}:readers", f"{{{match}}}:readers", type_="zset")
    names = [READERS.fullmatch(key) for key in readers]
    return _holds(client, strings, {it["bare"] or it["tagged"] for it in names if it})


def holds_of(client: Redis, name: str) -> list[HeldLock]:
    """Return the holds of one name: none, one, or several readers.

    :raises ValueError: the name has braces, but no hash tag
    :raises redis.RedisError: Redis did not respond
    """
    return _holds(client, {name}, {name})


def force_release(client: Redis, name: str, owner: str) -> None:
    """Release this owner's hold, and nobody else's; the owner learns of it at its next renewal.

    :raises NotHeldByOwner: this owner does not hold it, or no longer does
    :raises ValueError: the name has braces, but no hash tag
    :raises redis.RedisError: unknown whether it was released; look again
    """
    kinds = [hold.kind for hold in holds_of(client, name) if hold.owner == owner]
    if not kinds or _release(client, name, owner, kinds[0]) is ReleaseResult.NOT_OWNED:
        raise NotHeldByOwner(f"{name} is not held by {owner} any more")


def _release(client: Redis, name: str, owner: str, kind: Kind) -> ReleaseResult:
    if kind == "read":
        return scripts.release_read(client, name, owner, forced=True)
    if client.exists(side_key(name, "queue")):
        return scripts.release_fair_call(name, owner, forced=True).run(client)
    return scripts.release_call(name, owner, forced=True).run(client)[0]


def _scan(client: Redis, *patterns: str, type_: str) -> set[str]:
    return {
        key
        for pattern in patterns
        for key in client.scan_iter(match=pattern, count=SCAN_COUNT, _type=type_)
    }


def _holds(client: Redis, names: Collection[str], read: Collection[str]) -> list[HeldLock]:
    seconds, microseconds = client.time()
    now_ms = seconds * 1_000 + microseconds // 1_000
    holds = [*_exclusive(client, names, now_ms), *_readers(client, read, now_ms)]
    waiters = _waiters(client, {hold.name for hold in holds}, now_ms)
    counted = [replace(hold, waiters=waiters[hold.name]) for hold in holds]
    return sorted(counted, key=lambda hold: (hold.name, hold.kind, hold.owner))


def _exclusive(client: Redis, names: Collection[str], now_ms: int) -> Iterator[HeldLock]:
    # For a key of another type, MGET returns nil instead of an error.
    asks = (lambda pipe, name: pipe.mget([name]), lambda pipe, name: pipe.pttl(name))
    for name, (value,), left_ms in _read_each(client, names, *asks):
        lock = LOCK.fullmatch(value or "")
        if lock and left_ms != GONE:
            yield HeldLock(
                name=name,
                kind="exclusive",
                age_ms=max(0, now_ms - int(lock["since_ms"])),
                lease_left_ms=None if left_ms == ENDLESS else left_ms,
                token=int(lock["token"]) if lock["token"] else None,
                **_parts(lock),
            )


def _readers(client: Redis, names: Collection[str], now_ms: int) -> Iterator[HeldLock]:
    def ask(pipe: Any, name: str) -> None:
        pipe.zrangebyscore(readers_key(name), f"({now_ms}", "+inf", withscores=True)

    for name, members in _read_each(client, names, ask):
        for member, until_ms in members:
            if owner := OWNER.fullmatch(member):
                left_ms = int(until_ms) - now_ms
                yield HeldLock(name=name, kind="read", lease_left_ms=left_ms, **_parts(owner))


def _parts(match: re.Match[str]) -> dict[str, Any]:
    process, thread = int(match["process"]), int(match["thread"])
    return {"host": match["host"], "process": process, "thread": thread, "owner": match["owner"]}


def _waiters(client: Redis, names: Collection[str], now_ms: int) -> dict[str, int]:
    """Return the number of threads that wait for each name, from processes' notes and queues."""
    asks = (
        lambda pipe, name: pipe.hvals(side_key(name, "waiting")),
        lambda pipe, name: pipe.zcount(side_key(name, "alive"), f"({now_ms}", "+inf"),
    )
    waiters = {}
    for name, notes, queued in _read_each(client, names, *asks):
        counts = [map(int, note.split()) for note in notes]
        waiters[name] = queued + sum(count for count, until_ms in counts if until_ms > now_ms)
    return waiters


def _read_each(
    client: Redis, names: Collection[str], *asks: Callable[[Any, str], object]
) -> Iterator[tuple[Any, ...]]:
    """Send the same commands for each name, and yield each name with its replies."""
    ordered = list(names)
    for start in range(0, len(ordered), PIPELINE_NAMES):
        step = ordered[start : start + PIPELINE_NAMES]
        with client.pipeline(transaction=False) as pipe:
            for name in step:
                for ask in asks:
                    ask(pipe, name)
            answers = pipe.execute()
        yield from zip(step, *(answers[i :: len(asks)] for i in range(len(asks))), strict=True)


def _seconds(ms: int | None) -> str:
    return "-" if ms is None else f"{ms / 1_000:.1f} s"
