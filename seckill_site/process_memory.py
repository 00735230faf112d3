"""What a process remembers from one request to the next: bounded, and forgotten by a fork.

A forked process gets copies of its parent's locks, held ones too, of timers without their threads,
and of counts that the parent adds to Redis itself. So it starts anew, and so does each test.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import threading
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Hashable
from functools import partial
from math import inf
from time import monotonic
from typing import Any, ClassVar, Generic, TypeVar
from weakref import WeakSet

from django.db import connections

logger = logging.getLogger(__name__)

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class ProcessMemory:
    """Something that a process remembers; :func:`forget_everything` knows it while it is in use."""

    _all: ClassVar[WeakSet[ProcessMemory]] = WeakSet()

    def __init__(self) -> None:
        self.forget()
        self._all.add(self)

    def forget(self) -> None:
        """Start anew, as in a new process."""
        raise NotImplementedError


def forget_everything() -> None:
    """Let this process start anew, as far as it remembers anything."""
    for memory in list(ProcessMemory._all):
        memory.forget()


os.register_at_fork(after_in_child=forget_everything)


class Memory(ProcessMemory, Generic[K, V]):
    """Values by key, each of which gets too old; of more than ``most``, the oldest goes."""

    def __init__(self, *, most: int, for_s: float = inf) -> None:
        self.most, self.for_s = most, for_s
        super().__init__()

    def forget(self) -> None:
        self._writing = threading.Lock()
        self._kept: OrderedDict[K, tuple[V, float]] = OrderedDict()

    def recall(self, key: K) -> V | None:
        """Return the value of a key, unless it is too old."""
        entry = self._kept.get(key)
        return entry[0] if entry and monotonic() < entry[1] else None

    def last(self, key: K) -> V | None:
        """Return the last value of a key, however old."""
        entry = self._kept.get(key)
        return entry[0] if entry else None

    def keep(self, key: K, value: V, *, until: float | None = None) -> None:
        """Remember a value for ``for_s``, or until a time of the monotonic clock."""
        with self._writing:
            self._kept[key] = value, monotonic() + self.for_s if until is None else until
            self._kept.move_to_end(key)
            if len(self._kept) > self.most:
                self._kept.popitem(last=False)

    def drop(self, key: K) -> None:
        """Forget the value of one key."""
        with self._writing:
            self._kept.pop(key, None)


class Latest(ProcessMemory, Generic[V]):
    """The last known value of one thing; one caller at a time refreshes it once it is too old."""

    def __init__(self, first: V, *, for_s: float = inf) -> None:
        self._first, self.for_s = first, for_s
        super().__init__()

    def forget(self) -> None:
        self.value, self._until = self._first, 0.0
        self._refreshing = threading.Lock()

    def learn(self, value: V, *, for_s: float | None = None) -> None:
        """Take over a value that was read just now."""
        self.value = value
        self.trust(for_s=self.for_s if for_s is None else for_s)

    def trust(self, *, for_s: float) -> None:
        """Go on with the present value for this time."""
        self._until = monotonic() + for_s

    @property
    def late_by_s(self) -> float:
        """For how long the value has been too old; negative while it is not."""
        return monotonic() - self._until

    def claim(self) -> bool:
        """Return whether the caller is to refresh the value: one caller in ``for_s``."""
        if monotonic() < self._until:
            return False
        return self.refresh(lambda: self.trust(for_s=self.for_s), wait=False)

    def refresh(self, read: Callable[[], object], *, wait: bool) -> bool:
        """Call ``read``, which learns the value, if it is too old; ``wait`` for another's call."""
        if monotonic() < self._until or not self._refreshing.acquire(blocking=wait):
            return False
        try:
            is_due = monotonic() >= self._until
            if is_due:
                read()
            return is_due
        finally:
            self._refreshing.release()


class Flights(ProcessMemory, Generic[K, V]):
    """Running tasks by key: whoever needs the result of one that runs waits for the same one."""

    def forget(self) -> None:
        self._running: dict[K, asyncio.Task[V]] = {}

    def running(self, key: K) -> asyncio.Task[V] | None:
        """Return the task that runs for a key."""
        return self._running.get(key)

    def join(self, key: K, start: Callable[[], Coroutine[Any, Any, V]]) -> asyncio.Task[V]:
        """Return the task of a key, started if none runs yet. Callers shield it while they wait."""
        task = self._running.get(key)
        if task is None:
            task = self._running[key] = asyncio.ensure_future(start())
            task.add_done_callback(partial(self._land, key))
        return task

    def _land(self, key: K, task: asyncio.Task[V]) -> None:
        if self._running.get(key) is task:
            del self._running[key]
        if not task.cancelled():
            task.exception()  # nobody may be waiting for it any more


class Buffer(ProcessMemory, Generic[K]):
    """Counts by key, collected in memory and written together by a thread, every so often.

    Counting never raises and waits for no writer. Of more than ``most`` keys, new ones are dropped.
    A batch whose writing raised ``retry_on`` is kept, and written again after ``retry_s``.
    """

    _timer: threading.Timer | None = None

    def __init__(
        self,
        write: Callable[[dict[K, int]], None],
        *,
        most: int,
        every_s: float,
        retry_on: type[Exception] | tuple[type[Exception], ...] = (),
        retry_s: float = inf,
        daemon: bool = False,
    ) -> None:
        """Begin empty; a process waits for its last flush before it ends, unless ``daemon``."""
        self._write, self._retry_on, self._daemon = write, retry_on, daemon
        self.most, self.every_s, self.retry_s = most, every_s, retry_s
        super().__init__()

    def forget(self) -> None:
        self._stop_timer()
        self._collecting = threading.Lock()  # held for a moment, around the counts
        self._flushing = threading.Lock()  # held while a batch is written
        self._waiting: dict[K, int] = {}
        self._batch: dict[K, int] = {}  # not written yet, as far as this process knows
        self.name, self.number = secrets.token_hex(8), 0  # of this buffer, and of its last batch

    def count(self, key: K) -> None:
        """Count one more."""
        with self._collecting:
            so_far = self._waiting.get(key, 0)
            if so_far or len(self._waiting) < self.most:
                self._waiting[key] = so_far + 1
        if self._timer is None:
            self._flush_in(self.every_s, daemon=self._daemon)

    def flush(self) -> None:
        """Write at once what was counted."""
        with self._flushing:
            self._stop_timer()
            try:
                if self._batch:
                    self._write(self._batch)
                with self._collecting:
                    self._batch, self._waiting = self._waiting, {}
                self.number += 1
                if self._batch:
                    self._write(self._batch)
                self._batch = {}
            except self._retry_on as error:
                if len(self._waiting) >= self.most:
                    logger.warning("counts of this process are dropped: %s", error)
                # Retried even if nothing is counted; as a daemon, so that no process waits for it.
                self._flush_in(self.retry_s, daemon=True)

    def _flush_in(self, seconds: float, *, daemon: bool) -> None:
        timer = threading.Timer(seconds, self._flush_in_thread)
        timer.daemon = daemon
        with self._collecting:
            if self._timer is not None:
                return
            self._timer = timer
        try:
            timer.start()
        except RuntimeError:  # no thread is available; the next count tries again
            self._timer = None

    def _flush_in_thread(self) -> None:
        try:
            self.flush()
        finally:
            connections.close_all()  # this thread has its own, and ends

    def _stop_timer(self) -> None:
        timer, self._timer = self._timer, None
        if timer is not None and timer.is_alive():  # a fork copies no thread
            timer.cancel()  # no effect if it is the caller
