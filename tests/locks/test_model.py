"""Locks of several threads, driven at random one step at a time, against a model in plain Python.

The model is what Redis and the threads should know after each step. Leases are long and nobody
waits, so that nothing depends on time: what takes time elsewhere (a lease that ends, a key that
somebody deletes, a reply that is lost, a thread that dies) is a step of its own here.
"""

from __future__ import annotations

import re
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from redis import Redis
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import NoScriptError, RedisError
from redis.retry import Retry

from locks import FairLock, LockBusy, LockNotOwned, MultiLock, RedisLock, lua_script, scripts
from locks.inspection import force_release, holds_of
from locks.read_write_lock import ReadWriteLock
from tests.support.redis_url import redis_url

A, B, C, SHELF, QUEUED = (f"lock:{{m}}:{name}" for name in ("a", "b", "c", "shelf", "queued"))
READERS = f"{SHELF}:readers"
FENCE = "lock:{m}:fence"
LOCKS = (A, B, C, SHELF, QUEUED)
KEYS = (*LOCKS, READERS)
LEASE_MS = 60_000
"""Longer than an example, and no renewal falls into it."""

SINGLE = {"plain": A, "fenced": B, "again": B, "fair": QUEUED, "read": READERS, "write": SHELF}
MANY = {"a+b": (A, B), "c+b": (C, B)}
FENCED = {"fenced", "again", "write"}


# --- What should be ------------------------------------------------------------------------------


@dataclass(eq=False)
class Grant:
    """One taking of locks: an owner to Redis."""

    keys: tuple[str, ...]
    fenced: bool = False
    token: int | None = None
    name: str = ""
    known: bool = False
    entered: int = 1
    ending: bool = False
    lost: bool = False
    tampered: bool = False
    answer: bool | None = None

    @property
    def is_held(self) -> bool:
        return self.known and not self.ending


BY_HAND = Grant((), name="somebody")  # its other fields mean nothing


@dataclass
class Hold:
    """What one thread has through one lock object."""

    levels: list[list[Grant]] = field(default_factory=list)
    asked: Grant | None = None
    last: list[Grant] = field(default_factory=list)
    owned: bool = True

    @property
    def lost(self) -> bool:
        return any(grant.lost for grant in (self.levels[-1] if self.levels else self.last))

    @property
    def owner(self) -> Grant | None:
        return self.levels[-1][0] if self.levels and self.levels[-1] else self.asked

    @property
    def token(self) -> int | None:
        held = [grant for grant in (self.levels[-1] if self.levels else []) if grant.is_held]
        return held[0].token if held else None


class Thread:
    """What one thread knows."""

    def __init__(self) -> None:
        self.holds: defaultdict[str, Hold] = defaultdict(Hold)
        self.floor: dict[str, int] = {}
        self.floor_made: dict[str, int] = {}
        self._book: dict[str, Grant] = {}

    def held(self, key: str) -> Grant | None:
        grant = self._book.get(key)
        return grant if grant and grant.is_held and not grant.lost else None

    def split(self, keys: Sequence[str]) -> tuple[list[Grant], tuple[str, ...]]:
        """Tell what it holds of these already, and the keys it does not."""
        ours = dict.fromkeys(grant for key in keys if (grant := self.held(key)))
        return list(ours), tuple(key for key in keys if not self.held(key))

    def asks(self, hold: Hold, keys: tuple[str, ...], *, fenced: bool) -> Grant:
        """Tell as whom it asks: who got no answer asks as the same again."""
        if hold.levels and all(grant.ending for grant in hold.levels[-1]):
            hold.levels.pop()
        if hold.asked is None or hold.asked.ending or hold.asked.keys != keys:
            hold.asked = Grant(keys, fenced)
        return hold.asked

    def enter(self, hold: Hold, ours: list[Grant], granted: Grant | None = None) -> None:
        for grant in ours:
            grant.entered += 1
        if granted:
            granted.known, hold.asked = True, None
            self._book.update(dict.fromkeys(granted.keys, granted))
        hold.levels.append(ours + ([granted] if granted else []))


