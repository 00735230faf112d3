"""The report's figures, each for a small sale made by hand, with a fixed number of queries."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

import pytest
from django.contrib.admin.models import ADDITION, CHANGE, LogEntry
from django.contrib.auth.models import User
from django.contrib.contenttypes.models import ContentType
from django.utils import timezone, translation

from backoffice.figures import Section
from backoffice.report import durations
from backoffice.report import figures as reporting
from backoffice.report.durations import Durations
from backoffice.report.figures import Change, SaleReport, WaitingListFigures, report_sale
from backoffice.report.request_times import OTHER, Span, coarser, near, peak_of, spans_of
from backoffice.report.texts import sections
from orders.fulfilment.reconcile import reconcile
from orders.fulfilment.worker import fulfil_sale
from orders.models import (
    LIVE_STATUSES,
    OrderEvent,
    OrderStatus,
    RuleRefusal,
    VoucherOrder,
    WaitingEntry,
)
from tests.support.orders import (
    both_at,
    make_buyer,
    make_buyers,
    make_sale,
    reserved,
    reserved_purchase,
)
from tests.support.payments import expire_all
from tests.support.sales import lose_state
from vouchers.inventory.rebuild import load_sale
from vouchers.inventory.request_stats import RequestCount, count_request, flush_request_counts
from vouchers.inventory.sale_state import snapshot
from vouchers.models import AnswerCount, SeckillVoucher

pytestmark = pytest.mark.django_db

NOON = dt.datetime(2026, 11, 11, 12, tzinfo=dt.UTC)
OVER = NOON + dt.timedelta(hours=3)
SHANGHAI = ZoneInfo("Asia/Shanghai")


def at(seconds: float) -> dt.datetime:
    return NOON + dt.timedelta(seconds=seconds)


def seconds(number: float) -> dt.timedelta:
    return dt.timedelta(seconds=number)


def a_sale(*, stock: int = 5) -> SeckillVoucher:
    """Return a sale that started at noon and lasted two hours."""
    sale = make_sale(stock=stock, loaded=False)
    sale.begins_at, sale.ends_at = NOON, NOON + dt.timedelta(hours=2)
    sale.save()
    return sale


class Row(NamedTuple):
    """An order of a test; times in seconds, the first counted from noon."""

    accepted: float
    written_after: float
    status: OrderStatus
    reason: str = ""
    paid_after: float | None = None
    cents: int = 8_000


def add_orders(sale: SeckillVoucher, rows: Sequence[Row], buyers: Sequence[User]) -> None:
    """Create orders with ids from 1 on, and the history of the paid ones."""
    first = VoucherOrder.objects.count() + 1
    for number, (row, buyer) in enumerate(zip(rows, buyers, strict=True), start=first):
        live = row.status in LIVE_STATUSES or None
        order = VoucherOrder(
            id=number, user=buyer, seckill_voucher=sale, unit=1 + number % 20, status=row.status,
            live=live, reason=row.reason, price_cents=row.cents, accepted_at=at(row.accepted),
        )  # fmt: skip
        order.save()
        written_at = at(row.accepted + row.written_after)
        VoucherOrder.objects.filter(pk=number).update(created_at=written_at)
        if row.paid_after is not None:
            add_paid_event(order, at(row.accepted + row.paid_after))
    sold = VoucherOrder.objects.filter(seckill_voucher=sale, live=True).count()
    SeckillVoucher.objects.filter(pk=sale.pk).update(sold=sold)


def add_paid_event(order: VoucherOrder, moment: dt.datetime) -> None:
    OrderEvent.objects.create(
        order=order, before="unpaid", after="paid", at=moment, actor_kind="provider"
    )


def add_answers(sale: SeckillVoucher, *counts: tuple[float, int, str, int]) -> None:
    """Store answers: seconds after noon, length, answer, count."""
    for second, length, answer, count in counts:
        AnswerCount.objects.create(
            seckill_voucher=sale, at=at(second), answer=answer, count=count, seconds=length
        )


def report_of(sale: SeckillVoucher, now: dt.datetime = OVER) -> SaleReport:
    return report_sale(sale_id=sale.pk, now=now)


TEN = [
    Row(0.1, 0.1, OrderStatus.PAID, paid_after=10),
    Row(0.2, 0.2, OrderStatus.USED, paid_after=20, cents=7_000),
    Row(0.3, 0.3, OrderStatus.REFUSED, "sold_out"),
    Row(0.4, 0.4, OrderStatus.CANCELLED),
    Row(0.5, 0.5, OrderStatus.REFUNDED, paid_after=30),
    Row(0.6, 0.6, OrderStatus.EXPIRED),
    Row(60, 0.7, OrderStatus.REFUNDING, paid_after=400),
    Row(61, 0.8, OrderStatus.UNPAID),
    Row(62, 0.9, OrderStatus.REFUSED, "failed"),
    Row(63, 1.0, OrderStatus.PAID, paid_after=50),
]


@pytest.fixture
def ten() -> SeckillVoucher:
    """A sale of five units and ten orders, the last by the buyer of the first."""
    sale, buyers = a_sale(stock=5), make_buyers(9)
    add_orders(sale, TEN, [*buyers, buyers[0]])
    return sale


# --- Orders and money ----------------------------------------------------------------------------


def test_orders_count_by_status_and_refusals_by_reason(ten: SeckillVoucher) -> None:
    report = report_of(ten)
    assert {it.status: it.count for it in report.orders} == {
        "unpaid": 1, "paid": 2, "used": 1, "cancelled": 1, "expired": 1, "refunding": 1,
        "refunded": 1, "refused": 2,
    }  # fmt: skip
    assert report.refused == {"sold_out": 1, "failed": 1}
    assert report.accepted == 10


def test_buyers_count_once_and_refunds_are_no_revenue(ten: SeckillVoucher) -> None:
    report = report_of(ten)
    assert report.buyers == 7  # without those refused
    assert report.cents(OrderStatus.PAID, OrderStatus.USED) == 8_000 + 8_000 + 7_000
    assert report.cents(OrderStatus.REFUNDED) == report.cents(OrderStatus.REFUNDING) == 8_000
    assert report.conversion == 5 / 10  # of all that were paid once


def test_report_ignores_orders_of_other_sales(ten: SeckillVoucher) -> None:
    other = a_sale()
    add_orders(other, TEN, make_buyers(10))
    add_answers(other, (0, 1, "accepted", 5))
    before = report_of(ten)
    VoucherOrder.objects.filter(seckill_voucher=other).update(price_cents=1)
    after = report_of(ten)
    assert (before.orders, before.buyers, before.paid, before.spans) == (
        after.orders, after.buyers, after.paid, after.spans,
    )  # fmt: skip
    assert after.answers.total() == 0


# --- Sold out ------------------------------------------------------------------------------------


def test_sold_out_time_counts_from_the_start(ten: SeckillVoucher) -> None:
    SeckillVoucher.objects.update(sold_out_at=at(0.6))
    report = report_of(ten)
    assert (report.sold_out_at, report.sold_out_after) == (at(0.6), seconds(0.6))


def test_moved_start_hides_the_sold_out_time(ten: SeckillVoucher) -> None:
    SeckillVoucher.objects.update(begins_at=at(30), sold_out_at=at(0.6))
    report = report_of(ten)
    assert (report.sold_out_at, report.sold_out_after) == (at(0.6), None)


# --- Durations -----------------------------------------------------------------------------------


def test_writing_time_covers_every_order_and_payment_time_paid_ones(ten: SeckillVoucher) -> None:
    report = report_of(ten)
    assert report.written == Durations(10, seconds(0.5), seconds(1), is_sample=False)
    assert report.paid == Durations(5, seconds(30), seconds(400), is_sample=False)


@pytest.mark.parametrize("count", [1, 2, 3, 19, 20, 21, 40])
def test_median_and_p95_match_the_sorted_list(count: int) -> None:
    """Each is the smallest value that this percentage of the durations does not exceed."""
    sale, took = a_sale(stock=100), [(7 * number) % 41 + 1 for number in range(count)]
    add_orders(sale, [Row(0, it, OrderStatus.EXPIRED) for it in took], make_buyers(count))
    median, p95 = (sorted(took)[math.ceil(count * share / 100) - 1] for share in (50, 95))
    expected = Durations(count, seconds(median), seconds(p95), is_sample=False)
    assert report_of(sale).written == expected


def test_only_the_change_to_paid_is_timed(ten: SeckillVoucher) -> None:
    order = VoucherOrder.objects.get(pk=2)
    for after in ("unpaid", "used"):
        OrderEvent.objects.create(order=order, after=after, at=at(9_000), actor_kind="staff")
    assert report_of(ten).paid.count == 5


def test_undone_use_is_timed_as_no_payment(ten: SeckillVoucher) -> None:
    before = report_of(ten).paid
    for around in (("paid", "used"), ("used", "paid")):
        OrderEvent.objects.create(
            order_id=2, before=around[0], after=around[1], at=at(9_000), actor_kind="staff"
        )
    assert report_of(ten).paid == before


def test_negative_durations_count_as_zero() -> None:
    sale = a_sale()
    add_orders(sale, [Row(5, -2, OrderStatus.UNPAID)], [make_buyer()])
    assert report_of(sale).written.median == seconds(0)


def test_many_orders_are_sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(durations, "SAMPLE_SIZE", 10)
    sale = a_sale(stock=100)
    paid = [Row(0, it / 100, OrderStatus.PAID, paid_after=it) for it in range(1, 101)]
    add_orders(sale, paid, make_buyers(100))
    report = report_of(sale)
    assert report.written == Durations(10, seconds(0.5), seconds(1), is_sample=True)
    assert report.paid == Durations(10, seconds(50), seconds(100), is_sample=True)


# --- Requests ------------------------------------------------------------------------------------


def test_requests_are_summed_by_answer_with_peak(ten: SeckillVoucher) -> None:
    add_answers(
        ten,
        (-1, 1, "not_started", 3),
        (0, 1, "accepted", 4), (0, 1, "sold_out", 8),
        (1, 1, "sold_out", 11),
        (600, 60, "sold_out", 600), (600, 60, "unavailable", 60),
    )  # fmt: skip
    report = report_of(ten)
    assert report.answers == {
        "not_started": 3, "accepted": 4, "sold_out": 619, "unavailable": 60,
    }  # fmt: skip
    assert report.peak == Span(at(0), 1, {"accepted": 4, "sold_out": 8})
    add_answers(ten, (660, 60, "sold_out", 1_200))
    peak = report_of(ten).peak
    assert peak
    assert (peak.at, peak.per_second) == (at(660), 20)


def test_report_includes_requests_not_stored_yet(ten: SeckillVoucher) -> None:
    add_answers(ten, (0, 1, "accepted", 4))
    count_request(sale_id=ten.pk, answer="ended")
    flush_request_counts()
    report = report_of(ten)
    assert report.answers == {"accepted": 4, "ended": 1}
    assert report.knows_latest


def test_report_without_redis_shows_stored_requests(
    ten: SeckillVoucher, lose_ledger: Callable[[], None]
) -> None:
    add_answers(ten, (0, 1, "accepted", 4))
    lose_ledger()
    report = report_of(ten)
    assert (report.snapshot, report.knows_latest) == (None, False)
    assert (report.accepted, report.answers.total()) == (10, 4)


def test_unknown_answers_count_as_other() -> None:
    rows = [
        RequestCount(NOON, "teapot", 2),
        RequestCount(NOON, "queue_full", 3),
        RequestCount(NOON, "ended", 1),
    ]
    assert spans_of(rows) == [Span(NOON, 1, {OTHER: 5, "ended": 1})]


def test_only_single_seconds_are_shown_near_the_start() -> None:
    spans = [Span(at(it), length, {"ended": 1}) for it, length in [(-1, 1), (0, 1), (9, 60)]]
    assert near(spans, since=at(0), until=at(10)) == [spans[1]]


def test_coarser_spans_lose_no_request() -> None:
    spans = [Span(at(it), 1, {"accepted": 1, "sold_out": it % 3}) for it in range(0, 600, 2)]
    for most, step in [(1_000, 1), (100, 10), (50, 15), (7, 120), (1, 600)]:
        rows = coarser(spans, most=most, zone=SHANGHAI)
        assert {row.seconds for row in rows} == {step}
        assert len(rows) <= most
        assert sum(row.requests for row in rows) == sum(span.requests for span in spans)
        assert all(row.requests for row in rows)


def test_coarser_spans_are_never_finer_than_the_data() -> None:
    spans = [Span(at(0), 1, {"accepted": 1}), Span(at(60), 60, {"accepted": 2})]
    assert coarser(spans, most=1_000, zone=SHANGHAI) == [
        Span(at(0), 60, {"accepted": 1}), Span(at(60), 60, {"accepted": 2}),
    ]  # fmt: skip


def test_days_start_at_the_shops_midnight() -> None:
    """Noon in UTC is 20:00 in Shanghai, and 16:00 is the next day there."""
    spans = [Span(NOON + dt.timedelta(hours=it), 60, {"ended": 1}) for it in (0, 3, 4, 100)]
    found = coarser(spans, most=6, zone=SHANGHAI)
    assert {it.seconds for it in found} == {86_400}
    assert [it.requests for it in found] == [2, 1, 1]
    assert {it.at.astimezone(SHANGHAI).hour for it in found} == {0}


def test_no_spans_have_no_peak_and_no_rows() -> None:
    assert peak_of([]) is None
    assert coarser([], most=10, zone=SHANGHAI) == []


# --- The waiting list and the changes ------------------------------------------------------------


def test_waiting_list_is_counted_by_outcome(ten: SeckillVoucher) -> None:
    outcomes = ["offered", "offered", "left", "over", ""]
    for number, (buyer, outcome) in enumerate(zip(make_buyers(5), outcomes, strict=True)):
        WaitingEntry.objects.create(
            seckill_voucher=ten, user=buyer, order_id=10**6 + number, joined_at=NOON,
            live=None if outcome else True, outcome=outcome,
        )  # fmt: skip
    assert report_of(ten).waiting_list == WaitingListFigures(
        joined=5, waiting=1, offered=2, left=1, over=1
    )


def note(sale: SeckillVoucher, by: User, what: str, moment: dt.datetime, **fields: Any) -> None:
    content_type = ContentType.objects.get_for_model(fields.pop("model", SeckillVoucher))
    entry = LogEntry.objects.create(
        user=by, content_type=content_type, object_id=str(sale.pk), object_repr=str(sale),
        action_flag=fields.pop("flag", CHANGE), change_message=what,
    )  # fmt: skip
    LogEntry.objects.filter(pk=entry.pk).update(action_time=moment)


def test_changes_of_this_sale_are_listed_oldest_first(ten: SeckillVoucher) -> None:
    boss = User.objects.create(username="boss")
    note(ten, boss, "Stock: 4 → 5", at(30))
    note(ten, boss, '[{"added": {}}]', at(-60), flag=ADDITION)
    note(ten, boss, "of an order with the same id", at(31), model=VoucherOrder)
    note(a_sale(), boss, "of another sale", at(32))
    with translation.override("en"):
        found = report_of(ten).changes
    assert found == (
        Change(at(-60), "boss", "Added."),
        Change(at(30), "boss", "Stock: 4 → 5"),
    )


def test_list_of_changes_is_limited(ten: SeckillVoucher, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reporting, "MAX_CHANGES", 2)
    boss = User.objects.create(username="boss")
    for number in range(3):
        note(ten, boss, f"{number}", at(number))
    assert [it.what for it in report_of(ten).changes] == ["0", "1"]


# --- Whole report --------------------------------------------------------------------------------


def test_sale_without_buyers_has_a_report() -> None:
    report = report_of(a_sale())
    assert (report.accepted, report.buyers, report.conversion, report.peak) == (0, 0, None, None)
    assert report.written == report.paid == Durations(0, None, None, is_sample=False)
    assert (report.waiting_list, report.changes, report.spans) == (
        WaitingListFigures(0, 0, 0, 0, 0),
        (),
        (),
    )


def test_report_on_running_sale_includes_pending() -> None:
    sale = make_sale(stock=10)
    reserved(sale, make_buyers(3))
    report = report_of(sale, now=sale.begins_at + seconds(60))
    assert not report.is_over
    assert report.snapshot
    assert (report.snapshot.remaining, report.snapshot.pending, report.accepted) == (7, 3, 0)


def test_units_of_a_purchase_count_one_by_one_all_along() -> None:
    sale = make_sale(stock=10, limit=6)
    ids = reserved_purchase(sale, make_buyer(), 3)
    report = report_of(sale, now=sale.begins_at + seconds(60))
    assert report.snapshot
    assert (report.snapshot.remaining, report.snapshot.pending) == (7, 3)

    fulfil_sale(sale_id=sale.pk)
    lose_state(sale.pk)
    load_sale(sale_id=sale.pk)
    sale.refresh_from_db()
    report = report_of(sale, now=sale.begins_at + seconds(60))
    assert (report.accepted, report.buyers, sale.sold, sale.epoch) == (3, 1, 3, 2)
    assert snapshot(sale_id=sale.pk).remaining == 7
    found = reconcile(sale_id=sale.pk)
    assert (found.difference, found.pending) == (0, 0)

    VoucherOrder.objects.filter(pk__in=ids).update(pay_by=timezone.now())
    assert expire_all(clocks=both_at(timezone.now())) == 3
    sale.refresh_from_db()
    assert (sale.sold, snapshot(sale_id=sale.pk).remaining) == (0, 10)


def test_report_on_unloaded_sale_uses_rows(ten: SeckillVoucher) -> None:
    report = report_of(ten)
    assert (report.snapshot, report.knows_latest, report.accepted) == (None, True, 10)


def test_buyers_whom_rules_refused_are_counted_by_rule() -> None:
    sale = a_sale(stock=1)
    assert "Buyers refused by a rule" not in [it.title for it in sections_in_english(sale)]
    for rule, buyers in (("code", make_buyers(3)), ("contact", make_buyers(1))):
        for buyer in buyers:
            RuleRefusal.objects.create(seckill_voucher=sale, rule=rule, user=buyer)
    (found,) = (it for it in sections_in_english(sale) if it.title == "Buyers refused by a rule")
    assert [(it.label, it.plain) for it in found.figures] == [
        ("No verified contact", 1),
        ("No invitation code", 3),
    ]


def sections_in_english(sale: SeckillVoucher) -> list[Section]:
    with translation.override("en"):
        return sections(report_of(sale))
