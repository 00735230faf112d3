"""An event loop's connections to the ledger's Redis and the cache's, which its requests share.

Commands that come together leave in one write. redis-py does address, TLS, login and parsing; the
queue of questions is ours. A question keeps its place even if nobody waits for it any more: what
follows its reply (``ScriptCall.finish``) is done once all the same.

Note [One timeout for all]
~~~~~~~~~~~~~~~~~~~~~~~~~~
A server that swallows packets must not make each request wait. So the oldest question decides: if
it has no reply after ``LONGEST_S``, the connection is closed, and everybody gets an error at once,
until another connection has passed its handshake. Only one is tried at a time. The threads of the
process learn of both, so that a request which is left to Django does not wait a second time.

``WAIT``, which follows each order where replicas have to know of it, is sent once for all that left
together; the next ones collect until it is answered. Such questions have a connection of their own,
so that no other queues behind them.

A question that was written is never written again: its outcome is unknown, and whoever asked may
ask again. One that was not yet written waits for the next connection, unless that fails too.
"""

import asyncio
import logging
import math
from collections import deque
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from django.conf import settings
from django_redis import get_redis_connection
from hiredis import pack_command
from redis.asyncio import ConnectionPool
from redis.asyncio.connection import AbstractConnection
from redis.exceptions import ConnectionError as NotConnected
from redis.exceptions import RedisError, ResponseError
from redis.exceptions import TimeoutError as NoReply

from locks.lua_script import Command, ScriptCall, is_unknown_script
from seckill_site.clocks.ledger import learn_ledger_time
from seckill_site.front_door.per_loop import PerLoop
from seckill_site.kept_settings import kept
from seckill_site.metrics import histogram
from seckill_site.redis.address import address_of
from seckill_site.redis.primary import HANDSHAKE, is_doubt
from seckill_site.redis.watched_connections import WatchedConnections

T = TypeVar("T")

logger = logging.getLogger(__name__)

LONGEST_S = 1.0
"""The longest that a question waits, for a connection and for its reply together."""

LOOK_S = 0.005
PAUSE_S = 0.2
"""The pause after an attempt to connect that failed like the one before."""

MARGIN_S = 0.3
"""How much later than this connection the threads of the process ask a sick server themselves."""

MOST_QUESTIONS = 2_000
"""The most questions without a reply; whoever asks beyond that gets an error at once."""


class _Question:
    """A script that was sent, and what is done with its reply and those to what follows it."""

    __slots__ = ("_in_full", "answer", "asked_at_s", "call", "packed", "replies", "wanted")

    def __init__(self, call: ScriptCall[Any], loop: asyncio.AbstractEventLoop) -> None:
        self.call = call
        self.packed = call.packed()
        self.wanted = 1
        self.replies: list[Any] = []
        self._in_full = False
        self.asked_at_s = loop.time()
        self.answer: asyncio.Future[Any] = loop.create_future()

    def put_in_full(self) -> bool:
        """Prepare to send the script in full; False if it was already."""
        if self._in_full:
            return False
        self._in_full = True
        self.packed, self.replies = _packed(self.call.commands(in_full=True)[:1]), []
        return True

    def settle(self) -> None:
        """Do what follows the replies, whether or not anybody still waits."""
        try:
            result = self.call.settle(self.replies)
        except Exception as error:
            self.fail(error)
        else:
            if not self.answer.done():
                self.answer.set_result(result)

    def fail(self, error: Exception) -> None:
        if not self.answer.done():
            self.answer.set_exception(error)


class _Then:
    """The commands that follow a burst of questions, sent once for all of them."""

    def __init__(self, burst: Sequence[_Question]) -> None:
        self.burst = burst
        self.packed = _packed(burst[0].call.then)
        self.wanted = len(burst[0].call.then)
        self.replies: list[Any] = []
        self.asked_at_s = burst[0].asked_at_s
        self.answered = asyncio.Event()

    def fail(self, error: Exception) -> None:
        for question in self.burst:
            question.fail(error)


def _packed(commands: Iterable[Command]) -> bytes:
    return b"".join([pack_command(it) for it in commands])  # type: ignore[arg-type]


