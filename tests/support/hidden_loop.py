"""Hide the event loop that Playwright leaves running in the thread of the tests.

A plugin, loaded by name by ``script/test``: so its fixture comes before those of pytest-django.
Django has another connection where a loop runs, and a test's transaction is on one of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def no_loop_of_playwright(request: pytest.FixtureRequest) -> Iterator[None]:
    """Let a test without a browser run an event loop of its own.

    Asyncio has no public way to say so, and Playwright none to pause.
    """
    loop = asyncio._get_running_loop()
    if loop is None or "playwright" in request.fixturenames:
        yield
        return
    asyncio._set_running_loop(None)
    yield
    asyncio._set_running_loop(loop)
