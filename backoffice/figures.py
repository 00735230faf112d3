"""Figures in words: for the pages of the back office, its commands and its CSV files."""

import datetime as dt
from dataclasses import dataclass

from seckill_site.formatting import NO_VALUE, exact_duration, grouped, money, plain_money, timestamp


@dataclass(frozen=True)
class Figure:
    """One figure: the text shown, and the plain value in its unit for a spreadsheet.

    ``is_part`` says that it is part of the one before; ``url`` is where it is handled, if anywhere.
    """

    label: str
    shown: str
    plain: str | int | float = ""
    unit: str = ""
    note: str = ""
    is_part: bool = False
    is_wrong: bool = False
    url: str = ""

    @property
    def heading(self) -> str:
        """The label with the unit of the plain value."""
        return f"{self.label} ({self.unit})" if self.unit else self.label


@dataclass(frozen=True)
class Section:
    """Figures below a title."""

    title: str
    figures: list[Figure]


def count(label: str, value: int | None, note: str = "", *, is_part: bool = False) -> Figure:
    plain = "" if value is None else value
    return Figure(label, grouped(value), plain, note=note, is_part=is_part)


def yuan(label: str, cents: int, note: str = "") -> Figure:
    return Figure(label, money(cents), plain_money(cents), "¥", note)


def percent(label: str, share: float | None, note: str = "") -> Figure:
    if share is None:
        return Figure(label, NO_VALUE, unit="%", note=note)
    return Figure(label, f"{100 * share:.1f}%", round(100 * share, 2), "%", note)


def moment(label: str, at: dt.datetime | None, note: str = "", *, exact: bool = False) -> Figure:
    if at is None:
        return Figure(label, NO_VALUE, note=note)
    text = timestamp(at, exact=exact)
    return Figure(label, text, text, note=note)


def duration(label: str, length: dt.timedelta | None, note: str = "") -> Figure:
    plain = "" if length is None else round(length.total_seconds(), 3)
    return Figure(label, exact_duration(length), plain, "s", note)
