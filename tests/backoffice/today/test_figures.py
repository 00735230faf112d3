"""The figures of Today: right, as on the board and in the report, and cheap."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from django.core.cache import cache
from django.core.checks import Error
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from backoffice.board.snapshot import read_board
from backoffice.report.figures import report_sale
from backoffice.revenue import EVER_PAID, Revenue
from backoffice.today import figures as module
from backoffice.today.figures import Rights, Today, Trade, day_start, read_today, read_trade
from orders.fulfilment.worker import fulfil_sale
from orders.lifecycle.transitions import Actor
from orders.models import (
    LIVE_STATUSES,
    JobStatus,
    OrderEvent,
    OrderJob,
    OrderStatus,
    Payment,
    PaymentStatus,
    Rehearsal,
    VoucherOrder,
)
from orders.payments.refunds import finish_refunds, refund_order
from tests.support.inspection import redis_commands
from tests.support.orders import make_buyer, make_buyers, make_order, make_sale, pending, reserved
from tests.support.payments import make_payment, make_unpaid_order, pay, use_and_undo
from tests.support.staff import words
from tests.support.tiers import slow_after
from vouchers.inventory.batch_journal import set_aside
from vouchers.models import SaleStage, SeckillVoucher, Voucher

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("english")]

ALL = Rights(sales=True, orders=True, payments=True, system=True)
DAY = 24 * 3600


def look(rights: Rights = ALL, now: dt.datetime | None = None) -> Today:
    return read_today(now=now or timezone.now(), rights=rights)


def traded() -> Trade:
    """Return the day's trade, counted anew."""
    cache.clear()
    found = read_trade(now=timezone.now())
    assert found
    return found


# --- The day's trade ------------------------------------------------------------------------------


@pytest.mark.slow
def test_trade_agrees_with_board_and_report() -> None:
    sales = [make_sale(stock=50), make_sale(stock=50)]
    orders = [make_unpaid_order(sale) for sale in sales for _ in range(4)]
    for order in orders[:5]:
        pay(order)
    refund_order(order_id=orders[0].pk, by=Actor.staff(make_buyer().pk), now=timezone.now())
    finish_refunds(now=timezone.now())

    found = traded()

    now = timezone.now()
    boards = [read_board(sale_id=sale.pk, now=now) for sale in sales]
    statuses = [board.counts.statuses for board in boards if board.counts]
    assert found.orders == sum(sum(it.values()) - it[OrderStatus.REFUSED] for it in statuses) == 8
    reports = [report_sale(sale_id=sale.pk, now=now) for sale in sales]
    assert found.paid == sum(report.count(*EVER_PAID) for report in reports) == 5
    assert sum(report.revenue.gross_cents for report in reports) == 5 * 8_000
    assert sum(report.revenue.refunded_cents for report in reports) == 8_000
    shown = [Revenue(**board.counts.revenue) for board in boards if board.counts]
    assert shown == [report.revenue for report in reports]
    assert found.revenue == Revenue(5 * 8_000, 8_000)
    assert found.refunded == 1


def test_refund_counts_from_its_start_and_undone_redemptions_not() -> None:
    paid, used, undone = (make_order(make_sale(), make_buyer(), status=it) for it in (
        OrderStatus.REFUNDING, OrderStatus.USED, OrderStatus.PAID,
    ))  # fmt: skip
    changes = [
        (paid, "paid", "refunding"), (used, "paid", "used"), (used, "used", "paid"),
        (used, "paid", "used"), (undone, "paid", "used"), (undone, "used", "paid"),
    ]  # fmt: skip
    for order, before, after in changes:
        OrderEvent.objects.create(
            order=order, before=before, after=after, at=timezone.now(), actor_kind="system"
        )

    found = traded()

    assert (found.revenue, found.paid, found.redeemed) == (Revenue(0, 8_000), 0, 1)


def test_undone_use_is_no_second_payment() -> None:
    order = make_unpaid_order(make_sale())
    pay(order)
    before = traded()
    use_and_undo(order)
    assert traded() == before


def test_trade_counts_from_midnight_in_the_shop() -> None:
    order = make_unpaid_order(make_sale())
    midnight = day_start(timezone.now())
    before = OrderEvent.objects.get(order=order)
    for seconds, expected in ((-1, 0), (0, 1)):
        OrderEvent.objects.filter(pk=before.pk).update(at=midnight + dt.timedelta(seconds=seconds))
        assert traded().orders == expected


