"""The subscription by which a process hears of releases: one, and only while somebody waits."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit

import pytest
from redis import Redis

from locks import LockBusy, MultiLock, RedisLock, wait_queues
from locks.protocol import CHANNEL, side_key
from tests.locks.servers import OtherProcess, client_of
from tests.locks.waiters import (
    AT_ONCE_S,
    HELD_MS,
    LONG_MS,
    NAME,
    assert_wakes,
    held_lock,
    is_noted,
    noted_waiter,
    pass_through,
)
from tests.support.redis_url import redis_url

Eventually = Callable[..., bool]

USER = "locks-test"


@pytest.fixture(autouse=True)
def short_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a subscription end soon after the last who waited."""
    monkeypatch.setattr(wait_queues, "LINGER_S", 0.1)
    monkeypatch.setattr(wait_queues, "CHECK_S", 0.1)


@pytest.fixture
def quiet(redis_client: Redis, eventually: Eventually) -> None:
    """Start without a subscription of the test before, and not deaf because one of its broke."""
    assert eventually(lambda: not subscriptions(redis_client) and not listeners(), within_s=25)
    wait_queues._by_server.clear()


@pytest.fixture
def user_client(redis_client: Redis) -> Iterator[Redis]:
    """A client whose rights a test can take away."""
    allow(redis_client)
    site = urlsplit(redis_url())
    url = site._replace(netloc=f"{USER}:secret@{site.netloc.rpartition('@')[2]}").geturl()
    try:
        with client_of(url) as client:
            yield client
    finally:
        redis_client.acl_deluser(USER)


def allow(client: Redis, *, but_not: str | None = None) -> None:
    client.acl_setuser(
        USER,
        enabled=True,
        reset=True,
        passwords=["+secret"],
        keys=["*"],
        channels=["*"],
        categories=["+@all"],
        commands=[f"-{but_not}"] if but_not else [],
    )


def subscriptions(client: Redis) -> int:
    return int(client.pubsub_numsub(CHANNEL)[0][1])


def listeners() -> int:
    return sum(thread.name == wait_queues.THREAD_NAME for thread in threading.enumerate())


# --- One -----------------------------------------------------------------------------------------


@pytest.mark.usefixtures("quiet", "patient")
def test_waiter_after_the_subscription_ended_starts_a_new_one(
    redis_client: Redis,
    pool: ThreadPoolExecutor,
    eventually: Eventually,
    other_process: OtherProcess,
) -> None:
    for _ in range(2):
        other_process.call("acquire", "plain", NAME, lease_ms=HELD_MS)
        waiter = noted_waiter(pool, redis_client)
        released_at = other_process.call("release", "plain", NAME)[1]
        assert waiter.result(60) - released_at < AT_ONCE_S
        assert eventually(lambda: (subscriptions(redis_client), listeners()) == (0, 0))


@pytest.mark.usefixtures("quiet")
def test_rapid_waits_leave_no_subscription(
    redis_client: Redis,
    pool: ThreadPoolExecutor,
    eventually: Eventually,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(wait_queues, "LINGER_S", 0)
    monkeypatch.setattr(wait_queues, "CHECK_S", 0.001)

    def wait_in_vain() -> None:
        for _ in range(10):
            with pytest.raises(LockBusy):
                RedisLock(redis_client, NAME).acquire(wait_ms=20)

    RedisLock(redis_client, NAME).acquire(lease_ms=HELD_MS)
    for done in [pool.submit(wait_in_vain) for _ in range(4)]:
        done.result(20)
    assert eventually(lambda: (subscriptions(redis_client), listeners()) == (0, 0))


# --- Broken --------------------------------------------------------------------------------------


@pytest.mark.usefixtures("quiet", "patient")
def test_cut_subscription_is_replaced(
    redis_client: Redis,
    pool: ThreadPoolExecutor,
    eventually: Eventually,
    other_process: OtherProcess,
) -> None:
    other_process.call("acquire", "plain", NAME, lease_ms=HELD_MS)
    waiter = noted_waiter(pool, redis_client)
    redis_client.client_kill_filter(_type="pubsub")
    assert eventually(lambda: not subscriptions(redis_client))
    assert eventually(lambda: subscriptions(redis_client) == 1 and listeners() == 1)
    redis_client.delete(side_key(NAME, "waiting"))
    redis_client.publish(CHANNEL, f"by hand\n{NAME}")  # heard by the new one
    assert eventually(lambda: is_noted(redis_client))
    other_process.call("release", "plain", NAME)
    waiter.result(60)


@pytest.mark.usefixtures("quiet", "patient")
def test_waiters_poll_while_the_subscription_is_gone(
    redis_client: Redis,
    user_client: Redis,
    pool: ThreadPoolExecutor,
    eventually: Eventually,
    caplog: pytest.LogCaptureFixture,
) -> None:
    held = held_lock(redis_client)
    waiter = pool.submit(pass_through, RedisLock(user_client, NAME))
    assert eventually(lambda: is_noted(redis_client) and subscriptions(redis_client) == 1)
    allow(redis_client, but_not="subscribe")
    redis_client.client_kill_filter(_type="pubsub")
    assert eventually(lambda: not subscriptions(redis_client))
    assert_wakes(held.release, waiter)
    assert eventually(lambda: "no messages of released locks" in caplog.text)
    assert eventually(lambda: not listeners())


@pytest.mark.usefixtures("quiet", "patient")
def test_subscription_returns_once_allowed_again(
    redis_client: Redis,
    user_client: Redis,
    pool: ThreadPoolExecutor,
    eventually: Eventually,
    other_process: OtherProcess,
    throughout: Callable[..., bool],
) -> None:
    allow(redis_client, but_not="subscribe")
    other_process.call("acquire", "plain", NAME, lease_ms=HELD_MS)
    waiter = noted_waiter(pool, redis_client, RedisLock(user_client, NAME))
    assert throughout(lambda: not subscriptions(redis_client), for_s=0.2)
    allow(redis_client)
    assert eventually(lambda: subscriptions(redis_client) == 1)
    other_process.call("release", "plain", NAME)
    waiter.result(60)


# --- Forbidden -----------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("kind", ["one", "many"])
def test_release_works_if_publishing_is_forbidden(
    redis_client: Redis,
    user_client: Redis,
    eventually: Eventually,
    other_process: OtherProcess,
    kind: str,
) -> None:
    allow(redis_client, but_not="publish")
    lock = RedisLock(user_client, NAME) if kind == "one" else MultiLock(user_client, [NAME])
    lock.acquire() if isinstance(lock, RedisLock) else lock.acquire_all()
    other_process.look_again(after_s=0.5)  # nobody tells it of the release
    other_process.begin("acquire", "plain", NAME, wait_ms=LONG_MS)
    assert eventually(lambda: is_noted(redis_client))
    try:
        lock.release()
    finally:
        assert other_process.end()[0] == "done"
        other_process.call("release", "plain", NAME)
        other_process.look_again(after_s=60)
