"""Metrics of the shop itself, read when Prometheus asks: ``manage.py metrics --shop``.

Each part is asked in a thread of its own, and none for longer than ``LONGEST_S``. What a silent
part would have said is left out, and ``seckill_up`` names that part.
"""

import datetime as dt
import logging
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from threading import Lock
from time import monotonic
from typing import Any

from django.conf import settings
from django.db import close_old_connections, connection
from django.db.models import Min
from django.db.models.functions import Coalesce
from kombu.exceptions import ChannelError
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from api.webhooks.delivery import webhooks_waiting_since
from backoffice.board.snapshot import OPEN_S, RATE_S, SaleSum
from orders.lifecycle.notices import notices_waiting_since
from orders.models import OrderEvent, Payment, PaymentStatus
from orders.payments.service import payments_waiting_since
from seckill_site.broker.heartbeats import read_heartbeats
from seckill_site.broker.messages import impatient
from seckill_site.celery import app
from seckill_site.clocks.database import database_now
from seckill_site.exposition import clocks
from seckill_site.health import current_parts
from seckill_site.models import Installation
from seckill_site.redis.ledger_connection import ledger_connection
from vouchers.inventory.keys import LedgerUnavailable
from vouchers.inventory.request_stats import read_live_counts
from vouchers.inventory.sale_state import Snapshot, snapshots
from vouchers.models import SaleStage, SeckillVoucher

logger = logging.getLogger(__name__)

LONGEST_S = 1.8
STATEMENT_S = 1
"""The longest that the database works for one statement of these."""

SHOWN_SALES = 20
WATCHED_SALES = 300

_MAY_GO_AT = Coalesce("notify_at", "at")

_sales: list[SeckillVoucher] = []
"""The sales that may still change, the latest start first: as read last, also while the database
is silent."""


def _gauge(name: str, text: str, *samples: tuple[Any, float | None], label: str = "") -> Metric:
    """Return a gauge with a value for each label; what is unknown is left out."""
    family = GaugeMetricFamily(f"seckill_{name}", text, labels=[label] if label else [])
    for value, number in samples:
        if number is not None:
            family.add_metric([str(value)] if label else [], number)
    return family


# --- The ledger -----------------------------------------------------------------------------------


def _of_ledger() -> Iterator[Metric]:
    info = ledger_connection().info()
    used, most = info["used_memory"], info.get("maxmemory", 0)
    run = int(info["run_id"][:8], 16)
    yield _gauge("redis_memory_bytes", "Memory of the ledger's Redis.", ("", used))
    yield _gauge("redis_memory_limit_bytes", "Its maxmemory; 0: no limit.", ("", most))
    yield _gauge("redis_run", "A number that changes with its run.", ("", run))
    yield _gauge("redis_replicas", "Its replicas.", ("", info.get("connected_slaves", 0)))
    wanted = settings.SECKILL_LEDGER_REPLICAS
    yield _gauge("redis_replicas_wanted", "SECKILL_LEDGER_REPLICAS.", ("", wanted))
    yield from clocks()
    yield from _of_sales(list(_sales))


def _of_sales(sales: list[SeckillVoucher]) -> Iterator[Metric]:
    found = snapshots(sale_ids=[it.pk for it in sales])
    known = [(it, ledger) for it in sales if (ledger := found.get(it.pk))]
    pending = sum(ledger.pending for _, ledger in known)
    aside = sum(ledger.set_aside for _, ledger in known)
    yield _gauge("pending", "Accepted entries that are no rows yet.", ("", pending))
    yield _gauge("set_aside", "Of these, entries that wait for staff.", ("", aside))
    yield _gauge("waiting", "Buyers in waiting lists.", ("", sum(it.waiting for _, it in known)))
    ages = [it.now_ms - it.oldest_pending_ms for _, it in known if it.oldest_pending_ms]
    oldest_s = max([*ages, 0]) / 1000
    yield _gauge("oldest_pending_seconds", "Age of the oldest pending entry.", ("", oldest_s))
    running = [
        (it.pk, ledger)
        for it, ledger in known
        if ledger.terms.begins_at_ms <= ledger.now_ms < ledger.terms.ends_at_ms
    ][:SHOWN_SALES]
    sold, left = "Units taken of a running sale.", "Units left of a running sale."
    yield _gauge("sale_sold", sold, *((pk, it.taken) for pk, it in running), label="sale")
    yield _gauge("sale_left", left, *((pk, it.remaining) for pk, it in running), label="sale")


# --- The database ---------------------------------------------------------------------------------


