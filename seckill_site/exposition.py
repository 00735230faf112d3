"""Metrics in Prometheus' text format: of this process and its siblings, and of the clocks."""

import logging
from collections.abc import Iterable, Iterator
from pathlib import Path

from prometheus_client import REGISTRY, CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from seckill_site.clocks.watch import clocks_ahead_s
from seckill_site.count_files import counts_in
from seckill_site.metrics import files

logger = logging.getLogger(__name__)


class _Clocks(Collector):
    def collect(self) -> Iterator[Metric]:
        yield from clocks()


class _Siblings(Collector):
    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def collect(self) -> Iterable[Metric]:
        return counts_in(self._directory)


class Units(Collector):
    """The counts of all units of this machine: of each directory in one, by its name."""

    def __init__(self, directory: Path) -> None:
        """Take the directory that holds one for each unit."""
        self._directory = directory

    def collect(self) -> Iterator[Metric]:
        """Yield the counts of each unit, with its name as a label."""
        metrics: dict[str, Metric] = {}
        for unit in sorted(it for it in self._directory.iterdir() if it.is_dir()):
            try:
                found = counts_in(unit)
            except Exception as error:  # it has just ended
                logger.warning("the counts of %s cannot be read: %s", unit.name, error)
                continue
            for metric in found:
                whole = Metric(metric.name, metric.documentation, metric.type)
                for it in metric.samples:
                    metrics.setdefault(metric.name, whole).add_sample(
                        it.name, {**it.labels, "unit": unit.name}, it.value
                    )
        yield from metrics.values()


_clocks = CollectorRegistry()
_clocks.register(_Clocks())


def clocks() -> Iterator[Metric]:
    """Yield by how much each clock is ahead of that of Redis, read now."""
    text = "Seconds by which a clock is ahead of that of Redis."
    family = GaugeMetricFamily("seckill_clock_ahead_seconds", text, labels=["clock"])
    for name, ahead_s in clocks_ahead_s().items():
        family.add_metric([name], ahead_s)
    if family.samples:
        yield family


def exposition() -> bytes:
    """Return all metrics of this process, its siblings and the clocks."""
    return _of_processes() + generate_latest(_clocks)


def _of_processes() -> bytes:
    """Return the counts of all processes, or if they cannot be read those of this one."""
    if files:
        registry = CollectorRegistry()
        registry.register(_Siblings(files.directory))
        try:
            return generate_latest(registry)
        except Exception as error:  # a missing directory, a broken file
            logger.warning("the counts of all processes cannot be read: %s", error)
    return generate_latest(REGISTRY)
