"""Signed places: bound to account, sale, opening and session."""

from __future__ import annotations

import pytest

from orders.placing.places import (
    HeldPlace,
    digest_of,
    draw_of,
    read_held_place,
    sign_place,
    visitor_of,
)
from orders.placing.signer import Signer, current_signer
from orders.placing.tokens import PurchaseToken
from vouchers.inventory.waiting_room import Line, Place, PlaceState, RoomTerms, SignedPlace, Visitor

pytestmark = pytest.mark.quick

LINE = Line(RoomTerms(1_000, 10, 0, 1_000), tail=70, early=None)
PLACE = Place(LINE, given=42, joined_ms=1_234, number=42, state=PlaceState.WAITING)
SIGNED = SignedPlace(1_000, 42, 1_234)


def held(*, sale_id: int = 5, user_id: int = 7, session_key: str = "s") -> str:
    return sign_place(PLACE, sale_id=sale_id, user_id=user_id, session_key=session_key)


def test_signed_place_is_read_as_it_was_given() -> None:
    assert read_held_place(held(), sale_id=5) == HeldPlace(7, SIGNED, digest_of("s"))


def test_text_fits_a_cookie_without_quotes() -> None:
    largest = Place(LINE._replace(terms=RoomTerms(10**13, 1, 1, 1)), 10**15, 10**13, 1, PLACE.state)
    text = sign_place(largest, sale_id=10**17, user_id=10**18, session_key="s" * 40)

    assert read_held_place(text, sale_id=10**17)
    assert set(text) <= set("0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-_:")
    assert "s" * 40 not in text, "a session's key is a secret"


def test_place_of_another_sale_is_not_read() -> None:
    assert read_held_place(held(sale_id=6), sale_id=5) is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        ":",
        "junk",
        "1-2-5-4-5-6:x",
        "0-7-5-1000-1234-" + "0" * 16 + ":x",
        "x" * 5_000,
        "ü",
        "'\"",
    ],
)
def test_malformed_place_is_not_read(text: str) -> None:
    assert read_held_place(text, sale_id=5) is None


def test_tail_beyond_the_longest_place_is_not_read() -> None:
    assert read_held_place(held() + "x" * 300, sale_id=5) is None


@pytest.mark.parametrize("part", range(6))
@pytest.mark.parametrize("guarded", [True, False], ids=["guarded", "control"])
def test_changed_place_is_forged(part: int, guarded: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not guarded:
        monkeypatch.setattr(Signer, "has_signed", lambda *_: True)
    payload, _, signature = held().rpartition(":")
    fields = payload.split("-")
    fields[part] = str(int(fields[part], 16) + 1)[:16].zfill(len(fields[part]))
    sale_id = int(fields[2])

    found = read_held_place("-".join(fields) + ":" + signature, sale_id=sale_id)

    assert (found is None) == guarded


def test_token_is_no_place() -> None:
    token = PurchaseToken(42, 7, 5, 1_000, identity=1_234).sign()

    assert read_held_place(token, sale_id=5) is None
    assert current_signer("seckill.purchase-token").sign("v") != current_signer(
        "seckill.place-in-line"
    ).sign("v")


def test_own_place_goes_with_the_visitor() -> None:
    found = visitor_of(sale_id=5, user_id=7, held=held(), again=True)

    assert found == Visitor(draw_of(sale_id=5, user_id=7), SIGNED, again=True)


@pytest.mark.parametrize("text", ["", "junk", held(user_id=8), held(sale_id=6)])
def test_place_of_somebody_else_is_left_out(text: str) -> None:
    assert visitor_of(sale_id=5, user_id=7, held=text).signed is None


def test_place_of_the_account_is_good_in_another_session() -> None:
    assert visitor_of(sale_id=5, user_id=7, held=held(session_key="other")).signed == SIGNED


def test_draw_depends_on_account_and_sale_alone() -> None:
    draws = {draw_of(sale_id=sale, user_id=user) for sale in (1, 2) for user in (1, 2, 3)}

    assert len(draws) == 6
    assert draw_of(sale_id=1, user_id=23) != draw_of(sale_id=12, user_id=3)
