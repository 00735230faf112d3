"""What an event loop shares among its locks: one task that renews, and one subscription a server.

It is what ``locks.watchdog`` and ``locks.wait_queues`` are to the threads of a process. To Redis,
each event loop that waits is a process of its own: its waiters are woken by its own name.
"""

import asyncio
import itertools
import time
from collections.abc import Awaitable, Callable, Hashable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from redis.asyncio import Redis

from locks import wait_queues, watchdog
from locks.aio.sending import renew
from locks.protocol import CHANNEL, NO_NOTE, WaitNote, process_channel, process_name, server_of
from locks.wait_queues import Busy, Wait, WaitQueues
from locks.watchdog import Lease, Leases

Ask = Callable[[WaitNote], Awaitable[Busy | None]]
"""A function that asks Redis once for a lock and returns None if it was granted."""

_numbers = itertools.count(1)


class EventLoop:
    """The leases and the wait queues of one event loop."""

    def __init__(self) -> None:
        self.waker = f"{process_name()}/{next(_numbers)}"
        self.watchdog = Watchdog()
        self._by_server: dict[Hashable, WaitQueues[Subscription]] = {}

    def queues_of(self, client: Redis) -> WaitQueues["Subscription"]:
        server = server_of(client)
        if server not in self._by_server:
            self._by_server[server] = WaitQueues(Subscription)
        return self._by_server[server]


_event_loops: dict[asyncio.AbstractEventLoop, EventLoop] = {}


def here() -> EventLoop:
    """Return what belongs to the running event loop."""
    running = asyncio.get_running_loop()
    event_loop = _event_loops.get(running)
    if event_loop is None:
        for closed in [it for it in list(_event_loops) if it.is_closed()]:
            _event_loops.pop(closed, None)
        event_loop = _event_loops[running] = EventLoop()
    return event_loop


# --- Renewal --------------------------------------------------------------------------------------


class Watchdog:
    """The leases of an event loop, and the task that renews them while there are any."""

    def __init__(self) -> None:
        self._leases = Leases()
        self._changed = asyncio.Event()
        self._wakes_at = 0.0
        self._task: asyncio.Task[None] | None = None
        self.forget = self._leases.discard

    def watch(self, lease: Lease) -> None:
        """Renew this lease from now on, while its holder lives."""
        self._leases.add(lease)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run(), name=watchdog.THREAD_NAME)
        elif lease.renew_at < self._wakes_at:
            self._changed.set()

    async def _run(self) -> None:
        while (wakes_at := self._leases.wakes_at()) >= 0:
            self._wakes_at = wakes_at
            await set_within(self._changed, wakes_at - time.monotonic())
            self._changed.clear()
            self._report_lost()
            await asyncio.gather(*map(_renew, self._leases.due()))

    def _report_lost(self) -> None:
        for lease in self._leases.take_lost():
            if lease.on_lost is not None:
                asyncio.get_running_loop().call_soon(lease.on_lost)


async def _renew(leases: list[Lease]) -> None:
    """Renew leases of one server."""
    sent_at, client = time.monotonic(), leases[0].client
    assert isinstance(client, Redis)
    try:
        results = await renew(client, [lease.renewal for lease in leases])
    except Exception as error:  # whatever it is, renewal must not end silently
        watchdog.postpone(leases, error)
    else:
        watchdog.apply(leases, results, sent_at=sent_at)


async def set_within(event: asyncio.Event, seconds: float) -> None:
    """Wait until an event is set, at most this long."""
    with suppress(TimeoutError):
        async with asyncio.timeout(max(0, seconds)):
            await event.wait()


# --- Waiting --------------------------------------------------------------------------------------


async def acquire_in_turn(client: Redis, ask: Ask, wait: Wait) -> bool:
    """Ask until the lock is granted or the wait is over; return whether it was granted."""
    until = time.monotonic() + wait.wait_ms / 1000
    queues = here().queues_of(client)
    if wait.wait_ms <= 0 or wait.at_once:
        busy = await ask(wait.first_note if wait.wait_ms > 0 else NO_NOTE)
        if busy is None or wait.wait_ms <= 0:
            return busy is None
    waiter = WaitingTask(queues, client, wait.topic)
    with queues.joined(waiter):  # at once, so that a thousand tasks that start together ask once
        if not wait.at_once and queues.is_first(waiter):
            waiter.granted = await ask(wait.first_note) is None
        if not waiter.granted:
            await waiter.ask_in_turn(ask, until)
    return waiter.granted


@dataclass(eq=False)
class WaitingTask:
    """A task of this event loop in a queue."""

    queues: WaitQueues["Subscription"]
    client: Redis
    topic: str
    granted: bool = False
    _gate: asyncio.Event = field(default_factory=asyncio.Event)

    async def ask_in_turn(self, ask: Ask, until: float) -> None:
        """Ask whenever this task is first and woken, at the latest at the end of the wait."""
        while True:
            left_s = until - time.monotonic()
            pause_s = min(left_s, wait_queues.ASK_AGAIN_S)
            if left_s <= 0 or self.queues.is_first(self):
                subscription = self.queues.subscribe(self.client) if left_s > 0 else None
                subscribed = subscription and await subscription.is_subscribed(wait_s=left_s)
                others = self.queues.count(self.topic) - 1
                busy = await ask(wait_queues.note(until - time.monotonic(), others))
                self.granted = busy is None
                if busy is None or left_s <= 0:
                    return
                after_s = wait_queues.pause_after(busy, subscribed=bool(subscribed))
                pause_s = min(pause_s, after_s)
            await set_within(self._gate, pause_s)
            self._gate.clear()

    def wake(self) -> None:
        """Wake the task, now or at its next pause."""
        self._gate.set()


class Subscription(wait_queues.Channels):
    """A subscription of an event loop, in a task that ends with it."""

    def __init__(self, client: Redis, **callbacks: Any) -> None:
        super().__init__(client, here().waker, **callbacks)
        self._settled: asyncio.Event = asyncio.Event()
        self._task = asyncio.create_task(self._run(), name=wait_queues.THREAD_NAME)

    async def is_subscribed(self, *, wait_s: float) -> bool:
        """Return whether messages arrive now, after a short wait for a new subscription."""
        await set_within(self._settled, min(wait_queues.START_S, wait_s))
        return self._subscribed

    async def _run(self) -> None:
        try:
            async with self._client.pubsub() as pubsub:
                await pubsub.subscribe(CHANNEL, process_channel(self._waker))
                while not self._is_over():
                    message = await pubsub.get_message(timeout=wait_queues.CHECK_S)
                    if message is not None:
                        self._handle(message)
        except BaseException as error:  # whatever it is, the waiting tasks must learn of it
            self._on_broken()
            if not isinstance(error, Exception):
                raise
            wait_queues.logger.warning("no messages of released locks: %r", error)
        finally:
            self._subscribed = False
            self._settled.set()
