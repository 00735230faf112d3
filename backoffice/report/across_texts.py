"""The report across sales as text, for its page and for a spreadsheet."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from django.utils.translation import gettext, pgettext

from backoffice.figures import Figure, count, duration, percent
from backoffice.report.across_sales import Figures, Grouping, Report, Row
from backoffice.revenue import revenue_figures
from seckill_site.formatting import money, short_money
from seckill_site.web.csv_files import csv_parts, harmless
from seckill_site.web.text_files import read_texts

_FIGURES = read_texts(Path(__file__).with_suffix(".toml"))

_KINDS: dict[str, Callable[[str, Any, str], Figure]] = {
    **dict.fromkeys(("sales", "sold_out", "requests", "orders", "sold", "unused"), count),
    "fastest": duration,
    "conversion": percent,
}


def figures_of(sums: Figures) -> list[Figure]:
    *counted, conversion = (
        _KINDS[name](str(it["label"]), getattr(sums, name), str(it["note"]))
        for name, it in _FIGURES.items()
    )
    return [*counted, *revenue_figures(sums.revenue), conversion]


def name_of(row: Row) -> str:
    return row.name or gettext("(without a merchant)")


def total_name() -> str:
    return pgettext("row of a table", "Total")


def before_name(before: Report) -> str:
    days = {"first": before.scope.period.first, "last": before.scope.period.last}
    return gettext("Period before: %(first)s to %(last)s") % days


def across_csv(report: Report, before: Report) -> list[str]:
    """Return the parts of a CSV file: the rows, their total, and that of the period before."""
    headings = [it.heading for it in figures_of(report.total)]
    return list(csv_parts([report.scope.by.label, *headings], [_csv_rows(report, before)]))


def _csv_rows(report: Report, before: Report) -> Iterator[list[object]]:
    by = report.scope.by
    for row in report.rows:
        name = name_of(row)
        named = name if by is Grouping.DAY else harmless(name)
        yield [named, *(it.plain for it in figures_of(row.figures))]
    yield [total_name(), *(it.plain for it in figures_of(report.total))]
    yield [before_name(before), *(it.plain for it in figures_of(before.total))]
    if not report.knows_latest:
        text = gettext("the requests of the last minutes: Redis was unreachable")
        yield [gettext("Not known"), text]


# --- The chart ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Bar:
    """A day's revenue in a chart of 100 units height; x and width are in units of its days."""

    x: float
    y: float
    width: float
    height: float
    title: str


@dataclass(frozen=True)
class Chart:
    """Gross revenue by day, for a picture without a script; the table has the same figures.

    ``ticks`` name the heights of its axis, from the top down.
    """

    width: int
    bars: list[Bar]
    ticks: list[str]
    summary: str


CHART_HEIGHT, STEP = 100, 10


def chart_of(report: Report) -> Chart | None:
    """Return the chart of a report by day that has some revenue."""
    most = max((it.figures.received_cents for it in report.rows), default=0)
    if report.scope.by is not Grouping.DAY or not most:
        return None
    bars, top = [], _round_up(most)
    for row in report.rows:
        height = round(CHART_HEIGHT * row.figures.received_cents / top, 2)
        title = f"{row.name}: {money(row.figures.received_cents)}"
        bars.append(Bar(row.key * STEP + 1, CHART_HEIGHT - height, STEP - 2, height, title))
    best = max(report.rows, key=lambda it: it.figures.received_cents)
    text = gettext("Gross revenue by day. The best day was %(day)s with %(money)s.")
    summary = text % {"day": best.name, "money": money(best.figures.received_cents)}
    ticks = [short_money(it) for it in (top, top // 2, 0)]
    return Chart(report.scope.period.days * STEP, bars, ticks, summary)


def _round_up(cents: int) -> int:
    """Return the next amount of 1, 2, 5 or 10 with zeros."""
    power: int = 10 ** (len(str(cents)) - 1)
    return next(it * power for it in (1, 2, 5, 10) if it * power >= cents)
