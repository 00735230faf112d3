"""What many threads leave behind in Redis and in the process: nothing but the counter."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from redis import Redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from locks import RedisLock, scripts, wait_queues, watchdog
from tests.support.redis_url import redis_url

NAMES = [f"lock:{{t}}:sale:{i}" for i in range(4)]
FENCE = "lock:{t}:fence"
THREADS, TIMES = 16, 625
WAIT_MS = 60_000

Until = Callable[..., bool]


@pytest.fixture
def client(redis_client: Redis) -> Iterator[Redis]:
    """A client with a pool of its own, whose connections can be counted."""
    client = Redis.from_url(
        redis_url(),
        decode_responses=True,
        retry=Retry(NoBackoff(), 0),
        socket_timeout=5,
        max_connections=300,  # for 200 threads that let go at once; it would be 100
    )
    yield client
    client.close()


def of_locks() -> list[str]:
    """Return the names of the threads that locks start."""
    names = (watchdog.THREAD_NAME, wait_queues.THREAD_NAME)
    return [thread.name for thread in threading.enumerate() if thread.name in names]


def channels(client: Redis) -> list[bytes | str]:
    return client.pubsub_channels("locks:released*")


def subscribers(client: Redis) -> int:
    return len(client.client_list(_type="pubsub"))


def connections_of(client: Redis) -> tuple[int, int]:
    """Return how many connections of the pool are in use, and how many there are."""
    pool = client.connection_pool
    used = len(pool._in_use_connections)
    return used, used + len(pool._available_connections)


class Inside:
    """Counts who is inside, and what is wrong with it."""

    def __init__(self) -> None:
        self.wrong: list[str] = []
        self._counting, self._inside = threading.Lock(), Counter[str]()

    def visit(self, name: str) -> None:
        for change in (1, -1):
            with self._counting:
                self._inside[name] += change
                if self._inside[name] != (change == 1):
                    self.wrong.append(name)


@pytest.mark.slow
def test_ten_thousand_holds_exclude_and_leave_nothing(
    redis_client: Redis, client: Redis, monkeypatch: pytest.MonkeyPatch, eventually: Until
) -> None:
    monkeypatch.setattr(scripts, "RELEASED_MS", 300)
    assert eventually(lambda: not of_locks(), within_s=25)  # of the tests before
    threads, clients = threading.active_count(), len(redis_client.client_list())
    inside, tokens = Inside(), list[int]()

    def work(i: int) -> None:
        for turn in range(TIMES):
            name = NAMES[(i + turn) % len(NAMES)]
            lock = RedisLock(client, name, lease_ms=30_000, fence_key=FENCE)
            with lock.holding(wait_ms=WAIT_MS):
                inside.visit(name)
                tokens.append(lock.fencing_token or 0)

    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(work, range(THREADS), timeout=120))

    assert inside.wrong == []
    assert sorted(tokens) == list(range(1, THREADS * TIMES + 1))
    assert eventually(lambda: redis_client.keys() == [FENCE])
    assert eventually(lambda: not of_locks())
    assert eventually(lambda: not channels(redis_client))
    assert threading.active_count() <= threads
    used, there_are = connections_of(client)
    assert used == 0
    assert there_are <= THREADS + 2  # one for each thread, the watchdog and the subscription
    client.close()
    assert eventually(lambda: len(redis_client.client_list()) <= clients)


@pytest.mark.slow
def test_two_hundred_waiters_share_one_subscription(
    redis_client: Redis, client: Redis, eventually: Until, throughout: Until
) -> None:
    names = [f"lock:{{t}}:sale:{i}" for i in range(50)]
    held = [RedisLock(client, name, lease_ms=30_000) for name in names]
    had = list[str]()

    def wait(i: int) -> None:
        with RedisLock(client, names[i % 50]).holding(wait_ms=WAIT_MS):
            had.append(names[i % 50])

    def are_waiting() -> bool:
        notes = [redis_client.hvals(f"{name}:waiting") for name in names]
        return all(note and note[0].split()[0] == "4" for note in notes)

    for lock in held:
        lock.acquire()
    with ThreadPoolExecutor(200) as pool:
        waiters = [pool.submit(wait, i) for i in range(200)]
        assert eventually(are_waiting)
        assert throughout(lambda: subscribers(redis_client) == 1, for_s=0.5)
        assert of_locks().count(wait_queues.THREAD_NAME) == 1
        for lock in held:
            lock.release()
        for waiter in waiters:
            waiter.result(timeout=60)

    assert Counter(had) == dict.fromkeys(names, 4)
    assert eventually(lambda: subscribers(redis_client) == 0 and not channels(redis_client))
    assert eventually(lambda: wait_queues.THREAD_NAME not in of_locks())
    assert connections_of(client)[0] == 0
