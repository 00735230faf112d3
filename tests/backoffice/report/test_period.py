"""Periods: days of the shop's time zone, also where the clocks change, in Python and in SQL."""

from __future__ import annotations

import datetime as dt

import pytest
from django.utils import timezone

from backoffice.report.period import Period
from tests.support.orders import make_sale
from vouchers.models import AnswerCount

pytestmark = pytest.mark.django_db

MARCH = Period(dt.date(2026, 3, 27), dt.date(2026, 3, 31))
"""In Berlin, 29 March 2026 has 23 hours."""

OCTOBER = Period(dt.date(2026, 10, 23), dt.date(2026, 10, 27))
"""In Berlin, 25 October 2026 has 25 hours."""


def test_period_includes_both_its_days() -> None:
    period = Period.before(dt.date(2026, 11, 11), days=7)
    assert (period.first, period.last, period.days) == (
        dt.date(2026, 11, 5), dt.date(2026, 11, 11), 7,
    )  # fmt: skip


def test_days_start_at_midnight_of_the_shop() -> None:
    with timezone.override("Asia/Shanghai"):
        period = Period(dt.date(2026, 11, 11), dt.date(2026, 11, 11))
        assert period.since == dt.datetime(2026, 11, 10, 16, tzinfo=dt.UTC)
        assert period.until == dt.datetime(2026, 11, 11, 16, tzinfo=dt.UTC)


@pytest.mark.parametrize("period", [MARCH, OCTOBER], ids=["short-day", "long-day"])
@pytest.mark.parametrize("zone", ["Europe/Berlin", "Asia/Shanghai", "Asia/Kathmandu"])
def test_database_numbers_days_as_the_calendar(period: Period, zone: str) -> None:
    sale = make_sale(loaded=False)
    with timezone.override(zone):
        starts = [period.start_of(number) for number in range(period.days)]
        edges = [start + dt.timedelta(seconds=s) for start in starts for s in (0, 1, 82_799)]
        edges += [period.start_of(n + 1) - dt.timedelta(seconds=1) for n in range(period.days)]
        edges += [start + dt.timedelta(hours=24) - dt.timedelta(seconds=1) for start in starts[:-1]]
        for moment in set(edges):
            AnswerCount.objects.create(seckill_voucher=sale, at=moment, answer="ended", count=1)
        rows = AnswerCount.objects.values_list("at", period.day_number("at"))
        assert {at: int(number) for at, number in rows} == {
            at: (at.astimezone(timezone.get_current_timezone()).date() - period.first).days
            for at in edges
        }
