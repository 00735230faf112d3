"""Six steps from ``SETNX`` to ``RedisLock``: how each breaks.

The steps are told in ``locks/README.md``. The first five are the controls of the sixth: what the
tests of ``RedisLock`` guard against does happen without the guard. Nothing here hopes for a lucky
moment: a process is killed or stopped by its own hand, and a lease is ended by the test where it
can be.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from redis import Redis
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import LockNotOwnedError

from locks import LockNotOwned, RedisLock
from tests.locks.steps import (
    PATIENCE_S,
    CheckInLua,
    CheckThenDelete,
    InThread,
    Setnx,
    SetnxThenExpire,
    SetWithLease,
    Store,
    child,
    die,
    killed,
    lossy_client,
    stopped,
)

NAME = "lock:{t}:sale"
FENCE = "lock:{t}:fence"
LEASE_MS = 2_500
"""A lease that shall be kept."""

MakeLock = Callable[..., InThread]

pytestmark = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")


@pytest.fixture
def redis_lock(redis_client: Redis) -> Iterator[MakeLock]:
    """Make ``RedisLock`` objects, each for a thread of its own."""
    with ExitStack() as stack:

        def make(client: Redis = redis_client, **options: Any) -> InThread:
            return stack.enter_context(InThread(RedisLock(client, NAME, **options)))

        yield make


def run_out(client: Redis) -> None:
    """End the lease now."""
    assert client.pexpire(NAME, 0)


# --- Step 1: SETNX and DEL -----------------------------------------------------------------------


def test_step_1_dead_holder_locks_forever(redis_client: Redis) -> None:
    def holder() -> None:
        assert Setnx(redis_client, NAME).acquire()
        die()

    assert killed(holder)
    assert redis_client.pttl(NAME) == -1
    assert not Setnx(redis_client, NAME).acquire()


# --- Step 2: a lease, by a second command --------------------------------------------------------


def test_step_2_death_between_commands_locks_forever(redis_client: Redis) -> None:
    assert killed(lambda: SetnxThenExpire(redis_client, NAME, at=die).acquire())
    assert redis_client.pttl(NAME) == -1
    assert not SetnxThenExpire(redis_client, NAME).acquire()


# --- Step 3: one command with the lease, and a blind DEL -----------------------------------------


def test_step_3_blind_delete_lets_a_third_holder_in(redis_client: Redis) -> None:
    a, b, c = (SetWithLease(redis_client, NAME) for _ in "abc")
    assert a.acquire()
    run_out(redis_client)
    assert b.acquire()
    a.release()
    assert c.acquire()  # and B is at work


# --- Step 4: an owner, looked at before the DEL --------------------------------------------------


def test_step_4_lease_ending_after_check_lets_third_in(redis_client: Redis) -> None:
    a, b, c = (CheckThenDelete(redis_client, NAME) for _ in "abc")

    def lose_it(point: str) -> None:
        run_out(redis_client)
        assert b.acquire()

    a.at = lose_it
    assert a.acquire()
    a.release()
    assert c.acquire()  # and B is at work


# --- Step 5: the check in Lua --------------------------------------------------------------------


def test_step_5_long_work_has_two_holders(
    redis_client: Redis, eventually: Callable[..., bool]
) -> None:
    a, b = CheckInLua(redis_client, NAME, lease_ms=50), CheckInLua(redis_client, NAME)
    assert a.acquire()
    assert eventually(b.acquire)  # and A is at work
    a.release()
    assert redis_client.get(NAME) == b.owner


def test_step_5_reentry_shuts_the_holder_out(redis_client: Redis) -> None:
    lock = CheckInLua(redis_client, NAME)
    assert lock.acquire()
    assert not lock.acquire()


# --- Step 6: RedisLock, and what is left to the database -----------------------------------------


@pytest.fixture
def stop_holder(
    redis_client: Redis, redis_lock: MakeLock, store: Store, eventually: Callable[..., bool]
) -> Callable[[Callable[[RedisLock, int], object]], None]:
    """Stop A just before its last act, until B has had the lock, and has written."""

    def story(last_act: Callable[[RedisLock, int], object]) -> None:
        def work() -> None:
            lock = RedisLock(redis_client, NAME, lease_ms=LEASE_MS, fence_key=FENCE)
            lock.acquire()
            token = lock.fencing_token
            assert token is not None
            assert not lock.lost
            os.kill(os.getpid(), signal.SIGSTOP)
            last_act(lock, token)

        with child(work) as a:
            assert eventually(lambda: stopped(a))
            b = redis_lock(fence_key=FENCE)
            assert b.acquire(wait_ms=20_000)
            assert store.write("B", b.fencing_token)
            assert a.pid is not None
            os.kill(a.pid, signal.SIGCONT)
            a.join(PATIENCE_S)
            assert a.exitcode == 0
        assert b.owned()

    return story


@pytest.mark.slow
def test_step_6_unchecked_token_lets_stopped_holder_write(
    stop_holder: Callable[..., None], store: Store
) -> None:
    stop_holder(lambda lock, token: store.write_unchecked("A"))
    assert store.writer == "A"  # over B's


@pytest.mark.slow
def test_step_6_store_refuses_the_older_token(
    stop_holder: Callable[..., None], store: Store
) -> None:
    def refused(lock: RedisLock, token: int) -> None:
        assert lock.lost
        with pytest.raises(LockNotOwned):
            lock.release()
        assert not store.write("A", token)

    stop_holder(refused)
    assert store.writer == "B"


def test_step_6_emptied_redis_leaves_the_decision_to_stock(
    redis_client: Redis, redis_lock: MakeLock, store: Store
) -> None:
    a, b = redis_lock(fence_key=FENCE), redis_lock(fence_key=FENCE)
    assert a.acquire()
    redis_client.flushdb()
    assert b.acquire()
    assert not a.lost  # until its next renewal
    assert a.fencing_token == b.fencing_token
    assert [store.sell_one(), store.sell_one()] == [True, False]


# --- Step 6: a lost reply ------------------------------------------------------------------------


def test_step_6_redis_py_refuses_holder_after_lost_reply(redis_client: Redis) -> None:
    lossy = lossy_client(redis_client, when=lambda: redis_client.exists(NAME))
    assert not lossy.lock(NAME, timeout=10).acquire(blocking=False)
    assert redis_client.pttl(NAME) > 0  # it has it, and nobody will let go


def test_step_6_redis_lock_repeats_acquire_after_lost_reply(
    redis_client: Redis, redis_lock: MakeLock
) -> None:
    lossy = lossy_client(redis_client, when=lambda: redis_client.exists(NAME))
    lock = redis_lock(lossy, fence_key=FENCE)
    with pytest.raises(RedisConnectionError):
        lock.acquire()
    assert lock.acquire()
    assert lock.fencing_token == 1


def test_step_6_redis_py_denies_release_after_lost_reply(redis_client: Redis) -> None:
    lock = redis_client.lock(NAME, timeout=10)
    assert lock.acquire(blocking=False)
    lock.redis = lossy_client(redis_client, when=lambda: not redis_client.exists(NAME))
    with pytest.raises(LockNotOwnedError):
        lock.release()


def test_step_6_redis_lock_repeats_release_after_lost_reply(
    redis_client: Redis, redis_lock: MakeLock
) -> None:
    held: list[bool] = []
    lossy = lossy_client(redis_client, when=lambda: held and not redis_client.exists(NAME))
    lock = redis_lock(lossy)
    held.append(lock.acquire())
    with pytest.raises(RedisConnectionError):
        lock.release()
    lock.release()
