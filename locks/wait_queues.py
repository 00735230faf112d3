"""Wait queues of this process: threads that wait for a lock and are woken by its release.

Threads of one process that wait for the same lock form a queue, and only the first asks Redis. The
release wakes it: directly if a thread of this process released, else by a message (pub/sub). A
process has one subscription per Redis server, however many threads wait. A message may be lost and
a holder may die, so the first also asks again when the holder's lease ends, and at least once a
second.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from redis import Redis

from locks.protocol import (
    CHANNEL,
    NO_NOTE,
    AnyRedis,
    WaitNote,
    process_channel,
    process_name,
    server_of,
)
from locks.scripts import pass_wake_up_on

logger = logging.getLogger(__name__)

S = TypeVar("S")

THREAD_NAME = "locks-subscription"

ASK_AGAIN_S = 1.0
"""Seconds after which a waiting thread no longer relies on a message."""

NOTE_S = 3 * ASK_AGAIN_S
"""Seconds for which Redis keeps a note of waiting threads; they renew it sooner."""

GRACE_S = 0.1
"""Seconds for which the note of a short wait outlasts the wait."""

LINGER_S = 1.0
"""Seconds for which a subscription outlives the last waiting thread."""

RESUBSCRIBE_S = 0.5
"""Seconds from a broken subscription to the next attempt."""

CHECK_S = 0.5
"""Seconds between two checks whether the subscription is still needed."""

START_S = 0.5
"""The longest that a waiting thread waits for a new subscription, in seconds."""

PAUSE_S = (0.002, 0.1)
"""The first and the longest pause of polling; each is about twice the one before."""


class Busy(NamedTuple):
    """A refusal: the topic to wait for, and the milliseconds after which it pays to ask again."""

    topic: str
    left_ms: int = 0


Ask = Callable[[WaitNote], Busy | None]
"""A function that asks Redis once for a lock and returns None if it was granted."""


class Wait(NamedTuple):
    """The way to wait for a lock.

    ``topic`` is the name under which its release is announced. A ``shared`` lock, once granted,
    lets the next thread ask too. ``at_once`` asks before the threads that already wait.
    ``first_note`` is the note of the first request.
    """

    topic: str
    wait_ms: int
    shared: bool = False
    at_once: bool = False
    first_note: WaitNote = NO_NOTE


def acquire_in_turn(client: Redis, ask: Ask, wait: Wait) -> bool:
    """Ask until the lock is granted or the wait is over; return whether it was granted."""
    until = time.monotonic() + wait.wait_ms / 1000
    queues = _queues_of(client)
    busy: Busy | None = Busy(wait.topic)
    if wait.wait_ms <= 0 or wait.at_once or not queues.count(wait.topic):
        busy = ask(wait.first_note if wait.wait_ms > 0 else NO_NOTE)
    while busy is not None and time.monotonic() < until:
        topic = busy.topic
        waiter = WaitingThread(queues, client, topic)
        with queues.joined(waiter, shared=wait.shared):
            busy = waiter.ask_in_turn(ask, until)
        if busy is not None and busy.topic != topic and pass_wake_up_on(client, topic):
            queues.wake([topic])
    return busy is None


def acquire_by_polling(ask: Ask, *, wait_ms: int) -> bool:
    """Ask without a subscription, with growing pauses; return whether it was granted."""
    until = time.monotonic() + wait_ms / 1000
    pause_s, longest_s = PAUSE_S
    while ask(note(until - time.monotonic()) if wait_ms > 0 else NO_NOTE) is not None:
        left_s = until - time.monotonic()
        if left_s <= 0:
            return False
        # Random, so that waiting threads do not ask in step.
        time.sleep(min(left_s, random.uniform(pause_s / 2, pause_s)))
        pause_s = min(2 * pause_s, longest_s)
    return True


def wake_here(client: Redis, topics: Iterable[str]) -> None:
    """Wake the first thread of this process that waits for each topic."""
    _queues_of(client).wake(topics)


class Waiter(Protocol):
    """What waits in a queue: a thread, or a task of an event loop."""

    topic: str
    granted: bool

    def wake(self) -> None: ...


@dataclass(eq=False)
class WaitingThread:
    """A thread of this process in a queue."""

    queues: WaitQueues[Subscription]
    client: Redis
    topic: str
    granted: bool = False
    _gate: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self._gate.acquire()

    def ask_in_turn(self, ask: Ask, until: float) -> Busy | None:
        """Ask when this thread is first, until granted, timed out or busy with another lock."""
        while True:
            left_s = until - time.monotonic()
            pause_s = min(left_s, ASK_AGAIN_S)
            if left_s <= 0 or self.queues.is_first(self):
                subscription = self.queues.subscribe(self.client) if left_s > 0 else None
                subscribed = bool(subscription and subscription.is_subscribed(wait_s=left_s))
                others = self.queues.count(self.topic) - 1
                busy = ask(note(until - time.monotonic(), others))
                self.granted = busy is None
                if busy is None or busy.topic != self.topic or left_s <= 0:
                    return busy
                pause_s = min(pause_s, pause_after(busy, subscribed=subscribed))
            self._gate.acquire(timeout=max(0, pause_s))

    def wake(self) -> None:
        """Wake the thread, now or at its next pause; the caller holds the queues' mutex."""
        if self._gate.locked():
            self._gate.release()


