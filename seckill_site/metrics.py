"""What the processes of the shop count for Prometheus.

``docs/monitoring.md`` lists these, and ``tests/seckill_site/test_metrics.py`` all labels: none
holds a user, an address, a token or an order id. Counts are summed over the processes of a unit if
``PROMETHEUS_MULTIPROC_DIR`` is set (``count_files.py``).
"""

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from time import perf_counter

from prometheus_client import Counter, Histogram, values

from seckill_site.count_files import CountFiles

logger = logging.getLogger(__name__)


def _count_files() -> CountFiles | None:
    """Return the files to count in, None if this process counts in memory."""
    directory = os.environ.get("PROMETHEUS_MULTIPROC_DIR")
    try:
        return CountFiles(Path(directory)) if directory else None
    except OSError as error:
        logger.warning("counting in memory, because there is no room: %s", error)
        return None


files = _count_files()
if files:
    values.ValueClass = values.MultiProcessValue(files.owner)  # type: ignore[no-untyped-call]
else:
    values.ValueClass = values.MutexValue

SECONDS = (0.005, 0.025, 0.1, 0.5, 2)
"""Upper bounds of most times; few, because each costs a series for each kind of request."""

REQUESTS = Counter("seckill_requests_total", "Requests by kind and status.", ["kind", "status"])
REQUEST_SECONDS = Histogram(
    "seckill_request_seconds", "Time to answer a request, by kind.", ["kind"], buckets=SECONDS
)
ORDER_REQUESTS = Counter(
    "seckill_order_requests_total", "Order requests by how they were answered.", ["answer"]
)
REFUSALS = Counter("seckill_refusals_total", "Refused order requests by their code.", ["code"])
PUBLISHES = Counter("seckill_publishes_total", "Fulfil tasks published, by outcome.", ["outcome"])
BATCHES = Counter("seckill_batches_total", "Batches of entries that were written.")
RETRIES = Counter("seckill_retries_total", "Batches that failed and were tried again.")
FULFILLED = Counter(
    "seckill_fulfilled_total", "Accepted reservations that became rows, by status.", ["status"]
)
SET_ASIDE = Counter("seckill_set_aside_total", "Purchases that failed every time.")
BACKOFFS = Counter(
    "seckill_backoffs_total", "Pauses of a sale because the database took no orders of it."
)
LOST_LEASES = Counter("seckill_lost_leases_total", "Locks lost while orders were written.")
LOCK_WAITS = Counter(
    "seckill_lock_waits_total", "Sales and buyers left for later, as another had the lock.", ["of"]
)
RECONCILED = Counter("seckill_reconciled_total", "Sales compared by beat, by outcome.", ["outcome"])
DIFFERENCES = Counter("seckill_differences_total", "Differences between ledger and rows found.")
JUNK = Counter(
    "seckill_ledger_junk_total",
    "Entries and messages dropped or put aside because the shop did not write them.",
)
BREAKERS = Counter("seckill_breaker_openings_total", "Servers that stopped responding.", ["server"])
PROVIDER_CALLS = Counter(
    "seckill_provider_calls_total", "Calls of payment providers.", ["provider", "outcome"]
)
PAYMENTS = Counter(
    "seckill_payments_total", "Payments settled, by provider and outcome.", ["provider", "outcome"]
)
MESSAGES = Counter("seckill_messages_total", "Mails and texts, by outcome.", ["way", "outcome"])
WEBHOOKS = Counter("seckill_webhooks_total", "Attempts to deliver webhooks.", ["outcome"])
LIMITED_REQUESTS = Counter(
    "seckill_limited_requests_total", "Requests answered 429, by the limit.", ["limit"]
)
LEDGER_SECONDS = Histogram(
    "seckill_ledger_seconds",
    "Time of ledger calls; of a burst, the oldest.",
    buckets=SECONDS,
)
DATABASE_SECONDS = Histogram("seckill_database_seconds", "Time of statements.", buckets=SECONDS)
LOOP_LAG = Histogram(
    "seckill_loop_lag_seconds",
    "By how much the event loop of a web process was late, once a second.",
    buckets=(0.001, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 5),
)

_OF_A_SALE = frozenset({"live", "token", "room", "waiting", "draw", "chain", "notice"})
_FIRST = frozenset(
    {"accounts", "admin", "api", "healthz", "me", "metrics", "orders", "payments", "readyz"}
    | {"staff", "static"}
)


def kind_of(path: str) -> str:
    """Return the kind of request that a path is of; there are twenty."""
    first, *rest = path.split("/", 4)[1:] or [""]
    if first != "vouchers":
        return first if first in _FIRST else "page"
    of_sale = rest[1] if len(rest) > 1 else ""
    if of_sale == "orders":
        return "receipt" if rest[2:] and rest[2] else "order"
    return of_sale if of_sale in _OF_A_SALE else "sale"


def count_request(path: str, status: int, started_s: float) -> None:
    """Count a request that was begun at this time of ``perf_counter``."""
    counter, histogram = _of_request(kind_of(path), status)
    counter.inc()
    histogram.observe(perf_counter() - started_s)


@cache
def _of_request(kind: str, status: int) -> tuple[Counter, Histogram]:
    return REQUESTS.labels(kind, str(status)), REQUEST_SECONDS.labels(kind)


@contextmanager
def counted(
    of: Counter, *labels: str, refusals: tuple[type[Exception], ...] = ()
) -> Iterator[None]:
    """Count the block as ``ok``, or if it raises as ``refused`` or ``failed``."""
    try:
        yield
    except refusals:
        of.labels(*labels, "refused").inc()
        raise
    except Exception:
        of.labels(*labels, "failed").inc()
        raise
    of.labels(*labels, "ok").inc()
