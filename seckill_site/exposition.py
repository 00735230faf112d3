"""Metrics in Prometheus' text format: of this process and its siblings, of units, of the clocks."""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain
from pathlib import Path

from prometheus_client import REGISTRY, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from seckill_site.clocks.watch import clocks_ahead_s
from seckill_site.count_files import counts_in
from seckill_site.metrics import files

logger = logging.getLogger(__name__)

Values = float | Mapping[str, float] | Mapping[str, float | None] | None
"""The value of a gauge, or its values by label; what is unknown is None."""


class Metrics(Collector):
    """What these functions return when Prometheus asks."""

    def __init__(self, *read: Callable[[], Iterable[Metric]]) -> None:
        self._read = read

    def collect(self) -> Iterable[Metric]:
        return chain.from_iterable(read() for read in self._read)


def gauge(name: str, values: Values, *, text: str, label: str = "") -> Metric:
    """Return what is measured now, by ``label`` if it has one; what is unknown is left out."""
    family = GaugeMetricFamily(f"seckill_{name}", text, labels=[label] if label else [])
    for it, value in (values if isinstance(values, Mapping) else {"": values}).items():
        if value is not None:
            family.add_metric([it] if label else [], value)
    return family


def clocks() -> Iterator[Metric]:
    """Yield by how much each clock is ahead of that of Redis, read now."""
    text = "Seconds by which a clock is ahead of that of Redis."
    if ahead_s := clocks_ahead_s():
        yield gauge("clock_ahead_seconds", ahead_s, text=text, label="clock")


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
