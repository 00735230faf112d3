"""Who holds which lock at this moment, as Redis has it; and the way to let go of one by force."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

from redis import Redis

from locks import scripts
from locks.protocol import ReleaseResult, beside, readers_key

Kind = Literal["exclusive", "read"]

SCANNED_AT_ONCE = 1_000
READ_AT_ONCE = 500
"""Names in one pipeline: however many locks there are, a step is short for everybody else."""

GONE, ENDLESS = -2, -1
"""What PTTL answers instead of a time."""

_OWNER = r"(?P<owner>(?P<host>[^/ ]+)/(?P<process>[0-9]+)/(?P<thread>[0-9]+)/[0-9a-f]{16})"
OWNER = re.compile(_OWNER)
LOCK = re.compile(rf"{_OWNER} (?P<token>[0-9]*) (?P<since_ms>[0-9]+)")
"""The value of a lock, by which it is told from counters, markers and other strings."""

READERS = re.compile(r"\{(?P<bare>[^{}]+)\}:readers|(?P<tagged>.+):readers", re.DOTALL)


class NotHeldByOwner(Exception):
    """The lock is not held by that owner (any more); nothing was changed."""


@dataclass(frozen=True)
class HeldLock:
    """One hold of one name; a name with several readers has several."""

    name: str
    kind: Kind
    host: str
    process: int
    thread: int
    age_ms: int | None
    lease_left_ms: int | None
    waiters: int
    token: int | None
    owner: str

    @property
    def age(self) -> str:
        """How long it has been held, for people; a reader's begin is not kept."""
        return _seconds(self.age_ms)

    @property
    def lease_left(self) -> str:
        """How long it would last without another renewal, for people."""
        return _seconds(self.lease_left_ms)


def held_locks(client: Redis, *, match: str = "lock:*") -> list[HeldLock]:
    """Return every hold whose name matches the glob pattern, by name.

    :raises redis.RedisError: Redis did not answer
    """
    strings = _scan(client, match, type_="string")
    # A name without a hash tag has its readers beside it in a tag of its own.
    readers = _scan(client, f"{match}:readers", f"{{{match}}}:readers", type_="zset")
    return _holds(client, strings, {_name_of(key) for key in readers})


def holds_of(client: Redis, name: str) -> list[HeldLock]:
    """Return the holds of one name: none, one, or several readers.

    :raises ValueError: the name has braces, but no hash tag
    :raises redis.RedisError: Redis did not answer
    """
    return _holds(client, {name}, {name})


def force_release(client: Redis, name: str, owner: str) -> None:
    """Let go of this owner's hold, and of nobody else's; it learns so at its next renewal.

    :raises NotHeldByOwner: it is not, or no longer, this owner's
    :raises ValueError: the name has braces, but no hash tag
    :raises redis.RedisError: unknown whether it was let go; look again
    """
    kinds = [hold.kind for hold in holds_of(client, name) if hold.owner == owner]
    if not kinds or _release(client, name, owner, kinds[0]) is ReleaseResult.NOT_OWNED:
        raise NotHeldByOwner(f"{name} is not held by {owner} any more")


def _release(client: Redis, name: str, owner: str, kind: Kind) -> ReleaseResult:
    if kind == "read":
        return scripts.release_read(client, name, owner, forced=True)
    if client.exists(beside(name, "queue")):
        return scripts.release_fair(client, name, owner, forced=True)
    return scripts.release(client, name, owner, forced=True)[0]


# --- Reading --------------------------------------------------------------------------------------


def _scan(client: Redis, *patterns: str, type_: str) -> set[str]:
    return {
        key
        for pattern in patterns
        for key in client.scan_iter(match=pattern, count=SCANNED_AT_ONCE, _type=type_)
    }


def _name_of(readers: str) -> str:
    found = READERS.fullmatch(readers)
    assert found, "the scan asks for such keys alone"
    return found["bare"] or found["tagged"]


def _holds(client: Redis, names: Collection[str], read: Collection[str]) -> list[HeldLock]:
    now_ms = _now_ms(client)
    holds = [*_exclusive(client, names, now_ms), *_readers(client, read, now_ms)]
    waiters = _waiters(client, {hold.name for hold in holds}, now_ms)
    counted = [replace(hold, waiters=waiters[hold.name]) for hold in holds]
    return sorted(counted, key=lambda hold: (hold.name, hold.kind, hold.owner))


def _now_ms(client: Redis) -> int:
    seconds, microseconds = client.time()
    return seconds * 1_000 + microseconds // 1_000


def _exclusive(client: Redis, names: Collection[str], now_ms: int) -> Iterator[HeldLock]:
    # MGET answers nothing, not an error, for a key of another type.
    asks = (lambda pipe, name: pipe.mget([name]), lambda pipe, name: pipe.pttl(name))
    for name, (value,), left_ms in _asked(client, names, *asks):
        lock = LOCK.fullmatch(value or "")
        if lock and left_ms != GONE:
            yield _hold(
                name,
                "exclusive",
                lock,
                age_ms=max(0, now_ms - int(lock["since_ms"])),
                lease_left_ms=None if left_ms == ENDLESS else left_ms,
                token=int(lock["token"]) if lock["token"] else None,
            )


def _readers(client: Redis, names: Collection[str], now_ms: int) -> Iterator[HeldLock]:
    def ask(pipe: Any, name: str) -> None:
        pipe.zrangebyscore(readers_key(name), f"({now_ms}", "+inf", withscores=True)

    for name, members in _asked(client, names, ask):
        for member, until_ms in members:
            if owner := OWNER.fullmatch(member):
                yield _hold(name, "read", owner, lease_left_ms=int(until_ms) - now_ms)


def _hold(
    name: str,
    kind: Kind,
    found: re.Match[str],
    *,
    lease_left_ms: int | None,
    age_ms: int | None = None,
    token: int | None = None,
) -> HeldLock:
    return HeldLock(
        name=name,
        kind=kind,
        host=found["host"],
        process=int(found["process"]),
        thread=int(found["thread"]),
        age_ms=age_ms,
        lease_left_ms=lease_left_ms,
        waiters=0,
        token=token,
        owner=found["owner"],
    )


def _waiters(client: Redis, names: Collection[str], now_ms: int) -> dict[str, int]:
    """Return how many threads wait for each: those that processes note, and those in a queue."""
    asks = (
        lambda pipe, name: pipe.hvals(beside(name, "waiting")),
        lambda pipe, name: pipe.zcount(beside(name, "alive"), f"({now_ms}", "+inf"),
    )
    return {
        name: queued + sum(_still_waiting(note, now_ms) for note in notes)
        for name, notes, queued in _asked(client, names, *asks)
    }


def _still_waiting(note: str, now_ms: int) -> int:
    count, until_ms = map(int, note.split())
    return count if until_ms > now_ms else 0


def _asked(
    client: Redis, names: Collection[str], *asks: Callable[[Any, str], object]
) -> Iterator[tuple[Any, ...]]:
    """Ask the same of each name, and yield each with its answers."""
    ordered = list(names)
    for start in range(0, len(ordered), READ_AT_ONCE):
        step = ordered[start : start + READ_AT_ONCE]
        with client.pipeline(transaction=False) as pipe:
            for name in step:
                for ask in asks:
                    ask(pipe, name)
            answers = pipe.execute()
        yield from zip(step, *(answers[i :: len(asks)] for i in range(len(asks))), strict=True)


def _seconds(ms: int | None) -> str:
    return "-" if ms is None else f"{ms / 1_000:.1f} s"
