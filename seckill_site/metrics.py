"""Counters for Prometheus; summed over processes if ``PROMETHEUS_MULTIPROC_DIR`` is set."""

import os
from collections.abc import Iterator

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector

from seckill_site.clocks.watch import clocks_ahead_s

ORDER_REQUESTS = Counter(
    "seckill_order_requests_total", "Order requests by how they were answered.", ["answer"]
)
PUBLISHES = Counter("seckill_publishes_total", "Fulfil tasks published, by outcome.", ["outcome"])
FULFILLED = Counter(
    "seckill_fulfilled_total", "Accepted reservations that became rows, by status.", ["status"]
)
BACKOFFS = Counter(
    "seckill_backoffs_total", "Pauses of a sale because the database took no orders of it."
)
JUNK = Counter(
    "seckill_ledger_junk_total",
    "Entries and messages dropped or put aside because the shop did not write them.",
)
LIMITED_REQUESTS = Counter(
    "seckill_limited_requests_total", "Requests answered 429, by the limit.", ["limit"]
)
LOOP_LAG = Histogram(
    "seckill_loop_lag_seconds",
    "By how much the event loop of a web process was late, four times a second.",
    buckets=(0.001, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 5),
)


class _Clocks(Collector):
    """By how much each clock is ahead of that of Redis, read when it is asked for."""

    def collect(self) -> Iterator[Metric]:
        text = "Seconds by which a clock is ahead of that of Redis."
        family = GaugeMetricFamily("seckill_clock_ahead_seconds", text, labels=["clock"])
        for name, ahead_s in clocks_ahead_s().items():
            family.add_metric([name], ahead_s)
        if family.samples:
            yield family


_clocks = CollectorRegistry()
_clocks.register(_Clocks())


def exposition() -> bytes:
    """Return all metrics in Prometheus' text format."""
    return _of_processes() + generate_latest(_clocks)


def _of_processes() -> bytes:
    if "PROMETHEUS_MULTIPROC_DIR" not in os.environ:
        return generate_latest(REGISTRY)
    registry = CollectorRegistry()
    MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
    return generate_latest(registry)
