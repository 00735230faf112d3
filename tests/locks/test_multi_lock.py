"""``MultiLock`` against a real Redis: the free ones, all or nothing, and its neighbours."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from redis import ConnectionPool, Redis
from redis.exceptions import ConnectionError as RedisConnectionError

from locks import LockBusy, LockNotOwned, MultiLock, RedisLock, lua_script

Elsewhere = Callable[..., Any]

A, B, C = NAMES = tuple(f"lock:{{t}}:user:{letter}" for letter in "abc")


def test_acquire_free_takes_only_free_locks(redis_client: Redis, elsewhere: Elsewhere) -> None:
    first, second = MultiLock(redis_client, [A]), MultiLock(redis_client, [A, B, C, C])
    assert elsewhere(first.acquire_free) == {A}
    assert second.acquire_free() == {B, C}
    second.release()
    assert redis_client.keys("*user:?") == [A]
    elsewhere(first.release)
    assert redis_client.keys("*user:?") == []


def test_acquire_free_may_return_an_empty_set(redis_client: Redis, elsewhere: Elsewhere) -> None:
    lock = MultiLock(redis_client, NAMES)
    with MultiLock(redis_client, NAMES).holding_all():
        assert elsewhere(lock.acquire_free) == set()
        elsewhere(lock.release)
        assert elsewhere(lock.acquire_free) == set()
    assert elsewhere(lock.acquire_free) == set(NAMES)
    assert MultiLock(redis_client, []).acquire_free() == set()


def test_acquire_all_takes_all_or_none(redis_client: Redis, elsewhere: Elsewhere) -> None:
    with RedisLock(redis_client, B):
        with pytest.raises(LockBusy):
            elsewhere(MultiLock(redis_client, NAMES).acquire_all, wait_ms=50)
        assert redis_client.keys("*user:?") == [B]
    lock = MultiLock(redis_client, NAMES)
    lock.acquire_all()
    assert redis_client.exists(*NAMES) == 3
    lock.release()


def test_acquire_all_waits_for_the_last_lock(redis_client: Redis) -> None:
    busy = RedisLock(redis_client, B)
    busy.acquire()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(MultiLock(redis_client, NAMES).acquire_all, wait_ms=10_000)
        busy.release()
        waiting.result(timeout=10)


def test_overlapping_holds_never_share_a_name(redis_client: Redis) -> None:
    taken: dict[str, int] = dict.fromkeys(NAMES, 0)
    counting, twice = threading.Lock(), list[str]()

    def work(i: int) -> None:
        names = [NAMES[i % 3], NAMES[(i + 1) % 3]]
        for _ in range(20):
            with MultiLock(redis_client, names).holding_free() as held:
                with counting:
                    for name in held:
                        taken[name] += 1
                    twice.extend(name for name in held if taken[name] > 1)
                with counting:
                    for name in held:
                        taken[name] -= 1

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    assert twice == []
    assert redis_client.keys("*user:?") == []


def raise_with_one_gone(client: Redis) -> None:
    client.delete(C)
    raise KeyError


def test_block_with_a_lost_hold_raises(redis_client: Redis) -> None:
    with pytest.raises(LockNotOwned), MultiLock(redis_client, NAMES).holding_free():
        redis_client.delete(C)
    with pytest.raises(KeyError), MultiLock(redis_client, NAMES).holding_all():
        raise_with_one_gone(redis_client)


def test_nine_thousand_names_fit_into_one_call(redis_client: Redis) -> None:
    names = [f"lock:{{t}}:user:{i}" for i in range(9_000)]
    with MultiLock(redis_client, names).holding_free() as held:
        redis_client.script_flush()
        assert len(held) == 9_000
    assert redis_client.keys("*user:?") == []


# --- Mixed with others ---------------------------------------------------------------------------


def test_failed_release_still_undoes_the_reentry(
    redis_client: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, both = RedisLock(redis_client, A), MultiLock(redis_client, [A, B])
    with one:
        with monkeypatch.context() as patch, both.holding_all():
            patch.setattr(lua_script, "send_once", unanswered)
        assert one.owned()
    assert redis_client.keys("*user:?") == [B]  # left to its lease, as its release got no answer
    both.release()
    assert redis_client.keys("*user:?") == []


def unanswered(*args: Any) -> None:
    raise RedisConnectionError("by the test")


def test_release_needs_no_publish_permission(redis_client: Redis) -> None:
    redis_client.execute_command(
        "ACL", "SETUSER", "mute", "on", "nopass", "~*", "+@all", "resetchannels"
    )
    options = redis_client.connection_pool.connection_kwargs
    mute = Redis.from_pool(
        ConnectionPool(
            redis_client.connection_pool.connection_class,
            **{**options, "username": "mute", "password": "any"},
        )
    )
    try:
        with MultiLock(mute, NAMES).holding_all(), RedisLock(mute, "lock:{t}:sale"):
            redis_client.hset("lock:{t}:sale:waiting", "host/1/abcd", "1 99999999999999")
        assert redis_client.keys("*user:?") == []
        assert not redis_client.exists("lock:{t}:sale")
    finally:
        mute.close()
        redis_client.execute_command("ACL", "DELUSER", "mute")