class LedgerNode:
    """A node of the ledger as one event loop asks it; see the module's docstring."""

    def __init__(self, url: str, *, alias: str = "ledger") -> None:
        """Prepare it in a running loop; the first question opens the connection.

        ``alias`` names the entry of ``CACHES`` whose options it takes.
        """
        self._is_ledger = alias == "ledger"
        self._loop = asyncio.get_running_loop()
        self._pool = _asyncio_pool(url, alias)
        self._threads = _pool_of_threads(url, alias)
        self._threads.primary.closes(self._close_from_any_thread)
        self._unwritten: deque[_Question] = deque()
        self._written: deque[_Question | _Then] = deque()
        self._asked = asyncio.Event()
        self._tried = asyncio.Event()
        self._timed: _Question | None = None
        self._broken = ""
        self._closing = False
        self._serving: asyncio.Task[None] | None = None
        self._talk: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None

    async def run(self, call: ScriptCall[T]) -> T:
        """Send a call and return its result, as ``ScriptCall.run`` does.

        :raises redis.RedisError: no reply; whether the script ran is unknown
        """
        if self._broken or self._closing:
            raise NotConnected(self._broken or "this process is ending")
        if len(self._unwritten) + len(self._written) >= MOST_QUESTIONS:
            raise NotConnected(f"{MOST_QUESTIONS} commands wait for a reply already")
        self._start()
        question = _Question(call, self._loop)
        self._enqueue(question)
        result: T = await question.answer
        return result

    async def open(self) -> None:
        """Connect before the first question comes; return once that has been tried."""
        self._start()
        await self._tried.wait()

    async def close(self) -> None:
        """Wait for the replies that are still to come, then close the connection."""
        self._closing = True
        with suppress(TimeoutError):
            async with asyncio.timeout(LONGEST_S):
                while self._written or self._unwritten:  # also where nobody waits any more
                    await asyncio.sleep(LOOK_S)
        if self._serving is not None:
            self._serving.cancel()
            await asyncio.wait([self._serving])
        self._fail(NotConnected("this process is ending"))

    def _start(self) -> None:
        if self._serving is None:
            self._serving = self._loop.create_task(self._serve())

    def _enqueue(self, question: _Question) -> None:
        self._unwritten.append(question)
        self._asked.set()
        if self._timer is None:
            self._timer = self._loop.call_at(question.asked_at_s + LONGEST_S, self._check_oldest)

    def _check_oldest(self) -> None:
        """Hang up if the oldest question is overdue: Note [One timeout for all]."""
        self._timer = None
        oldest = (self._written or self._unwritten or [None])[0]
        if oldest is None:
            return
        due_at_s = oldest.asked_at_s + LONGEST_S
        if self._loop.time() < due_at_s:
            self._timer = self._loop.call_at(due_at_s, self._check_oldest)
            return
        error = NoReply(f"Redis gave no reply for {LONGEST_S:.0f} s")
        self._fail(error)
        self._break(error)
        self._hang_up()
        self._threads.distrust()

    # --- The connection ---------------------------------------------------------------------------

    async def _serve(self) -> None:
        """Keep a connection, and one only, until cancelled."""
        while True:
            was_broken = self._broken
            self._talk = self._loop.create_task(self._connect_and_talk())
            try:
                await asyncio.wait([self._talk])
            finally:
                self._talk.cancel()
            lost = NotConnected("the connection to Redis was lost")
            while self._written:
                self._written.popleft().fail(lost)
            if was_broken and self._broken:
                await asyncio.sleep(PAUSE_S)

    async def _connect_and_talk(self) -> None:
        connection: AbstractConnection = self._pool.make_connection()  # type: ignore[no-untyped-call]
        try:
            try:
                async with asyncio.timeout(LONGEST_S):
                    await self._open(connection)
            except (RedisError, OSError) as error:
                if not self._broken:
                    logger.warning("the front door has no %s: %s", self._name, error)
                self._break(error)
                self._fail(NotConnected(self._broken))
                return
            finally:
                self._tried.set()
            if self._broken:
                self._threads.breaker.close()
            self._broken = ""
            async with asyncio.TaskGroup() as both:
                both.create_task(self._write(connection))
                both.create_task(self._read(connection))
        except* (RedisError, OSError) as errors:
            logger.warning("the front door lost the %s: %s", self._name, errors.exceptions[0])
        finally:
            with suppress(RedisError, OSError):
                await connection.disconnect(nowait=True)

    async def _open(self, connection: AbstractConnection) -> None:
        await connection.connect()  # type: ignore[no-untyped-call]
        commands: list[Command] = [*HANDSHAKE, ("TIME",)]
        packed = _packed(commands)
        await connection.send_packed_command([packed], check_health=False)
        *about, time = [await connection.read_response() for _ in commands]
        self._threads.primary.meet(about, mine=self._close_from_any_thread)
        if self._is_ledger:
            learn_ledger_time(time)

    async def _write(self, connection: AbstractConnection) -> None:
        while True:
            await self._asked.wait()
            self._asked.clear()
            burst = list(self._unwritten)
            self._unwritten.clear()
            self._written.extend(burst)
            self._timed = burst[0] if burst else None
            packed = [it.packed for it in burst]
            then = _Then(burst) if burst and burst[0].call.then else None
            if then:
                self._written.append(then)
                packed.append(then.packed)
            await connection.send_packed_command([b"".join(packed)], check_health=False)
            if then:
                await then.answered.wait()

    async def _read(self, connection: AbstractConnection) -> None:
        while True:
            try:
                reply = await connection.read_response(timeout=math.inf, disconnect_on_error=False)
            except ResponseError as error:
                reply = error
            asked = self._written[0]
            asked.replies.append(reply)
            if len(asked.replies) < asked.wanted:
                continue
            self._written.popleft()
            if asked is self._timed:
                histogram("ledger").observe(self._loop.time() - asked.asked_at_s)
            if isinstance(asked, _Then):
                for question in asked.burst:
                    question.replies += asked.replies
                    self._give(question)
                asked.answered.set()
            elif not asked.call.then:
                self._give(asked)

    def _give(self, question: _Question) -> None:
        """Hand the replies over; send a script that the server does not know in full."""
        if is_unknown_script(question.replies) and question.put_in_full():
            self._enqueue(question)
            return
        question.settle()
        if any(isinstance(it, RedisError) and is_doubt(it) for it in question.replies):
            self._hang_up()  # at once: the next question must not be written to this connection
            self._threads.distrust()

    @property
    def _name(self) -> str:
        return "ledger" if self._is_ledger else "cache"

    def _break(self, error: Exception) -> None:
        """Refuse questions until a connection has passed its handshake, those of threads too."""
        self._broken = str(error) or repr(error)
        self._threads.breaker.trip(error, pause_s=LONGEST_S + PAUSE_S + MARGIN_S)

    def _close_from_any_thread(self) -> None:
        with suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._hang_up)

    def _hang_up(self) -> None:
        """Close the connection; the next one resolves the address again."""
        if self._talk is not None:
            self._talk.cancel()

    def _fail(self, error: Exception) -> None:
        for queue in (self._written, self._unwritten):
            while queue:
                queue.popleft().fail(error)


