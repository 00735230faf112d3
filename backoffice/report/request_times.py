"""Order requests over time, in fine or coarse spans."""

import datetime as dt
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from vouchers.inventory.request_stats import (
    ACCEPTED,
    ACCOUNT_LIMITED,
    ADDRESS_LIMITED,
    RequestCount,
)

ANSWERS = (
    ACCEPTED, "sold_out", "already_ordered", "not_started", "paused", "ended", "unavailable",
)  # fmt: skip
"""The answers to an order request. Answers unknown to this release count as ``OTHER``."""

LIMITED = (ADDRESS_LIMITED, ACCOUNT_LIMITED)
"""Further answers, which are shown only if they were given."""

OTHER = "other"

_MINUTE, _HOUR, _DAY = 60, 3600, 86_400
_STEPS = (
    1, 2, 5, 10, 15, 30,
    _MINUTE, 2 * _MINUTE, 5 * _MINUTE, 10 * _MINUTE, 15 * _MINUTE, 30 * _MINUTE,
    _HOUR, 2 * _HOUR, 6 * _HOUR, 12 * _HOUR, _DAY, 7 * _DAY, 28 * _DAY,
)  # fmt: skip


@dataclass(frozen=True)
class Span:
    """The answers to order requests in the ``seconds`` that start at ``at``."""

    at: dt.datetime
    seconds: int
    answers: Mapping[str, int]

    @property
    def requests(self) -> int:
        return sum(self.answers.values())

    @property
    def per_second(self) -> float:
        return self.requests / self.seconds


def spans_of(counts: Iterable[RequestCount]) -> list[Span]:
    """Return a span for each counted second or minute, oldest first."""
    answers: dict[tuple[dt.datetime, int], Counter[str]] = {}
    for it in counts:
        answer = it.answer if it.answer in ANSWERS + LIMITED else OTHER
        answers.setdefault((it.at, it.seconds), Counter())[answer] += it.count
    return [Span(*key, answers[key]) for key in sorted(answers)]


def peak_of(spans: Iterable[Span]) -> Span | None:
    """Return the first span with the highest rate."""
    return max(spans, key=lambda span: span.per_second, default=None)


def near(spans: Iterable[Span], *, since: dt.datetime, until: dt.datetime) -> list[Span]:
    """Return the one-second spans between two moments."""
    return [it for it in spans if it.seconds == 1 and since <= it.at < until]


def coarser(spans: Sequence[Span], *, most: int, zone: dt.tzinfo) -> list[Span]:
    """Merge spans into at most ``most`` spans of equal length, without empty ones.

    They are as short as possible and start at full minutes, hours or days of the time zone.
    """
    if not spans:
        return []
    shortest = max(span.seconds for span in spans)
    steps = [step for step in _STEPS if step >= shortest]
    offset = spans[0].at.astimezone(zone).utcoffset() or dt.timedelta()
    offset_s = int(offset.total_seconds())
    first, last = (int(spans[i].at.timestamp()) + offset_s for i in (0, -1))
    step = next((it for it in steps if last // it - first // it < most), steps[-1])
    sums: dict[int, Counter[str]] = {}
    for span in spans:
        start = int(span.at.timestamp()) + offset_s
        sums.setdefault(start - start % step, Counter()).update(span.answers)
    return [
        Span(dt.datetime.fromtimestamp(start - offset_s, tz=dt.UTC), step, answers)
        for start, answers in sorted(sums.items())
    ]
