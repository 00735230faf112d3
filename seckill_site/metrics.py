"""Counters for Prometheus; summed over processes if ``PROMETHEUS_MULTIPROC_DIR`` is set.

Note [Room for counts]
~~~~~~~~~~~~~~~~~~~~~~
Counting must never stop a process or refuse an order. Each process counts in files of its own,
which it maps into its memory. If a mapped file has holes and the disk is full, the next count ends
the process: SIGBUS, which no ``except`` catches. So a file gets all its blocks before it is mapped.
A process whose directory has no room for them, or cannot be written to, counts in memory, and
shows its own counts alone. If only its child finds no room, the child counts in its files, too:
some of those counts overwrite each other.
"""

import logging
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from prometheus_client import (
    REGISTRY,
    CollectorRegistry,
    Counter,
    Histogram,
    generate_latest,
    values,
)
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector

from seckill_site.clocks.watch import clocks_ahead_s

logger = logging.getLogger(__name__)

FILE_BYTES = 64 * 1024
"""The size of a file of counts: several times what all of them take, so that none has to grow."""

_counting_as = 0


def _make_room(directory: Path) -> None:
    """Give the files of this process all their blocks: Note [Room for counts]."""
    global _counting_as
    paths = [directory / f"{kind}_{os.getpid()}.db" for kind in ("counter", "histogram")]
    try:
        for path in paths:
            with path.open("ab") as file:
                os.posix_fallocate(file.fileno(), 0, FILE_BYTES)
    except OSError:
        for path in paths:  # an empty one could not be read
            with suppress(OSError):
                path.unlink()
        raise
    _counting_as = os.getpid()


def _identify() -> int:
    """Return whose files this process counts in: its own, or without room those of its parent."""
    if _counting_as != os.getpid() and _shared:
        with suppress(OSError):
            _make_room(_shared)
    return _counting_as


def _shared_directory() -> Path | None:
    """Return the directory in which this process counts, None if it counts in memory."""
    directory = os.environ.get("PROMETHEUS_MULTIPROC_DIR")
    if not directory:
        return None
    try:
        _make_room(Path(directory))
    except OSError as error:
        logger.warning("counting in memory, because there is no room: %s", error)
        return None
    return Path(directory)


_shared = _shared_directory()
if _shared:
    values.ValueClass = values.MultiProcessValue(_identify)  # type: ignore[no-untyped-call]
else:
    values.ValueClass = values.MutexValue

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
    """Return the counts of all processes, or if they cannot be read those of this one."""
    if _shared:
        registry = CollectorRegistry()
        try:
            MultiProcessCollector(registry, str(_shared))  # type: ignore[no-untyped-call]
            return generate_latest(registry)
        except Exception as error:  # a missing directory, a broken file
            logger.warning("the counts of all processes cannot be read: %s", error)
    return generate_latest(REGISTRY)
