"""Moments as people type them, in the shop's time zone.

Where the clocks go back, an hour comes twice. A time in it is shown with its offset from UTC, and
has to be typed with it: ``01:30-05:00``.
"""

import datetime as dt
import re
from typing import Any

from django import forms
from django.contrib.admin.widgets import AdminSplitDateTime
from django.core.exceptions import ValidationError
from django.utils import timezone
from django.utils.dateparse import parse_datetime
from django.utils.translation import gettext

_OFFSET = re.compile(r"(.*?) *([+-])([01][0-9]|2[0-3]):([0-5][0-9])")


def split_offset(text: str) -> tuple[str, dt.timezone | None]:
    """Return the text before an offset from UTC at its end, and the offset."""
    match = _OFFSET.fullmatch(text.strip())
    if match is None:
        return text, None
    before, sign, hours, minutes = match.groups()
    offset = dt.timedelta(hours=int(hours), minutes=int(minutes))
    return before, dt.timezone(-offset if sign == "-" else offset)


def as_moment(wall: dt.datetime) -> dt.datetime:
    """Return the moment at which the shop's clocks show this time, at its offset if it has one.

    :raises ValidationError: they skip it, or show it twice or at another offset.
    """
    first, second = _both(wall)
    if first > second:
        raise ValidationError(gettext("The clocks go forward and skip this time."))
    if wall.tzinfo is None and first == second:
        return first
    if wall.tzinfo in (first.tzinfo, second.tzinfo):
        return wall
    if first == second:
        text = gettext("The shop's clocks are at another offset from UTC then: %(first)s.")
    else:
        text = gettext(
            "The clocks go back and show this time twice. Add its offset from UTC: %(first)s for "
            "the first time, %(second)s for the second."
        )
    texts = {"first": _clock(first), "second": _clock(second)}
    raise ValidationError(text % texts)


def _both(wall: dt.datetime) -> tuple[dt.datetime, dt.datetime]:
    """Return the moments of a time by the clocks before and after they change, mostly the same.

    Each has a fixed offset: Python takes a time that comes twice for unequal to any other.
    """
    zone = timezone.get_current_timezone()
    offsets = (wall.replace(tzinfo=zone, fold=fold).utcoffset() for fold in (0, 1))
    first, second = (wall.replace(tzinfo=dt.timezone(it or dt.timedelta())) for it in offsets)
    return first, second


def _clock(moment: dt.datetime) -> str:
    text = moment.isoformat(timespec="minutes")
    return text.partition("T")[2]


def _comes_twice(wall: dt.datetime) -> bool:
    first, second = _both(wall)
    return first < second


def written(moment: dt.datetime) -> str:
    """Return a moment as the shop's clocks show it, with its offset only if they do so twice."""
    local = timezone.localtime(moment)
    text = local.isoformat(timespec="seconds")
    return text if _comes_twice(local) else text[:19]


class MomentInput(forms.TextInput):
    """The browser's control for a date with its time, or a line of text for one with its offset."""

    input_type = "datetime-local"

    def get_context(self, name: str, value: Any, attrs: Any) -> dict[str, Any]:
        context = super().get_context(name, value, attrs)
        text, offset = split_offset(context["widget"]["value"] or "")
        wall = _parsed(text)
        if offset or (wall and _comes_twice(wall)):
            context["widget"]["type"] = "text"
        return context


def _parsed(text: str) -> dt.datetime | None:
    try:
        return parse_datetime(text)
    except ValueError:
        return None


class _TimeField(forms.TimeField):
    """A time of day, with or without an offset from UTC."""

    def to_python(self, value: Any) -> dt.time | None:
        text, offset = split_offset(value) if isinstance(value, str) else (value, None)
        time = super().to_python(text)
        return time.replace(tzinfo=offset) if time else None


class SplitMomentInput(AdminSplitDateTime):
    """The controls of Django's admin for a date and a time."""

    def __init__(self, attrs: dict[str, Any] | None = None) -> None:
        super().__init__(attrs)
        self.widgets[1].attrs["size"] = "14"  # as long as a time with its offset

    def decompress(self, value: dt.datetime | None) -> Any:
        day, _ = super().decompress(value)
        # With its seconds: a sale starts at one, and the local formats drop it.
        return [day, written(value).partition("T")[2] if value else None]


class SplitMomentField(forms.SplitDateTimeField):
    """A date and a time of day, each with a control of its own."""

    widget = SplitMomentInput

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        invalid = {"invalid": self.error_messages["invalid_time"]}
        self.fields = (self.fields[0], _TimeField(required=False, error_messages=invalid))

    def compress(self, data_list: Any) -> dt.datetime | None:
        if not data_list or any(it in self.empty_values for it in data_list):
            return super().compress(data_list)
        return as_moment(dt.datetime.combine(*data_list))
