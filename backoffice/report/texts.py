"""The figures of a report as text, for its page and for a spreadsheet."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path

from django.utils.text import capfirst
from django.utils.translation import gettext, pgettext

from backoffice.board.texts import refusal_labels
from backoffice.figures import Figure, Section, count, duration, moment, percent, yuan
from backoffice.report.draw import DrawFigures
from backoffice.report.durations import Durations
from backoffice.report.figures import SaleReport
from backoffice.report.request_times import ANSWERS, Span
from backoffice.report.room import RoomFigures
from backoffice.revenue import revenue_figures
from orders.models import OrderStatus, RefusalReason
from seckill_site.formatting import NO_VALUE, grouped
from seckill_site.web.text_files import read_texts
from vouchers.catalogue.audience import RULES
from vouchers.inventory.request_stats import ACCEPTED

_TEXTS = read_texts(Path(__file__).with_suffix(".toml"))
_NOTES = _TEXTS["notes"]


def headline(report: SaleReport) -> list[Figure]:
    revenue = revenue_figures(report.revenue)
    return [
        *(islice(_draw(report.draw), 4) if report.draw else _sold(report)),
        *(replace(it, shown=it.shown.removesuffix(".00")) for it in revenue),
        count(gettext("Buyers"), report.buyers),
        count(gettext("Requests"), report.answers.total()),
        Figure(gettext("Most requests per second"), _rate(report.peak)),
    ]


def _sold(report: SaleReport) -> list[Figure]:
    sold = {"sold": grouped(report.sale.sold), "total": grouped(report.sale.stock)}
    return [
        Figure(gettext("Sold"), gettext("%(sold)s of %(total)s") % sold),
        duration(gettext("Sold out after"), report.sold_out_after),
    ]


def sections(report: SaleReport) -> list[Section]:
    """Return all single figures of a report, in reading order."""
    return [
        Section(gettext("Sale"), list(_sale(report))),
        Section(gettext("Requests"), list(_requests(report))),
        *_audience(report),
        Section(gettext("Orders"), list(_orders(report))),
        Section(gettext("Money"), list(_money(report))),
        Section(gettext("How long it took"), list(_times(report))),
        Section(gettext("Waiting list"), list(_line(report))),
        *([Section(gettext("Draw"), list(_draw(report.draw)))] if report.draw else []),
        *([Section(gettext("Waiting room"), list(_room(report.room)))] if report.room else []),
    ]


def _sale(report: SaleReport) -> Iterator[Figure]:
    sale, ledger = report.sale, report.snapshot
    yield moment(gettext("Start"), sale.begins_at)
    yield moment(gettext("End"), sale.ends_at)
    if report.draw:  # its own section has the entries and the winners
        return
    yield count(gettext("Vouchers offered"), sale.stock)
    yield count(gettext("Sold"), sale.sold, gettext("Orders that hold a voucher now."))
    if not report.is_over:
        yield count(gettext("Left"), ledger.remaining if ledger else None)
    if not report.is_over or (ledger and ledger.pending):
        queued = ledger.pending if ledger else None
        yield count(gettext("Queued"), queued, _NOTES["queued"])
    yield moment(gettext("Sold out at"), report.sold_out_at, _NOTES["sold_out_at"], exact=True)
    yield duration(gettext("Sold out after"), report.sold_out_after, gettext("From the start."))


def _requests(report: SaleReport) -> Iterator[Figure]:
    answers = report.answers
    yield count(gettext("Requests"), answers.total(), _NOTES["requests"])
    yield count(pgettext("order requests", "Accepted"), answers[ACCEPTED], is_part=True)
    for code, refusal in refusal_labels(report.sale).items():
        if code in ANSWERS or answers[code]:
            yield count(capfirst(str(refusal)), answers[code], is_part=True)
    peak = report.peak
    note = _NOTES["peak_of_minutes"] if peak and peak.seconds > 1 else ""
    label = gettext("Most requests per second")
    yield Figure(label, _rate(peak), round(peak.per_second, 2) if peak else "", note=note)
    yield moment(gettext("Time of the peak"), peak.at if peak else None)


def _audience(report: SaleReport) -> list[Section]:
    """Return the buyers whom each rule has refused, if any has."""
    counts = report.refused_by_rules
    if not counts:
        return []
    rules = [it for it in RULES.values() if it.name in counts]
    figures = [count(capfirst(str(it.label)), counts[it.name], _NOTES["rule"]) for it in rules]
    return [Section(gettext("Buyers refused by a rule"), figures)]


def _orders(report: SaleReport) -> Iterator[Figure]:
    yield count(gettext("Orders"), report.accepted, _NOTES["orders"])
    for it in report.orders:
        yield count(capfirst(str(it.status.label)), it.count, is_part=True)
    for reason in RefusalReason:
        if refused := report.refused.get(reason):
            label = gettext("Refused: %(reason)s") % {"reason": reason.label}
            yield count(label, refused, is_part=True)
    yield count(gettext("Buyers"), report.buyers, _NOTES["buyers"])


def _money(report: SaleReport) -> Iterator[Figure]:
    gross, refunds, net = revenue_figures(report.revenue)
    refunding = yuan(gettext("Refunds under way"), report.cents(OrderStatus.REFUNDING))
    yield from (gross, refunds, replace(refunding, is_part=True), net)
    yield percent(gettext("Share of orders paid"), report.conversion, _NOTES["conversion"])


def _times(report: SaleReport) -> Iterator[Figure]:
    written, paid = report.written, report.paid
    yield duration(gettext("Accepted → written, median"), written.median, _sample(written))
    yield duration(gettext("Accepted → written, 95th percentile"), written.p95)
    yield duration(gettext("Accepted → paid, median"), paid.median, _sample(paid))
    yield duration(gettext("Accepted → paid, 95th percentile"), paid.p95)


def _sample(durations: Durations) -> str:
    if not durations.is_sample:
        return ""
    return str(_NOTES["sample"] % {"count": grouped(durations.count)})


def _line(report: SaleReport) -> Iterator[Figure]:
    for name, label in _TEXTS["waiting_list"].items():
        yield count(str(label), getattr(report.waiting_list, name), is_part=name != "joined")


def _draw(figures: DrawFigures) -> Iterator[Figure]:
    draw = figures.draw
    yield count(gettext("Entries"), figures.entries)
    yield count(gettext("Withdrawn"), figures.withdrawn)
    yield count(gettext("Vouchers to win"), figures.units)
    yield count(gettext("Winners"), figures.winners)
    yield moment(gettext("List closed at"), draw.closed_at)
    yield moment(gettext("Drawn at"), draw.drawn_at)
    yield moment(gettext("All winners have orders since"), draw.finished_at)
    hashes = [
        (gettext("Promise (SHA-256 of the seed)"), figures.commitment),
        (gettext("SHA-256 of the list"), draw.digest),
        (gettext("Seed"), figures.seed),
    ]
    for label, value in hashes:
        yield Figure(label, value or NO_VALUE, value)


def _room(room: RoomFigures) -> Iterator[Figure]:
    yield count(gettext("Joined the line"), room.joined)
    yield count(gettext("Let in"), room.let_in, is_part=True)
    not_let_in = room.joined - room.let_in
    yield count(gettext("Not let in"), not_let_in, _NOTES["not_let_in"], is_part=True)
    yield duration(gettext("Waited, median"), room.waited.median, _NOTES["waited"])
    yield duration(gettext("Waited, 95th percentile"), room.waited.p95, _sample(room.waited))
    yield duration(gettext("Waited longest"), room.longest)


def _rate(span: Span | None) -> str:
    if span is None:
        return NO_VALUE
    return grouped(span.requests) if span.seconds == 1 else f"{span.per_second:,.1f}"
