"""The actors' side of a played race: threads of one process that move only when told to.

The director sends orders on a pipe: ``start`` an actor with its task, let it ``go``, or ``hold``
one that waits for a lock, so that it stops as soon as it has the lock. Everything that an actor
does goes back on the same pipe, as ``(actor, what, monotonic time, details…)``. An actor stops at
every point until it is let go.

Django's connection reports statements by its own wrapper. What goes to Redis is reported by
wrapping the methods that the shop and the lab use for it. No other process does any of this.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from multiprocessing.connection import Connection
from typing import Any

from celery import current_app
from django.conf import settings
from django.db import connection
from redis import Redis
from redis.client import Pipeline

from lab import locks
from lab.interleaving.descriptions import (
    describe_call,
    describe_calls,
    describe_command,
    describe_reply,
    describe_rows,
    describe_statement,
)
from lab.interleaving.timeline import Kind
from lab.points import listening, point
from lab.steps import STEPS
from lab.steps.step import Writer
from locks.lua_script import LuaScript, ScriptCall
from orders.fulfilment import worker
from seckill_site import failpoints

TRANSACTIONS = ("BEGIN", "COMMIT", "ROLLBACK")
SHOP = ("orders", "vouchers", "locks", "lab")

Task = Callable[[], object]
Send = Callable[..., None]


def run_actors(pipe: Connection, *, lease_ms: int) -> None:
    """Follow the director's orders until it hangs up; locks of this process have this lease."""
    locks.LEASE_MS = settings.SECKILL_LEASE_MS = lease_ms
    # The messages of a race reach nobody: the director says which worker is next.
    current_app.conf.update(broker_url="memory://")
    worker.RETRY_S = 0.0  # while it waits, it would ask a different number of times
    _trace_process()
    guard = threading.Lock()

    def send(*message: object) -> None:
        with guard:
            pipe.send(message)

    actors: dict[str, ActorThread] = {}
    while True:
        try:
            order, name, *details = pipe.recv()
        except (EOFError, ConnectionError):
            return
        if order == "start":
            actors[name] = ActorThread(name, details[0], send)
        elif order == "go":
            actors[name].go()
        elif order == "hold":
            actors[name].hold()


class ActorThread:
    """One actor: a thread that does one task, from point to point."""

    def __init__(self, name: str, task: Task, send: Send) -> None:
        self._name = name
        self._task = task
        self._send = send
        self._cue = threading.Semaphore(0)
        self._held = False
        threading.Thread(target=self._run, name=name, daemon=True).start()

    def go(self) -> None:
        """Let the actor continue."""
        self._cue.release()

    def hold(self) -> None:
        """Make the actor stop as soon as it has the lock that it waits for."""
        self._held = True
        self._tell("held")

    def begin(self, kind: Kind, what: str) -> None:
        """Report a statement, command or log line; this may stop the thread."""
        self._stop_if_held()
        connected = kind is Kind.STATEMENT and connection.connection
        self._tell("begins", kind, what, connected.thread_id() if connected else 0)

    def end(self, reply: str) -> None:
        """Report the reply to a statement or command; this may stop the thread."""
        self._tell("replied", reply)
        self._stop_if_held()

    def _run(self) -> None:
        try:
            with _traced(self), listening(self._stop_at):
                answer = self._task()
        except Exception as error:
            self._tell("failed", f"{type(error).__name__}: {error}".rstrip(": "))
        else:
            self._tell("ended", answer if isinstance(answer, str) else "")

    def _stop_at(self, name: str) -> None:
        self._held = False
        self._tell("stands", name)
        self._cue.acquire()

    def _stop_if_held(self) -> None:
        if self._held:
            self._held = False
            self._tell("acquired")
            self._cue.acquire()

    def _tell(self, what: str, *details: object) -> None:
        self._send(self._name, what, time.monotonic(), *details)


# --- Tasks ----------------------------------------------------------------------------------------


def write_order(step: str, process_name: str) -> None:
    """Let the background half of a step look for one order, and write it."""
    _writer_of(step, process_name).work_once()


