"""Metrics of the shop itself, read when Prometheus asks: ``manage.py metrics --shop``.

Each part is asked in a thread of its own, and none for longer than ``LONGEST_S``. What a silent
part would have said is left out, and ``seckill_up`` names that part.
"""

import datetime as dt
import logging
import tomllib
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from pathlib import Path
from threading import Lock
from time import monotonic

from django.conf import settings
from django.db import close_old_connections, connection
from django.db.models import Min
from django.db.models.functions import Coalesce
from kombu.exceptions import ChannelError
from prometheus_client.core import Metric

from api.webhooks.delivery import webhooks_waiting_since
from backoffice.board.snapshot import OPEN_S, RATE_S, SaleSum
from orders.lifecycle.notices import notices_waiting_since
from orders.models import OrderEvent, Payment, PaymentStatus
from orders.payments.service import payments_waiting_since
from seckill_site.broker.heartbeats import read_heartbeats
from seckill_site.broker.messages import impatient
from seckill_site.celery import app
from seckill_site.clocks.database import database_now
from seckill_site.exposition import Values, clocks, gauge
from seckill_site.health import current_parts
from seckill_site.models import Installation
from seckill_site.process_memory import Latest
from seckill_site.redis.ledger_connection import ledger_connection
from vouchers.inventory.keys import LedgerUnavailable
from vouchers.inventory.request_stats import read_live_counts
from vouchers.inventory.sale_state import snapshots
from vouchers.models import SaleStage, SaleState, SeckillVoucher

logger = logging.getLogger(__name__)

LONGEST_S, STATEMENT_S = 1.8, 1
"""The longest that a scrape waits, and that the database works for one statement."""

SHOWN_SALES, WATCHED_SALES = 20, 300

_watched = Latest[list[int]]([])
"""The sales that may still change, the latest start first, as the database said last."""

_DEFINED = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))

Figure = tuple[str, Values]
"""The name of a metric, and its value or its values by label."""


def _redis() -> Iterator[Figure]:
    info = ledger_connection().info()
    yield "redis_memory_bytes", info["used_memory"]
    yield "redis_memory_limit_bytes", info.get("maxmemory", 0)
    yield "redis_run", int(info["run_id"][:8], 16)
    yield "redis_replicas", info.get("connected_slaves", 0)
    yield "redis_replicas_wanted", settings.SECKILL_LEDGER_REPLICAS
    found = snapshots(sale_ids=_watched.value)  # in the same order
    known = {pk: ledger for pk, ledger in found.items() if ledger}
    for name in ("pending", "set_aside", "waiting"):
        yield name, sum(getattr(it, name) for it in known.values())
    ages = [it.now_ms - it.oldest_pending_ms for it in known.values() if it.oldest_pending_ms]
    yield "oldest_pending_seconds", max([*ages, 0]) / 1000
    running = [it for it in known.items() if it[1].state is not SaleState.ENDED][:SHOWN_SALES]
    yield "sale_sold", {str(pk): it.taken for pk, it in running}
    yield "sale_left", {str(pk): it.remaining for pk, it in running}