class Server:
    """What Redis knows, and its answers."""

    def __init__(self) -> None:
        self.has: dict[str, Grant] = {}
        self.readers: set[Grant] = set()
        self.counter = 0
        self.counters_lost = 0

    @property
    def keys(self) -> list[str]:
        return sorted(self.has) + [READERS] * bool(self.readers)

    def owns(self, grant: Grant, key: str) -> bool:
        return grant in self.readers if key == READERS else self.has.get(key) is grant

    def take(self, grant: Grant, keys: Sequence[str], *, floor: int = 0) -> None:
        for key in keys:
            if key == READERS:
                self.readers.add(grant)
            elif self.has.get(key) is not grant:
                self.has[key] = grant
                if grant.fenced:
                    self.counter = grant.token = max(self.counter, floor) + 1

    def is_busy(self, grant: Grant, key: str, *, writer: Grant | None) -> bool:
        if self.owns(grant, key):
            return False
        if key == READERS:
            return SHELF in self.has and (writer is None or not self.owns(writer, SHELF))
        return key in self.has or (key == SHELF and bool(self.readers))

    def release(self, grant: Grant) -> bool:
        """Let go of what is still the owner's; the same answer again."""
        if grant.answer is None:
            grant.answer = all(self.owns(grant, key) for key in grant.keys)
            self.readers.discard(grant)
            self.has = {key: other for key, other in self.has.items() if other is not grant}
        return grant.answer

    def tamper(self, key: str, new: Grant | None = None) -> None:
        if key == READERS:
            gone, self.readers = self.readers, set()
        else:
            gone = {self.has.pop(key)} if key in self.has else set()
        for grant in gone:
            grant.tampered = True
        if new:
            self.has[key] = new


# --- What is -------------------------------------------------------------------------------------


class Line:
    """Sends the commands of all locks, notes them, and loses what it is told to lose."""

    def __init__(self) -> None:
        self.sent: list[tuple[Any, ...]] = []
        self.loses = threading.local()
        self._send = lua_script.send_once

    def send_once(self, client: Redis, *commands: tuple[Any, ...]) -> list[Any]:
        lost = getattr(self.loses, "now", None)
        if lost == "request":
            self.loses.now = None
            raise RedisConnectionError("the test lost the request")
        replies = self._send(client, *commands)
        if not isinstance(replies[0], NoScriptError):
            # How often a waiter looks depends on the machine, and a look writes nothing.
            kept = (
                it for it in commands if it[0] == "EVALSHA" and it[1] != scripts.SCRIPTS["look"].sha
            )
            self.sent += kept
            if lost == "reply":
                self.loses.now = None
                raise RedisConnectionError("the test lost the reply")
        return replies


def outcome(call: Callable[[], object]) -> object:
    """Return what a call returns, or the kind of its error."""
    try:
        return call()
    except RedisError:
        return RedisError
    except (LockBusy, LockNotOwned, ValueError, RuntimeError) as error:
        return type(error)


