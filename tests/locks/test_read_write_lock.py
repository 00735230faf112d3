"""``ReadWriteLock``: readers together, a writer alone, and who waits for whom."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from redis import Redis

from locks import LockBusy, RedisLock, scripts
from locks.protocol import (
    AcquireResult,
    Answer,
    Request,
    WaitNote,
    readers_key,
    side_key,
)
from locks.read_write_lock import ReadWriteLock
from tests.locks.servers import OtherProcess
from tests.locks.waiters import AT_ONCE_S, HELD_MS, LONG_MS, NAME, in_room, pass_through
from tests.support.redis_url import redis_url
from tests.support.tiers import slow_after

Eventually = Callable[..., bool]
Elsewhere = Callable[..., Any]

READERS, WAITING, WRITER = readers_key(NAME), side_key(NAME, "waiting"), side_key(NAME, "writers")
SHORT_MS = 300
LEASE_MS = 2_500
PATIENT = WaitNote(1, 0, 30_000)


def ask_to_read(client: Redis, owner: str, **changes: Any) -> Answer:
    request = Request(owner, **{"lease_ms": HELD_MS, **changes})
    return scripts.acquire_read(client, NAME, request, writer="")


def ask_to_write(client: Redis, owner: str, **changes: Any) -> Answer:
    return scripts.acquire_write(client, NAME, Request(owner, **{"lease_ms": HELD_MS, **changes}))


# --- Together and alone --------------------------------------------------------------------------


def test_writer_is_alone(redis_client: Redis, pool: ThreadPoolExecutor) -> None:
    readers, writers, seen = set[int](), set[int](), list[tuple[int, int]]()
    counting, start = threading.Lock(), threading.Barrier(16)

    def enter(inside: set[int], lock: RedisLock) -> None:
        start.wait(timeout=10)
        for _ in range(4):
            with lock.holding(wait_ms=LONG_MS):
                with counting:
                    inside.add(threading.get_ident())
                    seen.append((len(readers), len(writers)))
                time.sleep(0.002)
                with counting:
                    inside.remove(threading.get_ident())

    entered = []
    for i in range(16):
        both = ReadWriteLock(redis_client, NAME)
        one = (writers, both.write) if i % 4 == 0 else (readers, both.read)
        entered.append(pool.submit(enter, *one))
    for each in entered:
        each.result(30)
    assert all(writing == 0 or (reading, writing) == (0, 1) for reading, writing in seen)
    assert max(reading for reading, _ in seen) > 1


def test_redis_lock_of_same_name_excludes_both_sides(
    redis_client: Redis, elsewhere: Elsewhere
) -> None:
    both = ReadWriteLock(redis_client, NAME)
    with RedisLock(redis_client, NAME):
        for side in (both.read, both.write):
            with pytest.raises(LockBusy):
                elsewhere(side.acquire)


def test_both_sides_report_locked_and_owned(redis_client: Redis, elsewhere: Elsewhere) -> None:
    both = ReadWriteLock(redis_client, NAME)
    assert not both.read.locked()
    for side in (both.read, both.write):
        with side:
            assert (side.locked(), side.owned(), elsewhere(side.owned)) == (True, True, False)
    assert not both.write.locked()


# --- Waiting writers -----------------------------------------------------------------------------


@pytest.mark.usefixtures("patient")
def test_waiting_writer_goes_before_new_readers(
    redis_client: Redis, pool: ThreadPoolExecutor, eventually: Eventually
) -> None:
    reading = ReadWriteLock(redis_client, NAME).read
    reading.acquire(lease_ms=HELD_MS)
    writer = pool.submit(pass_through, ReadWriteLock(redis_client, NAME).write)
    assert eventually(lambda: redis_client.exists(WRITER))
    with pytest.raises(LockBusy):
        pool.submit(ReadWriteLock(redis_client, NAME).read.acquire).result(60)
    reader = pool.submit(pass_through, ReadWriteLock(redis_client, NAME).read)
    assert eventually(lambda: in_room(redis_client) == 2)
    released_at = time.monotonic()
    reading.release()
    assert released_at < writer.result(60) < reader.result(60) < released_at + AT_ONCE_S
    assert not redis_client.exists(WRITER, WAITING)


def test_writer_that_gave_up_blocks_readers_only_briefly(
    redis_client: Redis, pool: ThreadPoolExecutor
) -> None:
    with ReadWriteLock(redis_client, NAME).read:
        with pytest.raises(LockBusy):
            pool.submit(ReadWriteLock(redis_client, NAME).write.acquire, wait_ms=300).result(60)
        gave_up_at = time.monotonic()
        reader = pool.submit(pass_through, ReadWriteLock(redis_client, NAME).read)
        assert reader.result(60) - gave_up_at < AT_ONCE_S


@pytest.mark.slow
def test_killed_writer_blocks_readers_for_a_bounded_time(
    redis_client: Redis, pool: ThreadPoolExecutor, eventually: Eventually
) -> None:
    with ReadWriteLock(redis_client, NAME).read:
        with OtherProcess(redis_url()) as other:
            other.look_again(after_s=0.3)
            other.begin("acquire", "write", NAME, wait_ms=LONG_MS)
            assert eventually(lambda: redis_client.exists(WRITER))
            other.kill()
        killed_at = time.monotonic()
        reader = pool.submit(pass_through, ReadWriteLock(redis_client, NAME).read)
        assert reader.result(60) - killed_at < 3 * 0.3 + AT_ONCE_S


def test_short_wait_does_not_shorten_another_writers_note(redis_client: Redis) -> None:
    ask_to_read(redis_client, "reader")
    ask_to_write(redis_client, "patient", note=PATIENT)
    ask_to_write(redis_client, "hasty", note=WaitNote(1, 0, 50))
    assert redis_client.pttl(WRITER) > 50


def test_readers_do_not_starve_a_spinning_writer(
    redis_client: Redis, pool: ThreadPoolExecutor, eventually: Eventually
) -> None:
    with ReadWriteLock(redis_client, NAME).read:
        lock = ReadWriteLock(redis_client, NAME, spin=True).write
        writer = pool.submit(pass_through, lock, wait_ms=LONG_MS)
        noted = eventually(lambda: redis_client.exists(WRITER), within_s=10)
    writer.result(60)
    assert noted


# --- One thread, both sides ----------------------------------------------------------------------


@pytest.mark.usefixtures("patient")
def test_writer_may_read_while_others_wait(
    redis_client: Redis, pool: ThreadPoolExecutor, eventually: Eventually
) -> None:
    both = ReadWriteLock(redis_client, NAME)
    both.write.acquire(lease_ms=HELD_MS)
    waiter = pool.submit(pass_through, ReadWriteLock(redis_client, NAME).write)
    assert eventually(lambda: in_room(redis_client) == 1 and redis_client.exists(WAITING))
    began_at = time.monotonic()
    both.read.acquire(wait_ms=LONG_MS)
    took_s = time.monotonic() - began_at
    both.read.release()
    both.write.release()
    waiter.result(60)
    assert took_s < AT_ONCE_S


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("others_wait", [False, True])
def test_reader_cannot_upgrade_to_writer(
    redis_client: Redis, pool: ThreadPoolExecutor, eventually: Eventually, others_wait: bool
) -> None:
    both = ReadWriteLock(redis_client, NAME)
    both.read.acquire(lease_ms=HELD_MS)
    others = ReadWriteLock(redis_client, NAME).write
    waiters = [pool.submit(pass_through, others)] if others_wait else []
    assert eventually(lambda: in_room(redis_client) == len(waiters))
    began_at = time.monotonic()
    with pytest.raises(RuntimeError, match="wait for itself"):
        both.write.acquire(wait_ms=LONG_MS)
    took_s = time.monotonic() - began_at
    assert both.read.owned()
    both.read.release()
    for waiter in waiters:
        waiter.result(60)
    with both.write:
        assert both.write.owned()
    assert took_s < AT_ONCE_S


def test_reader_reenters_while_a_writer_waits(
    redis_client: Redis, pool: ThreadPoolExecutor, eventually: Eventually
) -> None:
    reading = ReadWriteLock(redis_client, NAME).read
    with reading:
        writer = pool.submit(pass_through, ReadWriteLock(redis_client, NAME).write)
        assert eventually(lambda: redis_client.exists(WRITER))
        with ReadWriteLock(redis_client, NAME).read:
            assert not writer.done()
    writer.result(60)


# --- Leases --------------------------------------------------------------------------------------


def test_each_reader_has_a_lease_of_its_own(redis_client: Redis, pool: ThreadPoolExecutor) -> None:
    ask_to_read(redis_client, "dead", lease_ms=HELD_MS)
    ask_to_read(redis_client, "short", lease_ms=SHORT_MS)
    assert redis_client.pttl(READERS) > HELD_MS - 1_000
    scripts.release_read(redis_client, NAME, "dead")
    began_at = time.monotonic()
    writer = pool.submit(pass_through, ReadWriteLock(redis_client, NAME).write)
    assert writer.result(60) - began_at < SHORT_MS / 1000 + AT_ONCE_S


@pytest.mark.usefixtures("patient")
def test_dead_reader_delays_a_writer_for_its_lease(
    redis_client: Redis, pool: ThreadPoolExecutor
) -> None:
    asked_at = time.monotonic()
    ask_to_read(redis_client, "dead", lease_ms=500)
    living = ReadWriteLock(redis_client, NAME).read
    living.acquire()
    living.release()
    writer = pool.submit(pass_through, ReadWriteLock(redis_client, NAME).write)
    assert 0.49 < writer.result(60) - asked_at < 0.5 + AT_ONCE_S


def test_readers_are_renewed_separately(
    redis_client: Redis, pool: ThreadPoolExecutor, eventually: Eventually
) -> None:
    ask_to_read(redis_client, "dead", lease_ms=LEASE_MS)
    dead_until = redis_client.zscore(READERS, "dead")
    with ReadWriteLock(redis_client, NAME, lease_ms=LEASE_MS).read as reading:
        assert eventually(lambda: redis_client.zrange(READERS, -1, -1)[0] != "dead")
        renewed = scores(redis_client)
        assert renewed["dead"] == dead_until
        assert eventually(lambda: max(scores(redis_client).values()) > max(renewed.values()))
        assert not reading.lost


def scores(client: Redis) -> dict[str, float]:
    members: Any = client.zrange(READERS, 0, -1, withscores=True)
    return dict(members)


@pytest.mark.parametrize("taken_away", slow_after(1, ["its place", "the key", "the key's type"]))
def test_reader_that_lost_its_place_is_told(redis_client: Redis, taken_away: str) -> None:
    told = threading.Event()
    reading = ReadWriteLock(redis_client, NAME, lease_ms=LEASE_MS, on_lost=told.set).read
    reading.acquire()
    if taken_away == "its place":
        redis_client.zadd(READERS, {"another": 9e12})
        redis_client.zremrangebyrank(READERS, 0, 0)
    else:
        redis_client.delete(READERS)
        if taken_away == "the key's type":
            redis_client.set(READERS, "by hand")
    assert told.wait(20)
    assert reading.lost
    assert not reading.owned()


# --- Woken ---------------------------------------------------------------------------------------


@pytest.mark.usefixtures("patient")
def test_one_release_wakes_all_waiting_readers(
    redis_client: Redis,
    pool: ThreadPoolExecutor,
    eventually: Eventually,
    other_process: OtherProcess,
) -> None:
    together, writing = threading.Barrier(11), ReadWriteLock(redis_client, NAME).write

    def read() -> float:
        with ReadWriteLock(redis_client, NAME).read.holding(wait_ms=LONG_MS, lease_ms=HELD_MS):
            got_at = time.monotonic()
            together.wait(timeout=10)  # nobody leaves, which would wake others
            return got_at

    writing.acquire(lease_ms=HELD_MS)
    other_process.begin("acquire", "read", NAME, wait_ms=LONG_MS)
    readers = [pool.submit(read) for _ in range(10)]
    assert eventually(lambda: redis_client.hlen(WAITING) == 2 and in_room(redis_client) == 10)
    released_at = time.monotonic()
    writing.release()
    got = [other_process.end()[1]]
    together.wait(timeout=10)
    got += [reader.result(15) for reader in readers]
    other_process.call("release", "read", NAME)
    assert max(got) - released_at < AT_ONCE_S


@pytest.mark.usefixtures("patient")
def test_last_reader_elsewhere_wakes_a_writer_here(
    redis_client: Redis,
    pool: ThreadPoolExecutor,
    eventually: Eventually,
    other_process: OtherProcess,
) -> None:
    other_process.call("acquire", "read", NAME, lease_ms=HELD_MS)
    with ReadWriteLock(redis_client, NAME).read:
        writer = pool.submit(pass_through, ReadWriteLock(redis_client, NAME).write)
        assert eventually(lambda: redis_client.exists(WRITER))
    assert not writer.done()
    released_at = other_process.call("release", "read", NAME)[1]
    assert writer.result(60) - released_at < AT_ONCE_S


# --- Sent again ----------------------------------------------------------------------------------


def test_repeated_acquire_is_granted_again(redis_client: Redis) -> None:
    assert ask_to_read(redis_client, "a", lease_ms=1_000).result is AcquireResult.GRANTED
    assert ask_to_write(redis_client, "w", note=PATIENT).result is AcquireResult.BUSY
    assert ask_to_read(redis_client, "b").result is AcquireResult.BUSY
    assert ask_to_read(redis_client, "a", lease_ms=9_000).result is AcquireResult.GRANTED
    assert redis_client.pttl(READERS) > 1_000
    assert redis_client.zcard(READERS) == 1
    scripts.release_read(redis_client, NAME, "a")
    for _ in range(2):
        assert ask_to_write(redis_client, "w").result is AcquireResult.GRANTED
    assert ask_to_read(redis_client, "a").result is AcquireResult.ENDED
