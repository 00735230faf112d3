"""Locks of event loops under faults: cancellations, lost replies, blocked loops, dead holders."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from redis import Redis, RedisError
from redis.asyncio import Redis as AsyncRedis

from locks import LockBusy, LockNotOwned, RedisLock
from locks.aio import AsyncFairLock, AsyncRedisLock, lock, loops, sending
from tests.locks.aio.conftest import client_at
from tests.locks.aio.test_async_lock import BOTH, LONG_MS, InThread, passed, queued, until, waiters
from tests.locks.holders import FENCE, GO, HAD, NAME, had, take
from tests.locks.steps import PATIENCE_S, Store, stopped
from tests.locks.waiters import AT_ONCE_S
from tests.support.proxy import FaultProxy
from tests.support.redis_url import redis_url
from tests.support.tiers import slow_after

LEASE_MS = 2_500
SLACK_S = 20.0
"""How much later than promised something may be seen on a machine that stalls."""

Process = Callable[[Callable[[], None]], Any]

pytestmark = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")


async def cancelled(task: asyncio.Task[Any], *, line: FaultProxy | None = None) -> None:
    """Cancel a task, let the line send the replies that it holds, and wait until it is over."""
    task.cancel()
    if line:
        line.release()
    with pytest.raises(asyncio.CancelledError):
        await task


async def reached(proxy: FaultProxy, requests: int = 1) -> None:
    """Wait until the server has been sent as many scripts."""
    await until(lambda: proxy.forwarded_requests(b"EVALSHA") >= requests)


# --- Cancellation --------------------------------------------------------------------------------


@BOTH
async def test_acquire_cancelled_before_its_reply_leaves_no_lock(
    far: AsyncRedis, redis_client: Redis, proxy: FaultProxy, kind: type[AsyncRedisLock]
) -> None:
    proxy.hold_replies(1, matching=b"EVALSHA")
    task = asyncio.create_task(kind(far, NAME).acquire())
    await reached(proxy)
    await until(lambda: redis_client.exists(NAME))
    await cancelled(task, line=proxy)
    assert not redis_client.exists(NAME)


async def test_acquire_cancelled_without_any_reply_leaves_no_lock(
    far: AsyncRedis, redis_client: Redis, proxy: FaultProxy
) -> None:
    proxy.drop_replies(1, matching=b"EVALSHA")
    task = asyncio.create_task(AsyncRedisLock(far, NAME).acquire())
    await reached(proxy)
    await cancelled(task)
    assert not redis_client.exists(NAME)


async def test_control_interrupted_acquire_leaves_the_lock_behind(
    far: AsyncRedis, redis_client: Redis, proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def interrupted(coroutine: Any) -> Any:
        return await coroutine

    async def nothing(self: AsyncRedisLock) -> None: ...

    monkeypatch.setattr(lock, "finished", interrupted)
    monkeypatch.setattr(AsyncRedisLock, "_end", nothing)
    proxy.hold_replies(1, matching=b"EVALSHA")
    task = asyncio.create_task(AsyncRedisLock(far, NAME).acquire())
    await until(lambda: redis_client.exists(NAME))
    await cancelled(task)
    assert redis_client.exists(NAME)


async def test_release_cancelled_before_its_reply_releases(
    far: AsyncRedis, redis_client: Redis, proxy: FaultProxy
) -> None:
    lock = AsyncRedisLock(far, NAME)
    await lock.acquire()
    proxy.hold_replies(1, matching=b"EVALSHA")
    task = asyncio.create_task(lock.release())
    await until(lambda: not redis_client.exists(NAME))
    await cancelled(task, line=proxy)
    with pytest.raises(LockNotOwned):
        await lock.release()
    async with lock:
        assert not lock.lost


async def test_release_cancelled_before_it_is_sent_releases(
    client: AsyncRedis, redis_client: Redis
) -> None:
    lock = AsyncRedisLock(client, NAME)
    await lock.acquire()
    task = asyncio.create_task(lock.release())
    await asyncio.sleep(0)  # it has started
    await cancelled(task)
    assert not redis_client.exists(NAME)


async def test_second_cancellation_is_not_delayed(
    far: AsyncRedis, redis_client: Redis, proxy: FaultProxy
) -> None:
    proxy.hold_replies(1, matching=b"EVALSHA")
    task = asyncio.create_task(AsyncRedisLock(far, NAME).acquire())
    await until(lambda: redis_client.exists(NAME))
    task.cancel()
    await asyncio.sleep(0)
    assert not task.done()
    await cancelled(task)
    proxy.release()
    await until(lambda: not sending._unfinished)


@BOTH
@pytest.mark.usefixtures("patient")
async def test_cancelled_waiter_delays_nobody(
    client: AsyncRedis, redis_client: Redis, kind: type[AsyncRedisLock]
) -> None:
    holder = kind(client, NAME)
    await holder.acquire()
    first, second = (asyncio.create_task(passed(kind(client, NAME))) for _ in range(2))
    await until(lambda: queued(client) == 2 or waiters(redis_client, kind) == 2)
    await cancelled(first)
    released_s = time.monotonic()
    await holder.release()
    assert await second - released_s < AT_ONCE_S


@pytest.mark.usefixtures("patient")
async def test_waiter_cancelled_as_it_is_woken_wakes_the_next(
    client: AsyncRedis, redis_client: Redis
) -> None:
    for _ in range(20):
        holder = AsyncRedisLock(client, NAME)
        await holder.acquire()
        first, second = (
            asyncio.create_task(passed(AsyncRedisLock(client, NAME))) for _ in range(2)
        )
        await until(lambda: queued(client) == 2 and waiters(redis_client))
        await holder.release()
        first.cancel()
        released_s = time.monotonic()
        assert await second - released_s < AT_ONCE_S
        await asyncio.wait([first])
    assert not redis_client.exists(NAME)


async def test_random_cancellations_leave_no_lock_and_no_connection(
    client: AsyncRedis, redis_client: Redis
) -> None:
    inside = 0

    async def work(n: int) -> None:
        nonlocal inside
        async with AsyncRedisLock(client, NAME).holding(wait_ms=LONG_MS):
            inside += 1
            assert inside == 1
            try:
                await asyncio.sleep(0.001)
            finally:
                inside -= 1

    tasks = [asyncio.create_task(work(n)) for n in range(200)]
    for n, task in enumerate(tasks):
        if n % 2:
            await asyncio.sleep(0.0003 * (n % 7))
            task.cancel()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    failures = [it for it in results if not isinstance(it, asyncio.CancelledError | None)]
    assert not failures
    assert results.count(None) >= 100
    assert not redis_client.exists(NAME)
    assert not sending._unfinished


async def test_timeout_around_acquire_leaves_no_lock(
    client: AsyncRedis, redis_client: Redis
) -> None:
    async with AsyncRedisLock(client, NAME):
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(AsyncRedisLock(client, NAME).acquire(wait_ms=LONG_MS), 0.2)
    assert not redis_client.exists(NAME)
    lock = AsyncRedisLock(client, NAME)
    await asyncio.wait_for(lock.acquire(), 30)  # in a task of its own before Python 3.12
    assert await lock.owned()
    await lock.release()


# --- Lost replies --------------------------------------------------------------------------------


async def test_repeated_acquire_gets_its_first_token(
    far: AsyncRedis, redis_client: Redis, proxy: FaultProxy
) -> None:
    lock = AsyncRedisLock(far, NAME, fence_key=FENCE)
    proxy.drop_replies(2, matching=b"EVALSHA")
    for _ in range(2):
        with pytest.raises(RedisError):
            await lock.acquire()
    before = redis_client.get(NAME)
    await lock.acquire()
    assert lock.fencing_token == 1
    assert redis_client.get(NAME) == before
    await lock.release()
    assert not redis_client.exists(NAME)


async def test_release_undoes_acquire_when_both_replies_are_lost(
    far: AsyncRedis, redis_client: Redis, proxy: FaultProxy, in_thread: InThread
) -> None:
    lock = AsyncRedisLock(far, NAME)
    proxy.drop_replies(2, matching=b"EVALSHA")
    for call in (lock.acquire, lock.release):
        with pytest.raises(RedisError):
            await call()
    other = RedisLock(redis_client, NAME)
    await in_thread(other.acquire)
    await lock.release()
    assert await in_thread(other.owned)


async def test_acquire_after_an_unanswered_release_is_a_new_one(
    far: AsyncRedis, redis_client: Redis, proxy: FaultProxy
) -> None:
    lock = AsyncRedisLock(far, NAME)
    await lock.acquire()
    proxy.drop_replies(1, matching=b"EVALSHA")
    with pytest.raises(RedisError):
        await lock.release()
    await lock.acquire()
    assert await lock.owned()
    await lock.release()


async def test_late_reply_meets_no_later_command(far: AsyncRedis, proxy: FaultProxy) -> None:
    lock = AsyncRedisLock(far, NAME, fence_key=FENCE)
    proxy.hold_replies(1, matching=b"EVALSHA")
    with pytest.raises(RedisError):
        await lock.acquire()
    proxy.release()
    assert await far.ping() is True
    await lock.acquire()
    assert lock.fencing_token == 1
    await lock.release()


async def test_client_retry_does_not_repeat_a_script(
    redis_client: Redis, proxy: FaultProxy
) -> None:
    eager = client_at(proxy.url(like=redis_url()), retry=None, socket_timeout=0.6)
    proxy.drop_replies(1, matching=b"EVALSHA")
    lock = AsyncRedisLock(eager, NAME)
    with pytest.raises(RedisError):
        await lock.acquire()
    assert proxy.forwarded_requests(b"EVALSHA") == 1
    await lock.release()
    await eager.aclose()


# --- Lost leases ---------------------------------------------------------------------------------


@pytest.mark.parametrize("taken_away", slow_after(1, ["expired", "overwritten"]))
async def test_holder_is_told_once_and_writes_no_more(
    client: AsyncRedis, redis_client: Redis, in_thread: InThread, tmp_path: Path, taken_away: str
) -> None:
    store, told = Store(tmp_path / "store"), list[float]()
    lock = AsyncRedisLock(
        client,
        NAME,
        lease_ms=LEASE_MS,
        fence_key=FENCE,
        on_lost=lambda: told.append(time.monotonic()),
    )
    await lock.acquire()
    token = lock.fencing_token
    assert store.write("A", token)
    redis_client.delete(NAME)
    if taken_away == "overwritten":
        redis_client.set(NAME, "by hand", px=1)
        await until(lambda: not redis_client.exists(NAME))
    other = RedisLock(redis_client, NAME, fence_key=FENCE)
    await in_thread(other.acquire)
    assert store.write("B", await in_thread(lambda: other.fencing_token))
    assert not store.write("A", token)
    await until(lambda: told)
    assert lock.lost
    with pytest.raises(LockNotOwned):
        await lock.release()
    assert await in_thread(other.owned)
    assert len(told) == 1


async def test_lost_lease_can_cancel_its_task(client: AsyncRedis, redis_client: Redis) -> None:
    async def work() -> None:
        task = asyncio.current_task()
        assert task is not None
        async with AsyncRedisLock(client, NAME, lease_ms=LEASE_MS, on_lost=task.cancel):
            redis_client.delete(NAME)
            await asyncio.sleep(PATIENCE_S)

    with pytest.raises(asyncio.CancelledError):
        await asyncio.create_task(work())


@pytest.mark.slow
async def test_disconnected_holder_is_told_when_its_lease_ends(
    far: AsyncRedis, proxy: FaultProxy
) -> None:
    told = asyncio.Event()
    lock = AsyncRedisLock(far, NAME, lease_ms=LEASE_MS, on_lost=told.set)
    await lock.acquire()
    started_s = time.monotonic()
    proxy.stall()
    await told.wait()
    assert lock.lost
    assert LEASE_MS / 1000 - 0.1 < time.monotonic() - started_s < 2 * LEASE_MS / 1000 + SLACK_S
    proxy.heal()


async def test_holder_reconnecting_within_its_lease_loses_nothing(
    far: AsyncRedis, redis_client: Redis, proxy: FaultProxy
) -> None:
    lock = AsyncRedisLock(far, NAME, lease_ms=LEASE_MS)
    await lock.acquire()
    proxy.refuse()
    proxy.cut()
    await until(lambda: redis_client.pttl(NAME) < LEASE_MS / 2)
    proxy.heal()
    await until(lambda: redis_client.pttl(NAME) > LEASE_MS * 0.8)
    assert not lock.lost
    await lock.release()


# --- Blocked event loops -------------------------------------------------------------------------


async def test_loop_blocked_beyond_the_lease_loses_the_lock_and_says_so(
    client: AsyncRedis, redis_client: Redis, tmp_path: Path
) -> None:
    store, told = Store(tmp_path / "store"), asyncio.Event()
    lock = AsyncRedisLock(client, NAME, lease_ms=300, fence_key=FENCE, on_lost=told.set)
    await lock.acquire()
    other = RedisLock(redis_client, NAME, fence_key=FENCE)
    with other.holding(wait_ms=LONG_MS):  # blocks the loop: nothing is renewed meanwhile
        assert lock.lost  # known at once, before the loop has run again
        assert store.write("other", other.fencing_token)
        assert not store.write("old", lock.fencing_token)
    await told.wait()
    with pytest.raises(LockNotOwned):
        await lock.release()


async def test_loop_blocked_within_the_lease_loses_nothing(
    client: AsyncRedis, redis_client: Redis
) -> None:
    async with AsyncRedisLock(client, NAME, lease_ms=LEASE_MS) as lock:
        with pytest.raises(LockBusy):
            RedisLock(redis_client, NAME).acquire(wait_ms=LEASE_MS // 2)  # blocks the loop
        await until(lambda: redis_client.pttl(NAME) > LEASE_MS * 0.8)
        assert not lock.lost


# --- Processes that die and stop -----------------------------------------------------------------


def in_loop(work: Callable[[AsyncRedis], Awaitable[object]]) -> Callable[[], None]:
    """Return what a process does that runs a coroutine with a client of its own."""

    async def main() -> None:
        client = client_at(redis_url())
        try:
            await work(client)
        finally:
            await client.aclose()

    return lambda: asyncio.run(main())


@pytest.mark.slow
def test_stopped_holder_is_refused_and_notices(
    redis_client: Redis, process: Process, tmp_path: Path, eventually: Callable[..., bool]
) -> None:
    store = Store(tmp_path / "store")

    async def stopped_at_work(client: AsyncRedis) -> None:
        lock = AsyncRedisLock(client, NAME, lease_ms=LEASE_MS, fence_key=FENCE)
        await lock.acquire()
        token = lock.fencing_token
        await client.rpush(HAD, f"holder {time.monotonic()}")
        os.kill(os.getpid(), signal.SIGSTOP)
        assert lock.lost
        assert not store.write("old", token)
        with pytest.raises(LockNotOwned):
            await lock.release()

    old = process(in_loop(stopped_at_work))
    had(redis_client)
    assert eventually(lambda: stopped(old))
    with RedisLock(redis_client, NAME, fence_key=FENCE).holding(wait_ms=LONG_MS) as lock:
        assert store.write("new", lock.fencing_token)
        os.kill(old.pid, signal.SIGCONT)
        old.join(PATIENCE_S)
        assert old.exitcode == 0
        assert lock.owned()
    assert store.writer == "new"


@pytest.mark.usefixtures("patient")
def test_killed_waiters_delay_nobody(
    redis_client: Redis, process: Process, eventually: Callable[..., bool]
) -> None:
    async def wait(client: AsyncRedis) -> None:
        async with AsyncRedisLock(client, NAME).holding(wait_ms=PATIENCE_S * 1000):
            await client.rpush(HAD, f"waiter {time.monotonic()}")
            await asyncio.to_thread(take, redis_client, GO)

    lock = RedisLock(redis_client, NAME)
    lock.acquire()
    first = process(in_loop(wait))
    assert eventually(lambda: waiters(redis_client) == 1)
    second = process(in_loop(wait))
    assert eventually(lambda: waiters(redis_client) == 2)
    first.kill()
    first.join(PATIENCE_S)
    released_s = time.monotonic()
    lock.release()
    who, at_s = had(redis_client)
    assert who == "waiter"
    assert at_s - released_s < SLACK_S
    redis_client.rpush(GO, 1)
    second.join(PATIENCE_S)
    assert second.exitcode == 0


def test_forked_child_holds_none_of_its_parents_locks(
    redis_client: Redis, process: Process
) -> None:
    async def parent() -> None:
        client = client_at(redis_url())
        lock = AsyncRedisLock(client, NAME, fence_key=FENCE)
        await lock.acquire()

        async def refused() -> None:
            assert lock.lost
            assert lock.fencing_token is None
            assert not await lock.owned()
            for call in (lock.release, lock.extend):
                with pytest.raises(LockNotOwned):
                    await call()

        forked = process(lambda: asyncio.new_event_loop().run_until_complete(refused()))
        await asyncio.to_thread(forked.join, PATIENCE_S)
        assert forked.exitcode == 0
        assert await lock.owned()
        await lock.release()
        await client.aclose()

    asyncio.run(parent())


# --- The subscription ----------------------------------------------------------------------------


async def test_release_after_subscription_cut_is_seen_within_one_second(
    client: AsyncRedis, redis_client: Redis, in_thread: InThread
) -> None:
    other = RedisLock(redis_client, NAME)
    await in_thread(other.acquire)
    waiter = asyncio.create_task(passed(AsyncRedisLock(client, NAME)))
    await until(lambda: waiters(redis_client) == 1)
    redis_client.client_kill_filter(_type="pubsub")
    released_s = time.monotonic()
    await in_thread(other.release)
    assert await waiter - released_s < 1 + SLACK_S


async def test_waiter_without_subscription_polls_and_acquires(
    far: AsyncRedis, redis_client: Redis, proxy: FaultProxy, in_thread: InThread
) -> None:
    other = RedisLock(redis_client, NAME)
    await in_thread(other.acquire)
    proxy.drop_replies(None, matching=b"SUBSCRIBE")
    waiter = asyncio.create_task(passed(AsyncRedisLock(far, NAME)))
    await until(lambda: waiters(redis_client) == 1 and proxy.dropped)
    released_s = time.monotonic()
    await in_thread(other.release)
    assert await waiter - released_s < 1 + SLACK_S


async def test_one_event_loop_after_another_leaves_nothing(
    client: AsyncRedis, redis_client: Redis, in_thread: InThread
) -> None:
    for _ in range(5):
        await in_thread(in_loop(lambda own: passed(AsyncFairLock(own, NAME))))
    assert len([it for it in loops._event_loops if it.is_closed()]) <= 1
    await passed(AsyncRedisLock(client, NAME))
    assert not redis_client.exists(NAME)
