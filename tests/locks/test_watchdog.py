"""Renewal by the process's one thread: how long, until when, and what it leaves behind."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable, Iterable, Sequence

import pytest
from redis import Redis
from redis.exceptions import ConnectionError as RedisConnectionError

from locks import LockNotOwned, MultiLock, RedisLock, scripts
from locks.protocol import RenewResult
from locks.read_write_lock import ReadWriteLock
from locks.watchdog import Lease
from tests.locks.waiters import NAME, watchdogs
from tests.support.tiers import slow_after

SHORT_MS = 300
"""A lease that shall run out."""
LEASE_MS, LONG_LEASE_MS = 2_500, 4_000
"""A lease that shall be kept: long enough for a machine that is busy with other things."""


Renewal = tuple[Sequence[str], str, int]


@pytest.mark.slow
def test_one_thread_renews_all_locks(redis_client: Redis, throughout: Callable[..., bool]) -> None:
    lock = RedisLock(redis_client, NAME, lease_ms=LEASE_MS)
    many = MultiLock(redis_client, ["lock:{t}:a", "lock:{t}:b"], lease_ms=LEASE_MS)
    with lock, many.holding_all():
        assert throughout(
            lambda: lock.owned() and not lock.lost and not many.lost, for_s=LEASE_MS / 1000 + 0.3
        )
        assert redis_client.exists("lock:{t}:a", "lock:{t}:b") == 2
        assert watchdogs() == 1


def test_short_lease_is_renewed_beside_a_long_one(
    redis_client: Redis, renewal: Callable[[str], bool]
) -> None:
    long = RedisLock(redis_client, "lock:{t}:long", lease_ms=60_000)
    with long, RedisLock(redis_client, NAME, lease_ms=LEASE_MS):
        assert renewal(NAME)


@pytest.mark.parametrize("taken_away", slow_after(1, ["deleted", "overwritten", "of another type"]))
def test_renewal_tells_the_holder_of_a_lost_key(
    redis_client: Redis,
    taken_away: str,
    eventually: Callable[..., bool],
    caplog: pytest.LogCaptureFixture,
) -> None:
    neighbour = RedisLock(redis_client, "lock:{t}:neighbour", lease_ms=LONG_LEASE_MS)
    lock = RedisLock(redis_client, NAME, lease_ms=LONG_LEASE_MS)
    neighbour.acquire()
    lock.acquire()
    before = time.monotonic()
    redis_client.delete(NAME)
    if taken_away == "overwritten":
        redis_client.set(NAME, "by hand")
    elif taken_away == "of another type":
        redis_client.hset(NAME, "by", "hand")

    assert eventually(lambda: lock.lost)
    # Before its own clock would have told it.
    assert time.monotonic() - before < LONG_LEASE_MS / 1000 - 0.1
    assert eventually(lambda: f"lost: {NAME}" in caplog.text)
    with pytest.raises(LockNotOwned):
        lock.release()
    assert redis_client.exists(NAME) == (taken_away != "deleted")
    assert neighbour.owned()
    assert not neighbour.lost


def test_losing_one_of_many_keys_loses_the_hold(
    redis_client: Redis, eventually: Callable[..., bool]
) -> None:
    many = MultiLock(redis_client, ["lock:{t}:a", "lock:{t}:b"], lease_ms=SHORT_MS)
    many.acquire_all()
    redis_client.delete("lock:{t}:b")
    assert eventually(lambda: many.lost)


def break_renewals(patch: pytest.MonkeyPatch, error: BaseException) -> list[float]:
    """Let every renewal fail; the list grows by the time of each try."""
    tries: list[float] = []

    def fail(client: Redis, requests: object) -> None:
        tries.append(time.monotonic())
        raise error

    patch.setattr(scripts, "renew", fail)
    return tries


def test_failed_renewal_is_retried_without_alarm(
    redis_client: Redis,
    monkeypatch: pytest.MonkeyPatch,
    eventually: Callable[..., bool],
    renewal: Callable[[str], bool],
) -> None:
    lock = RedisLock(redis_client, NAME, lease_ms=LEASE_MS)
    with lock:
        with monkeypatch.context() as patch:
            tries = break_renewals(patch, RedisConnectionError("by the test"))
            assert eventually(lambda: tries)
        assert renewal(NAME)
        assert not lock.lost


@pytest.mark.slow
def test_failing_renewals_report_loss_at_lease_end(
    redis_client: Redis, monkeypatch: pytest.MonkeyPatch, eventually: Callable[..., bool]
) -> None:
    tries = break_renewals(monkeypatch, RedisConnectionError("by the test"))
    lock = RedisLock(redis_client, NAME, lease_ms=1_800)
    before = time.monotonic()
    lock.acquire()
    acquired = time.monotonic()
    assert eventually(lambda: lock.lost)
    assert before + 1.75 <= time.monotonic()  # a little sooner than the key, for the clocks' drift
    assert time.monotonic() < acquired + 1.8 + 20
    assert 1 < len(tries) <= 8  # at 600 ms, then every 180
    assert eventually(lambda: watchdogs() == 0)
    monkeypatch.undo()
    assert lock.lost  # for good


def test_late_renewal_does_not_bring_the_lock_back(redis_client: Redis) -> None:
    now = time.monotonic()
    in_time = Lease(redis_client, (NAME,), "owner", lease_ms=60_000, sent_at=now - 59)
    too_late = Lease(redis_client, (NAME,), "owner", lease_ms=60_000, sent_at=now - 61)
    for lease in (in_time, too_late):
        lease.apply(RenewResult.RENEWED, sent_at=now)
    assert not in_time.lost
    assert too_late.lost


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_dead_renewal_thread_is_replaced(
    redis_client: Redis,
    monkeypatch: pytest.MonkeyPatch,
    eventually: Callable[..., bool],
    renewal: Callable[[str], bool],
) -> None:
    lock = RedisLock(redis_client, NAME, lease_ms=LEASE_MS)
    lock.acquire()
    with monkeypatch.context() as patch:
        break_renewals(patch, SystemExit())
        assert eventually(lambda: watchdogs() == 0)
    with RedisLock(redis_client, "lock:{t}:next", lease_ms=LEASE_MS):
        assert renewal(NAME)
        assert not lock.lost
    lock.release()


def test_renewal_arriving_after_release_changes_nothing(
    redis_client: Redis, monkeypatch: pytest.MonkeyPatch, eventually: Callable[..., bool]
) -> None:
    real, sent, released = scripts.renew, threading.Event(), threading.Event()
    answered = threading.Event()

    def slow(client: Redis, requests: Iterable[Renewal]) -> object:
        requests = list(requests)
        sent.set()
        assert released.wait(timeout=20)
        results = real(client, requests)
        answered.set()
        return results

    monkeypatch.setattr(scripts, "renew", slow)
    lock = RedisLock(redis_client, NAME, lease_ms=LEASE_MS)
    lock.acquire()
    assert sent.wait(timeout=20)
    lock.release()
    other = RedisLock(redis_client, NAME)
    other.acquire(lease_ms=60_000)
    redis_client.pexpire(NAME, 30_000)
    released.set()
    assert answered.wait(timeout=20)
    assert eventually(lambda: watchdogs() == 0)
    assert other.owned()
    assert 30_000 >= redis_client.pttl(NAME) > LEASE_MS
    assert not lock.lost


def test_lock_of_dead_thread_or_dropped_object_expires(
    redis_client: Redis, eventually: Callable[..., bool]
) -> None:
    kept = RedisLock(redis_client, NAME, lease_ms=SHORT_MS)
    owner = threading.Thread(target=kept.acquire)
    owner.start()
    owner.join()
    dropped = RedisLock(redis_client, NAME + "2", lease_ms=SHORT_MS)
    dropped.acquire()
    del dropped
    gc.collect()
    assert eventually(lambda: redis_client.dbsize() == 0)
    assert eventually(lambda: watchdogs() == 0)


def test_failed_renewal_of_one_lock_spares_the_others(
    redis_client: Redis,
    renewal: Callable[[str], bool],
    eventually: Callable[..., bool],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Without memory Redis renews no reader, because that writes; it renews all others."""
    reader = ReadWriteLock(redis_client, "lock:{t}:shared", lease_ms=LEASE_MS).read
    with RedisLock(redis_client, NAME, lease_ms=LEASE_MS) as lock:
        reader.acquire()
        redis_client.config_set("maxmemory", 1)
        try:
            assert renewal(NAME)
        finally:
            redis_client.config_set("maxmemory", 0)
        assert not lock.lost
        reader.release()
    assert eventually(lambda: "renewal of lock:{t}:shared:readers failed" in caplog.text)


