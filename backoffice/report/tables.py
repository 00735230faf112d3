"""The lists of a report, and the whole report as a CSV file.

The lists are the requests over time, as chart and table, and the changes of the sale.
"""

import datetime as dt
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from django.utils import timezone
from django.utils.text import capfirst
from django.utils.translation import gettext, pgettext

from backoffice.board.texts import refusal_labels
from backoffice.report.figures import SaleReport
from backoffice.report.request_times import Span, coarser, near
from backoffice.report.texts import sections
from seckill_site.formatting import grouped, timestamp, utc_offset
from seckill_site.web.csv_files import csv_parts, unevaluated
from seckill_site.web.text_files import counted, read_texts
from vouchers.inventory.request_stats import ACCEPTED, MINUTE, PER_SECOND_WINDOW
from vouchers.models import SeckillVoucher

_STEPS = read_texts(Path(__file__).with_name("texts.toml"))["steps"]

MAX_POINTS = 720
"""The most points of a chart; around the start, each second has its own."""

MAX_ROWS = 100
"""The most rows of a table on the page; the CSV file has all rows."""


@dataclass(frozen=True)
class Requests:
    """The requests of a period, as a chart and as a table with the same figures."""

    title: str
    chart: dict[str, Any]
    step: str
    heads: list[str]
    rows: list[list[str]]


def requests(report: SaleReport) -> list[Requests]:
    """Return the requests around the start and, if there were more, those of the whole sale."""
    since, until = (report.sale.begins_at + it for it in PER_SECOND_WINDOW)
    by_seconds = near(report.spans, since=since - MINUTE, until=until + MINUTE)
    tables = []
    if by_seconds:
        tables.append(_requests(report, gettext("Around the start"), by_seconds, unit_s=1))
    if len(by_seconds) < len(report.spans):
        tables.append(_requests(report, gettext("The whole sale"), report.spans, unit_s=60))
    return tables


def changes(report: SaleReport) -> list[list[str]]:
    """Return a row for each change: time, phase of the sale, user, text."""
    return [[timestamp(it.at), _phase(report.sale, it.at), it.by, it.what] for it in report.changes]


def change_heads() -> list[str]:
    return [gettext("At"), gettext("Phase"), gettext("By"), gettext("Change")]


def answer_labels(report: SaleReport, spans: Sequence[Span]) -> dict[str, str]:
    """Return the names of the answers that were given at least once."""
    labels = {ACCEPTED: pgettext("order requests", "Accepted")} | {
        code: str(capfirst(str(label))) for code, label in refusal_labels(report.sale).items()
    }
    given = {code for span in spans for code in span.answers}
    return {code: label for code, label in labels.items() if code in given}


def _phase(sale: SeckillVoucher, moment: dt.datetime) -> str:
    if moment < sale.begins_at:
        return gettext("before the start")
    return gettext("during the sale") if moment < sale.ends_at else gettext("after the end")


def _requests(report: SaleReport, title: str, spans: Sequence[Span], *, unit_s: int) -> Requests:
    zone = timezone.get_current_timezone()
    labels = answer_labels(report, spans)
    spans_of_rows = coarser(spans, most=MAX_ROWS, zone=zone)
    rows = []
    for span in spans_of_rows:
        counts = (span.requests, *(span.answers.get(code, 0) for code in labels))
        rows.append([timestamp(span.at), *map(grouped, counts)])
    return Requests(
        title=title,
        chart=_chart(coarser(spans, most=MAX_POINTS, zone=zone), unit_s=unit_s),
        step=_step(spans_of_rows[0].seconds),
        heads=[pgettext("time", "From"), gettext("Requests"), *labels.values()],
        rows=rows,
    )


def _step(seconds: int) -> str:
    unit, number = ("seconds", seconds) if seconds < 60 else ("minutes", seconds // 60)
    return str(_STEPS[unit] % counted(number))


def _chart(spans: Sequence[Span], *, unit_s: int) -> dict[str, Any]:
    """Return the series of a chart. Each value is a mean over ``unit_s`` seconds; gaps are zero."""
    step = spans[0].seconds
    by_time = {int(span.at.timestamp()): span for span in spans}
    times = range(min(by_time), max(by_time) + 1, step)
    empty = Span(dt.datetime.min, step, {})
    shown = [by_time.get(it, empty) for it in times]
    accepted = [it.answers.get(ACCEPTED, 0) for it in shown]
    retried = [it.answers.get("unavailable", 0) for it in shown]
    requests = [it.requests for it in shown]
    refused = [
        sums[0] - sums[1] - sums[2] for sums in zip(requests, accepted, retried, strict=True)
    ]
    charted = [
        (gettext("Requests"), "bars", requests),
        (pgettext("order requests", "Accepted"), "line", accepted),
        (pgettext("order requests", "Refused"), "line", refused),
        (gettext("Asked to retry"), "line", retried),
    ]
    series = [
        {
            "label": label,
            "values": [round(it * unit_s / step, 2) for it in counts],
            "kind": kind,
            "color": f"--chart-{number}",
        }
        for number, (label, kind, counts) in enumerate(charted, start=1)
    ]
    peak = max(spans, key=lambda span: span.requests)
    summary = gettext("The peak was %(count)s requests in the %(seconds)s s starting at %(at)s.")
    return {
        "times": list(times),
        "whole": unit_s == step,
        "summary": summary
        % {"count": grouped(peak.requests), "seconds": step, "at": timestamp(peak.at)},
        "unit": gettext("per second") if unit_s == 1 else gettext("per minute"),
        "series": series,
    }


# --- The CSV file ---------------------------------------------------------------------------------


def report_csv(report: SaleReport) -> list[str]:
    """Return the parts of the whole report as a CSV file."""
    # Titles and reasons are typed by people: a spreadsheet must not evaluate them.
    rows = [
        [unevaluated(cell) if isinstance(cell, str) else cell for cell in row]
        for row in _csv_rows(report)
    ]
    headings = [gettext("Section"), gettext("Figure"), gettext("Value")]
    return list(csv_parts(headings, [rows]))


def _csv_rows(report: SaleReport) -> Iterator[Sequence[str | int | float]]:
    about = gettext("Report")
    zone = f"{timezone.get_current_timezone_name()} ({utc_offset(report.at)})"
    yield [about, gettext("Voucher"), report.sale.voucher.local_title]
    yield [about, gettext("Sale"), report.sale.pk]
    yield [about, gettext("As of"), timestamp(report.at)]
    yield [about, gettext("Times are in"), zone]
    if not report.knows_latest:
        text = gettext("the requests of the last minutes: Redis was unreachable")
        yield [about, gettext("Not known"), text]
    for section in sections(report):
        for figure in section.figures:
            yield [section.title, figure.heading, figure.plain]
    yield []
    # The requests at the finest stored resolution.
    labels = answer_labels(report, report.spans)
    yield [pgettext("time", "From"), gettext("Seconds"), gettext("Requests"), *labels.values()]
    for span in report.spans:
        counts = [span.answers.get(code, 0) for code in labels]
        yield [timestamp(span.at), span.seconds, span.requests, *counts]
    yield []
    yield change_heads()
    yield from changes(report)