class Owners(RuleBasedStateMachine):
    """Three threads, two of which share their lock objects, and the third has a pool of its own."""

    def __init__(self, clients: Sequence[Redis], line: Line) -> None:
        super().__init__()
        self.clients, self.line = clients, line
        self.redis = clients[0]
        self.redis.flushdb()
        self.line.sent.clear()
        self.pool_of = (0, 0, 1)
        shared = [self._shared(client) for client in clients]
        self.locks = [{**shared[pool]} for pool in self.pool_of]
        self.real = [ThreadPoolExecutor(1) for _ in self.pool_of]
        self.threads = [Thread() for _ in self.pool_of]
        self.server, self.grants, self.highest = Server(), set[Grant](), 0
        for i in range(3):
            self._make_fenced(i)

    def teardown(self) -> None:
        for thread in self.real:
            thread.shutdown()

    def _shared(self, client: Redis) -> dict[str, Any]:
        shelf = ReadWriteLock(client, SHELF, lease_ms=LEASE_MS, fence_key=FENCE)
        return {
            "plain": RedisLock(client, A, lease_ms=LEASE_MS),
            "fair": FairLock(client, QUEUED, lease_ms=LEASE_MS),
            "read": shelf.read,
            "write": shelf.write,
            **{what: MultiLock(client, MANY[what], lease_ms=LEASE_MS) for what in MANY},
        }

    def _make(self, i: int, what: str) -> None:
        """Make a lock that knows the highest token seen, as one does whose database says it."""
        thread = self.threads[i]
        thread.holds[what] = Hold()
        thread.floor[what], thread.floor_made[what] = self.highest, self.server.counters_lost
        self.locks[i][what] = RedisLock(
            self.clients[self.pool_of[i]],
            B,
            lease_ms=LEASE_MS,
            fence_key=FENCE,
            fence_floor=self.highest,
        )

    def _make_fenced(self, i: int) -> None:
        self._make(i, "fenced")
        self._make(i, "again")

    def _run(self, i: int, call: Callable[..., object], lost: str | None = None) -> object:
        def run() -> object:
            self.line.loses.now = lost
            try:
                return outcome(call)
            finally:
                self.line.loses.now = None

        return self.real[i].submit(run).result(timeout=20)

    # --- Steps of the threads

    owner = st.sampled_from([0, 0, 0, 1, 2])
    faults = st.sampled_from([None] * 7 + ["reply", "reply", "request"])

    @rule(i=owner, what=st.sampled_from([*SINGLE, *MANY, *MANY]), lost=faults)
    def acquire(self, i: int, what: str, lost: str | None) -> None:
        if what in MANY:
            self.acquire_many(i, what, True, lost)
        else:
            self.acquire_one(i, what, lost)

    @rule(i=owner, what=st.sampled_from(list(MANY)), take_all=st.booleans(), lost=faults)
    def acquire_many(self, i: int, what: str, take_all: bool, lost: str | None) -> None:
        lock, thread = self.locks[i][what], self.threads[i]
        real = self._run(i, lock.acquire_all if take_all else lock.acquire_free, lost)
        how = "all" if take_all else "free"
        assert real == outcome(lambda: self._acquires(thread, what, MANY[what], lost, how=how))

    @precondition(lambda self: self._in_use())
    @rule(data=st.data(), what=st.sampled_from([*SINGLE, *MANY]), lost=faults)
    def acquire_by_one_who_holds(self, data: st.DataObject, what: str, lost: str | None) -> None:
        i, _ = data.draw(st.sampled_from(self._in_use()), label="lock")
        self.acquire(i, what, lost)

    def acquire_one(self, i: int, what: str, lost: str | None) -> None:
        thread = self.threads[i]
        hold = thread.holds[what]
        if what in ("fenced", "again") and not (hold.levels or hold.asked):
            self._make(i, what)
        lock = self.locks[i][what]
        # A fixed lease for one of the threads: those are not renewed, and not watched.
        real = self._run(i, lambda: lock.acquire(lease_ms=LEASE_MS if i else None), lost)
        assert real == outcome(lambda: self._acquires(thread, what, (SINGLE[what],), lost))

    @precondition(lambda self: self._in_use())
    @rule(data=st.data(), lost=faults)
    def release(self, data: st.DataObject, lost: str | None) -> None:
        self._release(*data.draw(st.sampled_from(self._in_use()), label="lock"), lost)

    @precondition(lambda self: self._in_use())
    @rule(data=st.data(), lost=faults)
    def release_and_extend_again(self, data: st.DataObject, lost: str | None) -> None:
        i, what = data.draw(st.sampled_from(self._in_use()), label="lock")
        self._release(i, what, lost)
        if what in SINGLE:
            self._extend(i, what)

    @rule(i=owner, what=st.sampled_from([*SINGLE, *MANY]))
    def extend_or_release_what_may_be_anothers(self, i: int, what: str) -> None:
        if what in SINGLE:
            self._extend(i, what)
        if not self.threads[i].holds[what].levels:
            self._release(i, what, None)

    def _release(self, i: int, what: str, lost: str | None) -> None:
        real = self._run(i, self.locks[i][what].release, lost)
        assert real == outcome(lambda: self._releases(self.threads[i].holds[what], lost))

    def _extend(self, i: int, what: str) -> None:
        real = self._run(i, self.locks[i][what].extend)
        assert real == outcome(lambda: self._extends(self.threads[i].holds[what]))

    # --- Steps of others

    @rule(data=st.data())
    def something_goes_wrong(self, data: st.DataObject) -> None:
        keys, threads = st.sampled_from(self.server.keys or [A]), self.owner
        what = data.draw(st.sampled_from(["key", "key", "key", "counter", "thread"]), label="what")
        if what == "key":
            how = st.sampled_from(["expires", "deleted", "string", "forced"])
            self._lose_key(data.draw(keys, label="key"), data.draw(how, label="how"))
        elif what == "counter":
            self._lose_counter(data.draw(st.sampled_from([None, "junk", "0"]), label="left"))
        else:
            self._lose_thread(data.draw(threads, label="thread"))

    def _lose_key(self, key: str, how: str) -> None:
        if how == "forced":
            self._force(key)
        elif how == "expires":
            self.redis.pexpire(key, 0)
        else:
            self.redis.delete(key)
        by_hand = how == "string" and key != READERS
        self.server.tamper(key, BY_HAND if by_hand else None)
        if by_hand:
            self.redis.set(key, "somebody")

    def _force(self, key: str) -> None:
        for hold in holds_of(self.redis, SHELF if key == READERS else key):
            if (hold.kind == "read") == (key == READERS):
                force_release(self.redis, hold.name, hold.owner)
        if self.server.has.get(key) is BY_HAND:
            self.redis.delete(key)

    def _lose_counter(self, left: str | None) -> None:
        self.redis.delete(FENCE)
        if left:
            self.redis.set(FENCE, left)
        self.server.counter, self.server.counters_lost = 0, self.server.counters_lost + 1

    def _lose_thread(self, i: int) -> None:
        self.real[i].shutdown()
        self.real[i], self.threads[i] = ThreadPoolExecutor(1), Thread()
        self._make_fenced(i)

    @precondition(lambda self: any(grant.answer is not None for grant in self.grants))
    @rule(data=st.data())
    def late_copy_of_an_ended_owners_command_arrives(self, data: st.DataObject) -> None:
        ended = {grant.name for grant in self.grants if grant.answer is not None}
        late = [command for command in self.line.sent if ended.intersection(command)]
        if late:
            self.redis.execute_command(*data.draw(st.sampled_from(late), label="command"))

    def _in_use(self) -> list[tuple[int, str]]:
        return [
            (i, what)
            for i, thread in enumerate(self.threads)
            for what, hold in thread.holds.items()
            if hold.levels or hold.asked
        ]

    # --- The same in the model

    def _acquires(
        self, thread: Thread, what: str, keys: tuple[str, ...], lost: str | None, how: str = ""
    ) -> set[str] | None:
        hold, fenced = thread.holds[what], what in FENCED
        ours, missing = thread.split(keys)
        if fenced and any(not grant.fenced for grant in ours):
            raise ValueError
        granted = None
        if missing and what == "write" and thread.held(READERS):
            raise RuntimeError
        if missing:
            asked = thread.asks(hold, missing, fenced=fenced)
            granted = self._asks(thread, what, asked, lost, how)
        thread.enter(hold, ours, granted)
        if how != "free":
            return None
        return set(keys).difference(missing).union(granted.keys if granted else ())

    def _asks(
        self, thread: Thread, what: str, asked: Grant, lost: str | None, how: str
    ) -> Grant | None:
        if lost == "request":
            raise RedisError
        writer = thread.held(SHELF)
        server = self.server
        busy = [key for key in asked.keys if server.is_busy(asked, key, writer=writer)]
        free = tuple(key for key in asked.keys if key not in busy)
        if how == "free" or not busy:
            self._takes(thread, what, asked, free)
        if lost == "reply":
            raise RedisError
        if busy and how != "free":
            raise LockBusy
        asked.keys = free
        return asked

    def _takes(self, thread: Thread, what: str, asked: Grant, keys: tuple[str, ...]) -> None:
        before, floor = asked.token, thread.floor.get(what, 0)
        self.server.take(asked, keys, floor=floor)
        self.grants.add(asked)
        if asked.token is not None and asked.token != before:
            # Where nobody lost the counter since the lock knew the highest token, they rise.
            if thread.floor_made.get(what, 0) == self.server.counters_lost:
                assert asked.token > self.highest
            self.highest = max(self.highest, asked.token)

    def _releases(self, hold: Hold, lost: str | None) -> None:
        level = hold.levels[-1] if hold.levels else [hold.asked] if hold.asked else None
        if level is None:
            raise LockNotOwned
        if not (level and all(grant.ending for grant in level)):
            hold.last, hold.owned = list(level), True
        for grant in [grant for grant in level if grant.entered > 1]:
            grant.entered -= 1
            level.remove(grant)
            hold.owned = hold.owned and not grant.lost
        while level:
            hold.owned = self._lets_go(level[0], lost) and hold.owned
            lost = None if level[0].keys else lost
            level.pop(0)
        if hold.levels:
            hold.levels.pop()
        else:
            hold.asked = None
        if not hold.owned:
            raise LockNotOwned

    def _lets_go(self, grant: Grant, lost: str | None) -> bool:
        grant.ending = True
        if not grant.keys:
            return True  # nothing is asked
        if lost == "request":
            raise RedisError
        released = self.server.release(grant)
        if lost:
            raise RedisError
        grant.lost = grant.lost or (grant.known and not released)
        return released

    def _extends(self, hold: Hold) -> None:
        held = [grant for level in hold.levels[-1:] for grant in level if grant.is_held]
        for grant in held:
            grant.lost = grant.lost or not all(self.server.owns(grant, key) for key in grant.keys)
            if grant.lost:
                raise LockNotOwned
        if not held:
            raise LockNotOwned

    # --- What is true after each step

    @invariant()
    def redis_has_the_locks_of_the_model_and_no_other_keys(self) -> None:
        pipe = self.redis.pipeline(transaction=False)
        for key in LOCKS:
            pipe.mget(key)
            pipe.exists(key)
            pipe.pttl(key)
        pipe.zrange(READERS, 0, -1)
        pipe.keys()
        *locks, readers, keys = pipe.execute()
        for key, (value,), exists, left_ms in zip(LOCKS, *[iter(locks)] * 3, strict=True):
            assert bool(exists) == (key in self.server.has)
            if exists:
                self._check_lock(value or "somebody", left_ms, self.server.has[key])
        self._check_readers(set(readers))
        self._check_others(set(keys) - {*KEYS, FENCE})

    def _check_lock(self, value: str, left_ms: int, holder: Grant) -> None:
        """Compare a lock with its holder, who gets his name with his first one."""
        name, *rest = value.split(" ")
        if not holder.name:
            assert not self._is_known(name)
            holder.name = name
        assert name == holder.name
        if holder is not BY_HAND:
            assert rest[0] == str(holder.token or "")
            assert 0 < left_ms <= LEASE_MS

    def _check_readers(self, names: set[str]) -> None:
        for grant in self.server.readers:
            if not grant.name:
                (grant.name,) = names - {other.name for other in self.server.readers}
        assert names == {grant.name for grant in self.server.readers}

    def _check_others(self, keys: set[str]) -> None:
        """Only who let go has a marker; whom we do not know was refused, and let go of that."""
        ended = {grant.name for grant in self.grants if grant.answer is not None}
        for key in keys:
            marker = re.fullmatch(r"lock:\{m\}.*:released:(.*)", key)
            assert marker
            assert marker[1] in ended or not self._is_known(marker[1])

    @invariant()
    def every_thread_knows_what_the_model_says_it_knows(self) -> None:
        for i, thread in enumerate(self.threads):
            locks = self.locks[i]
            real = self._run(i, lambda it=locks: {what: _known(lock) for what, lock in it.items()})
            assert real == {what: self._known(thread.holds[what], what) for what in locks}

    @invariant()
    def two_hold_a_key_only_where_somebody_tampered_with_it(self) -> None:
        for key in LOCKS:
            holders = {
                grant
                for thread in self.threads
                for hold in thread.holds.values()
                for level in hold.levels
                for grant in level
                if key in grant.keys and grant.is_held and not (grant.lost or grant.tampered)
            }
            assert len(holders) <= 1
            assert all(self.server.owns(grant, key) for grant in holders)

    def _is_known(self, name: str) -> bool:
        return name in {grant.name for grant in self.grants}

    def _known(self, hold: Hold, what: str) -> tuple[bool, bool | None, int | None]:
        if what in MANY:
            return hold.lost, None, None
        owner = hold.owner
        key = SINGLE[what]
        return hold.lost, owner is not None and self.server.owns(owner, key), hold.token


