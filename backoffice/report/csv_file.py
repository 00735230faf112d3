"""The report on a sale as a CSV file for spreadsheets."""

from __future__ import annotations

import codecs
import csv
import io
from collections.abc import Iterator, Sequence

from django.utils import timezone
from django.utils.translation import gettext, pgettext

from backoffice.csv_cells import unevaluated
from backoffice.report.figures import SaleReport
from backoffice.report.tables import answer_labels, change_heads, changes
from backoffice.report.texts import Figure, sections
from seckill_site.formatting import timestamp
from vouchers.templatetags.seckill import utc_offset

Cell = str | int | float


def report_csv(report: SaleReport) -> bytes:
    """Return the whole report in UTF-8 with the byte order mark that Excel needs."""
    text = io.StringIO(newline="")
    csv.writer(text).writerows(
        # Titles and reasons are typed by people: a spreadsheet must not evaluate them.
        [unevaluated(cell) if isinstance(cell, str) else cell for cell in row]
        for row in _rows(report)
    )
    return codecs.BOM_UTF8 + text.getvalue().encode()


def file_name(report: SaleReport) -> str:
    return f"sale-{report.sale.pk}-report-{timezone.localtime(report.at):%Y-%m-%d}.csv"


def _rows(report: SaleReport) -> Iterator[Sequence[Cell]]:
    about = gettext("Report")
    yield [gettext("Section"), gettext("Figure"), gettext("Value")]
    yield [about, gettext("Voucher"), report.sale.voucher.title]
    yield [about, gettext("Sale"), report.sale.pk]
    yield [about, gettext("As of"), timestamp(report.at)]
    yield [about, gettext("Times are in"), _zone(report)]
    if not report.knows_latest:
        yield [
            about,
            gettext("Not known"),
            gettext("the requests of the last minutes: Redis was unreachable"),
        ]
    for section in sections(report):
        for figure in section.figures:
            yield [section.title, _label(figure), figure.plain]
    yield []
    yield from _times(report)
    yield []
    yield change_heads()
    yield from changes(report)


def _label(figure: Figure) -> str:
    return f"{figure.label} ({figure.unit})" if figure.unit else figure.label


def _zone(report: SaleReport) -> str:
    return f"{timezone.get_current_timezone_name()} ({utc_offset(report.at)})"


def _times(report: SaleReport) -> Iterator[Sequence[Cell]]:
    """Return the requests at the finest resolution that is stored."""
    labels = answer_labels(report.spans)
    yield [pgettext("time", "From"), gettext("Seconds"), gettext("Requests"), *labels.values()]
    for span in report.spans:
        counts = [span.answers.get(code, 0) for code in labels]
        yield [timestamp(span.at), span.seconds, span.requests, *counts]
