"""The hints beside the fields of a sale, by entries, stored sale and time."""

from __future__ import annotations

import datetime as dt
from zoneinfo import ZoneInfo

import pytest

from seckill_site.formatting import duration
from vouchers.catalogue.form_hints import Entries, Hint, Level, sale_hints
from vouchers.models import SaleStage, SeckillVoucher

pytestmark = [pytest.mark.quick, pytest.mark.usefixtures("english", "in_shanghai")]

SHANGHAI = dt.timezone(dt.timedelta(hours=8))
NOW = dt.datetime(2026, 11, 21, 17, 50, tzinfo=SHANGHAI)
MINUTE = dt.timedelta(minutes=1)
AT_EIGHT = NOW + 130 * MINUTE
"""Eight in the evening in the shop."""


def sale(begins_at, ends_at, **fields):
    return SeckillVoucher(begins_at=begins_at, ends_at=ends_at, **{"stock": 5, **fields})


def said(entries, **around):
    """Return the hints as ``{field: [texts]}``."""
    found = sale_hints(entries=entries, **{"now": NOW, **around})
    return {field: [hint.text for hint in hints] for field, hints in found.items()}


def warned(entries, **around):
    """Return the texts of the warnings."""
    found = sale_hints(entries=entries, **{"now": NOW, **around})
    every = [hint for hints in found.values() for hint in hints]
    return [hint.text for hint in every if hint.level is Level.WARNING]


def test_empty_form_has_no_hints():
    assert said(Entries()) == {}


def test_ordinary_sale_has_hints_and_no_warnings():
    entries = Entries(
        begins_at=AT_EIGHT,
        ends_at=AT_EIGHT + 30 * MINUTE,
        stock=1000,
        limit=2,
        pay_within_s=900,
        price_cents=8_000,
        face_value_cents=10_000,
    )

    assert said(entries) == {
        "begins_at": ["Starts in 2 h 10 min."],
        "ends_at": ["Lasts 30 min."],
        "stock": ["Stock 1,000 at limit 2: at least 500 buyers."],
        "price": ["80% of the face value."],
        "pay_within_s": ["Buyers have 15 min to pay; the last of them until 20:45."],
    }
    assert warned(entries) == []


@pytest.mark.parametrize(
    ("seconds", "units", "text"),
    [
        (0, 2, "0 s"),
        (59, 2, "59 s"),
        (60, 2, "1 min"),
        (90, 2, "1 min 30 s"),
        (7_800, 2, "2 h 10 min"),
        (7_205, 2, "2 h"),
        (7_205, 4, "2 h 5 s"),
        (93_784, 2, "1 d 2 h"),
        (93_784, 4, "1 d 2 h 3 min 4 s"),
    ],
)
def test_length_uses_largest_units(seconds, units, text):
    assert duration(dt.timedelta(seconds=seconds), units=units) == text


def test_length_counts_the_skipped_hour():
    berlin = ZoneInfo("Europe/Berlin")
    begins_at = dt.datetime(2030, 3, 30, 20, tzinfo=berlin)

    entries = Entries(begins_at=begins_at, ends_at=dt.datetime(2030, 3, 31, 8, tzinfo=berlin))

    assert said(entries)["ends_at"] == ["Lasts 11 h."]


# --- A start in the past --------------------------------------------------------------------------

BEGUN = Entries(begins_at=NOW - 5 * MINUTE, ends_at=NOW + 5 * MINUTE)


def test_started_new_sale_warns_before_and_after_saving():
    [begin] = sale_hints(entries=BEGUN, now=NOW)["begins_at"]

    assert begin == Hint(
        Level.WARNING,
        "Started 5 min ago: buyers can buy as soon as you save.",
        "The sale started 5 min ago: buyers can buy now.",
    )


@pytest.mark.parametrize(
    ("closed", "text"),
    [
        ({"stage": SaleStage.DRAFT}, "buyers can buy as soon as the sale is published."),
        ({"paused": True}, "buyers can buy as soon as the sale is resumed."),
    ],
)
def test_started_closed_sale_names_what_opens_it(closed, text):
    entries = Entries(begins_at=BEGUN.begins_at, ends_at=BEGUN.ends_at, **closed)

    assert warned(entries) == [f"Started 5 min ago: {text}"]


def test_sale_already_selling_is_no_warning():
    running = sale(BEGUN.begins_at, BEGUN.ends_at)

    assert said(BEGUN, stored=running)["begins_at"] == ["Started 5 min ago."]
    assert warned(BEGUN, stored=running) == []