def _database() -> Iterator[Figure]:
    close_old_connections()
    if connection.vendor == "mysql":
        with connection.cursor() as cursor:
            cursor.execute("SET SESSION max_statement_time = %s", [STATEMENT_S])
    now = database_now()
    begun = SeckillVoucher.objects.filter(SeckillVoucher.still_active(now), begins_at__lte=now)
    begun = begun.filter(stage=SaleStage.PUBLIC).order_by("-begins_at", "-pk")
    _watched.learn(list(begun.values_list("pk", flat=True)[:WATCHED_SALES]))
    running = begun.filter(ends_at__gt=now).values_list("pk", flat=True)[:SHOWN_SALES]
    until, span = now - dt.timedelta(seconds=OPEN_S), dt.timedelta(seconds=RATE_S)
    counts = read_live_counts(sale_ids=list(running), since=until - span, until=until)
    asked = {pk: sum(it.count / it.seconds for it in counts.get(pk, ())) for pk in running}
    yield "sale_requests_per_second", {str(pk): count / RATE_S for pk, count in asked.items()}
    with suppress(LedgerUnavailable):
        # An order may become a row between the looks at both: it does not at two looks.
        yield "sales_differing", len(_differing(_differing(_watched.value)))
    may_go_at = Coalesce("notify_at", "at")
    since = {
        "payments": payments_waiting_since(now=now),
        "webhooks": webhooks_waiting_since(now=now),
        "mails": OrderEvent.to_tell(now=now).aggregate(since=Min(may_go_at))["since"],
        "notices": notices_waiting_since(now=now),
    }
    yield "late_seconds", {it: (now - at).total_seconds() if at else 0 for it, at in since.items()}
    silent = Payment.objects.filter(status=PaymentStatus.OPEN, silent_since__isnull=False)
    first = silent.order_by().values_list("provider").annotate(Min("silent_since"))
    yield "provider_silent_seconds", {it: (now - at).total_seconds() for it, at in first}
    backed_up_at = Installation.objects.values_list("backed_up_at", flat=True).first()
    yield "backup_timestamp_seconds", backed_up_at.timestamp() if backed_up_at else None


def _differing(ids: list[int]) -> list[int]:
    ledgers = snapshots(sale_ids=ids)  # before the rows, as on the board
    rows = SeckillVoucher.objects.filter(pk__in=ids).values_list("pk", "stock", "sold")
    loaded = [(pk, stock, it, sold) for pk, stock, sold in rows if (it := ledgers[pk])]
    sums = {pk: SaleSum(stock, it.remaining, it.pending, sold) for pk, stock, it, sold in loaded}
    return [pk for pk, it in sums.items() if it.difference and not it.in_flight]


def _broker() -> Iterator[Figure]:
    depths = {}
    with app.connection_for_read(transport_options=impatient(1, connect_s=0.5)) as broker:
        for queue in app.conf.task_queues:
            depths[queue.name] = 0
            with suppress(ChannelError):  # nobody has put anything there yet
                declared = queue(broker.channel()).queue_declare(passive=True)
                depths[queue.name] = declared.message_count
    yield "queue_messages", depths


def _heartbeats() -> Iterator[Figure]:
    beats = read_heartbeats(current_parts())
    yield "heartbeat_age_seconds", {it.name: it.age_s for it in beats}
    yield "heartbeat_missing", {it.name: it.is_missing for it in beats}


FIGURES = {"redis": _redis, "database": _database, "broker": _broker, "heartbeats": _heartbeats}


class Shop:
    """The figures of the shop, each part asked by one thread at a time."""

    def __init__(self) -> None:
        """Prepare the threads; the first scrape starts them."""
        self._pool = ThreadPoolExecutor(len(FIGURES), thread_name_prefix="metrics")
        self._lock, self._asked = Lock(), dict[str, Future[list[Metric]]]()

    def collect(self) -> Iterator[Metric]:
        """Yield what the parts say in time."""
        until_s = monotonic() + LONGEST_S
        with self._lock:
            for part in FIGURES:
                if part not in self._asked or self._asked[part].done():
                    self._asked[part] = self._pool.submit(_read, part)
            asked = list(self._asked.values())
        yield gauge("up", current_parts(), **_DEFINED["up"])
        wait(asked, timeout=max(0, until_s - monotonic()))
        for answer in asked:
            yield from answer.result() if answer.done() else ()


def _read(part: str) -> list[Metric]:
    try:
        metrics = [gauge(name, it, **_DEFINED[name]) for name, it in FIGURES[part]()]
        return [*metrics, *clocks()] if part == "redis" else metrics
    except Exception as error:  # whatever it is, the others go on
        logger.warning("no figures of %s: %s", part, error)
        return []
