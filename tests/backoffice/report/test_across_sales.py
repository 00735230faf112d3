"""The report across sales: equal to a naive computation, whatever has happened, and cheap."""

from __future__ import annotations

import datetime as dt
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from typing import Any

import pytest
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext
from django.utils import timezone, translation
from hypothesis import HealthCheck, given
from hypothesis import settings as examples
from hypothesis import strategies as st
from redis import Redis

from accounts.deletion import anonymise
from backoffice.report.across_sales import Figures, Grouping, Scope, report_across
from backoffice.report.day_sums import _sums_of
from backoffice.report.figures import report_sale
from backoffice.report.period import Period
from backoffice.revenue import Revenue
from orders.models import LIVE_STATUSES, DaySum, OrderEvent, OrderStatus, VoucherOrder
from seckill_site.web.url_converters import LARGEST_ID
from tests.support.orders import make_buyer, make_buyers, make_sale
from tests.support.tiers import slow_after
from vouchers.inventory.keys import LedgerKeys
from vouchers.models import AnswerCount, Merchant, SaleMode, SaleStage, SeckillVoucher, Voucher

pytestmark = pytest.mark.django_db

START = dt.datetime(2026, 10, 22, 22, tzinfo=dt.UTC)
"""Three days before the clocks change in Berlin, at midnight there."""

PERIOD = Period(dt.date(2026, 10, 24), dt.date(2026, 10, 27))
NOW = START + dt.timedelta(days=30)
ONE_DAY = dt.timedelta(days=1)

_ids = count(1)


def moments(days: int = 8) -> st.SearchStrategy[dt.datetime]:
    """Return moments, half of them near a midnight of Berlin or Shanghai."""
    any_time = st.integers(0, days * 24 * 3600).map(lambda s: START + dt.timedelta(seconds=s))
    hours = st.integers(0, days * 24).map(lambda h: START + dt.timedelta(hours=h))
    near = st.tuples(hours, st.sampled_from([-1, 0, 1])).map(
        lambda it: it[0] + dt.timedelta(milliseconds=it[1])
    )
    return any_time | near


def waits() -> st.SearchStrategy[dt.timedelta]:
    return st.integers(0, 3 * 24 * 60).map(lambda m: dt.timedelta(minutes=m))


@dataclass(frozen=True)
class OrderStory:
    """An order of a history: of which sale, when, and how far it came."""

    sale: int
    accepted_at: dt.datetime
    status: OrderStatus
    pays_after: dt.timedelta
    returns_after: dt.timedelta
    cents: int
    buyer_leaves: bool


@dataclass(frozen=True)
class SaleStory:
    voucher: int
    stage: SaleStage
    is_draw: bool
    begins_at: dt.datetime
    sold_out_after: dt.timedelta | None


@dataclass(frozen=True)
class AnswerStory:
    sale: int
    at: dt.datetime
    count: int


@dataclass(frozen=True)
class History:
    sales: list[SaleStory]
    orders: list[OrderStory]
    answers: list[AnswerStory]


SALES = 4
sales = st.builds(
    SaleStory,
    voucher=st.integers(0, 3),
    stage=st.sampled_from([SaleStage.PUBLIC] * 3 + [SaleStage.REHEARSAL]),
    is_draw=st.booleans(),
    begins_at=moments(),
    sold_out_after=st.none() | waits(),
)
orders = st.builds(
    OrderStory,
    sale=st.integers(0, SALES - 1),
    accepted_at=moments(),
    status=st.sampled_from(OrderStatus),
    pays_after=waits(),
    returns_after=waits(),
    cents=st.integers(0, 100_000),
    buyer_leaves=st.booleans(),
)
answers = st.builds(
    AnswerStory, sale=st.integers(0, SALES - 1), at=moments(), count=st.integers(1, 1_000)
)
histories = st.builds(
    History,
    sales=st.lists(sales, min_size=SALES, max_size=SALES),
    orders=st.lists(orders, max_size=12),
    answers=st.lists(answers, max_size=6, unique_by=lambda it: (it.sale, it.at)),
)

PAID_STATUSES = (
    OrderStatus.PAID, OrderStatus.USED, OrderStatus.REFUNDING, OrderStatus.REFUNDED,
)  # fmt: skip
RETURNED = (OrderStatus.REFUNDING, OrderStatus.REFUNDED)