def _of_database() -> Iterator[Metric]:
    close_old_connections()
    if connection.vendor == "mysql":
        with connection.cursor() as cursor:
            cursor.execute("SET SESSION max_statement_time = %s", [STATEMENT_S])
    now = database_now()
    public = SeckillVoucher.objects.filter(SeckillVoucher.still_active(now), begins_at__lte=now)
    sales = public.filter(stage=SaleStage.PUBLIC).order_by("-begins_at", "-pk")
    _sales[:] = sales[:WATCHED_SALES]
    running = [it.pk for it in _sales if now < it.ends_at][:SHOWN_SALES]
    yield _gauge("sale_requests_per_second", "Order requests of a running sale.",
                 *_rates(running, now), label="sale")  # fmt: skip
    yield _gauge("sales_differing", "Sales whose ledger and row differ.", *_differing())
    late = {
        "payments": payments_waiting_since(now=now),
        "webhooks": webhooks_waiting_since(now=now),
        "mails": OrderEvent.to_tell(now=now).aggregate(since=Min(_MAY_GO_AT))["since"],
        "notices": notices_waiting_since(now=now),
    }
    late_s = ((name, (now - it).total_seconds() if it else 0) for name, it in late.items())
    yield _gauge("late_seconds", "For how long the first of what is due waits.", *late_s,
                 label="work")  # fmt: skip
    backed_up_at = getattr(Installation.objects.first(), "backed_up_at", None)
    at_s = backed_up_at.timestamp() if backed_up_at else None
    yield _gauge("backup_timestamp_seconds", "When the last good backup was.", ("", at_s))
    silent = Payment.objects.filter(status=PaymentStatus.OPEN, silent_since__isnull=False)
    since = silent.order_by().values_list("provider").annotate(Min("silent_since"))
    silent_s = ((name, (now - at).total_seconds()) for name, at in since)
    yield _gauge("provider_silent_seconds", "Since when a provider leaves a payment unanswered.",
                 *silent_s, label="provider")  # fmt: skip


def _differing() -> Iterator[tuple[str, int]]:
    """Yield the number of sales that differ at two looks, unless Redis is silent."""
    ids = [it.pk for it in _sales]
    with suppress(LedgerUnavailable):
        for _ in range(2):
            ledgers = snapshots(sale_ids=ids)  # before the rows, as on the board
            rows = SeckillVoucher.objects.filter(pk__in=ids).values_list("pk", "stock", "sold")
            ids = [
                pk
                for pk, stock, sold in rows
                if (it := ledgers[pk]) and _is_off(it, stock=stock, sold=sold)
            ]
        yield "", len(ids)


def _is_off(ledger: Snapshot, *, stock: int, sold: int) -> bool:
    found = SaleSum(stock, ledger.remaining, ledger.pending, sold)
    return found.difference != 0 and not found.in_flight


def _rates(sale_ids: list[int], now: dt.datetime) -> Iterator[tuple[int, float]]:
    until = now - dt.timedelta(seconds=OPEN_S)
    since = until - dt.timedelta(seconds=RATE_S)
    counts = read_live_counts(sale_ids=sale_ids, since=since, until=until)
    for pk in sale_ids:
        yield pk, sum(it.count / it.seconds for it in counts.get(pk, ())) / RATE_S


# --- The broker, and what runs --------------------------------------------------------------------


def _of_broker() -> Iterator[Metric]:
    depths = []
    with app.connection_for_read(transport_options=impatient(1, connect_s=0.5)) as broker:
        for queue in app.conf.task_queues:
            try:
                declared = queue(broker.channel()).queue_declare(passive=True)
                depths.append((queue.name, declared.message_count))
            except ChannelError:  # nobody has put anything there yet
                depths.append((queue.name, 0))
    yield _gauge("queue_messages", "Messages that wait in a queue.", *depths, label="queue")


def _of_heartbeats() -> Iterator[Metric]:
    beats = read_heartbeats(current_parts())
    ages, missing = (
        ((it.name, it.age_s) for it in beats),
        ((it.name, it.is_missing) for it in beats),
    )
    yield _gauge("heartbeat_age_seconds", "Since the last sign of life.", *ages, label="name")
    yield _gauge("heartbeat_missing", "1: it should have come.", *missing, label="name")


FIGURES: dict[str, Callable[[], Iterable[Metric]]] = {
    "redis": _of_ledger,
    "database": _of_database,
    "broker": _of_broker,
    "heartbeats": _of_heartbeats,
}


class Shop(Collector):
    """The figures of the shop, each part asked by one thread at a time."""

    def __init__(self) -> None:
        """Prepare the threads; the first scrape starts them."""
        self._lock = Lock()
        self._pool = ThreadPoolExecutor(len(FIGURES), thread_name_prefix="metrics")
        self._asked: dict[str, Future[list[Metric]]] = {}

    def collect(self) -> Iterator[Metric]:
        """Yield what the parts say in time."""
        until_s = monotonic() + LONGEST_S
        with self._lock:
            for name in FIGURES:
                if name not in self._asked or self._asked[name].done():
                    self._asked[name] = self._pool.submit(_read, name)
            asked = dict(self._asked)
        parts = current_parts()
        wait(asked.values(), timeout=max(0, until_s - monotonic()))
        yield _gauge("up", "Whether a part responds.", *parts.items(), label="part")
        for answer in asked.values():
            yield from answer.result() if answer.done() else ()


def _read(name: str) -> list[Metric]:
    try:
        return list(FIGURES[name]())
    except Exception as error:  # whatever it is, the others go on
        logger.warning("no figures of %s: %s", name, error)
        return []
