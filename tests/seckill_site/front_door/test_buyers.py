"""Session look-ups at the front door: no request shares one that started before it arrived."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from seckill_site.front_door import buyers
from seckill_site.front_door.buyers import buyer_of
from seckill_site.front_door.threads import Busy, Threads, threads
from seckill_site.sessions import Buyer
from tests.support.patience import GENEROUS_S

pytestmark = pytest.mark.quick

KEY = "k" * 32
BUYER = Buyer(1, "buyer")
THREADS = 2


class Servers:
    """A cache and a database with the session ``KEY``, and the look-ups in the database."""

    def __init__(self) -> None:
        self.cached: Buyer | None = None
        self.row: Buyer | None = BUYER
        self.begun = 0
        self.at_once = self.most_at_once = 0
        self.has_read = threading.Event()
        self.may_end = threading.Event()

    async def run(self, call: Any) -> Buyer | None:
        return self.cached

    def find(self, *, session_key: str) -> Buyer | None:
        self.begun += 1
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        row = self.row
        self.has_read.set()
        self.may_end.wait(GENEROUS_S)
        self.at_once -= 1
        return row


@pytest.fixture
def servers(monkeypatch: pytest.MonkeyPatch) -> Iterator[Servers]:
    found = Servers()
    monkeypatch.setattr(buyers, "cache_node", lambda: found)
    monkeypatch.setattr(buyers, "find_buyer", found.find)
    yield found
    found.may_end.set()


def serve(use: Callable[[], Awaitable[Any]], *, most_waiting: int = 100) -> Any:
    async def run() -> Any:
        pool = threads.use(Threads(threads=THREADS, most_waiting=most_waiting))
        try:
            return await asyncio.wait_for(use(), GENEROUS_S)
        finally:
            pool.close()

    return asyncio.run(run())


async def come(*keys: str) -> list[asyncio.Task[Buyer | None]]:
    """Let requests come, each as far as it gets."""
    found = [asyncio.ensure_future(buyer_of(key)) for key in keys]
    for _ in range(10):
        await asyncio.sleep(0)
    return found


def test_request_after_a_sign_out_shares_no_earlier_look_up(servers: Servers) -> None:
    async def use() -> list[Buyer | None]:
        before = await come(KEY)
        await asyncio.to_thread(servers.has_read.wait, GENEROUS_S)
        servers.row = None
        after = await come(KEY)
        servers.may_end.set()
        return await asyncio.gather(*before, *after)

    assert serve(use) == [BUYER, None]


def test_requests_of_a_session_make_one_look_up_at_a_time(servers: Servers) -> None:
    async def use() -> list[Buyer | None]:
        first = await come(KEY)
        await asyncio.to_thread(servers.has_read.wait, GENEROUS_S)
        rest = await come(*[KEY] * 10)
        servers.may_end.set()
        return await asyncio.gather(*first, *rest)

    assert serve(use) == [BUYER] * 11
    assert (servers.begun, servers.most_at_once) == (2, 1)


def test_lost_cache_is_filled_by_one_look_up(servers: Servers) -> None:
    async def use() -> list[Buyer | None]:
        first = await come(KEY)
        await asyncio.to_thread(servers.has_read.wait, GENEROUS_S)
        rest = await come(*[KEY] * 10)
        servers.cached = BUYER
        servers.may_end.set()
        return await asyncio.gather(*first, *rest)

    assert serve(use) == [BUYER] * 11
    assert servers.begun == 1


def test_look_ups_of_many_unknown_sessions_are_bounded(servers: Servers) -> None:
    servers.row = None

    async def use() -> list[Buyer | BaseException | None]:
        flood = await come(*[f"{number:032}" for number in range(20)])
        servers.may_end.set()
        return await asyncio.gather(*flood, return_exceptions=True)

    found = serve(use, most_waiting=3)
    assert found[: THREADS + 3] == [None] * (THREADS + 3)
    assert {type(it) for it in found[THREADS + 3 :]} == {Busy}
    assert servers.begun == THREADS + 3