def write(history: History) -> list[SeckillVoucher]:
    """Write the rows that such a history leaves behind."""
    merchant = Merchant.objects.create(name=f"M{next(_ids)}")
    vouchers = [
        Voucher.objects.create(title=f"V{n}", price_cents=1, face_value_cents=1, merchant=merchant)
        for n in range(3)
    ]
    # One voucher is from the release before, which knows no merchants.
    vouchers.append(Voucher.objects.create(title="V3", price_cents=1, face_value_cents=1))
    made = [
        SeckillVoucher.objects.create(
            voucher=vouchers[it.voucher],
            stock=100,
            stage=it.stage,
            mode=SaleMode.DRAW if it.is_draw else SaleMode.FIRST_COME,
            begins_at=it.begins_at,
            ends_at=it.begins_at + ONE_DAY,
            sold_out_at=None if it.sold_out_after is None else it.begins_at + it.sold_out_after,
        )
        for it in history.sales
    ]
    for story in history.orders:
        write_order(made[story.sale], story)
    for answer in history.answers:
        AnswerCount.objects.create(
            seckill_voucher=made[answer.sale], at=answer.at, answer="sold_out", count=answer.count
        )
    for voucher in vouchers:
        Voucher.objects.filter(pk=voucher.pk).update(title=f"renamed {voucher.title}")
    return made


def write_order(sale: SeckillVoucher, story: OrderStory) -> VoucherOrder:
    buyer = make_buyer()
    order = VoucherOrder.objects.create(
        id=next(_ids),
        user=buyer,
        seckill_voucher=sale,
        unit=1,
        status=story.status,
        live=story.status in LIVE_STATUSES or None,
        reason="sold_out" if story.status == OrderStatus.REFUSED else "",
        price_cents=story.cents,
        accepted_at=story.accepted_at,
    )
    for before, after, at in changes_of(story):
        OrderEvent.objects.create(
            order=order, before=before, after=after, at=at, actor_kind="system"
        )
    if story.buyer_leaves:
        anonymise(buyer)
    return order


def changes_of(story: OrderStory) -> list[tuple[str, str, dt.datetime]]:
    """Return the events of an order: before, after, time."""
    status, at = story.status, story.accepted_at
    if status == OrderStatus.REFUSED:
        return [("", "refused", at)]
    found = [("", "unpaid", at)]
    paid_at = at + story.pays_after
    if status in (OrderStatus.CANCELLED, OrderStatus.EXPIRED):
        late = (status.value, status.value, paid_at)  # money that came too late and goes back
        return [*found, ("unpaid", status.value, paid_at), late]
    if status in PAID_STATUSES:
        found.append(("unpaid", "paid", paid_at))
    if status in (OrderStatus.USED, *RETURNED):  # used by mistake, which was undone
        found.append(("paid", "used", paid_at))
        found.append(("used", "paid", paid_at + story.returns_after))
    if status == OrderStatus.USED:
        found.append(("paid", "used", paid_at + story.returns_after))
    if status in RETURNED:
        found.append(("paid", "refunding", paid_at + story.returns_after))
    if status == OrderStatus.REFUNDED:
        found.append(("refunding", "refunded", paid_at + story.returns_after + ONE_DAY))
    return found


def naive(history: History, made: list[SeckillVoucher], by: Grouping) -> dict[int, Figures]:
    """Compute the same figures in Python, row by row."""
    found: dict[int, Figures] = defaultdict(Figures)

    def row(sale: int, moment: dt.datetime) -> Figures:
        """Return the row for this moment of a sale; a spare one for what is not in the report."""
        day = timezone.localtime(moment).date()
        if history.sales[sale].stage == SaleStage.REHEARSAL:
            return Figures()
        if not PERIOD.first <= day <= PERIOD.last:
            return Figures()
        keys = {
            Grouping.DAY: (day - PERIOD.first).days,
            Grouping.SALE: made[sale].pk,
            Grouping.VOUCHER: made[sale].voucher_id,
            Grouping.MERCHANT: made[sale].voucher.merchant_id or 0,
        }
        return found[keys[by]]

    for number, sale in enumerate(history.sales):
        its = row(number, sale.begins_at)
        its.sales += 1
        if sale.sold_out_after is not None and not sale.is_draw:
            its.sold_out += 1
            faster = its.fastest is None or sale.sold_out_after < its.fastest
            its.fastest = sale.sold_out_after if faster else its.fastest
    for order in history.orders:
        note_order(order, row)
    for answer in history.answers:
        row(answer.sale, answer.at).requests += answer.count
    return dict(found)