def note(left_s: float, others: int = 0) -> WaitNote:
    """Return the note for a thread with this many seconds left, and for the rest of its queue."""
    if left_s > 0:
        ttl_ms = int(min(NOTE_S, left_s + GRACE_S) * 1000)
        return WaitNote(if_busy=others + 1, if_granted=others, ttl_ms=ttl_ms)
    # Waits that end together would overwrite each other's note, which expires soon anyway.
    return NO_NOTE if others else WaitNote(if_busy=0, if_granted=0)


def pause_after(busy: Busy, *, subscribed: bool) -> float:
    """Return the seconds after which it pays to ask again, if no message comes."""
    if not subscribed:
        return random.uniform(PAUSE_S[1] / 2, PAUSE_S[1])
    # A lease still counts in its last millisecond; a key without a TTL has none.
    return busy.left_ms / 1000 + 0.001 if busy.left_ms >= 0 else ASK_AGAIN_S


class Channels:
    """What a subscription of a thread and one of a task share.

    ``on_release`` gets the topics of each message from another ``waker``. ``is_over`` is polled and
    returns whether the subscription is no longer needed. ``on_broken`` is called if it breaks.
    """

    _settled: threading.Event | asyncio.Event
    _subscribed = False

    def __init__(
        self,
        client: AnyRedis,
        waker: str,
        *,
        on_release: Callable[[Iterable[str]], None],
        is_over: Callable[[], bool],
        on_broken: Callable[[], None],
    ) -> None:
        self._client: Any = client
        self._waker = waker
        self._on_release, self._is_over, self._on_broken = on_release, is_over, on_broken

    def _handle(self, message: dict[str, Any]) -> None:
        if message["type"] == "subscribe" and message["channel"] != CHANNEL:  # the last of the two
            self._subscribed = True
            self._settled.set()
        elif message["type"] == "message":
            self._on_release(topics_of(message, self._waker))


class Subscription(Channels):
    """A subscription of this process, in a thread that ends with it."""

    def __init__(self, client: Redis, **callbacks: Any) -> None:
        super().__init__(client, process_name(), **callbacks)
        self._settled: threading.Event = threading.Event()
        threading.Thread(target=self._run, name=THREAD_NAME, daemon=True).start()

    def is_subscribed(self, *, wait_s: float) -> bool:
        """Return whether messages arrive now, after a short wait for a new subscription."""
        self._settled.wait(min(START_S, wait_s))
        return self._subscribed

    def _run(self) -> None:
        try:
            with self._client.pubsub() as pubsub:
                pubsub.subscribe(CHANNEL, process_channel(self._waker))
                while not self._is_over():
                    message = pubsub.get_message(timeout=CHECK_S)
                    if message is not None:
                        self._handle(message)
        except Exception as error:  # whatever it is, the waiting threads must learn of it
            logger.warning("no messages of released locks: %r", error)
            self._on_broken()
        finally:
            self._subscribed = False
            self._settled.set()


