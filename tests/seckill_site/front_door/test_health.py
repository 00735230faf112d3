"""Health at the front door: as Django has it, but also while no thread is free."""

from __future__ import annotations

import asyncio
import json
import threading
from typing import Any

import pytest
from prometheus_client import REGISTRY

from seckill_site.front_door import health
from seckill_site.front_door.threads import Threads, threads
from tests.support import wsgi
from tests.support.asgi import ask
from tests.support.patience import GENEROUS_S

pytestmark = pytest.mark.quick


def test_alive_as_django_says_it() -> None:
    ours, djangos = ask("GET", "/healthz"), wsgi.ask("GET", "/healthz")
    assert (ours.status, ours.body, ours.headers) == (200, djangos.body, djangos.headers)


def with_threads(use: Any, *, all_work: bool) -> Any:
    """Run a coroutine in a process with one thread."""
    done = threading.Event()

    async def run() -> Any:
        pool = threads.use(Threads(threads=1, most_waiting=9))
        work = asyncio.ensure_future(pool.run(lambda: all_work and done.wait(GENEROUS_S)))
        await asyncio.sleep(0)
        try:
            return await use()
        finally:
            done.set()
            await work
            pool.close()

    return asyncio.run(run())


@pytest.mark.parametrize("path", ["/healthz", "/readyz"])
def test_both_answer_while_no_thread_is_free(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "LONGEST_WAIT_S", 0.05)
    environ = {"PATH_INFO": path, "REQUEST_METHOD": "GET"}

    async def both() -> Any:
        return await health.healthz(environ) or await health.readyz(environ)

    answer = with_threads(both, all_work=True)
    assert answer.status == (200 if path == "/healthz" else 503)


def test_readyz_names_the_threads_while_none_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "LONGEST_WAIT_S", 0.05)
    answer = with_threads(lambda: health.readyz({"PATH_INFO": "/readyz"}), all_work=True)
    assert json.loads(answer.content) == {"ready": False, "threads": "unavailable"}
    assert dict(answer.headers) == {"Cache-Control": "no-store", "Retry-After": "2"}


def test_readyz_is_left_to_django_while_a_thread_is_free() -> None:
    async def use() -> Any:
        return await health.readyz({"PATH_INFO": "/readyz"}), threads().all_work

    assert with_threads(use, all_work=False) == (None, False)


def test_lag_of_a_held_loop_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "LAG_EVERY_S", 0.01)

    def late() -> float:
        """Return how often the loop was late by more than 20 ms."""
        name, total = "seckill_loop_lag_seconds_bucket", "seckill_loop_lag_seconds_count"
        in_time = REGISTRY.get_sample_value(name, {"le": "0.02"}) or 0
        return (REGISTRY.get_sample_value(total) or 0) - in_time

    async def hold() -> None:
        watch = asyncio.ensure_future(health.watch_lag())
        await asyncio.sleep(0)
        threading.Event().wait(0.05)  # as nobody may do in a loop
        await asyncio.sleep(0.02)
        watch.cancel()

    before = late()
    asyncio.run(hold())
    assert late() > before
