"""``RedisLock`` against a real Redis: exclusion, leases, and what leaving a block means."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import Any

import pytest
from redis import Redis
from redis.exceptions import ConnectionError as RedisConnectionError

from locks import FairLock, LockBusy, LockNotOwned, MultiLock, RedisLock, lua_script
from locks.read_write_lock import ReadWriteLock

Elsewhere = Callable[..., Any]

NAME = "lock:{t}:sale"


# --- Exclusion -----------------------------------------------------------------------------------


def most_inside_at_once(
    held: Callable[[], AbstractContextManager[object]], *, stay_s: float, threads: int = 20
) -> int:
    """Let threads rush into what ``held`` guards; a second one inside ends everybody's stay."""
    inside, most = 0, 0
    counting, crowded, start = threading.Lock(), threading.Event(), threading.Barrier(threads)

    def enter() -> None:
        nonlocal inside, most
        start.wait(timeout=10)
        with held():
            with counting:
                inside += 1
                most = max(most, inside)
                if inside > 1:
                    crowded.set()
            crowded.wait(timeout=stay_s)
            with counting:
                inside -= 1

    with ThreadPoolExecutor(threads) as pool:
        for done in [pool.submit(enter) for _ in range(threads)]:
            done.result(timeout=30)
    return most


@pytest.mark.parametrize("shared", [False, True])
def test_twenty_threads_exclude_each_other(redis_client: Redis, shared: bool) -> None:
    lock = RedisLock(redis_client, NAME)

    def held() -> AbstractContextManager[object]:
        return (lock if shared else RedisLock(redis_client, NAME)).holding(wait_ms=20_000)

    assert most_inside_at_once(held, stay_s=0.01) == 1
    assert not redis_client.exists(NAME)


@pytest.mark.parametrize("spin", [False, True])
def test_busy_lock_is_refused_after_the_wait(
    redis_client: Redis, elsewhere: Elsewhere, spin: bool
) -> None:
    other = RedisLock(redis_client, NAME, spin=spin)
    with RedisLock(redis_client, NAME):
        with pytest.raises(LockBusy):
            elsewhere(other.acquire)
        before = time.monotonic()
        with pytest.raises(LockBusy):
            elsewhere(other.acquire, wait_ms=200)
        assert 0.2 <= time.monotonic() - before < 8


def test_locked_and_owned_report_the_holder(redis_client: Redis, elsewhere: Elsewhere) -> None:
    ours, theirs = RedisLock(redis_client, NAME), RedisLock(redis_client, NAME)
    assert (ours.locked(), ours.owned()) == (False, False)
    elsewhere(theirs.acquire)
    assert (ours.locked(), ours.owned()) == (True, False)
    assert elsewhere(theirs.owned)
    elsewhere(theirs.release)
    with ours:
        assert (ours.locked(), ours.owned()) == (True, True)
    assert not ours.locked()


# --- Re-entry ------------------------------------------------------------------------------------


def test_reentry_sends_nothing_to_redis(redis_client: Redis) -> None:
    with RedisLock(redis_client, NAME) as lock:
        before = redis_client.info("stats")["total_commands_processed"]
        with lock, RedisLock(redis_client, NAME):
            pass
        assert redis_client.info("stats")["total_commands_processed"] == before + 1


# --- Leases --------------------------------------------------------------------------------------


@pytest.mark.slow
def test_fixed_lease_expires_and_the_holder_knows(
    redis_client: Redis, eventually: Callable[..., bool]
) -> None:
    lock = RedisLock(redis_client, NAME, lease_ms=60)
    lock.acquire(lease_ms=2_000)
    lost_at_first = lock.lost
    assert eventually(lambda: not redis_client.exists(NAME))
    # Its own clock is never later than that of Redis.
    assert (lost_at_first, lock.lost) == (False, True)
    with pytest.raises(LockNotOwned):
        lock.extend()


@pytest.mark.slow
def test_extend_keeps_a_lock_that_is_not_renewed(redis_client: Redis) -> None:
    lock = RedisLock(redis_client, NAME)
    lock.acquire(lease_ms=2_500)
    until = time.monotonic() + 2.8
    while time.monotonic() < until:
        lock.extend()
        time.sleep(0.02)
    assert lock.owned()
    assert not lock.lost
    lock.release()


# --- Leaving a with block ------------------------------------------------------------------------


def test_leaving_a_block_without_the_lock_raises(redis_client: Redis) -> None:
    lock = RedisLock(redis_client, NAME)
    with pytest.raises(LockNotOwned), lock:
        redis_client.delete(NAME)
    assert lock.lost


def raise_with_the_lock_gone(client: Redis) -> None:
    client.delete(NAME)
    raise ZeroDivisionError


def test_lost_lock_does_not_hide_the_body_error(
    redis_client: Redis, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(ZeroDivisionError), RedisLock(redis_client, NAME):
        raise_with_the_lock_gone(redis_client)
    assert "was lost before" in caplog.text


def test_block_left_without_redis_leaves_lock_to_its_lease(
    redis_client: Redis, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refused(*args: object) -> None:
        raise RedisConnectionError("refused by the test")

    lock = RedisLock(redis_client, NAME, lease_ms=500)
    with monkeypatch.context() as patch, lock:
        patch.setattr(lua_script, "send_once", refused)
    assert "left to its lease" in caplog.text
    with lock.holding(wait_ms=20_000):  # the object is of use again, when the lease is over
        assert lock.owned()


# --- What cannot be a lock -----------------------------------------------------------------------


@pytest.mark.parametrize("name", ["", "two\nlines", "a{b", "a}b", "a{}b", "a}b{c"])
def test_invalid_lock_name_is_refused(redis_client: Redis, name: str) -> None:
    with pytest.raises(ValueError, match="name"):
        RedisLock(redis_client, name)


@pytest.mark.parametrize("name", ["with space", "秒杀", "a" * 5_000, "lock:{t}:秒 杀"])
def test_unusual_lock_names_are_accepted(redis_client: Redis, name: str) -> None:
    with RedisLock(redis_client, name) as lock:
        assert lock.owned()
    assert not redis_client.exists(name)


def test_client_that_does_not_decode_is_refused() -> None:
    with pytest.raises(ValueError, match="decode_responses=True"):
        RedisLock(Redis(), NAME)


# --- Keys of another type ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "lock_of",
    [
        RedisLock,
        FairLock,
        lambda client, name: ReadWriteLock(client, name).read,
        lambda client, name: ReadWriteLock(client, name).write,
        lambda client, name: MultiLock(client, [name]).holding_all(),
        lambda client, name: MultiLock(client, [name]).holding_free(),
    ],
)
def test_key_of_another_type_blocks_nobody(
    redis_client: Redis, lock_of: Callable[..., Any]
) -> None:
    redis_client.rpush(NAME, "a mistyped command")

    with lock_of(redis_client, NAME):
        assert redis_client.type(NAME) != "list"

    assert not redis_client.exists(NAME)


def test_waiting_key_of_another_type_does_not_stop_a_release(redis_client: Redis) -> None:
    with RedisLock(redis_client, NAME):
        redis_client.rpush(f"{NAME}:waiting", "a mistyped command")

    assert redis_client.keys("lock:{t}*waiting") == []
