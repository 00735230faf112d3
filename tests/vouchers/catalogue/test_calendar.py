"""The calendar file of a sale, read back as a calendar would read it."""

from __future__ import annotations

import datetime as dt

import pytest
from django.utils import timezone, translation
from icalendar import Calendar

from tests.support.sales import HOUR, make_sale, make_voucher
from vouchers.catalogue.calendar import calendar_file
from vouchers.inventory.reservations import SaleEnded

pytestmark = [pytest.mark.django_db, pytest.mark.quick, pytest.mark.usefixtures("english")]

URL = "https://shop.example/vouchers/7/"
BEGIN = dt.datetime(2026, 12, 1, 12, 0, tzinfo=dt.UTC)
END = dt.datetime(2026, 12, 3, 12, 0, tzinfo=dt.UTC)
TITLES = [
    "Noodles",
    "火锅双人套餐；一百元代金券，周末通用" * 6,
    'Hotpot, for two; "all in"\\n, half: price\nand a second line',
    "🍜" * 60,
]


def coming(**fields):
    voucher = make_voucher(title=fields.pop("title", "Noodles"))
    return make_sale(voucher=voucher, **{"begins_at": BEGIN, "ends_at": END, **fields})


def raw(sale, **more):
    return calendar_file(sale=sale, page_url=URL, now=more.get("now", BEGIN - HOUR))


def event(sale, **more):
    [found] = Calendar.from_ical(raw(sale, **more)).walk("VEVENT")
    return found


def test_event_has_utc_window_and_address():
    found = event(coming())

    assert found["dtstart"].dt == BEGIN
    assert found["dtend"].dt == END
    assert str(found["url"]) == URL
    content = raw(coming())
    assert b"\r\nDTSTART:20261201T120000Z\r\n" in content
    assert b"\r\nDTEND:20261203T120000Z\r\n" in content
    assert b"\r\nDTSTAMP:20261201T110000Z\r\n" in content


@pytest.mark.parametrize("title", TITLES)
def test_any_title_survives_the_file(title):
    assert str(event(coming(title=title[:120]))["summary"]) == f"Flash sale: {title[:120]}"


@pytest.mark.parametrize("title", TITLES)
def test_long_lines_fold_between_characters(title):
    content = raw(coming(title=title[:120]))

    lines = content.split(b"\r\n")
    assert content.endswith(b"END:VCALENDAR\r\n")
    assert max(map(len, lines)) <= 75
    for line in lines:
        line.decode("utf-8")
    assert b"\n" not in content.replace(b"\r\n", b"")


def test_title_cannot_end_the_event():
    found = event(coming(title="x\r\nEND:VEVENT\r\nBEGIN:VALARM\r\nATTACH:http://evil.example/"))

    assert "ATTACH" not in found
    assert len(found.walk("VALARM")) == 2


def test_control_characters_are_removed():
    content = raw(coming(title="a\x00b\x07c\x1bd\x7fe"))

    assert b"SUMMARY:Flash sale: abcde\r\n" in content


def test_alarms_ring_ten_and_one_minute_before():
    alarms = event(coming()).walk("VALARM")

    assert [alarm["trigger"].dt for alarm in alarms] == [
        dt.timedelta(minutes=-10),
        dt.timedelta(minutes=-1),
    ]
    assert {alarm["action"] for alarm in alarms} == {"DISPLAY"}
    assert {str(alarm["description"]) for alarm in alarms} == {"Flash sale: Noodles"}


def test_description_has_price_limit_and_address():
    text = str(event(coming(limit=2))["description"])

    assert text.splitlines() == [
        "¥80.00 instead of ¥100.00.",
        "Up to 2 vouchers per buyer.",
        "Sign in a few minutes before the start to be ready.",
        URL,
    ]
    assert "1 voucher per buyer." in str(event(coming())["description"])


def test_event_id_belongs_to_the_sale():
    sale, other = coming(), coming()
    later = event(sale, now=BEGIN - HOUR / 2)

    assert event(sale)["uid"] == later["uid"] == f"sale-{sale.pk}@shop.example"
    assert event(other)["uid"] != later["uid"]


def test_later_file_has_higher_sequence():
    sale = coming()
    sale.created_at = BEGIN - HOUR
    first, later = event(sale), event(sale, now=BEGIN - HOUR / 2)

    assert 0 <= first["sequence"] < later["sequence"] < 2**31
    assert first["last-modified"].dt < later["last-modified"].dt
    assert event(sale, now=sale.created_at - HOUR)["sequence"] == 0, "Redis has another clock"


def test_event_does_not_block_time():
    assert event(coming())["transp"] == "TRANSPARENT"


def test_ended_sale_has_no_file():
    assert event(coming(), now=END - dt.timedelta(seconds=1))
    with pytest.raises(SaleEnded):
        raw(coming(), now=END)


def test_file_uses_language_of_page():
    with translation.override("zh-hans"):
        content = raw(make_sale(ends_at=timezone.now() + 2 * HOUR), now=timezone.now())

    assert b"PRODID:-//Seckill//Flash sales//ZH-HANS\r\n" in content
