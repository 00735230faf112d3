"""What a process remembers: for how long, how much, who refreshes it, and that it can forget it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from threading import Barrier, Thread

import pytest

from seckill_site import process_memory
from seckill_site.process_memory import (
    Buffer,
    Flights,
    Latest,
    Memory,
    ProcessMemory,
    forget_everything,
)
from seckill_site.redis.breaker import Breaker
from tests.support.patience import GENEROUS_S, wait_for

pytestmark = pytest.mark.quick


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [0.0]
    monkeypatch.setattr(process_memory, "monotonic", lambda: now[0])
    return now


def test_value_gets_too_old_and_stays_the_last_known(clock: list[float]) -> None:
    memory = Memory[str, bool](most=2, for_s=1.0)
    memory.keep("of a second", False)
    memory.keep("of two", False, until=2.0)
    assert (memory.recall("of a second"), memory.recall("of two")) == (False, False)
    clock[0] = 1.0
    assert (memory.recall("of a second"), memory.recall("of two")) == (None, False)
    assert memory.last("of a second") is False
    memory.drop("of two")
    assert memory.last("of two") is None


def test_value_kept_longest_ago_goes_first() -> None:
    memory = Memory[int, bool](most=3)
    for key in (1, 2, 3, 1, 4):
        memory.keep(key, True)
    assert [memory.last(key) for key in (1, 2, 3, 4)] == [True, None, True, True]


def test_one_caller_refreshes_while_others_use_the_last_value(clock: list[float]) -> None:
    latest = Latest("old", for_s=1.0)

    def read() -> None:
        assert not latest.refresh(pytest.fail, wait=False)
        assert not latest.claim()
        assert latest.value == "old"
        latest.learn("new")

    assert latest.refresh(read, wait=False)
    assert not latest.refresh(pytest.fail, wait=True)
    assert latest.value == "new"
    clock[0] = 1.0
    assert (latest.claim(), latest.claim()) == (True, False)


def test_first_callers_wait_for_the_first_value() -> None:
    together, latest, found = Barrier(8), Latest[object](None), list[object]()

    def use() -> None:
        together.wait(GENEROUS_S)
        latest.refresh(lambda: latest.learn(object()), wait=True)
        found.append(latest.value)

    threads = [Thread(target=use) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(GENEROUS_S)
    assert found == [latest.value] * 8


def test_failed_flight_ends_for_all_and_the_next_starts_anew() -> None:
    flights, started = Flights[int, int](), list[int]()

    async def fly() -> int:
        started.append(1)
        await asyncio.sleep(0)
        raise OSError

    async def join() -> None:
        for _ in range(2):
            tasks = [flights.join(7, fly) for _ in range(3)]
            await asyncio.wait(tasks)
            assert flights.running(7) is None

    asyncio.run(join())
    assert len(started) == 2


def test_full_buffer_counts_only_what_it_knows(flush_timer: Callable[..., None]) -> None:
    batches = list[dict[str, int]]()
    buffer = Buffer[str](batches.append, most=2, every_s=60)
    for key in "abca":
        buffer.count(key)
    buffer.flush()
    buffer.flush()
    assert batches == [{"a": 2, "b": 1}]


def test_forgotten_buffer_stops_its_timer(
    flush_timer: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Buffer, "_flush_in", flush_timer)
    buffer = Buffer[str](print, most=2, every_s=3600)
    buffer.count("a")
    timer = buffer._timer
    assert timer
    assert timer.is_alive()
    forget_everything()
    wait_for(lambda: not timer.is_alive(), what="the end of the timer")
    assert not buffer._waiting


def test_forked_process_remembers_nothing() -> None:
    memory, breaker = Memory[int, bool](most=3), Breaker(OSError)
    memory.keep(1, True)
    breaker.trip(OSError("gone"))
    with memory._writing:  # a fork copies the held lock too
        child = os.fork()
        if child == 0:
            try:
                memory.keep(2, True)
            finally:
                os._exit(0 if memory.last(2) and not memory.last(1) and not breaker.open else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert (memory.last(1), breaker.open) == (True, True)


def test_memory_that_nobody_uses_is_not_kept() -> None:
    before = len(ProcessMemory._all)
    Memory[int, int](most=1)
    assert len(ProcessMemory._all) == before
