"""Amounts of money as text, in the decimals of their currency, and moments."""

from __future__ import annotations

import datetime as dt

import pytest
from django.utils import translation

from orders.payments.reading import LARGEST_CENTS, cents_of
from seckill_site.formatting import listed, money_in, plain_money, time_window
from seckill_site.web.admin_lists import moment

pytestmark = pytest.mark.quick


@pytest.mark.parametrize(
    ("cents", "currency", "plain", "shown"),
    [
        (128_050, "CNY", "1280.50", "¥1,280.50"),
        (128_050, "", "1280.50", "¥1,280.50"),
        (128_050, "USD", "1280.50", "1,280.50 USD"),
        (128_050, "JPY", "128050", "128,050 JPY"),
        (5, "KRW", "5", "5 KRW"),
        (128_050, "KWD", "128.050", "128.050 KWD"),
        (5, "EUR", "0.05", "0.05 EUR"),
    ],
)
def test_amount_has_the_decimals_of_its_currency(
    cents: int, currency: str, plain: str, shown: str
) -> None:
    assert (plain_money(cents, currency), money_in(cents, currency)) == (plain, shown)
    assert cents_of(plain, currency) == cents


@pytest.mark.parametrize(
    "text",
    ["", "-1", "1.001", "1e2", "1E+1000000000", "1" * 11, "１", "1.", ".5", " 1", "NaN", "1,000"],
)
def test_malformed_amount_raises(text: str) -> None:
    with pytest.raises(ValueError, match="malformed"):
        cents_of(text)


def test_amount_is_bounded_by_its_column() -> None:
    assert cents_of("21474836.47") == LARGEST_CENTS
    assert cents_of("80.0000") == 8_000
    with pytest.raises(ValueError, match="malformed"):
        cents_of("21474836.48")
    with pytest.raises(ValueError, match="malformed"):
        cents_of("1.5", "JPY")


NOON = dt.datetime(2020, 12, 7, 4, tzinfo=dt.UTC)
"""Noon in Shanghai, where the shop of the tests is, in a year that is not this one."""


@pytest.mark.parametrize(
    ("language", "hours", "shown"),
    [
        ("en", 2, "Mon 7 Dec 2020, 12:00–14:00"),
        ("en", 24, "Mon 7 Dec 2020, 12:00 – Tue 8 Dec 2020, 12:00"),
        ("zh-hans", 2, "周一 2020年12月7日 12:00–14:00"),
    ],
)
def test_window_names_its_day_once(language: str, hours: int, shown: str) -> None:
    with translation.override(language):
        assert time_window(NOON, NOON + dt.timedelta(hours=hours)) == shown


@pytest.mark.parametrize(
    ("language", "shown"), [("en", "1 lost, 2 sold"), ("zh-hans", "1 lost、2 sold")]
)
def test_list_is_separated_as_its_language_does(language: str, shown: str) -> None:
    with translation.override(language):
        assert listed(["1 lost", "2 sold"]) == shown


def test_moment_is_exact_with_its_zone() -> None:
    assert str(moment(NOON)) == (
        '<time datetime="2020-12-07T12:00:00+08:00" data-relative>2020-12-07 12:00:00 '
        '<span class="office-zone">UTC+8</span></time>'
    )
