"""``AsyncRedisLock`` and ``AsyncFairLock``: what they share with the locks of threads."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

import pytest
from redis import Redis
from redis.asyncio import Redis as AsyncRedis

from locks import FairLock, LockBusy, LockNotOwned, MultiLock, NotReplicated, RedisLock, watchdog
from locks.aio import AsyncFairLock, AsyncRedisLock
from locks.aio.loops import here
from tests.locks.holders import FENCE, NAME
from tests.locks.waiters import AT_ONCE_S
from tests.support.patience import GENEROUS_S

LONG_MS = 30_000
LEASE_MS = 2_500
SHORT_MS = 300

InThread = Callable[..., Coroutine[Any, Any, Any]]
BOTH = pytest.mark.parametrize("kind", [AsyncRedisLock, AsyncFairLock])


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(GENEROUS_S):
        while not condition():
            await asyncio.sleep(0.01)


async def passed(lock: AsyncRedisLock, order: list[str] | None = None, who: str = "") -> float:
    """Wait for a lock, let go of it, and return when it was had."""
    async with lock.holding(wait_ms=LONG_MS):
        if order is not None:
            order.append(who)
        return time.monotonic()


def waiters(client: Redis, kind: type[AsyncRedisLock] = AsyncRedisLock) -> int:
    """Return the number of waiters that Redis knows of."""
    if kind is AsyncFairLock:
        return int(client.zcard(f"{NAME}:queue"))
    return sum(int(note.split()[0]) for note in client.hvals(f"{NAME}:waiting"))


def in_queue(client: Redis, count: int) -> bool:
    return waiters(client, AsyncFairLock) == count


def queued(client: AsyncRedis) -> int:
    """Return the number of tasks of this event loop that wait for the lock, or ask for it."""
    return here().queues_of(client).count(NAME)


def release_of(client: Redis, kind: type[AsyncRedisLock]) -> RedisLock:
    return (FairLock if kind is AsyncFairLock else RedisLock)(client, NAME)


# --- Exclusion -----------------------------------------------------------------------------------


@BOTH
async def test_twenty_tasks_exclude_each_other(
    client: AsyncRedis, redis_client: Redis, kind: type[AsyncRedisLock]
) -> None:
    inside, most = 0, 0

    async def enter() -> None:
        nonlocal inside, most
        async with kind(client, NAME).holding(wait_ms=LONG_MS):
            inside += 1
            most = max(most, inside)
            await asyncio.sleep(0.005)
            inside -= 1

    await asyncio.gather(*(enter() for _ in range(20)))
    assert most == 1
    assert not redis_client.exists(NAME)


@BOTH
async def test_tasks_and_threads_exclude_each_other(
    client: AsyncRedis, redis_client: Redis, in_thread: InThread, kind: type[AsyncRedisLock]
) -> None:
    lock, other = kind(client, NAME), release_of(redis_client, kind)
    async with lock:
        with pytest.raises(LockBusy):
            await in_thread(other.acquire)
    await in_thread(other.acquire)
    with pytest.raises(LockBusy):
        await lock.acquire()
    await in_thread(other.release)


async def test_object_in_use_refuses_a_second_acquire(client: AsyncRedis) -> None:
    lock = AsyncRedisLock(client, NAME)
    async with lock:
        with pytest.raises(RuntimeError, match="in use"):
            await lock.acquire(wait_ms=LONG_MS)
        assert await lock.owned()
    async with lock:
        assert await lock.locked()
    assert not await lock.locked()
    assert not await lock.owned()


async def test_object_that_waits_refuses_another_call(
    client: AsyncRedis, redis_client: Redis
) -> None:
    lock = AsyncRedisLock(client, NAME)
    async with AsyncRedisLock(client, NAME):
        waiter = asyncio.create_task(passed(lock))
        await until(lambda: waiters(redis_client) == 1)
        with pytest.raises(RuntimeError, match="in use"):
            await lock.acquire()
        with pytest.raises(LockNotOwned):
            await lock.release()
    await waiter


async def test_invalid_options_are_refused(client: AsyncRedis) -> None:
    invalid: list[dict[str, Any]] = [{"lease_ms": 0}, {"replicas_ms": 0}, {"fence_floor": -1}]
    for options in invalid:
        with pytest.raises(ValueError, match=r"at least|least"):
            AsyncRedisLock(client, NAME, **options)
    with pytest.raises(ValueError, match="at least 1 ms"):
        await AsyncRedisLock(client, NAME).acquire(lease_ms=0)
    with pytest.raises(ValueError, match="decode_responses"):
        AsyncRedisLock(AsyncRedis(), NAME)


async def test_too_few_replicas_leave_the_lock_free(
    client: AsyncRedis, redis_client: Redis
) -> None:
    lock = AsyncRedisLock(client, NAME, replicas=1, replicas_ms=20)
    with pytest.raises(NotReplicated):
        await lock.acquire()
    assert not redis_client.exists(NAME)


# --- Leases --------------------------------------------------------------------------------------


@pytest.mark.slow
async def test_renewed_lock_outlasts_its_lease(client: AsyncRedis, redis_client: Redis) -> None:
    async with AsyncRedisLock(client, NAME, lease_ms=LEASE_MS) as lock:
        left_ms = [redis_client.pttl(NAME)]

        def renewed() -> bool:
            left_ms.append(redis_client.pttl(NAME))
            return left_ms[-1] > left_ms[-2]

        for _ in range(3):
            await until(renewed)
        assert not lock.lost


async def test_fixed_lease_is_not_renewed(client: AsyncRedis, redis_client: Redis) -> None:
    lock = AsyncRedisLock(client, NAME)
    await lock.acquire(lease_ms=SHORT_MS)
    await until(lambda: lock.lost and not redis_client.exists(NAME))
    with pytest.raises(LockNotOwned):
        await lock.extend()
    with pytest.raises(LockNotOwned):
        await lock.release()
    assert lock.lost
    async with lock:
        assert not lock.lost


async def test_extend_gives_a_fixed_lease_its_length_again(
    client: AsyncRedis, redis_client: Redis
) -> None:
    lock = AsyncRedisLock(client, NAME)
    await lock.acquire(lease_ms=LONG_MS)
    redis_client.pexpire(NAME, LONG_MS // 2)
    await lock.extend()
    assert redis_client.pttl(NAME) > LONG_MS // 2
    await lock.release()


async def test_hundred_leases_are_renewed_by_one_task_at_once(
    client: AsyncRedis, redis_client: Redis
) -> None:
    locks = [AsyncRedisLock(client, f"{NAME}:{n}", lease_ms=1_500) for n in range(100)]
    for lock in locks:
        await lock.acquire()
    tasks = [it for it in asyncio.all_tasks() if it.get_name() == watchdog.THREAD_NAME]
    assert len(tasks) == 1
    await until(lambda: all(redis_client.pttl(lock.name) > 1_200 for lock in locks))
    assert not any(lock.lost for lock in locks)
    for lock in locks:
        await lock.release()
    await until(tasks[0].done)


async def test_lease_of_a_dropped_object_expires(client: AsyncRedis, redis_client: Redis) -> None:
    lock = AsyncRedisLock(client, NAME, lease_ms=SHORT_MS)
    await lock.acquire()
    del lock
    await until(lambda: not redis_client.exists(NAME))


# --- Fencing -------------------------------------------------------------------------------------


async def token_of(lock: AsyncRedisLock) -> int | None:
    async with lock:
        return lock.fencing_token


async def test_fencing_tokens_rise_across_tasks_and_threads(
    client: AsyncRedis, redis_client: Redis, in_thread: InThread
) -> None:
    lock = AsyncRedisLock(client, NAME, fence_key=FENCE, fence_floor=6)
    tokens = [await token_of(lock)]

    def token() -> int | None:
        with RedisLock(redis_client, NAME, fence_key=FENCE) as other:
            return other.fencing_token

    tokens += [await in_thread(token), await token_of(lock)]
    assert tokens == [7, 8, 9]
    assert lock.fencing_token is None


# --- Waiting -------------------------------------------------------------------------------------


@BOTH
@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("holder", ["task", "thread"])
async def test_release_wakes_a_task(
    client: AsyncRedis,
    redis_client: Redis,
    in_thread: InThread,
    kind: type[AsyncRedisLock],
    holder: str,
) -> None:
    mine, other = kind(client, NAME), release_of(redis_client, kind)
    await (mine.acquire() if holder == "task" else in_thread(other.acquire))
    waiter = asyncio.create_task(passed(kind(client, NAME)))
    await until(lambda: waiters(redis_client, kind) == 1)
    released_s = time.monotonic()
    await (mine.release() if holder == "task" else in_thread(other.release))
    assert await waiter - released_s < AT_ONCE_S


@BOTH
@pytest.mark.usefixtures("patient")
async def test_release_by_a_task_wakes_a_thread(
    client: AsyncRedis, redis_client: Redis, in_thread: InThread, kind: type[AsyncRedisLock]
) -> None:
    lock, other = kind(client, NAME), release_of(redis_client, kind)
    await lock.acquire()

    def wait() -> float:
        with other.holding(wait_ms=LONG_MS):
            return time.monotonic()

    waiter = asyncio.create_task(in_thread(wait))
    await until(lambda: waiters(redis_client, kind) == 1)
    released_s = time.monotonic()
    await lock.release()
    assert await waiter - released_s < AT_ONCE_S


@pytest.mark.usefixtures("patient")
async def test_release_of_many_locks_wakes_a_task(
    client: AsyncRedis, redis_client: Redis, in_thread: InThread
) -> None:
    many = MultiLock(redis_client, [NAME, f"{NAME}:2"])
    await in_thread(many.acquire_all)
    waiter = asyncio.create_task(passed(AsyncRedisLock(client, NAME)))
    await until(lambda: waiters(redis_client) == 1)
    released_s = time.monotonic()
    await in_thread(many.release)
    assert await waiter - released_s < AT_ONCE_S


@pytest.mark.slow
async def test_only_the_first_of_a_queue_asks(client: AsyncRedis, redis_client: Redis) -> None:
    lock = AsyncRedisLock(client, NAME)
    await lock.acquire()
    tasks = [asyncio.create_task(passed(AsyncRedisLock(client, NAME))) for _ in range(50)]
    await until(lambda: queued(client) == 50 and waiters(redis_client))
    await until(lambda: len(redis_client.client_list(_type="pubsub")) == 1)
    redis_client.config_resetstat()
    await asyncio.sleep(1.5)
    assert redis_client.info("commandstats")["cmdstat_evalsha"]["calls"] < 10
    await lock.release()
    await asyncio.gather(*tasks)


async def test_busy_lock_is_refused_after_the_wait(client: AsyncRedis) -> None:
    async with AsyncRedisLock(client, NAME):
        started_s = time.monotonic()
        with pytest.raises(LockBusy):
            await AsyncRedisLock(client, NAME).acquire(wait_ms=300)
        assert time.monotonic() - started_s >= 0.3


async def test_fair_tasks_and_threads_are_served_in_order(
    client: AsyncRedis, redis_client: Redis, in_thread: InThread
) -> None:
    order: list[str] = []
    first = AsyncFairLock(client, NAME)
    await first.acquire()

    def thread() -> None:
        with FairLock(redis_client, NAME).holding(wait_ms=LONG_MS):
            order.append("thread")

    steps: list[Callable[[], Coroutine[Any, Any, Any]]] = [
        lambda: passed(AsyncFairLock(client, NAME), order, "first task"),
        lambda: in_thread(thread),
        lambda: passed(AsyncFairLock(client, NAME), order, "second task"),
    ]
    tasks = []
    for n, step in enumerate(steps, start=1):
        tasks.append(asyncio.ensure_future(step()))
        await until(partial(in_queue, redis_client, n))
    await first.release()
    await asyncio.gather(*tasks)
    assert order == ["first task", "thread", "second task"]


# --- Blocks --------------------------------------------------------------------------------------


async def test_block_raises_the_loss_unless_its_body_raised(
    client: AsyncRedis, redis_client: Redis
) -> None:
    with pytest.raises(LockNotOwned):
        async with AsyncRedisLock(client, NAME):
            redis_client.delete(NAME)
    with pytest.raises(ZeroDivisionError):
        async with AsyncRedisLock(client, NAME).holding():
            raise ZeroDivisionError(redis_client.delete(NAME))


async def test_second_release_raises_and_harms_nobody(client: AsyncRedis) -> None:
    lock = AsyncRedisLock(client, NAME)
    with pytest.raises(LockNotOwned):
        await lock.release()
    await lock.acquire()
    await lock.release()
    async with AsyncRedisLock(client, NAME) as other:
        with pytest.raises(LockNotOwned):
            await lock.release()
        assert await other.owned()