def _known(lock: Any) -> tuple[bool, bool | None, int | None]:
    if isinstance(lock, MultiLock):
        return lock.lost, None, None
    return lock.lost, lock.owned(), lock.fencing_token


# --- The test ------------------------------------------------------------------------------------


@pytest.fixture
def line(monkeypatch: pytest.MonkeyPatch, redis_client: Redis) -> Line:
    for script in scripts.SCRIPTS.values():  # a server that has to be told would be told only once
        redis_client.script_load(script.source)
    line = Line()
    monkeypatch.setattr(lua_script, "send_once", line.send_once)
    monkeypatch.setattr(scripts, "RELEASED_MS", LEASE_MS)  # no marker ends within an example
    return line


@contextmanager
def second_client() -> Iterator[Redis]:
    client = Redis.from_url(redis_url(), decode_responses=True, retry=Retry(NoBackoff(), 0))
    try:
        yield client
    finally:
        client.close()


@pytest.mark.slow
def test_random_steps_agree_with_the_model(redis_client: Redis, line: Line) -> None:
    with second_client() as other:
        run_state_machine_as_test(
            partial(Owners, [redis_client, other], line),  # type: ignore[arg-type]  # any callable
            settings=settings(
                max_examples=100,
                stateful_step_count=30,
                deadline=None,
                print_blob=True,
                report_multiple_bugs=False,
                phases=[Phase.reuse, Phase.generate, Phase.shrink],
                suppress_health_check=list(HealthCheck),
            ),
        )
