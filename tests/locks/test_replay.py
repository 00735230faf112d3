"""Scripts sent again after a lost reply, and the keys that make that safe."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from pathlib import Path
from typing import Any

import pytest
from redis import Redis
from redis.exceptions import ResponseError

from locks import RedisLock, raise_fence, scripts
from locks.protocol import (
    AcquireResult,
    Fence,
    LookResult,
    ReleaseResult,
    RenewResult,
    Request,
    WakeResult,
)

NAME = "lock:{t}:sale"
FENCE = "lock:{t}:fence"


def plain_acquire(client: Redis, owner: str, **changes: object) -> tuple[AcquireResult, int | None]:
    arguments: dict[str, Any] = {"lease_ms": 5_000, "fence": Fence(FENCE), **changes}
    answer = scripts.acquire_call(NAME, Request(owner, **arguments)).run(client)
    return answer.result, answer.token


def test_repeated_acquire_gets_first_token_and_a_full_lease(redis_client: Redis) -> None:
    assert plain_acquire(redis_client, "a", lease_ms=1_000) == (AcquireResult.GRANTED, 1)
    assert plain_acquire(redis_client, "a", lease_ms=9_000) == (AcquireResult.GRANTED, 1)
    assert redis_client.get(FENCE) == "1"
    assert redis_client.pttl(NAME) > 1_000
    assert plain_acquire(redis_client, "b") == (AcquireResult.BUSY, None)
    assert plain_acquire(redis_client, "") == (AcquireResult.BUSY, None)


def test_scripts_are_sent_again_after_a_script_flush(redis_client: Redis) -> None:
    lock = RedisLock(redis_client, NAME, fence_key=FENCE)
    redis_client.script_flush()
    lock.acquire()
    redis_client.script_flush()
    lock.extend()
    redis_client.script_flush()
    lock.release()
    redis_client.script_flush()
    raise_fence(redis_client, FENCE, 9)
    assert redis_client.get(FENCE) == "9"


def test_full_redis_refuses_acquire_but_allows_release(redis_client: Redis) -> None:
    lock = RedisLock(redis_client, NAME, fence_key=FENCE)
    lock.acquire()
    redis_client.config_set("maxmemory", 1)
    try:
        with pytest.raises(ResponseError, match="used memory"):
            RedisLock(redis_client, "lock:{t}:other", fence_key=FENCE).acquire()
        lock.extend()
        lock.release()
    finally:
        redis_client.config_set("maxmemory", 0)
    assert redis_client.get(FENCE) == "1"
    assert not redis_client.exists(NAME, "lock:{t}:other")


# --- The convention ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("script", "answers"),
    [
        ("acquire", AcquireResult),
        ("acquire_fair", AcquireResult),
        ("acquire_many", AcquireResult),
        ("acquire_read", AcquireResult),
        ("acquire_write", AcquireResult),
        ("look", LookResult),
        ("release", ReleaseResult),
        ("release_fair", ReleaseResult),
        ("release_many", ReleaseResult),
        ("release_read", ReleaseResult),
        ("renew", RenewResult),
        ("pass_wake_up_on", WakeResult),
    ],
)
def test_script_codes_match_their_enum(script: str, answers: type[Enum]) -> None:
    source = (Path(scripts.__file__).parent / "lua" / f"{script}.lua").read_text()
    names = ", ".join(answer.name for answer in answers)
    codes = ", ".join(str(answer.value) for answer in answers)
    assert f"local {names} = {codes}\n" in source


# --- Keys ----------------------------------------------------------------------------------------


def test_released_marker_shares_the_slot_and_expires(
    redis_client: Redis, monkeypatch: pytest.MonkeyPatch, eventually: Callable[..., bool]
) -> None:
    monkeypatch.setattr(scripts, "RELEASED_MS", 200)
    for name, marker in ((NAME, f"{NAME}:released:*"), ("plain", "{plain}:released:*")):
        with RedisLock(redis_client, name):
            pass
        assert len(redis_client.keys(marker.replace("{t}", "{t[}]"))) == 1
    assert eventually(lambda: redis_client.dbsize() == 0)


def test_lease_of_zero_is_refused(redis_client: Redis) -> None:
    with pytest.raises(ValueError, match="lease"):
        RedisLock(redis_client, NAME, lease_ms=0)
