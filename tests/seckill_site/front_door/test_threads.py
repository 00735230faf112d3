"""The threads of a process: which work gets database connections that are closed in time."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable

import pytest

from seckill_site.front_door import threads
from seckill_site.front_door.threads import Threads
from tests.support.patience import GENEROUS_S

pytestmark = pytest.mark.quick

Event = tuple[str, int]
"""What happened, and the thread it happened in."""


@pytest.fixture
def events(monkeypatch: pytest.MonkeyPatch) -> list[Event]:
    """Record each closing of old connections."""
    found: list[Event] = []
    close = noting(found, "close")
    monkeypatch.setattr(threads, "close_old_connections", close)
    return found


def noting(events: list[Event], what: str) -> Callable[[], None]:
    return lambda: events.append((what, threading.get_ident()))


def in_one_thread(use: Callable[[Threads], Awaitable[object]]) -> None:
    """Await what ``use`` returns in an event loop with one thread."""

    async def run() -> None:
        pool = Threads(threads=1, most_waiting=9)
        try:
            await asyncio.wait_for(use(pool), GENEROUS_S)
        finally:
            pool.close()

    asyncio.run(run())


def test_query_closes_old_connections_before_and_after_its_work(events: list[Event]) -> None:
    in_one_thread(lambda pool: pool.query(noting(events, "work")))
    assert [what for what, _ in events] == ["close", "work", "close"]
    (thread,) = {thread for _, thread in events}  # connections belong to a thread
    assert thread != threading.get_ident()


def test_query_closes_old_connections_after_an_error(events: list[Event]) -> None:
    def broken() -> None:
        noting(events, "work")()
        raise RuntimeError("a fault of ours")

    with pytest.raises(RuntimeError, match="a fault of ours"):
        in_one_thread(lambda pool: pool.query(broken))
    assert [what for what, _ in events] == ["close", "work", "close"]


def test_control_run_leaves_connections_to_its_work(events: list[Event]) -> None:
    in_one_thread(lambda pool: pool.run(noting(events, "work")))
    assert [what for what, _ in events] == ["work"]