def topics_of(message: dict[str, Any], waker: str) -> list[str]:
    """Return the topics whose waiters a message wakes, other than the waker's own."""
    topics: list[str] = message["data"].split("\n")
    if message["channel"] != CHANNEL:
        return topics
    return topics[1:] if topics[0] != waker else []  # it wakes its own directly


class WaitQueues(Generic[S]):
    """The queues for one Redis server, by topic, and their subscription.

    A process has one such object for its threads, and one for each event loop that waits.
    """

    def __init__(self, start: Callable[..., S]) -> None:
        """Start subscriptions with this function or class (:class:`Subscription` is one)."""
        self._start = start
        self._mutex = threading.Lock()
        self._queues: dict[str, deque[Waiter]] = {}
        self._subscription: S | None = None
        self._resubscribe_at = self._empty_since = 0.0

    @contextmanager
    def joined(self, waiter: Waiter, *, shared: bool = False) -> Iterator[None]:
        """Join the queue of a topic at its end."""
        try:
            with self._mutex:
                self._queues.setdefault(waiter.topic, deque()).append(waiter)
            yield
        finally:
            self._leave(waiter, wake_next=shared or not waiter.granted)

    def is_first(self, waiter: Waiter) -> bool:
        with self._mutex:
            return self._queues[waiter.topic][0] is waiter

    def count(self, topic: str) -> int:
        """Return the number of threads that wait for a topic."""
        with self._mutex:
            return len(self._queues.get(topic, ()))

    def wake(self, topics: Iterable[str]) -> None:
        """Wake the first in the queue of each topic."""
        with self._mutex:
            for topic in topics:
                if queue := self._queues.get(topic):
                    queue[0].wake()

    def subscribe(self, client: AnyRedis) -> S | None:
        """Return the subscription, starting it if needed; None soon after it broke."""
        with self._mutex:
            if self._subscription is None and time.monotonic() >= self._resubscribe_at:
                self._subscription = self._start(
                    client, on_release=self.wake, is_over=self._is_over, on_broken=self._on_broken
                )
            return self._subscription

    def _is_over(self) -> bool:
        """Drop the subscription if no thread has waited for a moment; return whether it did."""
        with self._mutex:
            if self._queues or time.monotonic() - self._empty_since < LINGER_S:
                return False
            self._subscription = None
            return True

    def _on_broken(self) -> None:
        """Let waiting threads poll until the next attempt to subscribe."""
        with self._mutex:
            self._subscription = None
            self._resubscribe_at = time.monotonic() + RESUBSCRIBE_S
            for queue in self._queues.values():
                queue[0].wake()

    def _leave(self, waiter: Waiter, *, wake_next: bool) -> None:
        with self._mutex:
            queue = self._queues.get(waiter.topic, deque())
            if waiter in queue:  # unless an exception came first
                queue.remove(waiter)
            if not queue:
                self._queues.pop(waiter.topic, None)
                self._empty_since = time.monotonic()
            elif wake_next:
                # This thread may have been woken for a lock that it then did not take.
                queue[0].wake()


def _queues_of(client: Redis) -> WaitQueues[Subscription]:
    server = server_of(client)
    queues = _by_server.get(server)
    if queues is None:
        queues = _by_server.setdefault(server, WaitQueues(Subscription))
    return queues


_by_server: dict[Hashable, WaitQueues[Subscription]] = {}
os.register_at_fork(after_in_child=_by_server.clear)  # a child has no thread of its parent's
