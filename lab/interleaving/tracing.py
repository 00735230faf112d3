"""Says what a thread asks of the database and of Redis; for the processes of a played race only.

What goes through Django's connection is seen by its own wrapper; what goes to Redis, by wrapping
the ways in which the shop and the lab speak to it. Nothing of this happens in any other process.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Protocol, cast

from django.db import connection
from redis import Redis
from redis.client import Pipeline

from lab.interleaving.timeline import Kind
from lab.interleaving.words import (
    command_words,
    reply_words,
    rows_words,
    script_words,
    statement_words,
)
from lab.points import point
from locks.lua_script import LuaScript
from seckill_site import failpoints

TRANSACTIONS = ("BEGIN", "COMMIT", "ROLLBACK")
SHOP = ("orders", "vouchers", "locks", "lab")


class Reporter(Protocol):
    """Who is told; both may hold the thread for a while."""

    def begin(self, kind: Kind, what: str) -> None:
        """Hear what is being asked."""

    def end(self, reply: str) -> None:
        """Hear what came back for it."""


_here = threading.local()


def trace_process() -> None:
    """From now on tell the reporter of each thread, where it has one, of Redis, points and logs."""
    failpoints.tell(point)
    for name in ("run", "run_each"):
        _wrap(LuaScript, name, script_words)
    _wrap(Redis, "execute_command", command_words)
    _wrap(Pipeline, "execute", lambda pipeline, *_, **__: f"{len(pipeline)} commands in one write")
    logging.getLogger().handlers = []  # the terminal is for the timeline
    for name in SHOP:
        logging.getLogger(name).addHandler(_Forward(logging.INFO))
    transactions = logging.getLogger("django.db.backends")
    transactions.handlers, transactions.propagate = [_Transactions()], False
    transactions.setLevel(logging.DEBUG)


@contextmanager
def traced(reporter: Reporter) -> Iterator[None]:
    """Tell this reporter what the present thread asks, and close its connection at the end."""
    # Let Django ask what it wants to know of the server before anybody listens.
    connection.ensure_connection()
    _ = connection.mysql_server_data  # type: ignore[attr-defined]  # that of MySQL has it
    with ExitStack() as stack:
        stack.callback(connection.close)
        stack.enter_context(connection.execute_wrapper(_statement))
        connection.force_debug_cursor = True  # without it Django tells nobody of BEGIN and COMMIT
        _here.reporter = reporter
        stack.callback(lambda: delattr(_here, "reporter"))
        yield


def connection_id() -> int:
    """Return the server's id of this thread's connection, or 0 without a connection."""
    return cast(int, connection.connection.thread_id()) if connection.connection else 0


def _statement(
    execute: Callable[..., Any], sql: str, params: Any, many: bool, context: dict[str, Any]
) -> Any:
    reporter: Reporter | None = getattr(_here, "reporter", None)
    if reporter is None or sql.startswith("SET SESSION"):  # how Django sets up a connection
        return execute(sql, params, many, context)
    reporter.begin(Kind.STATEMENT, statement_words(sql, params, many=many))
    try:
        result = execute(sql, params, many, context)
    except Exception as error:
        reporter.end(f"{type(error).__name__}: {error}")
        raise
    reporter.end(rows_words(context["cursor"].cursor))
    return result


def _wrap(owner: type, name: str, words: Callable[..., str]) -> None:
    """Tell of each call of this method; not of those that are made inside another one."""
    method = getattr(owner, name)

    def told(*args: Any, **kwargs: Any) -> Any:
        reporter: Reporter | None = getattr(_here, "reporter", None)
        if reporter is None:
            return method(*args, **kwargs)
        reporter.begin(Kind.COMMAND, words(*args, **kwargs))
        _here.reporter = None
        try:
            result = method(*args, **kwargs)
        except Exception as error:
            _here.reporter = reporter
            reporter.end(f"{type(error).__name__}: {error}")
            raise
        _here.reporter = reporter
        reporter.end(reply_words(result))
        return result

    setattr(owner, name, told)


class _Forward(logging.Handler):
    """What the shop says in its log while an actor is at it."""

    def emit(self, record: logging.LogRecord) -> None:
        reporter: Reporter | None = getattr(_here, "reporter", None)
        if reporter is not None:
            reporter.begin(Kind.LOG, record.getMessage())


class _Transactions(logging.Handler):
    """Read Django's log: nothing else reports the start and end of a transaction."""

    def emit(self, record: logging.LogRecord) -> None:
        reporter: Reporter | None = getattr(_here, "reporter", None)
        sql = getattr(record, "sql", "")
        if reporter is not None and sql in TRANSACTIONS:
            reporter.begin(Kind.STATEMENT, sql)
