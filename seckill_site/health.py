"""Health endpoints: alive, ready to sell, and metrics."""

import logging
import secrets
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from typing import Any

from django.conf import settings
from django.contrib.sessions.models import Session
from django.core.checks import ERROR, CheckMessage
from django.db import ProgrammingError, connection
from django.http import HttpRequest, HttpResponse, JsonResponse
from kombu import Connection
from prometheus_client import CONTENT_TYPE_LATEST
from redis.exceptions import RedisError

from locks.lua_script import Command, checked, send_once
from seckill_site.broker.heartbeats import State, read_heartbeats
from seckill_site.broker.messages import impatient
from seckill_site.celery import app
from seckill_site.checks.configuration import check_settings, found_by
from seckill_site.checks.keys import check_shared_keys
from seckill_site.checks.services import (
    Check,
    check_database,
    check_installation,
    check_ledger,
    probe_connection,
)
from seckill_site.clocks.watch import report_clocks, wrong_clocks
from seckill_site.exposition import exposition
from seckill_site.newer_format import is_older_release
from seckill_site.process_memory import Latest, Memory
from seckill_site.redis.address import is_rabbitmq
from seckill_site.redis.ledger_connection import BACKING_OFF, ledger_connection
from seckill_site.web.responses import allow

logger = logging.getLogger(__name__)

LONGEST_SECONDS = 1.5
"""A part that has not responded by then is unavailable."""

PROBE_SECONDS = 2.0
"""The time for which a probe's result is used again, however often it is asked for."""

CACHE_SECONDS = 10.0
"""The time for which a start-up check's result is cached, so that probes cost next to nothing."""


@allow("GET", "HEAD")
def healthz(request: HttpRequest) -> HttpResponse:
    """Answer that the process is alive, without contacting any server."""
    return HttpResponse("ok\n", content_type="text/plain")


@allow("GET", "HEAD")
def readyz(request: HttpRequest) -> JsonResponse:
    """Report which parts respond and what the checks find; 503 if anything of that is wrong.

    Clocks that differ by more than a second are named, too, and what does not run behind the shop.
    """
    parts = current_parts()
    errors = current_errors(parts)
    report_clocks("web")
    is_older = is_older_release()
    ready = all(parts.values()) and not errors and not is_older
    response = JsonResponse(
        {
            "ready": ready,
            **{name: "ok" if good else "unavailable" for name, good in parts.items()},
            "checks": [
                {"id": str(error.id), "message": error.msg.partition(". ")[0].rstrip(".") + "."}
                for error in errors
            ]
            or "ok",
            "release": "an older release" if is_older else "ok",
            # These make nobody leave: wrong clocks decide nothing, and accepted orders wait safely.
            "clocks": (wrong_clocks() if parts["redis"] else {}) or "ok",
            "heartbeats": _heartbeats(parts),
        },
        status=200 if ready else 503,
    )
    response["Cache-Control"] = "no-store"
    if not ready:
        response["Retry-After"] = "2"
    return response


def _heartbeats(parts: dict[str, bool]) -> dict[str, float | None] | str:
    """Return the seconds since the last sign of what is missing; None if it never was there."""
    beats = read_heartbeats(parts)
    if all(it.state is State.UNKNOWN for it in beats):
        return "unknown"
    return {it.name: it.age_s for it in beats if it.is_missing} or "ok"


@allow("GET", "HEAD")
def metrics(request: HttpRequest) -> HttpResponse:
    """Return all metrics for Prometheus."""
    return HttpResponse(exposition(), content_type=CONTENT_TYPE_LATEST)


# --- Whether the parts respond --------------------------------------------------------------------


_parts = Latest[dict[str, bool]]({}, for_s=PROBE_SECONDS)


def current_parts() -> dict[str, bool]:
    """Probe all parts, or return the last result if it is new or being replaced."""
    _parts.refresh(lambda: _parts.learn(_answering_parts()), wait=not _parts.value)
    return _parts.value


def _answering_parts() -> dict[str, bool]:
    """Ask all parts at once, so that several missing ones take no longer than one."""
    pool = ThreadPoolExecutor(len(PARTS))
    asked = {name: pool.submit(_answers, name, ask) for name, ask in PARTS.items()}
    wait(asked.values(), timeout=LONGEST_SECONDS)
    pool.shutdown(wait=False)
    return {name: answer.done() and answer.result() for name, answer in asked.items()}


