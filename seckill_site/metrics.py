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
from typing import Any

from prometheus_client import Counter, Histogram, values

from seckill_site.count_files import CountFiles

logger = logging.getLogger(__name__)

try:
    _directory = os.environ.get("PROMETHEUS_MULTIPROC_DIR")
    files = CountFiles(Path(_directory)) if _directory else None
except OSError as error:
    logger.warning("counting in memory, because there is no room: %s", error)
    files = None
values.ValueClass = values.MultiProcessValue(files.owner) if files else values.MutexValue  # type: ignore[no-untyped-call]

_DEFINED = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))

_METRICS: dict[str, Any] = {
    name: Counter(f"seckill_{name}_total", it["text"], it.get("labels", ()))
    for name, it in _DEFINED["counter"].items()
}
for _name, _it in _DEFINED["histogram"].items():
    _METRICS[_name] = Histogram(
        f"seckill_{_name}_seconds",
        _it["text"],
        _it.get("labels", ()),
        buckets=_it.get("buckets", _DEFINED["default_buckets"]),
    )


# A child opens its files at once, before it closes what it inherited, as beat in a worker does.
os.register_at_fork(after_in_child=lambda: _METRICS["batches"].inc(0))


@cache
def counter(name: str, *labels: str) -> Any:
    """Return a counter, or a histogram of times, of ``metrics.toml`` with these labels."""
    return _METRICS[name].labels(*labels) if labels else _METRICS[name]


histogram = counter
_KINDS = _DEFINED["kinds"]


def kind_of(path: str) -> str:
    """Return the kind of request that a path is of: one of ``metrics.toml``, or of four more."""
    first, *rest = path.split("/", 4)[1:] or [""]
    if first != "vouchers":
        return first if first in _KINDS["first"] else "page"
    of_sale = rest[1] if len(rest) > 1 else ""
    if of_sale == "orders":
        return "receipt" if rest[2:] and rest[2] else "order"
    return of_sale if of_sale in _KINDS["of_sale"] else "sale"


def count_request(path: str, status: int, started_s: float) -> None:
    """Count a request that was begun at this time of ``perf_counter``."""
    kind = kind_of(path)
    counter("requests", kind, str(status)).inc()
    histogram("request", kind).observe(perf_counter() - started_s)


@contextmanager
def counted(name: str, *labels: str, refusals: tuple[Any, ...] = ()) -> Iterator[None]:
    """Count the block as ``ok``, or if it raises as ``refused`` or ``failed``."""
    outcome = "failed"
    try:
        yield
        outcome = "ok"
    except refusals:
        outcome = "refused"
        raise
    finally:
        counter(name, *labels, outcome).inc()