def test_edit_that_starts_sale_at_once_warns():
    scheduled = sale(AT_EIGHT, AT_EIGHT + MINUTE)

    assert warned(BEGUN, stored=scheduled) == [
        "Started 5 min ago: buyers can buy as soon as you save."
    ]


def test_past_end_warns_unless_stored():
    over = Entries(begins_at=NOW - 60 * MINUTE, ends_at=NOW - 5 * MINUTE)
    text = "Ended 5 min ago: nobody can buy."

    assert warned(over) == [text]
    assert said(over)["ends_at"] == ["Lasts 55 min.", text]
    assert "begins_at" not in said(over)
    assert warned(over, stored=sale(over.begins_at, over.ends_at)) == []


@pytest.mark.parametrize(("minutes", "warnings"), [(60, 1), (61, 0)])
def test_draft_starting_within_an_hour_warns(minutes, warnings):
    entries = Entries(begins_at=NOW + minutes * MINUTE, stage=SaleStage.DRAFT)

    assert len(said(entries)["begins_at"]) == 1
    assert len(warned(entries)) == warnings


# --- Overlaps -------------------------------------------------------------------------------------


def test_overlap_names_other_sale_and_its_window():
    entries = Entries(begins_at=AT_EIGHT, ends_at=AT_EIGHT + 30 * MINUTE)
    same_day = sale(AT_EIGHT, AT_EIGHT + 30 * MINUTE, pk=12)
    longer = sale(AT_EIGHT - dt.timedelta(days=1), AT_EIGHT + 1.5 * MINUTE, pk=13)

    assert warned(entries, others=[same_day, longer]) == [
        "Overlaps with another sale of this voucher: #12, 20:00 to 20:30.",
        "Overlaps with another sale of this voucher: #13, 2026-11-20 20:00 to 2026-11-21 20:01:30.",
    ]


def test_further_overlaps_are_counted():
    entries = Entries(begins_at=AT_EIGHT, ends_at=AT_EIGHT + 30 * MINUTE)
    others = [sale(AT_EIGHT, AT_EIGHT + MINUTE, pk=pk) for pk in range(1, 6)]

    texts = warned(entries, others=others)

    assert len(texts) == 4
    assert texts[-1] == "Overlaps with 2 more sales of this voucher."


# --- Numbers --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("stock", "limit", "texts"),
    [
        (1_000, 1, ["Stock 1,000 at limit 1: at least 1,000 buyers."]),
        (5, 2, ["Stock 5 at limit 2: at least 3 buyers."]),
        (1, 1, ["Stock 1 at limit 1: at least 1 buyer."]),
        (2, 2, ["Stock 2 at limit 2: at least 1 buyer.", "One buyer can take them all."]),
        (0, 1, ["No vouchers: nobody can buy."]),
        (5, None, []),
    ],
)
def test_stock_hint_names_number_of_buyers(stock, limit, texts):
    assert said(Entries(stock=stock, limit=limit)).get("stock", []) == texts


def test_taken_units_warn_when_all_are_taken():
    assert said(Entries(stock=10), taken=7) == {"stock": ["Taken so far: 7. Left: 3."]}
    assert warned(Entries(stock=7), taken=7) == ["All 7 are taken: the sale is sold out."]


@pytest.mark.parametrize(
    ("price", "face_value", "texts"),
    [
        (7_990, 10_000, ["79.9% of the face value."]),
        (10_000, 10_000, ["100% of the face value."]),
        (1, 3, ["33.3% of the face value."]),
        (0, 10_000, ["Free: buyers pay nothing."]),
        (0, 0, ["Free: buyers pay nothing."]),
        (10_001, 10_000, []),
        (8_000, None, []),
    ],
)
def test_price_hint_is_share_of_face_value(price, face_value, texts):
    entries = Entries(price_cents=price, face_value_cents=face_value)

    assert said(entries).get("price", []) == texts


def test_time_to_pay_needs_no_window():
    assert said(Entries(pay_within_s=90)) == {"pay_within_s": ["Buyers have 1 min 30 s to pay."]}


@pytest.mark.parametrize("ends_at", [AT_EIGHT, AT_EIGHT - MINUTE])
def test_end_before_start_has_no_length(ends_at):
    assert "ends_at" not in said(Entries(begins_at=AT_EIGHT, ends_at=ends_at))
