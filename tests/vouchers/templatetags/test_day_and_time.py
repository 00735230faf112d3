"""Amounts and moments as buyers read them."""

from __future__ import annotations

import datetime as dt
import re
from pathlib import Path

import pytest
import time_machine
from django.utils import timezone, translation

from seckill_site.clocks.machine import epoch_ms
from seckill_site.formatting import exact_date_and_time, short_money
from vouchers.templatetags.seckill import clock, day_and_time, day_ends_at_ms

pytestmark = [pytest.mark.quick, pytest.mark.usefixtures("in_shanghai")]

LATE = dt.datetime(2026, 11, 21, 15, 30, tzinfo=dt.UTC)
"""23:30 on a Saturday in Shanghai."""

HOUR, DAY = dt.timedelta(hours=1), dt.timedelta(days=1)


def said(value, *, now=LATE, language="en"):
    with time_machine.travel(now, tick=False), translation.override(language):
        return re.sub(r"<[^>]+>", "", day_and_time(value))


@pytest.mark.parametrize(
    ("after", "words"),
    [
        (dt.timedelta(), "today, 23:30"),
        (-23 * HOUR, "today, 00:30"),
        (-24 * HOUR, "yesterday, 23:30"),
        (-48 * HOUR, "19 Nov, 23:30"),
        (HOUR, "tomorrow, 00:30"),
        (24 * HOUR, "tomorrow, 23:30"),
        (25 * HOUR, "Mon, 00:30"),
        (6 * DAY, "Fri, 23:30"),
        (6 * DAY + HOUR, "28 Nov, 00:30"),
        (60 * DAY, "20 Jan 2027, 23:30"),
    ],
)
def test_near_days_are_named_by_words(after, words):
    assert said(LATE + after) == words


def test_days_are_counted_in_shop_zone():
    midnight = dt.datetime(2026, 11, 21, 16, 0, tzinfo=dt.UTC)

    assert said(midnight - HOUR, now=LATE) == "today, 23:00"
    assert said(midnight, now=LATE) == "tomorrow, 00:00"
    assert said(midnight, now=midnight) == "today, 00:00"


@pytest.mark.parametrize("language", ["en", "zh-hans"])
@pytest.mark.parametrize("days", range(-3, 10))
def test_time_is_shown_in_each_language(language, days):
    assert "23:30" in said(LATE + days * DAY, language=language)


def test_element_carries_moment_and_date():
    with time_machine.travel(LATE, tick=False), translation.override("en"):
        element = day_and_time(LATE + HOUR)

    assert element == (
        '<time datetime="2026-11-22T00:30:00+08:00" data-zone="UTC+8" data-date="22 Nov, 00:30">'
        "tomorrow, 00:30</time>"
    )


def test_clock_carries_moment_and_zone():
    with time_machine.travel(LATE, tick=False), translation.override("en"):
        said = [clock(LATE), clock(LATE, exact_date_and_time(LATE))]

    start = '<time datetime="2026-11-21T23:30:00+08:00" data-zone="UTC+8">'
    assert said == [f"{start}21 Nov, 23:30</time>", f"{start}21 Nov, 23:30:00.000</time>"]


def test_every_clock_of_a_buyers_page_has_its_zone():
    plain = re.compile(r"\{\{[^}]*\|(?:exact_)?date_and_time *\}\}|with \w+=\S*\|date_and_time")
    pages = [it for it in Path("templates").rglob("*.html") if it.parts[1] not in ("admin", "lab")]

    # The sandbox is a test's; the waiting room has no byte left; the form has a time on a button.
    unmarked = {it.name for it in pages if plain.search(it.read_text())}
    assert unmarked <= {"sandbox.html", "room.html", "purchase_form.html"}


def test_day_ends_at_midnight_of_shop():
    with time_machine.travel(LATE, tick=False):
        assert day_ends_at_ms() == epoch_ms(LATE + HOUR / 2)


@time_machine.travel("2026-03-28 12:00:00+00:00", tick=False)
def test_day_of_clock_change_is_shorter():
    with timezone.override("Europe/Berlin"):
        assert said(dt.datetime(2026, 3, 29, 22, 30, tzinfo=dt.UTC), now=timezone.now()) == (
            "Mon, 00:30"
        )


@pytest.mark.parametrize(
    ("cents", "text"),
    [
        (0, "¥0"),
        (5, "¥0.05"),
        (8_000, "¥80"),
        (7_990, "¥79.90"),
        (128_000, "¥1,280"),
        (99_999_950, "¥999,999.50"),
        (100_000_000, "¥1,000,000"),
    ],
)
def test_short_money_groups_thousands_and_drops_zero_cents(cents, text):
    assert short_money(cents) == text
