"""Waiting for a lock: woken by the release, in turn, and never for ever."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress

import pytest
from django.conf import settings
from redis import Redis
from redis.exceptions import ConnectionError as RedisConnectionError

from locks import LockBusy, MultiLock, RedisLock, redis_lock, scripts, waiting
from locks.protocol import CHANNEL, AcquireResult, Answer, Request, beside
from tests.locks.servers import OtherProcess, client_of
from tests.locks.test_forks import forked, status
from tests.locks.waiters import (
    A_WHILE_S,
    AT_ONCE_S,
    HELD_MS,
    LONG_MS,
    NAME,
    in_room,
    is_noted,
    pass_through,
)

Eventually = Callable[..., bool]

OTHER = "lock:{t}:other"
WAITING = beside(NAME, "waiting")


def calls(client: Redis) -> int:
    return int(client.info("commandstats").get("cmdstat_evalsha", {}).get("calls", 0))


# --- Woken ---------------------------------------------------------------------------------------


@pytest.mark.usefixtures("patient")
def test_the_release_by_a_thread_of_this_process_wakes_who_waits(
    redis_client: Redis, pool: ThreadPoolExecutor, eventually: Eventually
) -> None:
    held = RedisLock(redis_client, NAME)
    held.acquire(lease_ms=HELD_MS)
    waiter = pool.submit(pass_through, RedisLock(redis_client, NAME))
    assert eventually(lambda: is_noted(redis_client))
    released_at = time.monotonic()
    held.release()
    assert waiter.result(10) - released_at < AT_ONCE_S


@pytest.mark.usefixtures("patient")
def test_control_without_being_woken_it_goes_on_waiting(
    redis_client: Redis,
    pool: ThreadPoolExecutor,
    eventually: Eventually,
    throughout: Callable[..., bool],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    held = RedisLock(redis_client, NAME)
    held.acquire(lease_ms=HELD_MS)
    waiter = pool.submit(pass_through, RedisLock(redis_client, NAME))
    assert eventually(lambda: is_noted(redis_client))
    monkeypatch.setattr(redis_lock, "wake_here", lambda *_: None)
    held.release()
    assert throughout(lambda: not waiter.done(), for_s=A_WHILE_S)
    waiting.wake_here(redis_client, [NAME])
    waiter.result(10)


@pytest.mark.usefixtures("patient")
def test_the_release_by_another_process_wakes_who_waits_here(
    redis_client: Redis,
    pool: ThreadPoolExecutor,
    eventually: Eventually,
    other_process: OtherProcess,
) -> None:
    other_process.call("acquire", "plain", NAME, lease_ms=HELD_MS)
    waiter = pool.submit(pass_through, RedisLock(redis_client, NAME))
    assert eventually(lambda: is_noted(redis_client))
    released = other_process.call("release", "plain", NAME)
    assert waiter.result(10) - released[1] < AT_ONCE_S


@pytest.mark.usefixtures("patient")
def test_control_without_the_message_it_goes_on_waiting(
    redis_client: Redis,
    pool: ThreadPoolExecutor,
    eventually: Eventually,
    throughout: Callable[..., bool],
    other_process: OtherProcess,
) -> None:
    other_process.call("acquire", "plain", NAME, lease_ms=HELD_MS)
    waiter = pool.submit(pass_through, RedisLock(redis_client, NAME))
    assert eventually(lambda: is_noted(redis_client))
    redis_client.delete(WAITING)  # so nobody is told of the release
    other_process.call("release", "plain", NAME)
    assert throughout(lambda: not waiter.done(), for_s=A_WHILE_S)
    redis_client.publish(CHANNEL, f"by hand\n{NAME}")
    waiter.result(10)


@pytest.mark.usefixtures("patient")
def test_processes_wake_each_other_to_and_fro(
    redis_client: Redis, eventually: Eventually, other_process: OtherProcess
) -> None:
    lock = RedisLock(redis_client, NAME)
    for _ in range(5):
        lock.acquire(wait_ms=LONG_MS, lease_ms=HELD_MS)
        other_process.begin("acquire", "plain", NAME, wait_ms=LONG_MS, lease_ms=HELD_MS)
        assert eventually(lambda: is_noted(redis_client))
        released_at = time.monotonic()
        lock.release()
        how, at = other_process.end()
        assert (how, at - released_at < AT_ONCE_S) == ("done", True)
        other_process.call("release", "plain", NAME)


@pytest.mark.usefixtures("patient")
def test_one_who_waits_a_moment_does_not_make_the_release_unknown_to_the_others(
    redis_client: Redis,
    eventually: Eventually,
    other_process: OtherProcess,
    pool: ThreadPoolExecutor,
) -> None:
    held = RedisLock(redis_client, NAME)
    held.acquire(lease_ms=HELD_MS)
    other_process.begin("acquire", "plain", NAME, wait_ms=5_000, lease_ms=HELD_MS)
    assert eventually(lambda: is_noted(redis_client))
    hasty = pool.submit(RedisLock(redis_client, NAME).acquire, wait_ms=100)
    with pytest.raises(LockBusy):
        hasty.result(10)
    note_over = time.monotonic() + 0.3
    assert eventually(lambda: time.monotonic() > note_over)
    released_at = time.monotonic()
    held.release()
    at = other_process.end()[1]
    other_process.call("release", "plain", NAME)
    assert at - released_at < AT_ONCE_S


@pytest.mark.usefixtures("patient")
def test_a_release_through_another_client_of_the_process_wakes_who_waits_too(
    redis_client: Redis, pool: ThreadPoolExecutor, eventually: Eventually
) -> None:
    held = RedisLock(redis_client, NAME)
    held.acquire(lease_ms=HELD_MS)
    with client_of(settings.REDIS_URL) as second:
        waiter = pool.submit(pass_through, RedisLock(second, NAME), wait_ms=3_000)
        assert eventually(lambda: is_noted(redis_client))
        released_at = time.monotonic()
        held.release()
        assert waiter.result(10) - released_at < AT_ONCE_S
        assert eventually(lambda: not redis_client.pubsub_numsub(CHANNEL)[0][1])


def test_one_who_spins_gets_it_soon_and_subscribes_to_nothing(
    redis_client: Redis, pool: ThreadPoolExecutor, eventually: Eventually
) -> None:
    assert eventually(lambda: not redis_client.pubsub_numsub(CHANNEL)[0][1])
    held = RedisLock(redis_client, NAME)
    held.acquire(lease_ms=HELD_MS)
    before = calls(redis_client)
    waiter = pool.submit(pass_through, RedisLock(redis_client, NAME, spin=True))
    assert eventually(lambda: calls(redis_client) > before + 3)
    assert (in_room(redis_client), redis_client.pubsub_numsub(CHANNEL)[0][1]) == (0, 0)
    released_at = time.monotonic()
    held.release()
    assert waiter.result(10) - released_at < AT_ONCE_S


# --- In turn -------------------------------------------------------------------------------------


@pytest.mark.usefixtures("patient")
def test_the_threads_of_a_process_get_it_first_come_first_served(
    redis_client: Redis, pool: ThreadPoolExecutor, eventually: Eventually
) -> None:
    order: list[int] = []

    def enter(i: int) -> None:
        with RedisLock(redis_client, NAME).holding(wait_ms=LONG_MS):
            order.append(i)

    held = RedisLock(redis_client, NAME)
    held.acquire(lease_ms=HELD_MS)
    entered: list[Future[None]] = []
    for i in range(12):
        entered.append(pool.submit(enter, i))
        assert eventually(lambda: in_room(redis_client) == len(entered))
    held.release()
    for one in entered:
        one.result(10)
    assert order == list(range(12))
    assert not in_room(redis_client)


def test_only_the_first_of_those_who_wait_asks_redis(
    redis_client: Redis,
    pool: ThreadPoolExecutor,
    eventually: Eventually,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(waiting, "LOOK_AGAIN_S", 0.1)
    held = RedisLock(redis_client, NAME)
    held.acquire(lease_ms=HELD_MS)
    waiters = [pool.submit(pass_through, RedisLock(redis_client, NAME)) for _ in range(20)]
    assert eventually(lambda: in_room(redis_client) == 20)
    before, began_at = calls(redis_client), time.monotonic()
    assert eventually(lambda: calls(redis_client) >= before + 5)
    took_s = time.monotonic() - began_at
    assert took_s >= 0.35  # twenty who each asked every tenth of a second would take less
    held.release()
    for waiter in waiters:
        waiter.result(10)


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("how", ["it gets no answer", "its wait is over"])
def test_no_wake_up_is_lost_where_the_one_woken_gives_up(
    redis_client: Redis, pool: ThreadPoolExecutor, eventually: Eventually, how: str
) -> None:
    class GivesUp(RedisLock):
        def _ask(self, request: Request) -> Answer:
            if held_now.is_set():
                return super()._ask(request)
            if how == "it gets no answer":
                raise RedisConnectionError("by the test")
            return Answer(AcquireResult.BUSY, left_ms=HELD_MS)

    held = RedisLock(redis_client, NAME)
    held_now = threading.Event()
    held_now.set()
    held.acquire(lease_ms=HELD_MS)
    first = pool.submit(GivesUp(redis_client, NAME).acquire, wait_ms=1_000)
    assert eventually(lambda: is_noted(redis_client))
    second = pool.submit(pass_through, RedisLock(redis_client, NAME))
    assert eventually(lambda: in_room(redis_client) == 2)
    held_now.clear()
    held.release()
    with pytest.raises((RedisConnectionError, LockBusy)):
        first.result(10)
    gave_up_at = time.monotonic()
    assert second.result(10) - gave_up_at < AT_ONCE_S


@pytest.mark.usefixtures("patient")
def test_no_wake_up_is_lost_where_waits_end_just_as_the_lock_is_released(
    redis_client: Redis, pool: ThreadPoolExecutor, eventually: Eventually
) -> None:
    def enter_or_give_up(wait_ms: int) -> None:
        with suppress(LockBusy):
            pass_through(RedisLock(redis_client, NAME), wait_ms=wait_ms)

    def one_round(wait_ms: int) -> None:
        held = RedisLock(redis_client, NAME)
        held.acquire(lease_ms=HELD_MS)
        release_at = time.monotonic() + 0.04
        hasty = pool.submit(enter_or_give_up, wait_ms)
        assert eventually(lambda: in_room(redis_client) == 1 or hasty.done())
        second = pool.submit(pass_through, RedisLock(redis_client, NAME))
        assert eventually(lambda: time.monotonic() >= release_at)
        held.release()
        hasty.result(10)
        assert second.result(10) - release_at < AT_ONCE_S

    for wait_ms in range(20, 60, 2):
        one_round(wait_ms)


@pytest.mark.usefixtures("patient")
def test_one_who_finds_another_of_many_locks_busy_passes_the_wake_up_on(
    redis_client: Redis, pool: ThreadPoolExecutor, eventually: Eventually
) -> None:
    a, b = RedisLock(redis_client, NAME), RedisLock(redis_client, OTHER)
    a.acquire(lease_ms=HELD_MS)
    b.acquire(lease_ms=HELD_MS)
    many = MultiLock(redis_client, [NAME, OTHER])

    def enter_both() -> float:
        with many.holding_all(wait_ms=LONG_MS):
            return time.monotonic()

    both = pool.submit(enter_both)
    assert eventually(lambda: is_noted(redis_client))
    one = pool.submit(pass_through, RedisLock(redis_client, NAME))
    assert eventually(lambda: in_room(redis_client) == 2)
    released_at = time.monotonic()
    a.release()
    assert one.result(10) - released_at < AT_ONCE_S
    assert eventually(lambda: in_room(redis_client, OTHER) == 1)
    released_at = time.monotonic()
    b.release()
    assert both.result(10) - released_at < AT_ONCE_S


@pytest.mark.usefixtures("patient")
def test_one_who_finds_another_of_many_locks_busy_passes_it_on_to_other_processes_too(
    redis_client: Redis,
    pool: ThreadPoolExecutor,
    eventually: Eventually,
    other_process: OtherProcess,
) -> None:
    RedisLock(redis_client, OTHER).acquire(lease_ms=HELD_MS)
    for _ in range(5):  # a release chooses one of the processes at random
        held = RedisLock(redis_client, NAME)
        held.acquire(lease_ms=HELD_MS)
        many = pool.submit(MultiLock(redis_client, [NAME, OTHER]).acquire_all, wait_ms=600)
        assert eventually(lambda: redis_client.hlen(WAITING) == 1)
        other_process.begin("acquire", "plain", NAME, wait_ms=1_500, lease_ms=HELD_MS)
        assert eventually(lambda: redis_client.hlen(WAITING) == 2)
        released_at = time.monotonic()
        held.release()
        at = other_process.end()[1]
        other_process.call("release", "plain", NAME)
        with pytest.raises(LockBusy):
            many.result(10)
        assert at - released_at < AT_ONCE_S


@pytest.mark.usefixtures("patient")
def test_an_acquire_sent_again_does_not_stand_behind_those_who_wait_for_its_own_lock(
    redis_client: Redis, pool: ThreadPoolExecutor, eventually: Eventually
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
    other = pool.submit(pass_through, RedisLock(redis_client, NAME))
    assert eventually(lambda: is_noted(redis_client))
    began_at = time.monotonic()
    with lock.holding(wait_ms=LONG_MS):
        took_s = time.monotonic() - began_at
    other.result(10)
    assert took_s < AT_ONCE_S


# --- Bounded -------------------------------------------------------------------------------------


def test_a_wait_is_bounded_however_many_wait(redis_client: Redis, pool: ThreadPoolExecutor) -> None:
    def refused_after() -> float:
        began_at = time.monotonic()
        with pytest.raises(LockBusy):
            RedisLock(redis_client, NAME).acquire(wait_ms=300)
        return time.monotonic() - began_at

    with RedisLock(redis_client, NAME):
        took_s = [one.result(10) for one in [pool.submit(refused_after) for _ in range(24)]]
    assert min(took_s) >= 0.3
    assert max(took_s) < 0.3 + AT_ONCE_S
    assert not in_room(redis_client)


@pytest.mark.usefixtures("patient")
def test_a_wait_asks_one_last_time_when_it_ends(
    redis_client: Redis, pool: ThreadPoolExecutor, eventually: Eventually
) -> None:
    RedisLock(redis_client, NAME).acquire(lease_ms=HELD_MS)
    first = pool.submit(RedisLock(redis_client, NAME).acquire, wait_ms=600, lease_ms=HELD_MS)
    assert eventually(lambda: is_noted(redis_client))
    second = pool.submit(RedisLock(redis_client, OTHER).acquire, wait_ms=600)
    redis_client.delete(NAME)  # of which nobody is told
    first.result(10)
    second.result(10)


@pytest.mark.usefixtures("patient")
def test_the_lock_of_a_dead_holder_is_had_when_its_lease_is_over(
    redis_client: Redis, pool: ThreadPoolExecutor
) -> None:
    scripts.acquire(redis_client, NAME, Request("dead", 500))
    over_at = time.monotonic() + 0.5
    waiter = pool.submit(pass_through, RedisLock(redis_client, NAME))
    assert -0.05 < waiter.result(10) - over_at < AT_ONCE_S


def test_a_lock_deleted_by_hand_is_had_within_about_a_second(
    redis_client: Redis, pool: ThreadPoolExecutor, eventually: Eventually
) -> None:
    scripts.acquire(redis_client, NAME, Request("dead", HELD_MS))
    waiter = pool.submit(pass_through, RedisLock(redis_client, NAME))
    assert eventually(lambda: is_noted(redis_client))
    redis_client.delete(NAME)
    deleted_at = time.monotonic()
    assert waiter.result(10) - deleted_at < waiting.LOOK_AGAIN_S + 5


def test_what_redis_notes_of_those_who_wait_goes_away(
    redis_client: Redis, pool: ThreadPoolExecutor, eventually: Eventually
) -> None:
    with RedisLock(redis_client, NAME):
        waiter = pool.submit(pass_through, RedisLock(redis_client, NAME))
        assert eventually(lambda: is_noted(redis_client))
        assert 0 < redis_client.pttl(WAITING) <= waiting.STAY_S * 1000
    waiter.result(10)
    assert not is_noted(redis_client)


# --- Forked --------------------------------------------------------------------------------------


@pytest.mark.usefixtures("patient")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_child_waits_afresh_while_its_parent_waits(
    redis_client: Redis, pool: ThreadPoolExecutor, eventually: Eventually
) -> None:
    held = RedisLock(redis_client, NAME)
    held.acquire(lease_ms=HELD_MS)
    waiter = pool.submit(pass_through, RedisLock(redis_client, NAME))
    assert eventually(lambda: is_noted(redis_client))

    def child() -> None:
        assert not in_room(redis_client)
        pass_through(RedisLock(redis_client, NAME))

    pid = forked(child)
    assert eventually(lambda: redis_client.hlen(WAITING) == 2)
    released_at = time.monotonic()
    held.release()
    assert waiter.result(10) - released_at < AT_ONCE_S
    assert status(pid) == 0
    assert time.monotonic() - released_at < AT_ONCE_S