@pytest.mark.slow
@pytest.mark.parametrize("bad", ["raises", "exits", "blocks"])
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_bad_on_lost_callback_does_not_stop_renewals(
    redis_client: Redis, renewal: Callable[[str], bool], eventually: Callable[..., bool], bad: str
) -> None:
    told, done = threading.Event(), threading.Event()

    def on_lost() -> None:
        told.set()
        if bad == "blocks":
            done.wait(60)
        raise SystemExit if bad == "exits" else ZeroDivisionError

    with RedisLock(redis_client, NAME, lease_ms=LEASE_MS):
        lost = RedisLock(redis_client, "lock:{t}:lost", lease_ms=SHORT_MS, on_lost=on_lost)
        lost.acquire()
        redis_client.delete("lock:{t}:lost")
        assert told.wait(20)
        assert renewal(NAME)
        assert renewal(NAME)
    done.set()
    with pytest.raises(LockNotOwned):
        lost.release()


def test_leases_taken_in_sequence_are_renewed_together(
    redis_client: Redis, eventually: Callable[..., bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    real, sizes = scripts.renew, list[int]()

    def noted(client: Redis, requests: Iterable[Renewal]) -> object:
        requests = list(requests)
        sizes.append(len(requests))
        return real(client, requests)

    monkeypatch.setattr(scripts, "renew", noted)
    locks = [RedisLock(redis_client, f"lock:{{{i}}}", lease_ms=3_000) for i in range(200)]
    for lock in locks:
        lock.acquire()
    assert eventually(lambda: sizes[-1:] == [200])
    for lock in locks:
        lock.release()
