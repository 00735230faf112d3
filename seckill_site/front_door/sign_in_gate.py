"""The gate before the forms of accounts: few of a process's threads, and little of its time, serve
them.

Any of these may hash a password, and even a refusal by Django takes milliseconds in which no order
is answered. So they wait here, as coroutines, and those that wait too long are answered 429.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from django.conf import settings

from seckill_site.front_door.per_loop import PerLoop
from seckill_site.front_door.requests import Environ

PATHS = ("/accounts/", "/admin/login/", "/admin/password_change/", "/admin/auth/user/")
"""Requests that change something below these may hash a password."""

LONGEST_WAIT_S = 1.0
MOST_WAITING = 100

PACE_S = 0.1
"""A place is taken for at least this long: a flood of cheap failures would use all of the time."""


class TooManySignIns(Exception):
    """As many requests as may are at a form of accounts, or wait for it."""


class SignInGate:
    """The places for requests that may hash a password, in one event loop."""

    def __init__(self, *, places: int) -> None:
        """Start with all places free."""
        self._free = asyncio.Semaphore(places)
        self._waiting = 0

    @asynccontextmanager
    async def pass_through(self, environ: Environ) -> AsyncIterator[None]:
        """Hold a place while Django answers this request, if it needs one.

        :raises TooManySignIns: none became free in time.
        """
        if environ["REQUEST_METHOD"] != "POST" or not environ["PATH_INFO"].startswith(PATHS):
            yield
            return
        await self._take_place()
        loop = asyncio.get_running_loop()
        free_at = loop.time() + PACE_S
        try:
            yield
        finally:
            loop.call_at(max(free_at, loop.time()), self._free.release)

    async def _take_place(self) -> None:
        if self._waiting >= MOST_WAITING:
            raise TooManySignIns
        self._waiting += 1
        try:
            await asyncio.wait_for(self._free.acquire(), LONGEST_WAIT_S)
        except TimeoutError:
            raise TooManySignIns from None
        finally:
            self._waiting -= 1


sign_in_gate = PerLoop(lambda: SignInGate(places=2 * settings.SECKILL_HASHES_AT_ONCE))
