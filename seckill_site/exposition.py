"""Metrics in Prometheus' text format: of this process and its siblings, of units, of the clocks."""

import logging
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from pathlib import Path

from prometheus_client import REGISTRY, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from seckill_site.clocks.watch import clocks_ahead_s
from seckill_site.count_files import counts_in
from seckill_site.metrics import files

logger = logging.getLogger(__name__)


class Metrics(Collector):
    """What these functions return when Prometheus asks."""

    def __init__(self, *read: Callable[[], Iterable[Metric]]) -> None:
        self._read = read

    def collect(self) -> Iterable[Metric]:
        return chain.from_iterable(read() for read in self._read)


def clocks() -> Iterator[Metric]:
    """Yield by how much each clock is ahead of that of Redis, read now."""
    text = "Seconds by which a clock is ahead of that of Redis."
    family = GaugeMetricFamily("seckill_clock_ahead_seconds", text, labels=["clock"])
    for name, ahead_s in clocks_ahead_s().items():
        family.add_metric([name], ahead_s)
    if family.samples:
        yield family


def counts_of_units(directory: Path) -> Iterable[Metric]:
    """Return the counts of each unit of a machine, with its directory's name as a label."""
    metrics: dict[str, Metric] = {}
    for unit in sorted(it for it in directory.iterdir() if it.is_dir()):
        try:
            found = counts_in(unit)
        except Exception as error:  # it has just ended
            logger.warning("the counts of %s cannot be read: %s", unit.name, error)
            continue
        for metric in found:
            whole = Metric(metric.name, metric.documentation, metric.type)
            whole = metrics.setdefault(metric.name, whole)
            for it in metric.samples:
                whole.add_sample(it.name, {**it.labels, "unit": unit.name}, it.value)
    return metrics.values()


def exposition() -> bytes:
    """Return the metrics of this process and its siblings, and of the clocks."""
    found: Collector = REGISTRY
    try:
        if files:
            counts = list(counts_in(files.directory))
            found = Metrics(lambda: counts)
    except Exception as error:  # a missing directory, a broken file: this process alone
        logger.warning("the counts of all processes cannot be read: %s", error)
    return generate_latest(found) + generate_latest(Metrics(clocks))