def _pool_of_threads(url: str, alias: str) -> WatchedConnections:
    """Return the connections of the process's threads to the same server."""
    if url == _addresses()[alias]:
        pool: WatchedConnections = get_redis_connection(alias).connection_pool
        return pool
    return address_of(url).connections(WatchedConnections)


def _asyncio_pool(url: str, alias: str) -> ConnectionPool:
    """Return what makes connections like those of django-redis, for an event loop."""
    options = settings.CACHES[alias]["OPTIONS"]
    like_theirs = {**options.get("CONNECTION_POOL_KWARGS", {}), "decode_responses": True}
    like_theirs.pop("retry", None)  # the other kind; an event loop asks once
    if password := options.get("PASSWORD"):
        like_theirs["password"] = password
    return address_of(url).loop_connections(
        socket_connect_timeout=options["SOCKET_CONNECT_TIMEOUT"],
        socket_timeout=None,  # Note [One timeout for all]
        **like_theirs,
    )


_nodes = PerLoop[dict[tuple[str, str, bool], LedgerNode]](dict)


def ledger_node(*, with_then: bool = False) -> LedgerNode:
    """Return the running loop's connection to the Redis of ``REDIS_URL``.

    Calls with commands in ``then`` have another one.
    """
    return _node("ledger", with_then)


def cache_node() -> LedgerNode:
    """Return the running loop's connection to the Redis of ``CACHE_URL``."""
    return _node("default", False)


def _node(alias: str, with_then: bool) -> LedgerNode:
    nodes, url = _nodes(), _addresses()[alias]
    if (alias, url, with_then) not in nodes:
        nodes[alias, url, with_then] = LedgerNode(url, alias=alias)
    return nodes[alias, url, with_then]


_addresses = kept(lambda: {name: cache["LOCATION"] for name, cache in settings.CACHES.items()})


async def close_ledger_nodes() -> None:
    """Close all connections of the running loop, once their replies have come."""
    await asyncio.gather(*[it.close() for it in _nodes().values()])
