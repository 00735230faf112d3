"""Amounts of money as text, in the decimals of their currency."""

from __future__ import annotations

import pytest

from orders.payments.reading import LARGEST_CENTS, cents_of
from seckill_site.formatting import money_in, plain_money

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
