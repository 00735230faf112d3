"""The report across sales as text, for its page and for a spreadsheet."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from django.utils.translation import gettext, pgettext
from django.utils.translation import gettext_lazy as _

from backoffice.csv_cells import harmless
from backoffice.report.across_sales import Figures, Grouping, Report, Row
from seckill_site.formatting import NO_VALUE, exact_duration, grouped, money, plain_money

BYTE_ORDER_MARK = "\ufeff"


@dataclass(frozen=True)
class Column:
    """One figure: its heading, its unit in a spreadsheet, what it means, and both its texts."""

    label: object
    note: object
    shown: Callable[[Figures], str]
    plain: Callable[[Figures], str | int | float]
    unit: str = ""


def _count(name: str, label: object, note: object) -> Column:
    return Column(
        label,
        note,
        shown=lambda it: grouped(getattr(it, name)),
        plain=lambda it: getattr(it, name),
    )


def _yuan(name: str, label: object, note: object) -> Column:
    return Column(
        label,
        note,
        shown=lambda it: money(getattr(it, name)),
        plain=lambda it: plain_money(getattr(it, name)),
        unit="¥",
    )


def _percent(share: float | None) -> str:
    return NO_VALUE if share is None else f"{100 * share:.1f} %"


COLUMNS = (
    _count("sales", _("Sales"), _("Sales that started in the period.")),
    _count("sold_out", _("Sold out"), _("How many of these sold out.")),
    Column(
        _("Fastest sell-out"),
        _(
            "The shortest time from a start to the last voucher. "
            "More stock later does not change it."
        ),
        shown=lambda it: exact_duration(it.fastest),
        plain=lambda it: "" if it.fastest is None else round(it.fastest.total_seconds(), 3),
        unit="s",
    ),
    _count("requests", _("Requests"), _("Valid order requests, by time of request.")),
    _count(
        "orders",
        _("Orders"),
        _("Accepted requests that became an order, by the time they were accepted."),
    ),
    _count("sold", _("Sold"), _("Of these orders, those that hold a voucher now.")),
    _count("unused", _("Unused"), _("Of these orders, those that are paid and not used yet.")),
    _yuan("received_cents", _("Received"), _("Prices of orders, by the time they were paid.")),
    _yuan(
        "refunded_cents",
        _("Refunds"),
        _("Prices of orders, by the time their refund started."),
    ),
    _yuan("revenue_cents", _("Revenue"), _("Received minus refunds.")),
    Column(
        _("Share of orders paid"),
        _("Of these orders, those that were ever paid. Includes orders that were refunded later."),
        shown=lambda it: _percent(it.conversion),
        plain=lambda it: "" if it.conversion is None else round(100 * it.conversion, 2),
        unit="%",
    ),
)


def name_of(row: Row) -> str:
    return row.name or gettext("(without a merchant)")


def total_name() -> str:
    return pgettext("row of a table", "Total")


def across_csv(report: Report) -> str:
    """Return the rows and their total in UTF-8 with the byte order mark that Excel needs."""
    text = io.StringIO(newline="")
    csv.writer(text).writerows(_csv_rows(report))
    return BYTE_ORDER_MARK + text.getvalue()


def _csv_rows(report: Report) -> Iterator[list[object]]:
    by = report.scope.by
    units = [f"{it.label} ({it.unit})" if it.unit else str(it.label) for it in COLUMNS]
    yield [str(by.label), *units]
    for row in report.rows:
        name = name_of(row)
        named = name if by is Grouping.DAY else harmless(name)
        yield [named, *(it.plain(row.figures) for it in COLUMNS)]
    yield [total_name(), *(it.plain(report.total) for it in COLUMNS)]
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
    """Received money by day, for a picture without a script; the table has the same figures."""

    width: int
    bars: list[Bar]
    summary: str


CHART_HEIGHT, STEP = 100, 10


def chart_of(report: Report) -> Chart | None:
    """Return the chart of a report by day that has some revenue."""
    most = max((it.figures.received_cents for it in report.rows), default=0)
    if report.scope.by is not Grouping.DAY or not most:
        return None
    bars = []
    for row in report.rows:
        height = round(CHART_HEIGHT * row.figures.received_cents / most, 2)
        title = f"{row.name}: {money(row.figures.received_cents)}"
        bars.append(Bar(row.key * STEP + 1, CHART_HEIGHT - height, STEP - 2, height, title))
    best = max(report.rows, key=lambda it: it.figures.received_cents)
    text = gettext("Received by day. The best day was %(day)s with %(money)s.")
    summary = text % {"day": best.name, "money": money(best.figures.received_cents)}
    return Chart(report.scope.period.days * STEP, bars, summary)
