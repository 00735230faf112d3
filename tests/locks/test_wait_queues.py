"""Waiting for a lock: woken by the release, in turn, and never for ever."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress

import pytest
from redis import Redis
from redis.exceptions import ConnectionError as RedisConnectionError

from locks import LockBusy, MultiLock, RedisLock, redis_lock, scripts, wait_queues
from locks.protocol import CHANNEL, AcquireResult, Answer, Request, side_key
from tests.locks.servers import OtherProcess, client_of
from tests.locks.waiters import (
    A_WHILE_S,
    AT_ONCE_S,
    HELD_MS,
    LONG_MS,
    NAME,
    assert_wakes,
    held_lock,
    in_room,
    is_noted,
    noted_waiter,
    pass_through,
    replaceable_answers,
)
from tests.support.redis_url import redis_url

Eventually = Callable[..., bool]

OTHER = "lock:{t}:other"
WAITING = side_key(NAME, "waiting")


def calls(client: Redis) -> int:
    return int(client.info("commandstats").get("cmdstat_evalsha", {}).get("calls", 0))


# --- Woken ---------------------------------------------------------------------------------------


@pytest.mark.usefixtures("patient")
def test_release_in_this_process_wakes_the_waiter(
    redis_client: Redis, pool: ThreadPoolExecutor
) -> None:
    held = held_lock(redis_client)
    waiter = noted_waiter(pool, redis_client)
    assert_wakes(held.release, waiter)


@pytest.mark.usefixtures("patient")
def test_control_unwoken_waiter_goes_on_waiting(
    redis_client: Redis,
    pool: ThreadPoolExecutor,
    throughout: Callable[..., bool],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    held = held_lock(redis_client)
    waiter = noted_waiter(pool, redis_client)
    monkeypatch.setattr(redis_lock, "wake_here", lambda *_: None)
    held.release()
    assert throughout(lambda: not waiter.done(), for_s=A_WHILE_S)
    wait_queues.wake_here(redis_client, [NAME])
    waiter.result(60)


@pytest.mark.usefixtures("patient")
def test_release_in_another_process_wakes_the_waiter(
    redis_client: Redis,
    pool: ThreadPoolExecutor,
    other_process: OtherProcess,
) -> None:
    other_process.call("acquire", "plain", NAME, lease_ms=HELD_MS)
    waiter = noted_waiter(pool, redis_client)
    released = other_process.call("release", "plain", NAME)
    assert waiter.result(60) - released[1] < AT_ONCE_S


@pytest.mark.usefixtures("patient")
def test_control_waiter_without_message_goes_on_waiting(
    redis_client: Redis,
    pool: ThreadPoolExecutor,
    throughout: Callable[..., bool],
    other_process: OtherProcess,
) -> None:
    other_process.call("acquire", "plain", NAME, lease_ms=HELD_MS)
    waiter = noted_waiter(pool, redis_client)
    redis_client.delete(WAITING)  # so nobody is told of the release
    other_process.call("release", "plain", NAME)
    assert throughout(lambda: not waiter.done(), for_s=A_WHILE_S)
    redis_client.publish(CHANNEL, f"by hand\n{NAME}")
    waiter.result(60)


@pytest.mark.usefixtures("patient")
def test_short_wait_does_not_hide_the_release_from_others(
    redis_client: Redis,
    eventually: Eventually,
    other_process: OtherProcess,
    pool: ThreadPoolExecutor,
) -> None:
    held = held_lock(redis_client)
    other_process.begin("acquire", "plain", NAME, wait_ms=LONG_MS, lease_ms=HELD_MS)
    assert eventually(lambda: is_noted(redis_client))
    hasty = pool.submit(RedisLock(redis_client, NAME).acquire, wait_ms=100)
    with pytest.raises(LockBusy):
        hasty.result(60)
    note_over = time.monotonic() + 0.3
    assert eventually(lambda: time.monotonic() > note_over)
    released_at = time.monotonic()
    held.release()
    at = other_process.end()[1]
    other_process.call("release", "plain", NAME)
    assert at - released_at < AT_ONCE_S


@pytest.mark.usefixtures("patient")
def test_release_through_another_client_wakes_the_waiter(
    redis_client: Redis, pool: ThreadPoolExecutor, eventually: Eventually
) -> None:
    held = held_lock(redis_client)
    with client_of(redis_url()) as second:
        waiter = noted_waiter(pool, redis_client, RedisLock(second, NAME))
        assert_wakes(held.release, waiter)
        assert eventually(lambda: not redis_client.pubsub_numsub(CHANNEL)[0][1])


def test_spinning_waiter_acquires_without_subscription(
    redis_client: Redis, pool: ThreadPoolExecutor, eventually: Eventually
) -> None:
    assert eventually(lambda: not redis_client.pubsub_numsub(CHANNEL)[0][1])
    held = held_lock(redis_client)
    before = calls(redis_client)
    waiter = pool.submit(pass_through, RedisLock(redis_client, NAME, spin=True))
    assert eventually(lambda: calls(redis_client) > before + 3)
    assert (in_room(redis_client), redis_client.pubsub_numsub(CHANNEL)[0][1]) == (0, 0)
    assert_wakes(held.release, waiter)


# --- In turn -------------------------------------------------------------------------------------


@pytest.mark.usefixtures("patient")
def test_threads_of_a_process_acquire_in_order(
    redis_client: Redis, pool: ThreadPoolExecutor, eventually: Eventually
) -> None:
    order: list[int] = []

    def enter(i: int) -> None:
        with RedisLock(redis_client, NAME).holding(wait_ms=LONG_MS):
            order.append(i)

    held = held_lock(redis_client)
    entered: list[Future[None]] = []
    for i in range(12):
        entered.append(pool.submit(enter, i))
        assert eventually(lambda: in_room(redis_client) == len(entered))
    held.release()
    for one in entered:
        one.result(60)
    assert order == list(range(12))
    assert not in_room(redis_client)


def test_only_the_first_waiter_asks_redis(
    redis_client: Redis,
    pool: ThreadPoolExecutor,
    eventually: Eventually,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Asking(RedisLock):
        def _ask(self, request: Request) -> Answer:
            owners.append(request.owner)
            return super()._ask(request)

    owners: list[str] = []
    monkeypatch.setattr(wait_queues, "ASK_AGAIN_S", 0.1)
    held = held_lock(redis_client)
    waiters = [pool.submit(pass_through, Asking(redis_client, NAME)) for _ in range(20)]
    assert eventually(lambda: in_room(redis_client) == 20)
    owners.clear()
    assert eventually(lambda: len(owners) >= 5)
    assert len(set(owners)) == 1
    held.release()
    for waiter in waiters:
        waiter.result(60)


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("how", ["it gets no answer", "its wait is over"])
def test_waiter_that_gives_up_passes_the_wake_up_on(
    redis_client: Redis,
    pool: ThreadPoolExecutor,
    eventually: Eventually,
    skip_time: Callable[[float], None],
    monkeypatch: pytest.MonkeyPatch,
    how: str,
) -> None:
    def refuse() -> Answer:
        if how == "it gets no answer":
            raise RedisConnectionError("by the test")
        skip_time(LONG_MS / 1000)
        return Answer(AcquireResult.BUSY)

    held, lock = RedisLock(redis_client, NAME), RedisLock(redis_client, NAME)
    answer_with = replaceable_answers(lock, monkeypatch)
    held.acquire(lease_ms=HELD_MS)
    first = pool.submit(lock.acquire, wait_ms=LONG_MS)
    assert eventually(lambda: is_noted(redis_client))
    second = pool.submit(pass_through, RedisLock(redis_client, NAME), wait_ms=4 * LONG_MS)
    assert eventually(lambda: in_room(redis_client) == 2)
    answer_with(refuse)
    held.release()
    with pytest.raises((RedisConnectionError, LockBusy)):
        first.result(60)
    gave_up_at = time.monotonic()
    assert second.result(60) - gave_up_at < AT_ONCE_S


@pytest.mark.usefixtures("patient")
def test_wait_ending_at_the_release_loses_no_wake_up(
    redis_client: Redis, pool: ThreadPoolExecutor, eventually: Eventually
) -> None:
    def enter_or_give_up(wait_ms: int) -> None:
        with suppress(LockBusy):
            pass_through(RedisLock(redis_client, NAME), wait_ms=wait_ms)

    def one_round(wait_ms: int) -> None:
        held = held_lock(redis_client)
        release_at = time.monotonic() + 0.04
        hasty = pool.submit(enter_or_give_up, wait_ms)
        assert eventually(lambda: in_room(redis_client) == 1 or hasty.done())
        second = pool.submit(pass_through, RedisLock(redis_client, NAME))
        assert eventually(lambda: time.monotonic() >= release_at)
        held.release()
        hasty.result(60)
        assert second.result(60) - release_at < AT_ONCE_S

    for wait_ms in range(20, 60, 2):
        one_round(wait_ms)


@pytest.mark.usefixtures("patient")
def test_multi_lock_waiter_passes_the_wake_up_on(
    redis_client: Redis, pool: ThreadPoolExecutor, eventually: Eventually
) -> None:
    a, b = held_lock(redis_client), held_lock(redis_client, OTHER)
    many = MultiLock(redis_client, [NAME, OTHER])

    def enter_both() -> float:
        with many.holding_all(wait_ms=LONG_MS):
            return time.monotonic()

    both = pool.submit(enter_both)
    assert eventually(lambda: is_noted(redis_client))
    one = pool.submit(pass_through, RedisLock(redis_client, NAME))
    assert eventually(lambda: in_room(redis_client) == 2)
    assert_wakes(a.release, one)
    assert eventually(lambda: in_room(redis_client, OTHER) == 1)
    assert_wakes(b.release, both)


@pytest.mark.usefixtures("patient")
def test_multi_lock_waiter_passes_wake_up_to_other_processes(
    redis_client: Redis,
    pool: ThreadPoolExecutor,
    eventually: Eventually,
    other_process: OtherProcess,
) -> None:
    def enter_both() -> None:
        with MultiLock(redis_client, [NAME, OTHER]).holding_all(wait_ms=LONG_MS):
            pass

    held, busy = RedisLock(redis_client, NAME), RedisLock(redis_client, OTHER)
    for _ in range(5):  # a release chooses one of the processes at random
        held.acquire(lease_ms=HELD_MS)
        busy.acquire(lease_ms=HELD_MS)
        both = pool.submit(enter_both)
        assert eventually(lambda: redis_client.hlen(WAITING) == 1)
        other_process.begin("acquire", "plain", NAME, wait_ms=LONG_MS, lease_ms=HELD_MS)
        assert eventually(lambda: redis_client.hlen(WAITING) == 2)
        released_at = time.monotonic()
        held.release()
        assert other_process.end()[1] - released_at < AT_ONCE_S
        other_process.call("release", "plain", NAME)
        busy.release()
        both.result(60)


@pytest.mark.usefixtures("patient")
def test_repeated_acquire_does_not_queue_behind_waiters(
    redis_client: Redis, pool: ThreadPoolExecutor
) -> None:
    class LosesReply(RedisLock):
        lose = True

        def _ask(self, request: Request) -> Answer:
            answer = super()._ask(request)
            if self.lose:
                self.lose = False
                raise RedisConnectionError("the test lost the reply")
            return answer

    lock = LosesReply(redis_client, NAME, lease_ms=HELD_MS)
    with pytest.raises(RedisConnectionError):
        lock.acquire()
    other = noted_waiter(pool, redis_client)
    began_at = time.monotonic()
    with lock.holding(wait_ms=LONG_MS):
        took_s = time.monotonic() - began_at
    other.result(60)
    assert took_s < AT_ONCE_S


# --- Bounded -------------------------------------------------------------------------------------


def test_wait_is_bounded_with_many_waiters(redis_client: Redis, pool: ThreadPoolExecutor) -> None:
    def refused_after() -> float:
        began_at = time.monotonic()
        with pytest.raises(LockBusy):
            RedisLock(redis_client, NAME).acquire(wait_ms=300)
        return time.monotonic() - began_at

    with RedisLock(redis_client, NAME):
        took_s = [one.result(60) for one in [pool.submit(refused_after) for _ in range(24)]]
    assert min(took_s) >= 0.3
    assert max(took_s) < 0.3 + AT_ONCE_S
    assert not in_room(redis_client)


@pytest.mark.slow
@pytest.mark.usefixtures("patient")
def test_waiter_asks_once_more_when_its_wait_ends(
    redis_client: Redis, pool: ThreadPoolExecutor, eventually: Eventually
) -> None:
    RedisLock(redis_client, NAME).acquire(lease_ms=HELD_MS)
    waiter = pool.submit(RedisLock(redis_client, NAME).acquire, wait_ms=2_500, lease_ms=HELD_MS)
    assert eventually(lambda: is_noted(redis_client))
    redis_client.delete(NAME)  # of which nobody is told
    waiter.result(60)


@pytest.mark.usefixtures("patient")
def test_waiter_acquires_when_a_dead_holders_lease_ends(
    redis_client: Redis, pool: ThreadPoolExecutor
) -> None:
    asked_at = time.monotonic()
    scripts.acquire_call(NAME, Request("dead", 500)).run(redis_client)
    waiter = pool.submit(pass_through, RedisLock(redis_client, NAME))
    assert 0.49 < waiter.result(60) - asked_at < 0.5 + AT_ONCE_S


def test_waiter_notices_a_deleted_lock_within_seconds(
    redis_client: Redis, pool: ThreadPoolExecutor
) -> None:
    scripts.acquire_call(NAME, Request("dead", HELD_MS)).run(redis_client)
    waiter = noted_waiter(pool, redis_client)
    redis_client.delete(NAME)
    deleted_at = time.monotonic()
    assert waiter.result(60) - deleted_at < wait_queues.ASK_AGAIN_S + 20


def test_note_of_waiting_expires(redis_client: Redis, pool: ThreadPoolExecutor) -> None:
    with RedisLock(redis_client, NAME):
        waiter = noted_waiter(pool, redis_client)
        assert 0 < redis_client.pttl(WAITING) <= wait_queues.NOTE_S * 1000
    waiter.result(60)
    assert not is_noted(redis_client)