def _answers(name: str, ask: Callable[[], None]) -> bool:
    try:
        ask()
    except Exception as error:  # whatever it is, this part is not ready
        logger.warning("%s is not ready: %s", name, error)
        return False
    return True


def _ask_ledger() -> None:
    """Write, and wait for as many replicas as an order does."""
    wanted, commands = settings.SECKILL_LEDGER_REPLICAS, list[Command]()
    commands.append(("SET", PROBE, "1", "PX", 1_000))
    if wanted:
        commands.append(("WAIT", wanted, settings.SECKILL_LEDGER_REPLICAS_MS))
    replies = checked(send_once(ledger_connection(), *commands))
    if wanted and replies[1] < wanted:
        raise RuntimeError(f"{replies[1]} of {wanted} replicas acknowledge")


def _ask_database() -> None:
    """Write a row and take it back: a full disk and a read-only server answer a SELECT."""
    table = connection.ops.quote_name(Session._meta.db_table)
    # A table that is missing is named by a check, which is made of a database that responds.
    with probe_connection() as probe, probe.cursor() as cursor, suppress(ProgrammingError):
        cursor.execute("BEGIN")
        row = [f"{PROBE}:{secrets.token_hex(8)}"[:40], "", "2000-01-01 00:00:00"]
        cursor.execute(
            f"INSERT INTO {table} (session_key, session_data, expire_date) VALUES (%s, %s, %s)", row
        )
        cursor.execute("ROLLBACK")


def _ask_broker() -> None:
    broker: Connection
    with app.connection_for_write(transport_options=impatient(1, connect_s=0.5)) as broker:
        channel: Any = broker.default_channel
        for queue in app.conf.task_queues:
            if is_rabbitmq():
                queue(channel).declare()
            else:
                channel.probe(queue.name)  # of our own transport


def _ask_workers() -> None:
    """Fail while workers pause a sale, because the database takes no orders of it."""
    with suppress(RedisError):  # then another part is missing
        client = ledger_connection()
        # A clock of Redis that went back prolongs the key far beyond the pause.
        if (why := client.get(BACKING_OFF)) and client.pttl(BACKING_OFF) <= LONGEST_PAUSE_MS:
            raise RuntimeError(f"workers pause: {why}")


PROBE = "seckill:probe"

LONGEST_PAUSE_MS = 10_000
"""More than the key of a pause lasts (``back_off`` in ``vouchers/inventory/batch_journal.py``)."""

PARTS: dict[str, Callable[[], None]] = {
    "redis": _ask_ledger,
    "database": _ask_database,
    "broker": _ask_broker,
    "orders": _ask_workers,
}

# --- What the start-up checks find ----------------------------------------------------------------

CHECKS: dict[str, Check] = {
    "settings": check_settings,
    "redis": check_ledger,
    "database": check_database,
    "installation": check_installation,
    "keys": check_shared_keys,
}
"""The checks that a probe repeats; a server is checked only if it has just responded."""

ASKS = {"installation": "redis", "keys": "redis"}
"""The part that a check asks, if it is named otherwise: a silent one would cost a timeout each."""

_cached = Memory[str, list[CheckMessage]](most=len(CHECKS), for_s=CACHE_SECONDS)


def current_errors(parts: dict[str, bool]) -> list[CheckMessage]:
    """Return what the start-up checks find now, of the parts that respond."""
    asked = [name for name in CHECKS if parts.get(ASKS.get(name, name), True)]
    for gone in CHECKS.keys() - asked:
        _cached.drop(gone)  # it may come back with another configuration
    return [error for name in asked for error in _cached_errors(name)]


def _cached_errors(name: str) -> list[CheckMessage]:
    errors = _cached.recall(name)
    if errors is not None:
        return errors
    errors = [message for message in found_by(CHECKS[name]) if message.level >= ERROR]
    for error in errors:
        logger.error("%s: %s %s", error.id, error.msg, error.hint)
    _cached.keep(name, errors)
    return errors