def test_first_event_of_the_day_is_found_among_older_ones() -> None:
    order = make_unpaid_order(make_sale())
    midnight = day_start(timezone.now())
    OrderEvent.objects.all().delete()
    days_ago = [midnight - dt.timedelta(hours=hours) for hours in (70, 50, 30, 20, 2)]
    today = [midnight + dt.timedelta(minutes=minutes) for minutes in range(3)]
    for at in (*days_ago, *today):
        OrderEvent.objects.create(
            order=order, before="unpaid", after="paid", at=at, actor_kind="buyer"
        )

    first = module._first_event_id(midnight)

    read = OrderEvent.objects.filter(pk__gte=first)
    assert [it.at for it in read] == today
    assert traded().paid == 3


def test_day_without_events_has_no_trade() -> None:
    assert traded() == Trade(0, 0, 0, 0, 0, 0)


def test_rehearsals_are_no_trade() -> None:
    make_unpaid_order(make_sale(stage=SaleStage.REHEARSAL))

    assert traded().orders == 0


def test_trade_reads_a_range_of_ids() -> None:
    order = make_unpaid_order(make_sale())
    since = day_start(timezone.now()) - dt.timedelta(days=2)
    OrderEvent.objects.filter(order=order).delete()
    old = [
        OrderEvent(
            order=order,
            before=OrderStatus.UNPAID,
            after=OrderStatus.PAID,
            at=since + dt.timedelta(seconds=n),
            actor_kind="buyer",
        )
        for n in range(2_000)
    ]
    OrderEvent.objects.bulk_create(old)
    make_unpaid_order(make_sale())
    with CaptureQueriesContext(connection) as queries:
        assert traded().orders == 1
    [counting] = [it["sql"] for it in queries if "SUM(" in it["sql"].upper()]

    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN {counting}")
        names = [it[0] for it in cursor.description]
        rows = [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]

    [events] = [row for row in rows if row["table"] == OrderEvent._meta.db_table]
    assert (events["type"], events["key"]) == ("range", "PRIMARY")


def test_trade_is_unknown_while_another_viewer_counts() -> None:
    now = timezone.now()
    cache.add(f"today:trade:{day_start(now):%Y%m%d}:counting", 1, timeout=30)

    assert read_trade(now=now) is None


# --- Sales ----------------------------------------------------------------------------------------


def test_running_sale_has_the_figures_of_its_board() -> None:
    sale = make_sale(stock=100)
    reserved(sale, make_buyers(3))
    fulfil_sale(sale_id=sale.pk)

    [shown] = look().running or []

    board = read_board(sale_id=sale.pk, now=timezone.now())
    assert shown.snapshot
    assert board.snapshot
    assert shown.snapshot.remaining == board.snapshot.remaining == 97
    assert (shown.state, shown.sum) == (board.state, board.sum)


def test_drafts_rehearsals_and_ended_sales_do_not_run() -> None:
    make_sale(stage=SaleStage.DRAFT)
    make_sale(stage=SaleStage.REHEARSAL)
    make_sale(begins_in_s=-DAY, ends_in_s=-60)

    found = look()

    assert (found.running, found.next) == ([], None)


@pytest.mark.slow
def test_sales_beyond_the_shown_ones_are_counted() -> None:
    for _ in range(module.SHOWN_SALES + 2):
        make_sale()

    found = look()

    assert len(found.running or []) == module.SHOWN_SALES
    assert found.more_running == 2


def test_next_sale_is_the_earliest_and_says_if_it_is_ready() -> None:
    make_sale(begins_in_s=2 * DAY, ends_in_s=3 * DAY)
    soon = make_sale(begins_in_s=DAY, ends_in_s=2 * DAY, loaded=False)
    fields = {"seckill_voucher": soon, "buyers": 8, "stock": 4, "running": None}
    Rehearsal.objects.create(phase="failed", problem="old", **fields)
    latest = Rehearsal.objects.create(phase="failed", problem="new", **fields)

    found = look().next

    assert found
    assert (found.sale, found.is_loaded, found.rehearsal) == (soon, False, latest)


def test_loaded_sale_without_rehearsal_is_shown_as_such() -> None:
    make_sale(begins_in_s=DAY, ends_in_s=2 * DAY)

    found = look().next

    assert found
    assert (found.is_loaded, found.rehearsal) == (True, None)


def test_without_redis_figures_are_unknown(lose_ledger: Callable[[], None]) -> None:
    make_sale()
    make_sale(begins_in_s=DAY, ends_in_s=2 * DAY)
    lose_ledger()

    found = look(Rights(sales=True, orders=True))

    assert not found.ledger_answers
    [shown] = found.running or []
    assert (shown.snapshot, shown.pace) == (None, None)
    assert found.next
    assert found.next.is_loaded is None


