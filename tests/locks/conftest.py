"""A client of the real ledger Redis, emptied before and after each test, and ways to wait."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from django.conf import settings
from redis import Redis

from locks import waiting
from seckill_site.lua import ledger_connection
from tests.locks.servers import OtherProcess


@pytest.fixture
def redis_client() -> Iterator[Redis]:
    client = ledger_connection()
    client.flushdb()
    yield client
    client.flushdb()


@pytest.fixture
def eventually() -> Callable[..., bool]:
    """Wait for a condition, with a deadline, instead of sleeping for luck."""

    def wait(condition: Callable[[], object], *, within_s: float = 5) -> bool:
        until = time.monotonic() + within_s
        while time.monotonic() < until:
            if condition():
                return True
            time.sleep(0.005)
        return bool(condition())

    return wait


@pytest.fixture
def throughout(eventually: Callable[..., bool]) -> Callable[..., bool]:
    """Look all the time whether a condition stays true."""

    def watch(condition: Callable[[], object], *, for_s: float) -> bool:
        return not eventually(lambda: not condition(), within_s=for_s)

    return watch


@pytest.fixture
def renewal(redis_client: Redis, eventually: Callable[..., bool]) -> Callable[[str], bool]:
    """Wait until the time that a key has left rises, which only a renewal does."""

    def wait(name: str) -> bool:
        left_ms = [redis_client.pttl(name)]

        def rose() -> bool:
            left_ms.append(redis_client.pttl(name))
            return left_ms[-1] > left_ms[-2]

        return eventually(rose)

    return wait


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let those who wait trust in messages alone, where there is a subscription."""
    monkeypatch.setattr(waiting, "LOOK_AGAIN_S", 60)
    monkeypatch.setattr(waiting, "STAY_S", 180)


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    """Threads enough for all that wait in one test."""
    with ThreadPoolExecutor(24) as threads:
        yield threads


@pytest.fixture(scope="module")
def other_process() -> Iterator[OtherProcess]:
    """Another process whose waiters trust in messages alone."""
    with OtherProcess(settings.REDIS_URL) as other:
        other.look_again(after_s=60)
        yield other
