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


class _Files:
    """The files in which a process counts: Note [Room for counts]."""

    def __init__(self, directory: Path) -> None:
        self.directory, self._owner = directory, 0
        self._make_room()

    def owner(self) -> int:
        """Return whose files this process counts in: its own, or without room its parent's."""
        if self._owner != os.getpid():
            with suppress(OSError):
                self._make_room()
        return self._owner

    def _make_room(self) -> None:
        paths = [self.directory / f"{kind}_{os.getpid()}.db" for kind in ("counter", "histogram")]
        try:
            for path in paths:
                with path.open("ab") as file:
                    os.posix_fallocate(file.fileno(), 0, FILE_BYTES)
        except OSError:
            for path in paths:  # an empty one could not be read
                with suppress(OSError):
                    path.unlink()
            raise
        self._owner = os.getpid()


def _shared_files() -> _Files | None:
    """Return the files to count in, None if this process counts in memory."""
    directory = os.environ.get("PROMETHEUS_MULTIPROC_DIR")
    try:
        return _Files(Path(directory)) if directory else None
    except OSError as error:
        logger.warning("counting in memory, because there is no room: %s", error)
        return None


_files = _shared_files()
if _files:
    values.ValueClass = values.MultiProcessValue(_files.owner)  # type: ignore[no-untyped-call]
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
    "By how much the event loop of a web process was late, once a second.",
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
    if _files:
        registry = CollectorRegistry()
        try:
            MultiProcessCollector(registry, str(_files.directory))  # type: ignore[no-untyped-call]
            return generate_latest(registry)
        except Exception as error:  # a missing directory, a broken file
            logger.warning("the counts of all processes cannot be read: %s", error)
    return generate_latest(REGISTRY)