def fulfil(sale_id: int) -> None:
    """Do a fulfil task, and the tasks that it would publish."""
    while worker.fulfil_sale(sale_id=sale_id):
        pass


@cache
def _writer_of(step: str, process_name: str) -> Writer:
    make = STEPS[step].writer
    assert make is not None
    return make(process_name)


# --- Tracing --------------------------------------------------------------------------------------


class _Here(threading.local):
    """The actor of the current thread, if any."""

    actor: ActorThread | None = None


_here = _Here()


def _trace_process() -> None:
    """Report Redis commands, points and logs to the actor of each thread from now on."""
    failpoints.tell(point)
    _wrap(ScriptCall, "send", describe_call, lambda replies: describe_reply(replies[0]))
    _wrap(LuaScript, "run_each", describe_calls)
    _wrap(Redis, "execute_command", describe_command)
    _wrap(Pipeline, "execute", lambda pipeline, *_, **__: f"{len(pipeline)} commands in one write")
    logging.getLogger().handlers = []  # the terminal is for the timeline
    handler = _LogHandler(logging.INFO)
    for name in SHOP:
        logging.getLogger(name).addHandler(handler)
    statements = logging.getLogger("django.db.backends")
    statements.handlers, statements.propagate = [_LogHandler()], False
    statements.setLevel(logging.DEBUG)


@contextmanager
def _traced(actor: ActorThread) -> Iterator[None]:
    """Report what this thread sends to the database; close its connection at the end."""
    # Let Django ask the server what it needs to know before anything is reported.
    connection.ensure_connection()
    _ = connection.mysql_server_data  # type: ignore[attr-defined]  # MySQL's has it
    with ExitStack() as stack:
        stack.callback(connection.close)
        stack.enter_context(connection.execute_wrapper(_statement))
        connection.force_debug_cursor = True  # without it Django does not log BEGIN and COMMIT
        _here.actor = actor
        stack.callback(setattr, _here, "actor", None)
        yield


def _statement(
    execute: Callable[..., Any], sql: str, params: Any, many: bool, context: dict[str, Any]
) -> Any:
    if sql.startswith("SET SESSION"):  # how Django sets up a connection
        return execute(sql, params, many, context)
    return _reported(
        lambda: execute(sql, params, many, context),
        kind=Kind.STATEMENT,
        describe=lambda: describe_statement(sql, params, many=many),
        describe_result=lambda _: describe_rows(context["cursor"].cursor),
    )


def _wrap(
    owner: type,
    name: str,
    describe: Callable[..., str],
    describe_result: Callable[[Any], str] = describe_reply,
) -> None:
    """Report each call of this method, except those inside another reported call."""
    method = getattr(owner, name)

    def reported(*args: Any, **kwargs: Any) -> Any:
        return _reported(
            lambda: method(*args, **kwargs),
            kind=Kind.COMMAND,
            describe=lambda: describe(*args, **kwargs),
            describe_result=describe_result,
        )

    setattr(owner, name, reported)


def _reported(
    call: Callable[[], Any],
    *,
    kind: Kind,
    describe: Callable[[], str],
    describe_result: Callable[[Any], str],
) -> Any:
    actor = _here.actor
    if actor is None:
        return call()
    actor.begin(kind, describe())
    _here.actor = None
    try:
        result = call()
    except Exception as error:
        actor.end(f"{type(error).__name__}: {error}")
        raise
    finally:
        _here.actor = actor
    actor.end(describe_result(result))
    return result


class _LogHandler(logging.Handler):
    """A handler that reports log lines; from Django, only the start and end of transactions."""

    def emit(self, record: logging.LogRecord) -> None:
        sql: str | None = getattr(record, "sql", None)
        if _here.actor is not None and sql is None:
            _here.actor.begin(Kind.LOG, record.getMessage())
        elif _here.actor is not None and sql in TRANSACTIONS:
            _here.actor.begin(Kind.STATEMENT, sql)
