"""A number of days in the shop's time zone, and the number of a day in SQL."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import Any

from django.db.models import Case, F, Func, IntegerField, Value, When
from django.db.models.expressions import Combinable
from django.utils import timezone

DAY_S = 86_400

MAX_DAYS = 366
"""The longest period of one report."""


@dataclass(frozen=True)
class Period:
    """The days from ``first`` to ``last``, both included."""

    first: dt.date
    last: dt.date

    @classmethod
    def before(cls, today: dt.date, *, days: int) -> Period:
        """Return the period of that many days that ends today."""
        return cls(today - dt.timedelta(days=days - 1), today)

    @property
    def previous(self) -> Period:
        """Return the period of as many days that ends the day before."""
        return Period.before(self.first - dt.timedelta(days=1), days=self.days)

    @property
    def days(self) -> int:
        return (self.last - self.first).days + 1

    @property
    def since(self) -> dt.datetime:
        return self.start_of(0)

    @property
    def until(self) -> dt.datetime:
        """The end of the last day, which is not part of it."""
        return self.start_of(self.days)

    def start_of(self, number: int) -> dt.datetime:
        """Return midnight, in the shop's time zone, at the start of day 0, 1, …"""
        day = self.first + dt.timedelta(days=number)
        midnight = dt.datetime.combine(day, dt.time(), timezone.get_current_timezone())
        return midnight.astimezone(dt.UTC)

    def day(self, number: int) -> dt.date:
        return self.first + dt.timedelta(days=number)

    def number_of(self, moment: dt.datetime) -> int:
        return (timezone.localtime(moment).date() - self.first).days

    def within(self, field: str) -> dict[str, Any]:
        """Return the condition that this field lies in the period, for an index of it."""
        return {f"{field}__gte": self.since, f"{field}__lt": self.until}

    def day_number(self, field: str) -> Combinable:
        """Return the number of a moment's day as SQL.

        The database may know no time zones. Days are 24 hours long except where the clocks change:
        a run of such days is counted from its own start, and any other day is named.
        """
        starts = [int(self.start_of(it).timestamp()) for it in range(self.days + 1)]
        whens, first = [], 0

        def until(number: int, then: Any) -> None:
            whens.append(When(**{f"{field}__lt": self.start_of(number)}, then=then))

        for number in range(self.days + 1):
            if number < self.days and starts[number + 1] - starts[number] == DAY_S:
                continue
            if first < number:
                until(number, Value(first) + _DaysSince(F(field), start_s=starts[first]))
            if number < self.days:
                until(number + 1, Value(number))
            first = number + 1
        return Case(*whens, output_field=IntegerField())


class _DaysSince(Func):
    """Days of 24 hours from a moment, in seconds since 1970, until another."""

    output_field = IntegerField()

    def as_sqlite(self, compiler: Any, connection: Any, **context: Any) -> Any:
        # Doubled once for this template and once for the driver.
        template = "((CAST(strftime('%%%%s', %(expressions)s) AS INTEGER) - %(start_s)s) / 86400)"
        return self.as_sql(compiler, connection, template=template, **context)

    def as_mysql(self, compiler: Any, connection: Any, **context: Any) -> Any:
        template = (
            "((TIMESTAMPDIFF(SECOND, '1970-01-01', %(expressions)s) - %(start_s)s) DIV 86400)"
        )
        return self.as_sql(compiler, connection, template=template, **context)
