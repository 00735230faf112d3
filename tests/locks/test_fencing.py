"""Fencing tokens: they rise, and go on rising when their counter is lost."""

from __future__ import annotations

import pytest
from redis import Redis

from locks import RedisLock, raise_fence

NAME = "lock:{t}:sale"
FENCE = "lock:{t}:fence"


def fenced_token(client: Redis, *, name: str = NAME, floor: int = 0) -> int:
    lock = RedisLock(client, name, fence_key=FENCE, fence_floor=floor)
    with lock:
        token = lock.fencing_token
    assert token is not None
    assert lock.fencing_token is None
    return token


def test_fencing_tokens_rise_across_locks_of_one_counter(redis_client: Redis) -> None:
    tokens = [fenced_token(redis_client, name=f"lock:{{t}}:{i % 2}") for i in range(5)]
    assert tokens == [1, 2, 3, 4, 5]


def test_reentry_cannot_ask_for_a_new_fence(redis_client: Redis) -> None:
    inner = RedisLock(redis_client, NAME, fence_key=FENCE)
    with RedisLock(redis_client, NAME), pytest.raises(ValueError, match="without this fence"):
        inner.acquire()
    with RedisLock(redis_client, NAME, fence_key=FENCE), RedisLock(redis_client, NAME) as plain:
        assert plain.fencing_token == 1  # who wants none may have it


@pytest.mark.parametrize("broken", ["NaN", "-5", "1e3", "", "9007199254740991", "9" * 40])
def test_broken_counter_continues_above_the_floor(redis_client: Redis, broken: str) -> None:
    redis_client.set(FENCE, broken)
    assert fenced_token(redis_client, floor=41) == 42


def test_counter_of_another_type_continues_above_the_floor(redis_client: Redis) -> None:
    redis_client.lpush(FENCE, "by hand")
    assert fenced_token(redis_client, floor=41) == 42


def test_tokens_are_exact_up_to_the_limit(redis_client: Redis) -> None:
    assert fenced_token(redis_client, floor=2**53 - 3) == 2**53 - 2
    assert redis_client.get(FENCE) == str(2**53 - 2)
    for floor in (-1, 2**53 - 1):
        with pytest.raises(ValueError, match="fencing token"):
            RedisLock(redis_client, NAME, fence_floor=floor)


def test_raise_fence_never_lowers_and_keeps_the_ttl(redis_client: Redis) -> None:
    raise_fence(redis_client, FENCE, 5)
    redis_client.expire(FENCE, 1_000)
    raise_fence(redis_client, FENCE, 2**40)
    raise_fence(redis_client, FENCE, 3)
    assert redis_client.get(FENCE) == str(2**40)
    assert fenced_token(redis_client) == 2**40 + 1
    assert 0 < redis_client.ttl(FENCE) <= 1_000
    redis_client.set(FENCE, "broken")
    raise_fence(redis_client, FENCE, 8)
    assert redis_client.get(FENCE) == "8"
