"""Held locks, read from keys written by hand as ``lua/include/take.lua`` describes them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from redis import Redis

from locks import RedisLock, protocol, scripts
from locks.inspection import HeldLock, NotHeldByOwner, force_release, held_locks, holds_of
from locks.lua_script import ScriptCall
from locks.protocol import ReleaseResult

NAME = "lock:{12}:sale"
OWNER = "web-1/4711/139872345678912/0123456789abcdef"
OTHER = "web-2/12/139872345678913/fedcba9876543210"


# --- Keys as the scripts write them ---------------------------------------------------------------


def redis_now_ms(client: Redis) -> int:
    seconds, microseconds = client.time()
    return seconds * 1000 + microseconds // 1000


def write_lock(
    client: Redis,
    name: str = NAME,
    owner: str = OWNER,
    *,
    token: int | str = "",
    age_ms: int = 0,
    lease_ms: int = 60_000,
) -> None:
    client.set(name, f"{owner} {token} {redis_now_ms(client) - age_ms}", px=lease_ms)


def write_reader(
    client: Redis, owner: str = OWNER, *, key: str = f"{NAME}:readers", left_ms: int = 60_000
) -> None:
    client.zadd(key, {owner: redis_now_ms(client) + left_ms})


def write_waiting(client: Redis, key: str, process: str, count: int, *, left_ms: int) -> None:
    client.hset(key, process, f"{count} {redis_now_ms(client) + left_ms}")


def names(client: Redis, **options: str) -> list[str]:
    return [hold.name for hold in held_locks(client, **options)]


# --- What is listed -------------------------------------------------------------------------------


def test_lock_is_listed_with_owner_age_lease_and_token(redis_client: Redis) -> None:
    write_lock(redis_client, token=7, age_ms=50_000, lease_ms=80_000)
    (hold,) = held_locks(redis_client)
    assert hold.age_ms is not None
    assert hold.lease_left_ms is not None
    assert 50_000 <= hold.age_ms < 80_000
    assert 50_000 < hold.lease_left_ms <= 80_000
    assert replace(hold, age_ms=0, lease_left_ms=0) == HeldLock(
        name=NAME,
        kind="exclusive",
        host="web-1",
        process=4711,
        thread=139872345678912,
        age_ms=0,
        lease_left_ms=0,
        waiters=0,
        token=7,
        owner=OWNER,
    )


def test_lock_without_fence_is_listed_without_token(redis_client: Redis) -> None:
    write_lock(redis_client)
    assert [hold.token for hold in held_locks(redis_client)] == [None]


def test_lock_age_is_never_negative(redis_client: Redis) -> None:
    write_lock(redis_client, age_ms=-60_000)
    assert [(hold.age_ms, hold.age) for hold in held_locks(redis_client)] == [(0, "0.0 s")]


def test_lock_without_ttl_is_listed_without_lease(redis_client: Redis) -> None:
    write_lock(redis_client)
    redis_client.persist(NAME)
    assert [(it.lease_left_ms, it.lease_left) for it in held_locks(redis_client)] == [(None, "-")]


def test_other_keys_are_not_listed(redis_client: Redis) -> None:
    redis_client.set("lock:{12}:fence", 41)
    redis_client.set(f"{NAME}:released:{OWNER}", 1, px=5_000)
    redis_client.zadd(f"{NAME}:writers", {OWNER: 9_999_999_999_999})
    redis_client.set("lock:{12}:older", f"{OWNER} 7", px=5_000)
    redis_client.set("lock:{12}:line", f"{OWNER} 7 1\n", px=5_000)
    redis_client.set("lock:{", "braces without a hash tag")
    redis_client.set("lock:empty", "")
    redis_client.hset("lock:hash", "owner", OWNER)
    redis_client.zadd("lock:{12}:queue", {OWNER: 1})
    write_reader(redis_client, "nobody", key="lock:{12}:odd:readers")
    assert held_locks(redis_client) == []


def test_each_reader_is_listed_until_its_lease_ends(redis_client: Redis) -> None:
    gone = OTHER.replace("web-2", "web-3")
    write_reader(redis_client, OTHER, left_ms=90_000)
    write_reader(redis_client, OWNER, left_ms=40_000)
    write_reader(redis_client, gone, left_ms=-1)
    first, second = held_locks(redis_client)
    assert [first.owner, second.owner] == [OWNER, OTHER]
    assert (first.name, first.kind, first.age_ms, first.token) == (NAME, "read", None, None)
    assert first.lease_left_ms is not None
    assert 10_000 < first.lease_left_ms <= 40_000


def test_readers_are_found_with_and_without_hash_tag(redis_client: Redis) -> None:
    write_reader(redis_client, key="{lock:plain}:readers")
    write_reader(redis_client, key="lock:{12}:tagged:readers")
    assert names(redis_client) == ["lock:plain", "lock:{12}:tagged"]
    assert names(redis_client, match="lock:plain") == ["lock:plain"]
    assert names(redis_client, match="lock:{12}*") == ["lock:{12}:tagged"]
    assert [hold.kind for hold in holds_of(redis_client, "lock:plain")] == ["read"]


def test_writer_that_also_reads_is_listed_twice(redis_client: Redis) -> None:
    write_lock(redis_client)
    write_reader(redis_client, OTHER)
    assert [hold.kind for hold in held_locks(redis_client)] == ["exclusive", "read"]


def test_waiters_count_unexpired_notes_and_queue_places(redis_client: Redis) -> None:
    write_lock(redis_client)
    write_lock(redis_client, "lock:{12}:other")
    write_waiting(redis_client, f"{NAME}:waiting", "web-1/4711/aaaaaaaa", 3, left_ms=60_000)
    write_waiting(redis_client, f"{NAME}:waiting", "web-2/12/bbbbbbbb", 1, left_ms=60_000)
    write_waiting(redis_client, f"{NAME}:waiting", "gone/1/cccccccc", 20, left_ms=-1)
    now_ms = redis_now_ms(redis_client)
    redis_client.zadd(f"{NAME}:alive", {OWNER: now_ms + 60_000, OTHER: now_ms - 1})
    assert [(hold.name, hold.waiters) for hold in held_locks(redis_client)] == [
        ("lock:{12}:other", 0),
        (NAME, 5),
    ]


def test_waiters_are_found_without_hash_tag(redis_client: Redis) -> None:
    write_lock(redis_client, "lock:plain")
    write_waiting(redis_client, "{lock:plain}:waiting", "web-1/4711/aaaaaaaa", 2, left_ms=60_000)
    assert [hold.waiters for hold in held_locks(redis_client)] == [2]


def test_only_matching_names_are_listed_sorted(redis_client: Redis) -> None:
    for name in ("lock:b", "lock:a", "job:a", "lock:{9}:c"):
        write_lock(redis_client, name)
    assert names(redis_client) == ["lock:a", "lock:b", "lock:{9}:c"]
    assert names(redis_client, match="*:a") == ["job:a", "lock:a"]
    assert names(redis_client, match="lock:[b]") == ["lock:b"]


# --- What it costs --------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [3, 300])
def test_listing_takes_at_most_ten_round_trips(
    redis_client: Redis, trips: list[str], count: int
) -> None:
    for number in range(count):
        write_lock(redis_client, f"lock:{{12}}:user:{number}")
    trips.clear()
    assert len(held_locks(redis_client)) == count
    assert 0 < len(trips) <= 10


def test_list_longer_than_one_pipeline_is_complete(redis_client: Redis) -> None:
    for number in range(1_201):
        redis_client.set(f"lock:{{12}}:user:{number}", f"{OWNER}  {number}", px=60_000)
    assert len(set(names(redis_client))) == 1_201


def test_listing_scans_and_never_uses_keys(redis_client: Redis) -> None:
    write_lock(redis_client)
    redis_client.config_resetstat()
    held_locks(redis_client)
    asked = redis_client.info("commandstats")
    assert "cmdstat_scan" in asked
    assert "cmdstat_keys" not in asked


# --- Force ----------------------------------------------------------------------------------------


def test_force_releases_the_named_owner(redis_client: Redis) -> None:
    write_lock(redis_client)
    force_release(redis_client, NAME, OWNER)
    assert not redis_client.exists(NAME)


def test_force_never_releases_another_owner(redis_client: Redis) -> None:
    write_lock(redis_client, owner=OTHER)
    with pytest.raises(NotHeldByOwner):
        force_release(redis_client, NAME, OWNER)
    assert [hold.owner for hold in held_locks(redis_client)] == [OTHER]


def test_force_on_a_free_lock_raises(redis_client: Redis) -> None:
    with pytest.raises(NotHeldByOwner):
        force_release(redis_client, NAME, OWNER)


def test_force_spares_a_holder_that_came_later(
    redis_client: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    release_call = scripts.release_call

    def late(*args: Any, **options: Any) -> ScriptCall[tuple[ReleaseResult, bool]]:
        write_lock(redis_client, owner=OTHER)
        return release_call(*args, **options)

    monkeypatch.setattr(scripts, "release_call", late)
    write_lock(redis_client)
    with pytest.raises(NotHeldByOwner):
        force_release(redis_client, NAME, OWNER)
    assert [hold.owner for hold in held_locks(redis_client)] == [OTHER]


def test_force_releases_one_reader_only(redis_client: Redis) -> None:
    write_lock(redis_client, owner=OTHER)
    write_reader(redis_client, OWNER)
    write_reader(redis_client, OTHER)
    force_release(redis_client, NAME, OWNER)
    left = [(hold.kind, hold.owner) for hold in held_locks(redis_client)]
    assert left == [("exclusive", OTHER), ("read", OTHER)]


def test_force_wakes_the_first_in_a_fair_queue(
    redis_client: Redis, eventually: Callable[..., bool]
) -> None:
    write_lock(redis_client)
    redis_client.zadd(f"{NAME}:queue", {OTHER: 1})
    redis_client.zadd(f"{NAME}:alive", {OTHER: redis_now_ms(redis_client) + 60_000})
    with redis_client.pubsub(ignore_subscribe_messages=True) as heard:
        heard.subscribe(protocol.CHANNEL)
        assert eventually(lambda: redis_client.pubsub_numsub(protocol.CHANNEL)[0][1])
        force_release(redis_client, NAME, OWNER)
        message = next(filter(None, (heard.get_message(timeout=0.1) for _ in range(200))))
    assert protocol.fair_topic(NAME, OTHER) in message["data"].split("\n")


def test_holder_release_after_force_reports_not_owned(redis_client: Redis) -> None:
    second = "lock:{12}:second"
    for name in (NAME, second):
        write_lock(redis_client, name)
    force_release(redis_client, NAME, OWNER)
    assert (
        scripts.release_many(redis_client, [NAME, second], OWNER, first=NAME)
        is ReleaseResult.NOT_OWNED
    )
    assert held_locks(redis_client) == []


# --- A real lock ----------------------------------------------------------------------------------


def test_real_lock_is_listed_with_this_thread(redis_client: Redis) -> None:
    lock = RedisLock(redis_client, NAME, fence_key="lock:{12}:fence")
    with lock:
        (hold,) = held_locks(redis_client)
        assert (hold.thread, hold.token) == (threading.get_ident(), lock.fencing_token)
        assert hold.age_ms is not None
        assert hold.age_ms < 30_000
    assert held_locks(redis_client) == []
