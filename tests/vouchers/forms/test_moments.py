"""Moments that are typed, also where the clocks go back or forward."""

from __future__ import annotations

import datetime as dt

import pytest
from django import forms

from vouchers.forms.fields import MomentField
from vouchers.forms.moments import MomentInput, SplitMomentField

pytestmark = [pytest.mark.quick, pytest.mark.usefixtures("english")]

FIRST = dt.datetime(2027, 11, 7, 5, 30, 15, tzinfo=dt.UTC)
SECOND = FIRST + dt.timedelta(hours=1)
"""Both are 01:30:15 in New York, whose clocks go back at two."""


class MomentsForm(forms.Form):
    line = MomentField()
    split = SplitMomentField()


def sent(day: str, time: str) -> MomentsForm:
    return MomentsForm({"line": f"{day} {time}", "split_0": day, "split_1": time})


@pytest.fixture(autouse=True)
def new_york(settings: object) -> None:
    settings.TIME_ZONE = "America/New_York"  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "moment", [FIRST, SECOND, dt.datetime(2027, 11, 7, 12, tzinfo=dt.UTC)], ids=str
)
def test_stored_moment_passes_a_form_unchanged(moment: dt.datetime) -> None:
    initial = {"line": moment, "split": moment}
    shown = MomentsForm(initial=initial)
    day, time = shown["split"].field.widget.decompress(moment)

    form = MomentsForm(
        {"line": shown["line"].value(), "split_0": str(day), "split_1": time}, initial=initial
    )

    assert form.is_valid(), form.errors
    assert form.cleaned_data == initial
    assert form.changed_data == []


@pytest.mark.parametrize(("offset", "moment"), [("-04:00", FIRST), ("-05:00", SECOND)])
@pytest.mark.parametrize("blank", ["", " "])
def test_time_that_comes_twice_asks_for_its_offset(
    offset: str, moment: dt.datetime, blank: str
) -> None:
    asked = sent("2027-11-07", "01:30:15")
    assert set(asked.errors) == {"line", "split"}
    for [text] in asked.errors.values():
        assert "01:30-04:00 for the first time, 01:30-05:00 for the second." in text

    form = sent("2027-11-07", f"01:30:15{blank}{offset}")

    assert form.is_valid(), form.errors
    assert form.cleaned_data == {"line": moment, "split": moment}


@pytest.mark.parametrize(
    ("day", "time", "why"),
    [
        ("2027-03-14", "02:30", "The clocks go forward and skip this time."),
        ("2027-11-08", "01:30-04:00", "at another offset from UTC then: 01:30-05:00."),
        ("2027-11-07", "01:30+08:00", "Add its offset from UTC"),
        ("2027-11-07", "01:30-99:00", "Write it like"),
    ],
)
def test_time_that_never_comes_is_refused(day: str, time: str, why: str) -> None:
    form = sent(day, time)

    assert set(form.errors) == {"line", "split"}
    assert why in form.errors["line"][0]


def test_browsers_control_becomes_text_for_an_offset() -> None:
    class BoardForm(forms.Form):
        until = MomentField(widget=MomentInput)

    usual = BoardForm(initial={"until": dt.datetime(2027, 11, 8, tzinfo=dt.UTC)})
    assert 'type="datetime-local"' in str(usual["until"])
    for form in (BoardForm({"until": "2027-11-07T01:30"}), BoardForm(initial={"until": SECOND})):
        assert 'type="text"' in str(form["until"])
