"""The lists of a report: requests over time, as chart and table, and changes of the sale."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from django.utils import timezone
from django.utils.text import capfirst
from django.utils.translation import gettext, ngettext, pgettext

from backoffice.board.texts import REFUSAL_LABELS
from backoffice.report.figures import Change, SaleReport
from backoffice.report.request_times import Span, coarser, near
from seckill_site.formatting import grouped, timestamp
from vouchers.inventory.request_stats import ACCEPTED, MINUTE, PER_SECOND_WINDOW
from vouchers.models import SeckillVoucher

MAX_POINTS = 720
"""Points of a chart; around the start each second has its own."""

MAX_ROWS = 100
"""Rows of a table on the page; the CSV file has them all."""


@dataclass(frozen=True)
class Requests:
    """The requests of a period, as a chart and as a table with the same figures."""

    title: str
    chart: dict[str, Any]
    step: str
    heads: list[str]
    rows: list[list[str]]


def requests(report: SaleReport) -> list[Requests]:
    """Return the requests around the start and, if there were others, those of the whole sale."""
    since, until = (report.sale.begins_at + it for it in PER_SECOND_WINDOW)
    by_seconds = near(report.spans, since=since - MINUTE, until=until + MINUTE)
    tables = []
    if by_seconds:
        tables.append(_requests(gettext("Around the start"), by_seconds, unit_s=1))
    if len(by_seconds) < len(report.spans):
        tables.append(_requests(gettext("The whole sale"), report.spans, unit_s=60))
    return tables


def changes(report: SaleReport) -> list[list[str]]:
    """Return a row for each change: time, phase of the sale, user, text."""
    return [[timestamp(it.at), _phase(report.sale, it), it.by, it.what] for it in report.changes]


def change_heads() -> list[str]:
    return [gettext("At"), gettext("When"), gettext("By"), gettext("Change")]


def answer_labels(spans: Sequence[Span]) -> dict[str, str]:
    """Return the names of the answers that were given at least once."""
    labels = {ACCEPTED: pgettext("order requests", "Accepted")} | {
        code: str(capfirst(str(label))) for code, label in REFUSAL_LABELS.items()
    }
    given = {code for span in spans for code in span.answers}
    return {code: label for code, label in labels.items() if code in given}


def _phase(sale: SeckillVoucher, change: Change) -> str:
    if change.at < sale.begins_at:
        return gettext("before the start")
    return gettext("during the sale") if change.at < sale.ends_at else gettext("after the end")


def _requests(title: str, spans: Sequence[Span], *, unit_s: int) -> Requests:
    zone = timezone.get_current_timezone()
    labels = answer_labels(spans)
    rows = coarser(spans, most=MAX_ROWS, zone=zone)
    return Requests(
        title=title,
        chart=_chart(coarser(spans, most=MAX_POINTS, zone=zone), unit_s=unit_s),
        step=_step(rows[0].seconds),
        heads=[pgettext("time", "From"), gettext("Requests"), *labels.values()],
        rows=[_row(span, labels) for span in rows],
    )


def _row(span: Span, labels: dict[str, str]) -> list[str]:
    counts = [span.answers.get(code, 0) for code in labels]
    return [timestamp(span.at), grouped(span.requests), *map(grouped, counts)]


def _step(seconds: int) -> str:
    if seconds < 60:
        text = ngettext("Each row is %(count)s second.", "Each row is %(count)s seconds.", seconds)
        return text % {"count": seconds}
    minutes = seconds // 60
    text = ngettext("Each row is %(count)s minute.", "Each row is %(count)s minutes.", minutes)
    return text % {"count": grouped(minutes)}


def _chart(spans: Sequence[Span], *, unit_s: int) -> dict[str, Any]:
    """Return the series of a chart. Each value is a mean over ``unit_s`` seconds; gaps are zero."""
    step = spans[0].seconds
    by_time = {int(span.at.timestamp()): span for span in spans}
    times = range(min(by_time), max(by_time) + 1, step)
    empty = Span(dt.datetime.min, step, {})

    def series(
        label: str, count: Callable[[Span], int], *, kind: str, color: str
    ) -> dict[str, Any]:
        counts = (count(by_time.get(it, empty)) for it in times)
        values = [round(it * unit_s / step, 2) for it in counts]
        return {"label": label, "values": values, "kind": kind, "color": color}

    accepted = pgettext("order requests", "Accepted")
    refused = pgettext("order requests", "Refused")
    peak = max(spans, key=lambda span: span.requests)
    summary = gettext("The peak was %(count)s requests in the %(seconds)s s starting at %(at)s.")
    return {
        "times": list(times),
        "whole": unit_s == step,
        "summary": summary
        % {"count": grouped(peak.requests), "seconds": step, "at": timestamp(peak.at)},
        "unit": gettext("per second") if unit_s == 1 else gettext("per minute"),
        "series": [
            series(gettext("Requests"), lambda it: it.requests, kind="bars", color="--chart-1"),
            series(accepted, _accepted, kind="line", color="--chart-2"),
            series(refused, _refused, kind="line", color="--chart-3"),
            series(gettext("Asked to retry"), _asked_to_retry, kind="line", color="--chart-4"),
        ],
    }


def _accepted(span: Span) -> int:
    return span.answers.get(ACCEPTED, 0)


def _asked_to_retry(span: Span) -> int:
    return span.answers.get("unavailable", 0)


def _refused(span: Span) -> int:
    return span.requests - _accepted(span) - _asked_to_retry(span)
