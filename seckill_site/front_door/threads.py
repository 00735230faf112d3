"""The threads of a web process: few, with a bounded queue before them.

Whatever an event loop cannot do itself (SQL, templates, whole Django requests) runs here.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from contextvars import copy_context
from typing import TypeVar

from django.conf import settings
from django.db import close_old_connections

from seckill_site.front_door.per_loop import PerLoop

T = TypeVar("T")


class Busy(Exception):
    """All threads work, and enough requests wait for one already."""


class Threads:
    """A bounded pool of threads, used from one event loop."""

    def __init__(self, *, threads: int, most_waiting: int) -> None:
        """Prepare the pool; its threads start as they are needed."""
        self._pool: Executor = ThreadPoolExecutor(threads, thread_name_prefix="django")
        self._free = asyncio.Semaphore(threads)
        self._most_waiting = most_waiting
        self._waiting = 0

    @property
    def all_work(self) -> bool:
        """Whether no thread is free."""
        return self._free.locked()

    async def become_free(self, longest_s: float) -> bool:
        """Return whether a thread is free, or is after at most this time in the queue."""
        try:
            await asyncio.wait_for(self._free.acquire(), longest_s)
        except TimeoutError:
            return False
        self._free.release()
        return True

    async def run(self, function: Callable[[], T]) -> T:
        """Return what a function returns, in a thread; it ends even if nobody waits any more.

        :raises Busy: too much waits for a thread.
        """
        if self._waiting >= self._most_waiting and self._free.locked():
            raise Busy
        self._waiting += 1
        try:
            await self._free.acquire()
        finally:
            self._waiting -= 1
        future = asyncio.get_running_loop().run_in_executor(self._pool, function)
        future.add_done_callback(lambda _: self._free.release())
        return await asyncio.shield(future)  # a cancelled request does not free its thread

    async def query(self, function: Callable[[], T]) -> T:
        """Run what asks the database outside of a Django request.

        :raises Busy: too much waits for a thread.
        """

        def between() -> T:
            close_old_connections()
            try:
                return function()
            finally:
                close_old_connections()

        here = copy_context()  # its log lines name the request
        return await self.run(lambda: here.run(between))

    def close(self) -> None:
        """Let the threads end, each after what it does now."""
        self._pool.shutdown(wait=False, cancel_futures=True)


threads = PerLoop(
    lambda: Threads(
        threads=settings.SECKILL_DJANGO_THREADS, most_waiting=settings.SECKILL_DJANGO_WAITING
    )
)
