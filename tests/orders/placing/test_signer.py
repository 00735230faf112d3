"""The signer: Django's signatures, and numbers that only the shop can tell."""

from __future__ import annotations

from collections import Counter

import pytest
from django.core import signing
from pytest_django import Settings

from orders.placing.signer import Signer, current_signer

pytestmark = pytest.mark.quick

VALUES = ["", "1-2-3", "号", "x" * 500]


@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize("salt", ["one", "two"])
def test_signatures_are_those_of_django(value: str, salt: str) -> None:
    ours, theirs = Signer(key="k", salt=salt), signing.Signer(key="k", salt=salt)

    assert ours.sign(value) == theirs.sign(value)
    assert ours.unsign(theirs.sign(value)) == value


def test_older_key_still_verifies() -> None:
    old = Signer(key="old", salt="s").signature("v")

    assert Signer(key="new", fallback_keys=["old"], salt="s").has_signed("v", old)
    assert not Signer(key="new", fallback_keys=[], salt="s").has_signed("v", old)


@pytest.mark.parametrize("signature", ["", "x", "ü", "é" * 43])
def test_other_text_is_no_signature(signature: str) -> None:
    assert not Signer(key="k", fallback_keys=[], salt="s").has_signed("v", signature)


def test_number_depends_on_value_salt_and_key() -> None:
    numbers = {
        Signer(key=key, salt=salt).number(value)
        for key in ("k", "l")
        for salt in ("s", "t")
        for value in ("v", "w")
    }

    assert len(numbers) == 8
    assert all(0 <= it < 2**32 for it in numbers)
    assert Signer(key="k", salt="s").number("v") in numbers


def test_numbers_are_spread_evenly() -> None:
    signer = Signer(key="k", salt="s")

    quarters = Counter(signer.number(f"1:{user_id}") >> 30 for user_id in range(4_000))

    assert sorted(quarters) == [0, 1, 2, 3]
    assert all(850 < count < 1_150 for count in quarters.values())


def test_number_is_no_part_of_a_signature() -> None:
    """Whoever holds a signed text must not learn a draw from it."""
    signer = Signer(key="k", salt="s")
    digest = signing.b64_decode(signer.signature("v").encode())

    assert signer.number("v").to_bytes(4) not in digest


def test_current_signer_follows_the_settings(settings: Settings) -> None:
    before = current_signer("s").signature("v")
    old = settings.SECRET_KEY
    settings.SECRET_KEY = "another key"
    assert current_signer("s").signature("v") != before
    assert not current_signer("s").has_signed("v", before)

    settings.SECRET_KEY_FALLBACKS = [old]

    assert current_signer("s").has_signed("v", before)
