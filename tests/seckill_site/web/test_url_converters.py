"""Ids in URLs: ASCII digits, no leading zero, at most 63 bits."""

from __future__ import annotations

import pytest
from django.urls import Resolver404, resolve, reverse

from seckill_site.web.url_converters import LARGEST_ID, IdConverter

pytestmark = pytest.mark.quick


@pytest.mark.parametrize("number", [1, 9, 10, 2**53 + 1, LARGEST_ID - 1, LARGEST_ID])
def test_id_survives_the_round_trip(number):
    url = reverse("live", args=[number])

    assert url == f"/vouchers/{number}/live/"
    assert resolve(url).kwargs == {"sale_id": number}


@pytest.mark.parametrize(
    "text",
    [
        str(LARGEST_ID + 1),
        "9999999999999999999",
        "10000000000000000000",
        str(10**30),
        "9" * 5_000,
        "0",
        "00",
        "01",
        "-1",
        "+1",
        "1_000",
        "1.0",
        "1e3",
        "0x1",
        "١",
        "１",
        "²",
        " 1",
        "1 ",
        "1\n",
        "",
        "None",
    ],
)
def test_malformed_id_matches_no_url(text):
    with pytest.raises(Resolver404):
        resolve(f"/vouchers/{text}/live/")


def test_id_over_63_bits_is_refused():
    with pytest.raises(ValueError, match=str(LARGEST_ID + 1)):
        IdConverter().to_python(str(LARGEST_ID + 1))