def note_order(order: OrderStory, row: Callable[[int, dt.datetime], Figures]) -> None:
    its = row(order.sale, order.accepted_at)
    its.orders += 1
    its.sold += order.status in LIVE_STATUSES
    its.ever_paid += order.status in PAID_STATUSES
    its.unused += order.status == OrderStatus.PAID
    paid_at = order.accepted_at + order.pays_after
    if order.status in PAID_STATUSES:
        row(order.sale, paid_at).received_cents += order.cents
    if order.status in RETURNED:
        row(order.sale, paid_at + order.returns_after).refunded_cents += order.cents


@pytest.mark.slow
@pytest.mark.parametrize("zone", ["Europe/Berlin", "Asia/Shanghai"])
@pytest.mark.parametrize("by", Grouping)
@examples(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(history=histories)
def test_figures_equal_a_naive_computation(by: Grouping, zone: str, history: History) -> None:
    """Refunds on a later day, deleted buyers, renamed vouchers, draws, rehearsals, many sales."""
    with timezone.override(zone), transaction.atomic():
        made = write(history)
        report = report_across(scope=Scope(PERIOD, by), now=NOW)
        expected = naive(history, made, by)
        for sale in made:
            if sale.stage != SaleStage.REHEARSAL and sale.orders.exists():
                DaySum.objects.bulk_create(_sums_of(sale.pk, to=LARGEST_ID, now=NOW))
        summed = report_across(scope=Scope(PERIOD, by), now=NOW)
        transaction.set_rollback(True)
    assert {row.key: row.figures for row in report.rows} == expected
    assert summed == report
    total = Figures()
    for figures in expected.values():
        total.add(figures)
    assert report.total == total


# --- One figure each ------------------------------------------------------------------------------


NOON = dt.datetime(2026, 11, 11, 4, tzinfo=dt.UTC)
"""Noon in Shanghai, where the shop of these tests is."""


def sale_at(begins_at: dt.datetime = NOON, **fields: Any) -> SeckillVoucher:
    sale = make_sale(loaded=False, **fields)
    sale.begins_at, sale.ends_at = begins_at, begins_at + dt.timedelta(hours=2)
    sale.save()
    return sale


def story(status: OrderStatus, **fields: Any) -> OrderStory:
    plain: dict[str, Any] = {
        "sale": 0, "accepted_at": NOON, "status": status, "cents": 8_000, "buyer_leaves": False,
        "pays_after": dt.timedelta(minutes=1), "returns_after": dt.timedelta(days=2),
    }  # fmt: skip
    return OrderStory(**{**plain, **fields})


def days(now: dt.datetime = NOON + ONE_DAY * 5, **scope: Any) -> dict[str, Figures]:
    """Return the rows of November by day."""
    period = Period(dt.date(2026, 11, 1), dt.date(2026, 11, 30))
    report = report_across(scope=Scope(period, Grouping.DAY, **scope), now=now)
    return {row.name: row.figures for row in report.rows}


def test_revenue_of_a_sale_is_that_of_its_own_report() -> None:
    sale = sale_at()
    for status in OrderStatus:
        write_order(sale, story(status))
    report, own = days(), report_sale(sale_id=sale.pk, now=NOON + ONE_DAY * 5)
    total = Figures()
    for figures in report.values():
        total.add(figures)
    assert total.revenue == own.revenue == Revenue(4 * 8_000, 2 * 8_000)
    assert own.revenue.net_cents == own.cents(OrderStatus.PAID, OrderStatus.USED)
    assert (total.orders, total.conversion) == (own.accepted, own.conversion)


def test_undone_redemption_is_no_second_payment() -> None:
    sale = sale_at()
    order = write_order(sale, story(OrderStatus.USED))
    OrderEvent.objects.create(
        order=order, before="used", after="paid", at=NOON + ONE_DAY, actor_kind="staff"
    )
    VoucherOrder.objects.filter(pk=order.pk).update(status="paid")
    assert sum(it.received_cents for it in days().values()) == 8_000
    assert report_sale(sale_id=sale.pk, now=NOON + ONE_DAY * 5).paid.count == 1


def test_sales_have_rows_of_their_own_with_their_window() -> None:
    first = sale_at()
    second = SeckillVoucher.objects.create(
        voucher=first.voucher, stock=1, begins_at=NOON + ONE_DAY, ends_at=NOON + ONE_DAY * 2
    )
    for sale, times in ((first, 2), (second, 1)):
        for _ in range(times):
            write_order(sale, story(OrderStatus.PAID))
    Voucher.objects.update(title="Rice")
    period = Period(dt.date(2026, 11, 1), dt.date(2026, 11, 30))
    with translation.override("en"):
        rows = report_across(scope=Scope(period, Grouping.SALE), now=NOON + ONE_DAY * 3).rows
    assert [(row.key, row.name, row.figures.orders) for row in rows] == [
        (first.pk, "Rice · Wed 11 Nov, 12:00–14:00", 2),
        (second.pk, "Rice · Thu 12 Nov, 12:00 – Fri 13 Nov, 12:00", 1),
    ]


def test_voucher_keeps_one_row_under_its_present_name() -> None:
    first = sale_at()
    second = SeckillVoucher.objects.create(
        voucher=first.voucher, stock=1, begins_at=NOON + ONE_DAY, ends_at=NOON + ONE_DAY * 2
    )
    for sale in (first, second):
        write_order(sale, story(OrderStatus.PAID))
    Voucher.objects.update(title="New name")
    period = Period(dt.date(2026, 11, 1), dt.date(2026, 11, 30))
    (row,) = report_across(scope=Scope(period, Grouping.VOUCHER), now=NOON + ONE_DAY * 3).rows
    assert (row.name, row.figures.sales, row.figures.orders) == ("New name", 2, 2)


def test_report_can_be_about_one_voucher() -> None:
    sale, other = sale_at(), sale_at()
    write_order(sale, story(OrderStatus.PAID))
    write_order(other, story(OrderStatus.PAID, cents=5))
    AnswerCount.objects.create(seckill_voucher=other, at=NOON, answer="ended", count=3)
    found = days(voucher_id=sale.voucher_id)
    assert {it: (row.sales, row.received_cents, row.requests) for it, row in found.items()} == {
        "2026-11-11": (1, 8_000, 0)
    }


def test_report_can_be_about_one_merchant() -> None:
    sale, other = sale_at(), sale_at()
    merchant = Merchant.objects.create(name="Old town")
    Voucher.objects.filter(pk=sale.voucher_id).update(merchant=merchant)
    for it in (sale, other):
        write_order(it, story(OrderStatus.PAID))
    assert days(merchant_id=merchant.pk)["2026-11-11"].orders == 1
    assert days()["2026-11-11"].orders == 2


def test_sale_that_has_not_started_is_not_counted() -> None:
    sale_at(NOON + ONE_DAY)
    sale_at(stage=SaleStage.DRAFT)
    assert days(now=NOON + dt.timedelta(hours=1)) == {}


def test_sold_out_in_no_time_is_fastest() -> None:
    for after_s in (0, 3):
        sale = sale_at()
        sale.sold_out_at = NOON + dt.timedelta(seconds=after_s)
        sale.save()
    assert days()["2026-11-11"].fastest == dt.timedelta()


def test_draw_does_not_sell_out() -> None:
    sale_at(mode=SaleMode.DRAW, sold_out_at=NOON + dt.timedelta(seconds=60))
    counted = days()["2026-11-11"]
    assert (counted.sales, counted.sold_out, counted.fastest) == (1, 0, None)


# --- Requests of the last minutes -----------------------------------------------------------------


def test_unstored_requests_are_counted_once(ledger: Redis) -> None:
    sale, second = sale_at(), int(NOON.timestamp())
    AnswerCount.objects.create(seckill_voucher=sale, at=NOON, answer="sold_out", count=5)
    tally = LedgerKeys(sale.pk).tally
    # The first is stored, and leaves Redis in a later pass; the others are not stored yet.
    ledger.hset(tally, f"{second}:sold_out", 5)
    ledger.hset(tally, f"{second + 1}:sold_out", 7)
    ledger.hset(tally, f"{second + 86_400}:ended", 2)
    found = days(now=NOON + dt.timedelta(minutes=1))
    assert {it: row.requests for it, row in found.items()} == {"2026-11-11": 12, "2026-11-12": 2}
    report = report_sale(sale_id=sale.pk, now=NOON)
    assert report.answers.total() == 14


def test_report_without_redis_says_what_is_missing(lose_ledger: Callable[[], None]) -> None:
    sale = sale_at()
    AnswerCount.objects.create(seckill_voucher=sale, at=NOON, answer="ended", count=3)
    lose_ledger()
    period = Period(dt.date(2026, 11, 11), dt.date(2026, 11, 11))
    report = report_across(scope=Scope(period, Grouping.DAY), now=NOON)
    assert (report.knows_latest, report.total.requests) == (False, 3)


# --- Cost -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("by", slow_after(1, Grouping))
def test_cost_does_not_grow_with_the_data(
    by: Grouping, ledger: Redis, ledger_trips: list[int]
) -> None:
    period = Period(dt.date(2026, 11, 1), dt.date(2026, 11, 30))

    def cost() -> tuple[int, int]:
        before = len(ledger_trips)
        with CaptureQueriesContext(connection) as asked:
            report_across(scope=Scope(period, by), now=NOON + ONE_DAY)
        return len(asked), len(ledger_trips) - before

    first = sale_at()
    ledger.hset(LedgerKeys(first.pk).tally, f"{int(NOON.timestamp())}:ended", 1)
    write_order(first, story(OrderStatus.PAID))
    small = cost()
    for number in range(10):
        sale = sale_at(NOON + ONE_DAY * number)
        for status in OrderStatus:
            write_order(sale, story(status))
    assert cost() == small
    # Sales that may have counts in Redis, their rows, all others; what has changed (four); sales,
    # sums, orders, money; names.
    assert small == (11 if by is Grouping.DAY else 12, 1)


@pytest.mark.slow
@pytest.mark.django_db(transaction=True)  # to analyse a table commits
@pytest.mark.usefixtures("row_locks")
def test_statements_read_ranges_of_indexes() -> None:
    """MariaDB finds the rows of a short period by an index over their time."""
    sale = sale_at()
    start = NOON - ONE_DAY * 300
    buyers = make_buyers(1)
    VoucherOrder.objects.bulk_create(
        VoucherOrder(
            id=10_000 + n, user=buyers[0], seckill_voucher=sale, unit=1, live=None,
            status="expired", price_cents=1, accepted_at=start + dt.timedelta(hours=n),
        ) for n in range(3_000)
    )  # fmt: skip
    OrderEvent.objects.bulk_create(
        OrderEvent(
            order_id=10_000 + n, before="unpaid", after="paid", actor_kind="system",
            at=start + dt.timedelta(hours=n),
        ) for n in range(3_000)
    )  # fmt: skip
    AnswerCount.objects.bulk_create(
        AnswerCount(
            seckill_voucher=sale, at=start + dt.timedelta(hours=n), answer="ended", count=1
        ) for n in range(3_000)
    )  # fmt: skip
    with connection.cursor() as cursor:
        for table in (VoucherOrder, OrderEvent, AnswerCount):
            cursor.execute(f"ANALYZE TABLE {table._meta.db_table}")
            cursor.fetchall()
    period = Period(dt.date(2026, 11, 11), dt.date(2026, 11, 12))
    with CaptureQueriesContext(connection) as asked:
        report_across(scope=Scope(period, Grouping.VOUCHER), now=NOON + ONE_DAY)
    used = set()
    with connection.cursor() as cursor:
        for query in asked:
            cursor.execute(f"EXPLAIN {query['sql']}")
            used |= {str(row[5]) for row in cursor.fetchall()}
    assert {"order_by_accepted_at", "event_by_after_at", "answer_count_by_at"} <= used
