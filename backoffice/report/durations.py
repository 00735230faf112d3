"""How long the steps of an order took: what would sort all rows of a large sale uses a sample."""

import datetime as dt
import math
from dataclasses import dataclass
from typing import Any

from django.db.models import Count, DurationField, ExpressionWrapper, F, Q, QuerySet, Window
from django.db.models.functions import Ceil, RowNumber

SAMPLE_SIZE = 10_000
"""All rows are measured up to this number; beyond it, a sample of this size."""


@dataclass(frozen=True)
class Durations:
    """The durations of a step over ``count`` rows; median and p95 are None without rows."""

    count: int
    median: dt.timedelta | None
    p95: dt.timedelta | None
    is_sample: bool


def measure_durations(
    rows: QuerySet[Any], duration: Any, *, sampled: dict[str, QuerySet[Any]], count: int
) -> Durations:
    """Measure all ``count`` rows or, if there are many, those of every nth id.

    ``sampled`` has the rows that are numbered by their ids, by the condition on them. The database
    numbers the durations, so that it returns only the two values needed.
    """
    every = math.ceil(count / SAMPLE_SIZE)
    if every > 1:
        for condition, whole in sampled.items():
            sample = whole.annotate(remainder=F("pk") % every).filter(remainder=0)
            rows = rows.filter(**{condition: sample.values("pk")})
    numbered = rows.annotate(
        duration=ExpressionWrapper(duration, output_field=DurationField()),
        nth=Window(RowNumber(), order_by="duration"),
        measured=Window(Count("*")),
    )
    median, p95 = (Ceil(F("measured") * percent / 100.0) for percent in (50, 95))
    quantiles = numbered.filter(Q(nth=median) | Q(nth=p95)).order_by("nth")
    values = list(quantiles.values_list("measured", "duration"))
    if not values:
        return Durations(0, None, None, is_sample=every > 1)
    # Two clocks may differ by more than the duration: a negative duration counts as zero.
    low, high = (max(values[i][1], dt.timedelta()) for i in (0, -1))
    return Durations(values[0][0], low, high, is_sample=every > 1)
