"""Locks under the faults L1 to L3, and what waits for a lock while something dies."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest
from redis import Redis
from redis.backoff import NoBackoff
from redis.connection import parse_url
from redis.exceptions import RedisError
from redis.retry import Retry

from locks import FairLock, LockNotOwned, RedisLock, raise_fence
from tests.locks.holders import (
    FENCE,
    GO,
    NAME,
    had,
    hold_until_told,
    wait_for_it,
    waiting,
)
from tests.locks.steps import PATIENCE_S, Store, stopped
from tests.support.proxy import HOST, FaultProxy, redis_server
from tests.support.redis_url import redis_url

LEASE_MS = 2_500
"""A lease that is renewed in time on a busy machine, and soon over where it is not."""
SLACK_S = 20.0
"""How much later than promised something may be seen on a machine that stalls.

A ``patient`` waiter, which is not to be told, would be later still."""

Elsewhere = Callable[..., Any]
Until = Callable[..., bool]

pytestmark = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")


@pytest.fixture
def proxy(redis_client: Redis) -> Iterator[FaultProxy]:
    """A line to Redis that can be broken; the server knows the scripts already."""
    with RedisLock(redis_client, NAME, fence_key=FENCE) as lock:
        lock.extend()
    redis_client.flushdb()
    with FaultProxy(redis_server(redis_url())) as proxy:
        yield proxy


@contextmanager
def client_through(proxy: FaultProxy, db: int = 0, **options: Any) -> Iterator[Redis]:
    who = {it: parse_url(redis_url()).get(it) for it in ("username", "password")}
    client = Redis(host=HOST, port=proxy.port, db=db, decode_responses=True, **who, **options)
    try:
        yield client
    finally:
        proxy.heal()
        client.close()


@pytest.fixture
def db(redis_client: Redis) -> int:
    return int(redis_client.connection_pool.connection_kwargs.get("db") or 0)


@pytest.fixture
def far(proxy: FaultProxy, db: int) -> Iterator[Redis]:
    """A client behind the proxy, set as that of the ledger is but more impatient."""
    options = {"retry": Retry(NoBackoff(), 0), "socket_timeout": 0.6, "socket_connect_timeout": 0.6}
    with client_through(proxy, db, **options) as client:
        yield client


def ended_well(process: Any) -> bool:
    process.join(PATIENCE_S)
    return process.exitcode == 0


# --- L1: lost replies ----------------------------------------------------------------------------


def test_l1_release_undoes_acquire_when_both_replies_are_lost(
    redis_client: Redis, far: Redis, proxy: FaultProxy, elsewhere: Elsewhere
) -> None:
    lock = RedisLock(far, NAME, fence_key=FENCE)
    proxy.drop_replies(2, matching=b"EVALSHA")
    for call in (lock.acquire, lock.release):
        with pytest.raises(RedisError):
            call()
    other = RedisLock(redis_client, NAME, fence_key=FENCE)
    elsewhere(other.acquire)
    lock.release()
    assert elsewhere(other.owned)
    assert elsewhere(lambda: other.fencing_token) == 2


def test_l1_late_reply_meets_no_later_command(
    redis_client: Redis, far: Redis, proxy: FaultProxy
) -> None:
    lock = RedisLock(far, NAME, fence_key=FENCE)
    proxy.hold_replies(1, matching=b"EVALSHA")
    with pytest.raises(RedisError):
        lock.acquire()
    assert lock.owned()  # on another connection: that one's reply is still to come
    proxy.release()
    assert far.ping() is True
    lock.acquire()
    assert lock.fencing_token == 1
    lock.release()
    assert redis_client.get(FENCE) == "1"


def test_l1_client_retry_does_not_repeat_a_script(
    redis_client: Redis, proxy: FaultProxy, db: int
) -> None:
    with client_through(proxy, db) as eager:  # its own default is to try again, often
        proxy.drop_replies(1, matching=b"EVALSHA")
        lock = RedisLock(eager, NAME)
        with pytest.raises(RedisError):
            lock.acquire()
        assert proxy.forwarded_requests(b"EVALSHA") == 1
        lock.release()
        assert proxy.forwarded_requests(b"EVALSHA") == 2


def test_l1_control_redis_client_repeats_a_script(
    redis_client: Redis, proxy: FaultProxy, db: int
) -> None:
    sha = redis_client.script_load("return redis.call('INCR', KEYS[1])")
    with client_through(proxy, db) as eager:
        proxy.drop_replies(1, matching=b"EVALSHA")
        assert eager.evalsha(sha, 1, "lock:{t}:runs") == 2
        assert proxy.forwarded_requests(b"EVALSHA") == 2


@pytest.mark.slow
@pytest.mark.parametrize("taken_away", ["expired", "deleted", "overwritten"])
def test_l1_holder_is_told_once_and_writes_no_more(
    redis_client: Redis,
    elsewhere: Elsewhere,
    eventually: Until,
    throughout: Until,
    store: Store,
    taken_away: str,
) -> None:
    told: list[float] = []
    lock = RedisLock(
        redis_client,
        NAME,
        lease_ms=LEASE_MS,
        fence_key=FENCE,
        on_lost=lambda: told.append(time.monotonic()),
    )
    lock.acquire()
    token, before = lock.fencing_token, time.monotonic()
    assert store.write("A", token)
    if taken_away == "expired":
        redis_client.pexpire(NAME, 0)
    elif taken_away == "deleted":
        redis_client.delete(NAME)
    else:
        redis_client.set(NAME, "by hand", px=1)
        eventually(lambda: not redis_client.exists(NAME))
    other = RedisLock(redis_client, NAME, fence_key=FENCE)
    elsewhere(other.acquire)
    assert store.write("B", elsewhere(lambda: other.fencing_token))
    assert not store.write("A", token)  # whether it knows already or not

    assert eventually(lambda: told)
    assert told[0] - before < LEASE_MS / 1000 - 0.1  # a renewal told it, not its own clock
    assert lock.lost
    with pytest.raises(LockNotOwned):
        lock.release()
    assert throughout(lambda: len(told) == 1, for_s=LEASE_MS / 1000 / 2)
    assert elsewhere(other.owned)
    assert store.writer == "B"


# --- L2: late releases, forks --------------------------------------------------------------------


def test_l2_late_release_does_not_harm_the_new_holder(
    redis_client: Redis, far: Redis, proxy: FaultProxy, elsewhere: Elsewhere, eventually: Until
) -> None:
    lock, other = RedisLock(far, NAME), RedisLock(redis_client, NAME)
    lock.acquire()
    proxy.stall()
    with pytest.raises(RedisError):
        lock.release()
    redis_client.pexpire(NAME, 0)
    elsewhere(other.acquire)
    proxy.heal()
    assert eventually(lambda: redis_client.keys("*:released:*"))  # now it has arrived
    assert elsewhere(other.owned)
    with pytest.raises(LockNotOwned):
        lock.release()
    assert elsewhere(other.owned)


@pytest.mark.usefixtures("patient")
def test_l2_child_forked_by_a_waiter_can_wait(
    redis_client: Redis, process: Callable[..., Any], eventually: Until
) -> None:
    process(hold_until_told(redis_client))
    had(redis_client)
    with ThreadPoolExecutor(1) as pool:
        parent = pool.submit(wait_for_it(redis_client, "parent"))
        assert eventually(lambda: waiting(redis_client) == 1)
        forked = process(wait_for_it(redis_client, "child"))
        assert eventually(lambda: waiting(redis_client) == 2)
        told_s = time.monotonic()
        redis_client.rpush(GO, 1)
        times = dict(had(redis_client) for _ in range(2))
        parent.result(PATIENCE_S)
    assert times.keys() == {"parent", "child"}
    assert max(times.values()) - told_s < SLACK_S
    assert ended_well(forked)


# --- L3: the counter of fencing tokens is lost ---------------------------------------------------


def token_of_next(client: Redis, floor: int = 0) -> int:
    with RedisLock(client, NAME, fence_key=FENCE, fence_floor=floor) as lock:
        assert lock.fencing_token is not None
        return lock.fencing_token


def lose_the_counter(client: Redis, store: Store, *, seen: int) -> None:
    raise_fence(client, FENCE, seen - 1)
    assert store.write("before", token_of_next(client))
    client.delete(FENCE)


def test_l3_control_lost_counter_gets_every_writer_refused(
    redis_client: Redis, store: Store
) -> None:
    lose_the_counter(redis_client, store, seen=7)
    assert [store.write("after", token_of_next(redis_client)) for _ in range(6)] == [False] * 6


def test_l3_fence_floor_survives_a_lost_counter(redis_client: Redis, store: Store) -> None:
    lose_the_counter(redis_client, store, seen=7)
    assert store.write("after", token_of_next(redis_client, floor=7))
    assert store.write("later", token_of_next(redis_client))


def test_l3_refused_writer_raises_the_counter(redis_client: Redis, store: Store) -> None:
    lose_the_counter(redis_client, store, seen=7)
    assert not store.write("after", token_of_next(redis_client))
    raise_fence(redis_client, FENCE, 7)
    assert store.write("after", token_of_next(redis_client))


# --- Processes that stop and die -----------------------------------------------------------------


def start_waiting(
    client: Redis,
    process: Callable[..., Any],
    eventually: Until,
    *,
    kind: type[RedisLock] = RedisLock,
) -> list[Any]:
    """Let three processes wait, in this order, for a lock that another holds."""
    process(hold_until_told(client, kind=kind))
    assert had(client)[0] == "holder"
    processes = []
    for i in range(3):
        processes.append(process(wait_for_it(client, f"waiter-{i}", kind=kind)))
        assert eventually(lambda i=i: waiting(client, kind=kind) == i + 1)
    return processes


@pytest.mark.usefixtures("patient")
def test_killed_waiters_delay_nobody(
    redis_client: Redis, process: Callable[..., Any], eventually: Until
) -> None:
    first, second, last = start_waiting(redis_client, process, eventually)
    for victim in (first, second):
        victim.kill()
        victim.join(PATIENCE_S)
    told_s = time.monotonic()
    redis_client.rpush(GO, 1)
    who, at_s = had(redis_client)
    assert who == "waiter-2"
    assert at_s - told_s < SLACK_S
    assert ended_well(last)


@pytest.mark.slow
def test_stopped_waiters_delay_others_one_second_at_most(
    redis_client: Redis, process: Callable[..., Any], eventually: Until
) -> None:
    first, second, last = start_waiting(redis_client, process, eventually)
    for victim in (first, second):
        os.kill(victim.pid, signal.SIGSTOP)
        assert eventually(lambda victim=victim: stopped(victim))
    told_s = time.monotonic()
    redis_client.rpush(GO, 1)
    assert had(redis_client)[1] - told_s < 1 + SLACK_S
    assert ended_well(last)


@pytest.mark.faults
def test_killed_head_of_fair_queue_keeps_the_order(
    redis_client: Redis, process: Callable[..., Any], eventually: Until
) -> None:
    first, *others = start_waiting(redis_client, process, eventually, kind=FairLock)
    first.kill()
    first.join(PATIENCE_S)
    told_s = time.monotonic()
    redis_client.rpush(GO, 1)
    turns = [had(redis_client) for _ in range(2)]
    assert [who for who, _ in turns] == ["waiter-1", "waiter-2"]
    assert turns[0][1] - told_s < 3 + SLACK_S
    assert turns[1][1] - turns[0][1] < SLACK_S
    assert all(ended_well(other) for other in others)


# --- Redis out of reach --------------------------------------------------------------------------


def stall(proxy: FaultProxy) -> None:
    proxy.stall()


def refuse(proxy: FaultProxy) -> None:
    proxy.refuse()
    proxy.cut()


@pytest.mark.slow
@pytest.mark.parametrize("break_line", [stall, refuse])
def test_disconnected_holder_is_told_when_its_lease_ends(
    far: Redis,
    proxy: FaultProxy,
    eventually: Until,
    throughout: Until,
    break_line: Callable[[FaultProxy], None],
) -> None:
    told: list[float] = []
    lock = RedisLock(far, NAME, lease_ms=LEASE_MS, on_lost=lambda: told.append(time.monotonic()))
    lock.acquire()
    before_s = time.monotonic()
    break_line(proxy)
    assert throughout(lambda: not lock.lost and not told, for_s=LEASE_MS / 1000 / 2)
    assert eventually(lambda: lock.lost)
    # Not before the lease that it had at least, and that one may have been renewed just before.
    assert time.monotonic() - before_s < 2 * LEASE_MS / 1000 + SLACK_S
    assert eventually(lambda: told)
    proxy.heal()
    assert throughout(lambda: lock.lost and len(told) == 1, for_s=LEASE_MS / 1000 / 2)


@pytest.mark.slow
@pytest.mark.parametrize("break_line", [stall, refuse])
def test_holder_reconnecting_within_its_lease_loses_nothing(
    redis_client: Redis,
    far: Redis,
    proxy: FaultProxy,
    renewal: Callable[[str], bool],
    throughout: Until,
    break_line: Callable[[FaultProxy], None],
) -> None:
    told: list[bool] = []
    lock = RedisLock(far, NAME, lease_ms=LEASE_MS, on_lost=lambda: told.append(True))
    lock.acquire()
    break_line(proxy)
    assert throughout(lambda: redis_client.exists(NAME), for_s=LEASE_MS / 1000 / 2)
    proxy.heal()
    assert renewal(NAME)
    assert not lock.lost
    lock.release()
    assert not told
