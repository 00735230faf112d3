"""What each event loop has of its own."""

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar
from weakref import WeakKeyDictionary

T = TypeVar("T")


class PerLoop(Generic[T]):
    """Something that is made in each event loop with its first use there."""

    def __init__(self, make: Callable[[], T]) -> None:
        """Take the function that makes it, called once in each running loop."""
        self._make = make
        self._made: WeakKeyDictionary[asyncio.AbstractEventLoop, T] = WeakKeyDictionary()
        self._last: tuple[asyncio.AbstractEventLoop, T] | None = None

    def __call__(self) -> T:
        """Return that of the running loop."""
        loop = asyncio.get_running_loop()
        if self._last is not None and self._last[0] is loop:
            return self._last[1]  # a process has one loop; only tests have more
        made = self._made.get(loop)
        if made is None:
            return self.use(self._make())
        self._last = loop, made
        return made

    def use(self, made: T) -> T:
        """Take this one in the running loop."""
        loop = asyncio.get_running_loop()
        self._made[loop] = made
        self._last = loop, made
        return made
