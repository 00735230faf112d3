"""What a report lists: the requests over time, as chart and table, and the changes of the sale."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from django.utils import timezone
from django.utils.text import capfirst
from django.utils.translation import gettext, ngettext, pgettext

from backoffice.board.texts import REFUSALS
from backoffice.report.figures import Change, SaleReport
from backoffice.report.request_times import Span, coarser, near
from seckill_site.formatting import grouped, timestamp
from vouchers.inventory.request_stats import ACCEPTED, MINUTE, PER_SECOND_WINDOW
from vouchers.models import SeckillVoucher

MOST_POINTS = 720
"""The most points of a chart; around the begin each second has its own."""

MOST_ROWS = 100
"""The most rows of one table on the page; the CSV has all of them."""


@dataclass(frozen=True)
class Requests:
    """The requests of a stretch of time: for the chart, and in a table that says the same."""

    title: str
    chart: dict[str, Any]
    step: str
    heads: list[str]
    rows: list[list[str]]


def requests(report: SaleReport) -> list[Requests]:
    """Return the requests around the begin, and where there were others the whole of them too."""
    since, until = (report.sale.begins_at + it for it in PER_SECOND_WINDOW)
    by_seconds = near(report.spans, since=since - MINUTE, until=until + MINUTE)
    found = []
    if by_seconds:
        found.append(_requests(gettext("Around the start"), by_seconds, unit_s=1))
    if len(by_seconds) < len(report.spans):
        found.append(_requests(gettext("The whole sale"), report.spans, unit_s=60))
    return found


def changes(report: SaleReport) -> list[list[str]]:
    """Return when the sale was changed by whom, before, during or after it, and what."""
    return [[timestamp(it.at), _phase(report.sale, it), it.by, it.what] for it in report.changes]


def change_heads() -> list[str]:
    return [gettext("At"), gettext("When"), gettext("By"), gettext("Change")]


def answer_labels(spans: Sequence[Span]) -> dict[str, str]:
    """Return the name of each answer that was given at all."""
    labels = {ACCEPTED: pgettext("order requests", "Accepted")} | {
        code: str(capfirst(str(label))) for code, label in REFUSALS.items()
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
    rows = coarser(spans, most=MOST_ROWS, zone=zone)
    return Requests(
        title=title,
        chart=_chart(coarser(spans, most=MOST_POINTS, zone=zone), unit_s=unit_s),
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
    """Return the series of a chart, each value a mean over ``unit_s`` seconds; gaps are nothing."""
    step = spans[0].seconds
    by_time = {int(span.at.timestamp()): span for span in spans}
    times = range(min(by_time), max(by_time) + 1, step)
    nothing = Span(dt.datetime.min, step, {})

    def series(
        label: str, count: Callable[[Span], int], *, kind: str, color: str
    ) -> dict[str, Any]:
        counts = (count(by_time.get(it, nothing)) for it in times)
        values = [round(it * unit_s / step, 2) for it in counts]
        return {"label": label, "values": values, "kind": kind, "color": color}

    accepted = pgettext("order requests", "Accepted")
    refused = pgettext("order requests", "Refused")
    most = max(spans, key=lambda span: span.requests)
    summary = gettext("The peak was %(count)s requests in the %(seconds)s s starting at %(at)s.")
    return {
        "times": list(times),
        "whole": unit_s == step,
        "summary": summary
        % {"count": grouped(most.requests), "seconds": step, "at": timestamp(most.at)},
        "unit": gettext("per second") if unit_s == 1 else gettext("per minute"),
        "series": [
            series(gettext("Requests"), lambda it: it.requests, kind="bars", color="--chart-1"),
            series(accepted, _accepted, kind="line", color="--chart-2"),
            series(refused, _refused, kind="line", color="--chart-3"),
            series(gettext("Asked to retry"), _told_again, kind="line", color="--chart-4"),
        ],
    }


def _accepted(span: Span) -> int:
    return span.answers.get(ACCEPTED, 0)


def _told_again(span: Span) -> int:
    return span.answers.get("unavailable", 0)


def _refused(span: Span) -> int:
    return span.requests - _accepted(span) - _told_again(span)
