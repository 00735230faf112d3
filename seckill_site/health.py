"""Health: alive, ready to sell, and the metrics."""

from __future__ import annotations

import logging
from collections.abc import Callable

from django.db import connection
from django.http import HttpRequest, HttpResponse, JsonResponse
from kombu import Connection
from prometheus_client import CONTENT_TYPE_LATEST

from seckill_site.celery import app
from seckill_site.lua import ledger_connection
from seckill_site.metrics import exposition

logger = logging.getLogger(__name__)


def healthz(request: HttpRequest) -> HttpResponse:
    """Say that the process is alive. Touches nothing."""
    return HttpResponse("ok\n", content_type="text/plain")


def readyz(request: HttpRequest) -> JsonResponse:
    """Say of each part that selling needs whether it answers; 503 where one does not."""
    parts = {name: _answers(name, check) for name, check in CHECKS.items()}
    ready = all(parts.values())
    response = JsonResponse(
        {"ready": ready, **{name: "ok" if good else "unavailable" for name, good in parts.items()}},
        status=200 if ready else 503,
    )
    response["Cache-Control"] = "no-store"
    if not ready:
        response["Retry-After"] = "2"
    return response


def metrics(request: HttpRequest) -> HttpResponse:
    """Answer Prometheus."""
    return HttpResponse(exposition(), content_type=CONTENT_TYPE_LATEST)


def _answers(name: str, check: Callable[[], None]) -> bool:
    try:
        check()
    # Whatever it is, it is why this part is not ready.
    except Exception as error:
        logger.warning("%s is not ready: %s", name, error)
        return False
    return True


def _check_redis() -> None:
    ledger_connection().ping()


def _check_database() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1")


def _check_broker() -> None:
    broker: Connection
    options = {"socket_timeout": 1, "socket_connect_timeout": 0.5, "max_retries": 0}
    with app.connection_for_write(transport_options=options) as broker:
        # Opening a channel connects, and bounded as above.
        broker.default_channel  # noqa: B018


CHECKS: dict[str, Callable[[], None]] = {
    "redis": _check_redis,
    "database": _check_database,
    "broker": _check_broker,
}
