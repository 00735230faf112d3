"""What the processes of the shop count for Prometheus.

No label holds a user, an address, a token or an order id. Counts are summed over the processes of a
unit if ``PROMETHEUS_MULTIPROC_DIR`` is set (``count_files.py``).
"""

import logging
import os
import tomllib
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

_DEFINED = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))


def _counter(name: str) -> Counter:
    it = _DEFINED["counter"][name]
    return Counter(f"seckill_{name}_total", it["text"], it.get("labels", ()))


def _histogram(name: str) -> Histogram:
    it = _DEFINED["histogram"][name]
    buckets = it.get("buckets", _DEFINED["default_buckets"])
    return Histogram(f"seckill_{name}_seconds", it["text"], it.get("labels", ()), buckets=buckets)


REQUESTS = _counter("requests")
REQUEST_SECONDS = _histogram("request")
ORDER_REQUESTS = _counter("order_requests")
REFUSALS = _counter("refusals")
PUBLISHES = _counter("publishes")
BATCHES = _counter("batches")
RETRIES = _counter("retries")
FULFILLED = _counter("fulfilled")
SET_ASIDE = _counter("set_aside")
BACKOFFS = _counter("backoffs")
LOST_LEASES = _counter("lost_leases")
LOCK_WAITS = _counter("lock_waits")
RECONCILED = _counter("reconciled")
DIFFERENCES = _counter("differences")
JUNK = _counter("ledger_junk")
BREAKERS = _counter("breaker_openings")
PROVIDER_CALLS = _counter("provider_calls")
PAYMENTS = _counter("payments")
MESSAGES = _counter("messages")
WEBHOOKS = _counter("webhooks")
LIMITED_REQUESTS = _counter("limited_requests")
LEDGER_SECONDS = _histogram("ledger")
DATABASE_SECONDS = _histogram("database")
LOOP_LAG = _histogram("loop_lag")

_KINDS = _DEFINED["kinds"]


def kind_of(path: str) -> str:
    """Return the kind of request that a path is of; there are twenty."""
    first, *rest = path.split("/", 4)[1:] or [""]
    if first != "vouchers":
        return first if first in _KINDS["first"] else "page"
    of_sale = rest[1] if len(rest) > 1 else ""
    if of_sale == "orders":
        return "receipt" if rest[2:] and rest[2] else "order"
    return of_sale if of_sale in _KINDS["of_sale"] else "sale"


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
