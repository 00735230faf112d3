"""Tests that are coroutines, and clients that end with their event loop."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from redis import Redis
from redis.asyncio import Redis as AsyncRedis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from locks import FairLock, RedisLock
from tests.locks.holders import FENCE, NAME
from tests.support.patience import GENEROUS_S
from tests.support.proxy import FaultProxy, redis_server
from tests.support.redis_url import redis_url


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a coroutine test in an event loop of its own; afterwards, nothing of it may be left."""
    test = pyfuncitem.obj
    if not inspect.iscoroutinefunction(test):
        return None
    names = pyfuncitem._fixtureinfo.argnames
    arguments = {name: pyfuncitem.funcargs[name] for name in names}
    clients = [it for it in pyfuncitem.funcargs.values() if isinstance(it, AsyncRedis)]

    async def run() -> None:
        try:
            async with asyncio.timeout(GENEROUS_S):
                await test(**arguments)
            for client in clients:
                pool: Any = client.connection_pool
                assert len(pool._in_use_connections) <= 1, "only the subscription may linger"
        finally:
            for client in clients:
                await client.aclose()

    with ThreadPoolExecutor(1) as own:  # the thread of the tests may have the loop of Playwright
        own.submit(lambda: asyncio.run(run())).result()
    return True


def client_at(url: str, **options: Any) -> AsyncRedis:
    defaults = {"decode_responses": True, "retry": Retry(NoBackoff(), 0), "socket_timeout": 5}
    return AsyncRedis.from_url(url, **{**defaults, **options})


@pytest.fixture
def client(redis_client: Redis) -> AsyncRedis:
    return client_at(redis_url())


@pytest.fixture
def proxy(redis_client: Redis) -> Iterator[FaultProxy]:
    """A line to Redis that can be broken; the server knows the scripts already."""
    for kind in (RedisLock, FairLock):
        with kind(redis_client, NAME, fence_key=FENCE) as lock:
            lock.extend()
    redis_client.flushdb()
    with FaultProxy(redis_server(redis_url())) as proxy:
        yield proxy


@pytest.fixture
def far(proxy: FaultProxy) -> AsyncRedis:
    return client_at(proxy.url(like=redis_url()), socket_timeout=0.6, socket_connect_timeout=0.6)


@pytest.fixture
def in_thread(elsewhere: Callable[..., Any]) -> Callable[..., Any]:
    """Call something in a thread of its own, and await it."""

    async def call(*args: Any, **options: Any) -> Any:
        return await asyncio.to_thread(elsewhere, *args, **options)

    return call
