"""Counters for Prometheus; summed over processes if ``PROMETHEUS_MULTIPROC_DIR`` is set."""

import os

from prometheus_client import REGISTRY, CollectorRegistry, Counter, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector

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
    "Entries and messages dropped or put aside because they are none of the shop.",
)


def exposition() -> bytes:
    """Return all metrics in Prometheus' text format."""
    if "PROMETHEUS_MULTIPROC_DIR" not in os.environ:
        return generate_latest(REGISTRY)
    registry = CollectorRegistry()
    MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
    return generate_latest(registry)
