"""``FairLock``: in the order of asking, over threads and processes, also when somebody gives up."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import pytest
from redis import Redis
from redis.exceptions import ConnectionError as RedisConnectionError

from locks import FairLock, LockBusy, LockNotOwned, RedisLock, scripts, wait_queues
from locks.protocol import (
    AcquireResult,
    Answer,
    Fence,
    ReleaseResult,
    Request,
    WaitNote,
    fair_topic,
    side_key,
)
from tests.locks.servers import OtherProcess
from tests.locks.waiters import AT_ONCE_S, HELD_MS, LONG_MS, NAME, pass_through, replaceable_answers
from tests.support.redis_url import redis_url

Eventually = Callable[..., bool]
Elsewhere = Callable[..., Any]

FENCE = "lock:{t}:fence"
QUEUE, ALIVE = side_key(NAME, "queue"), side_key(NAME, "alive")
PATIENT = WaitNote(1, 1, 30_000)


@pytest.fixture(scope="module")
def other_processes() -> Iterator[list[OtherProcess]]:
    with ExitStack() as running:
        others = [running.enter_context(OtherProcess(redis_url())) for _ in range(2)]
        for other in others:
            other.look_again(after_s=60)
        yield others


def queued(client: Redis) -> int:
    return int(client.zcard(QUEUE))


def ask(client: Redis, owner: str, **changes: Any) -> Answer:
    request = Request(owner, **{"lease_ms": HELD_MS, **changes})
    return scripts.acquire_fair_call(NAME, request).run(client)


# --- Order ---------------------------------------------------------------------------------------


@pytest.mark.usefixtures("patient")
def test_processes_and_threads_acquire_in_queue_order(
    redis_client: Redis,
    pool: ThreadPoolExecutor,
    eventually: Eventually,
    other_processes: list[OtherProcess],
) -> None:
    a, b = other_processes
    held = FairLock(redis_client, NAME)
    held.acquire()
    a.begin("acquire", "fair", NAME, wait_ms=LONG_MS)
    assert eventually(lambda: queued(redis_client) == 1)
    thread = pool.submit(pass_through, FairLock(redis_client, NAME))
    assert eventually(lambda: queued(redis_client) == 2)
    b.begin("acquire", "fair", NAME, wait_ms=LONG_MS)
    assert eventually(lambda: queued(redis_client) == 3)
    held.release()
    got = [a.end()[1]]
    assert not thread.done()
    a.call("release", "fair", NAME)
    got += [thread.result(60), b.end()[1]]
    b.call("release", "fair", NAME)
    assert got == sorted(got)
    assert got[-1] - got[0] < 2 * AT_ONCE_S


def test_acquire_without_waiting_does_not_overtake_the_queue(redis_client: Redis) -> None:
    ask(redis_client, "first")
    assert ask(redis_client, "waits", note=PATIENT).result is AcquireResult.BUSY
    redis_client.delete(NAME)
    with pytest.raises(LockBusy):
        FairLock(redis_client, NAME).acquire()
    assert queued(redis_client) == 1
    assert ask(redis_client, "waits", note=PATIENT).result is AcquireResult.GRANTED


def test_short_wait_does_not_shorten_other_queue_places(redis_client: Redis) -> None:
    ask(redis_client, "holder")
    ask(redis_client, "patient", note=PATIENT)
    ask(redis_client, "hasty", note=WaitNote(1, 1, 50))
    assert redis_client.pttl(QUEUE) > 50
    assert redis_client.pttl(ALIVE) > 50
    redis_client.delete(NAME)
    assert ask(redis_client, "newcomer", note=PATIENT).result is AcquireResult.BUSY
    assert redis_client.zrange(QUEUE, 0, 0) == ["patient"]


def test_release_wakes_only_the_first_in_the_queue(
    redis_client: Redis, pool: ThreadPoolExecutor, eventually: Eventually
) -> None:
    held = FairLock(redis_client, NAME)
    held.acquire()
    for owner in ("first", "second"):
        ask(redis_client, owner, note=PATIENT)
    woken: list[str] = []
    with redis_client.pubsub(ignore_subscribe_messages=True) as subscription:
        subscription.psubscribe("locks:released*")
        assert eventually(lambda: redis_client.pubsub_numpat() == 1)
        held.release()
        redis_client.publish("locks:released", "end")

        def hear() -> bool:
            message = subscription.get_message(timeout=0.1)
            woken.extend([message["data"]] if message else [])
            return "end" in woken

        assert eventually(hear)
    assert woken == ["\n" + fair_topic(NAME, "first"), "end"]


def test_spinning_waiter_has_a_queue_place(
    redis_client: Redis, pool: ThreadPoolExecutor, eventually: Eventually
) -> None:
    held = FairLock(redis_client, NAME)
    held.acquire(lease_ms=HELD_MS)
    spinning = pool.submit(pass_through, FairLock(redis_client, NAME, spin=True))
    try:
        assert eventually(lambda: queued(redis_client) == 1, within_s=10)
    finally:
        held.release()
        spinning.result(60)


# --- Dropping out --------------------------------------------------------------------------------


@pytest.mark.slow
def test_killed_waiter_drops_out_of_the_queue(
    redis_client: Redis, pool: ThreadPoolExecutor, eventually: Eventually
) -> None:
    held = FairLock(redis_client, NAME)
    held.acquire(lease_ms=HELD_MS)
    with OtherProcess(redis_url()) as other:
        other.begin("acquire", "fair", NAME, wait_ms=LONG_MS)
        assert eventually(lambda: queued(redis_client) == 1)
        waiter = pool.submit(pass_through, FairLock(redis_client, NAME))
        assert eventually(lambda: queued(redis_client) == 2)
        other.kill()
    killed_at = time.monotonic()
    held.release()
    assert waiter.result(60) - killed_at < wait_queues.NOTE_S + 20
    assert not queued(redis_client)


def test_waiter_leaves_the_queue_when_its_wait_ends(
    redis_client: Redis, pool: ThreadPoolExecutor
) -> None:
    with RedisLock(redis_client, NAME):
        with pytest.raises(LockBusy):
            pool.submit(FairLock(redis_client, NAME).acquire, wait_ms=200).result(60)
        assert not redis_client.exists(QUEUE, ALIVE)


@pytest.mark.usefixtures("patient")
def test_first_waiter_giving_up_wakes_the_next(
    redis_client: Redis,
    pool: ThreadPoolExecutor,
    eventually: Eventually,
    skip_time: Callable[[float], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse() -> Answer:
        skip_time(LONG_MS / 1000)
        return Answer(AcquireResult.BUSY)

    held, lock = FairLock(redis_client, NAME), FairLock(redis_client, NAME)
    answer_with = replaceable_answers(lock, monkeypatch)
    held.acquire(lease_ms=HELD_MS)
    first = pool.submit(lock.acquire, wait_ms=LONG_MS)
    assert eventually(lambda: queued(redis_client) == 1)
    second = pool.submit(pass_through, FairLock(redis_client, NAME), wait_ms=4 * LONG_MS)
    assert eventually(lambda: queued(redis_client) == 2)
    answer_with(refuse)
    held.release()
    with pytest.raises(LockBusy):
        first.result(60)
    gave_up_at = time.monotonic()
    assert second.result(60) - gave_up_at < AT_ONCE_S


def test_queue_without_liveness_keys_blocks_nobody(redis_client: Redis) -> None:
    ask(redis_client, "holder")
    ask(redis_client, "dead", note=PATIENT)
    redis_client.delete(ALIVE, NAME)  # by hand
    lock = FairLock(redis_client, NAME)
    with lock.holding(wait_ms=4_000):
        assert lock.owned()


# --- Sent again ----------------------------------------------------------------------------------


def test_repeated_acquire_keeps_queue_place_and_token(redis_client: Redis) -> None:
    fence = Fence(FENCE)
    assert ask(redis_client, "holder", fence=fence).token == 1
    for _ in range(2):
        for owner in ("first", "second", "first"):
            assert ask(redis_client, owner, note=PATIENT).result is AcquireResult.BUSY
        assert redis_client.zrange(QUEUE, 0, -1) == ["first", "second"]
    scripts.release_fair_call(NAME, "holder").run(redis_client)
    for _ in range(2):
        assert ask(redis_client, "second", note=PATIENT).result is AcquireResult.BUSY
        assert ask(redis_client, "first", fence=fence).token == 2
    assert redis_client.zrange(QUEUE, 0, -1) == ["second"]


def test_repeated_fair_release_gets_the_first_answer(redis_client: Redis) -> None:
    ask(redis_client, "holder")
    ask(redis_client, "waits", note=PATIENT)
    for _ in range(2):
        released = scripts.release_fair_call(NAME, "holder").run(redis_client)
        assert released is ReleaseResult.RELEASED
    assert ask(redis_client, "holder", note=PATIENT).result is AcquireResult.ENDED
    for _ in range(2):
        assert scripts.release_fair_call(NAME, "waits").run(redis_client) is ReleaseResult.NOT_OWNED
    assert not redis_client.exists(NAME, QUEUE, ALIVE)


@pytest.mark.usefixtures("patient")
def test_lost_reply_keeps_the_queue_place(
    redis_client: Redis, pool: ThreadPoolExecutor, eventually: Eventually
) -> None:
    class LosesReply(FairLock):
        lose = False

        def _ask(self, request: Request) -> Answer:
            answer = super()._ask(request)
            if request.note.ttl_ms > 1 and not self.lose:
                self.lose = True
                raise RedisConnectionError("the test lost the reply")
            return answer

    held = FairLock(redis_client, NAME)
    held.acquire(lease_ms=HELD_MS)
    lock = LosesReply(redis_client, NAME)

    def twice() -> float:
        with pytest.raises(RedisConnectionError):
            lock.acquire(wait_ms=LONG_MS)
        lost.set()
        assert go_on.wait(30)
        return pass_through(lock)

    lost, go_on = threading.Event(), threading.Event()
    first = pool.submit(twice)
    assert lost.wait(30)
    second = pool.submit(pass_through, FairLock(redis_client, NAME))
    assert eventually(lambda: queued(redis_client) == 2)
    go_on.set()
    held.release()
    assert first.result(60) < second.result(60)


# --- A lock --------------------------------------------------------------------------------------


def test_redis_lock_excludes_fair_lock_of_same_name(
    redis_client: Redis, elsewhere: Elsewhere
) -> None:
    for one, other in ((RedisLock, FairLock), (FairLock, RedisLock)):
        with one(redis_client, NAME), pytest.raises(LockBusy):
            elsewhere(other(redis_client, NAME).acquire, wait_ms=50)


@pytest.mark.slow
def test_fair_lock_is_renewed_and_reports_loss(
    redis_client: Redis, renewal: Callable[[str], bool], eventually: Eventually
) -> None:
    lock = FairLock(redis_client, NAME, lease_ms=2_500)
    lock.acquire()
    assert renewal(NAME)
    redis_client.delete(NAME)
    assert eventually(lambda: lock.lost)
    with pytest.raises(LockNotOwned):
        lock.release()
