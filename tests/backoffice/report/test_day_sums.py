"""Sums by sale and day: those of what has not changed, and none that is out of date."""

from __future__ import annotations

import datetime as dt
from contextlib import suppress

import pytest
from django.db import OperationalError
from django.utils import timezone

from backoffice.report import day_sums
from backoffice.report.across_sales import Figures, Grouping, Scope, report_across
from backoffice.report.day_sums import changed_sales, sum_days
from backoffice.report.period import Period
from orders.models import DaySum, OrderEvent
from tests.support.orders import make_sale
from tests.support.payments import make_unpaid_order, pay
from vouchers.models import SaleStage

pytestmark = pytest.mark.django_db

LATER = dt.timedelta(minutes=11)


def later() -> dt.datetime:
    return timezone.now() + LATER


def total() -> Figures:
    period = Period.before(timezone.localdate(), days=2)
    return report_across(scope=Scope(period, Grouping.DAY), now=timezone.now()).total


def test_report_reads_sums_until_an_order_of_the_sale_changes() -> None:
    sale = make_sale()
    order, _ = make_unpaid_order(sale), make_unpaid_order(sale)
    before = total()
    assert not sum_days(now=later())
    assert changed_sales() == set()
    assert total() == before

    DaySum.objects.update(count=7)  # the control: this is what it reads
    assert total().orders == 7

    pay(order)
    assert changed_sales() == {sale.pk}
    assert (total().orders, total().unused, total().received_cents) == (2, 1, order.price_cents)
    sum_days(now=later())
    assert changed_sales() == set()
    assert (total().orders, total().unused, total().received_cents) == (2, 1, order.price_cents)


def test_pass_leaves_changes_that_a_transaction_may_still_join() -> None:
    make_unpaid_order(make_sale())
    assert not sum_days(now=timezone.now())
    assert not DaySum.objects.exists()


def test_pass_goes_on_where_the_last_one_was_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(day_sums, "MOST_CHANGES", 2)
    for _ in range(4):
        make_unpaid_order(make_sale())
    rounds = 1
    while sum_days(now=later()):
        rounds += 1
    assert rounds == 3
    assert changed_sales() == set()
    assert total().orders == 4


def test_failed_pass_leaves_the_sums_of_before(monkeypatch: pytest.MonkeyPatch) -> None:
    sale = make_sale()
    make_unpaid_order(sale)
    sum_days(now=later())
    last = OrderEvent.objects.latest("pk").pk
    make_unpaid_order(sale)

    def fail(*args: object, **kwargs: object) -> None:
        raise OperationalError("a pass that dies between its statements")

    monkeypatch.setattr(DaySum.objects, "bulk_create", fail)
    with suppress(OperationalError):
        sum_days(now=later())
    monkeypatch.undo()
    assert DaySum.objects.get().event_id == last
    assert total().orders == 2


def test_rehearsals_are_in_no_sum() -> None:
    make_unpaid_order(make_sale(stage=SaleStage.REHEARSAL))
    sum_days(now=later())
    assert not DaySum.objects.exists()