def test_lost_redis_is_told_when_nothing_runs_yet(lose_ledger: Callable[[], None]) -> None:
    make_sale(begins_in_s=DAY, ends_in_s=2 * DAY)
    lose_ledger()

    assert not look().ledger_answers


# --- Money that goes back -------------------------------------------------------------------------


def refunds_on(now: dt.datetime) -> tuple[int, int, int, int]:
    """Return what Today counts at a moment: under way and due, with their sums."""
    cache.clear()
    found = look(now=now).refunds
    assert found
    return *found["under_way"], *found["due"]


@pytest.mark.slow
def test_refunds_under_way_and_due_this_month_are_counted(settings: Any) -> None:
    settings.TIME_ZONE = "Asia/Shanghai"
    sale = make_sale(stock=9)
    Voucher.objects.update(valid_until=dt.date(2030, 11, 11))
    statuses = [*["paid"] * 3, "used", "refunding", "unpaid"]
    for buyer, status in zip(make_buyers(6), statuses, strict=True):
        make_order(sale, buyer, status=OrderStatus(status))
    price = 8_000

    def at(day: int, month: int = 11) -> tuple[int, int, int, int]:
        return refunds_on(dt.datetime(2030, month, day, 4, tzinfo=dt.UTC))

    assert at(31, month=10) == (1, price, 0, 0), "next month's are not this month's"
    assert at(1) == at(11) == (1, price, 3, 3 * price)
    assert at(12) == (1, price, 3, 3 * price), "late, as while beat is away"
    Voucher.objects.update(valid_until=dt.date(2030, 11, 30))
    assert at(30) == (1, price, 0, 0), "due on the first of the next month"
    Voucher.objects.update(valid_until=dt.date(2030, 11, 11))
    SeckillVoucher.objects.update(refund_unused=None)
    assert at(1) == at(12) == (1, price, 0, 0)


def test_page_of_today_shows_money_that_goes_back(shop: Client) -> None:
    sale = make_sale(stock=9)
    Voucher.objects.update(valid_until=timezone.localdate() - dt.timedelta(days=1))
    make_order(make_sale(refund_unused=False), make_buyer(), status=OrderStatus.PAID)
    statuses = [OrderStatus.PAID, OrderStatus.PAID, OrderStatus.REFUNDING, OrderStatus.USED]
    for buyer, status in zip(make_buyers(4), statuses, strict=True):
        make_order(sale, buyer, status=status)
    cache.clear()
    page = shop.get("/admin/").text
    under_way = "Refunds under way ¥80.00 1 voucher, at the payment provider's pace"
    due = "Refunds due this month ¥160.00 2 vouchers, unless they are used by their last day"
    assert under_way in words(page)
    assert due in words(page)
    # Each figure leads to a list of exactly what it counts.
    for query, listed in (("status__exact=refunding", ["refunding"]), ("refund=due", ["paid"] * 2)):
        url = f"/admin/orders/voucherorder/?{query}"
        assert f'href="{url}"' in page
        assert [it.status for it in shop.get(url).context["cl"].result_list] == listed


def test_who_sees_no_orders_sees_no_refunds() -> None:
    assert look(Rights(sales=True)).refunds is None


@pytest.mark.slow
def test_refund_that_waits_for_its_turn_is_no_worry() -> None:
    payment = pay(make_unpaid_order(make_sale()))
    long_ago = timezone.now() - dt.timedelta(hours=1)
    waiting = {"asked": 0, "ask_at": long_ago, "changed_at": long_ago}
    Payment.objects.update(status=PaymentStatus.REFUNDING, **waiting)
    assert look().worries.refunds == 0
    Payment.objects.filter(pk=payment.pk).update(asked=1, ask_at=timezone.now())
    assert look().worries.refunds == 1


# --- What needs attention -------------------------------------------------------------------------


def test_quiet_shop_needs_no_attention() -> None:
    pay(make_unpaid_order(make_sale()))

    worries = look(Rights(sales=True, orders=True, payments=True)).worries

    assert replace(worries, beats=[]) == module.Worries()


def test_set_aside_orders_need_attention() -> None:
    sale = make_sale()
    make_order(sale, make_buyer(), status=OrderStatus.REFUSED, reason="failed")
    make_order(sale, make_buyer(), status=OrderStatus.REFUSED, reason="sold_out")

    assert look().worries.set_aside == 1


def test_unwritten_entry_of_a_sale_needs_attention() -> None:
    sale, fine = make_sale(), make_sale()
    reserved(sale, [make_buyer()])
    set_aside(sale_id=sale.pk, entries=[pending(sale)[0]])

    assert [board.sale for board in look().worries.boards] == [sale]
    assert fine.pk


def test_wrong_balance_needs_attention() -> None:
    sale = make_sale(stock=10)
    SeckillVoucher.objects.filter(pk=sale.pk).update(sold=2)

    assert [board.sale for board in look().worries.boards] == [sale]


@pytest.mark.parametrize(
    ("changes", "hours_ago", "expected"),
    slow_after(
        2,
        [
            ({}, {"silent_since": 1}, (1, 0)),
            ({}, {"silent_since": 0}, (0, 0)),
            ({"status": PaymentStatus.REFUNDING}, {}, (0, 0)),
            ({"status": PaymentStatus.REFUNDING, "asked": 1}, {"changed_at": 1}, (0, 1)),
            ({"status": PaymentStatus.REFUNDED, "problem": "late"}, {}, (0, 0)),
        ],
    ),
)
def test_payments_with_problems_need_attention(
    changes: dict[str, str], hours_ago: dict[str, int], expected: tuple[int, int]
) -> None:
    now = timezone.now()
    times = {name: now - dt.timedelta(hours=hours) for name, hours in hours_ago.items()}
    payment = make_payment(make_unpaid_order(make_sale()))
    Payment.objects.filter(pk=payment.pk).update(**changes, **times)

    worries = look().worries

    assert (worries.payments, worries.refunds) == expected


@pytest.mark.parametrize(
    ("status", "order_status", "expected"),
    slow_after(
        2,
        [
            ("disputed", "paid", (1, 0)),
            ("refund_failed", "refunded", (0, 1)),
            ("partly_refunded", "refunding", (0, 1)),
            ("partly_refunded", "paid", (0, 0)),
        ],
    ),
)
def test_third_states_of_payments_need_attention(
    status: str, order_status: str, expected: tuple[int, int]
) -> None:
    payment = pay(make_unpaid_order(make_sale()))
    Payment.objects.update(status=status)
    live = True if order_status in LIVE_STATUSES else None
    VoucherOrder.objects.filter(pk=payment.order_id).update(status=order_status, live=live)

    worries = look().worries

    assert (worries.disputes, worries.decisions) == expected


def test_overdue_unpaid_orders_need_attention() -> None:
    """Beat may be away: five orders past their deadline would hold stock in silence."""
    sale, now = make_sale(), timezone.now()
    late, soon, paid = (make_unpaid_order(sale) for _ in range(3))
    pay(paid)
    for order, ago_s in ((late, 70), (soon, 50), (paid, 70)):
        pay_by = now - dt.timedelta(seconds=ago_s)
        VoucherOrder.objects.filter(pk=order.pk).update(pay_by=pay_by)

    assert look(now=now).worries.overdue == 1
    assert look(now=now, rights=Rights(sales=True)).worries.overdue == 0


def test_refused_mails_need_attention() -> None:
    order = make_unpaid_order(make_sale())
    assert look().worries.mails == 0
    order.events.update(notify_at=timezone.now())

    assert look().worries.mails == 1


def test_stuck_job_needs_attention() -> None:
    job = OrderJob.objects.create(kind=OrderJob.Kind.CANCEL, total=1)
    assert look().worries.jobs == 0
    OrderJob.objects.update(changed_at=timezone.now() - dt.timedelta(hours=1))
    assert look().worries.jobs == 1
    OrderJob.objects.filter(pk=job.pk).update(status=JobStatus.DONE)
    assert look().worries.jobs == 0


def test_failed_check_and_silent_part_need_attention(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "current_parts", lambda: {"redis": True, "broker": False})
    monkeypatch.setattr(module, "current_errors", lambda parts: [Error("No space is left.")])

    worries = look().worries

    assert (worries.parts, worries.checks) == (["broker"], ["No space is left."])


# --- Rights and costs -----------------------------------------------------------------------------


QUERIES = 18
"""The running sales, the next one, its rehearsal, the trade (two), eleven counts, two queues."""


@pytest.mark.slow
@pytest.mark.parametrize("orders", [1, 20])
@pytest.mark.parametrize("running", [1, 4])
def test_queries_depend_on_running_sales_alone(
    running: int, orders: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "current_parts", dict)
    monkeypatch.setattr(module, "current_errors", lambda parts: [])
    for _ in range(running):
        make_unpaid_order(make_sale(stock=50), make_buyers(orders))
    make_sale(begins_in_s=DAY, ends_in_s=2 * DAY)
    look()  # the cache knows the start of the day from now on
    cache.delete_many([f"today:trade:{day_start(timezone.now()):%Y%m%d}", "today:checks"])

    with CaptureQueriesContext(connection) as queries, redis_commands() as commands:
        look()

    assert len(queries) == QUERIES + running
    assert len(commands) <= 13 + 2 * running
