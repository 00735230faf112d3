"""A place as the page shows it: position, honest wait, and the pace of its requests."""

from __future__ import annotations

from typing import Any

import pytest

from orders.placing.places import HeldPlace, draw_of
from orders.receipts.place_in_line import (
    PAUSED_MS,
    LineView,
    Turn,
    view_of_held_place,
    view_of_place,
)
from vouchers.inventory.sale_state import LedgerTerms, Snapshot
from vouchers.inventory.waiting_room import (
    PLACE_KEPT_MS,
    Line,
    Place,
    PlaceState,
    RoomTerms,
    SignedPlace,
)

pytestmark = pytest.mark.quick

SINCE_MS = 10_000_000
IDS = {"sale_id": 5, "user_id": 7}


def a_line(*, tail: int = 100_000, early: int | None = None, **terms: Any) -> Line:
    fields = {"opened_ms": 1_000, "rate": 100, "base": 0, "since_ms": SINCE_MS, **terms}
    return Line(RoomTerms(**fields), tail, early)


def view(line: Line, given: int, *, now_ms: int = SINCE_MS) -> LineView:
    """Return the view of a place that waits, by what the ledger said."""
    place = Place(line, given, 1, given, PlaceState.WAITING)
    return view_of_place(place, **IDS, now_ms=now_ms)


def held_view(line: Line | None, given: int, *, now_ms: int = SINCE_MS) -> LineView | None:
    """Return the view of a signed place, by a snapshot."""
    held = HeldPlace(7, SignedPlace(1_000, given, 1), "digest")
    terms = LedgerTerms(1, 1, 2, 1, paused=False, rebuy=True)
    snapshot = Snapshot(now_ms, 1, terms, 1, 0, 0, None, 0, line=line)
    return view_of_held_place(held, snapshot, sale_id=5)


PACE_MS = {
    1: 2_000,
    9: 9_474,
    15: 15_789,
    20: 16_000,
    60: 48_000,
    80: 60_000,
    120: 60_000,
    150: 75_000,
    180: 90_000,
    240: 120_000,
    36_000: 120_000,
}
"""When a page asks again that still has to wait this many seconds."""


@pytest.mark.parametrize("seconds", PACE_MS)
def test_pace_follows_the_wait_between_its_bounds(seconds: int) -> None:
    found = view(a_line(), 100 + 100 * seconds)

    assert found.wait_ms == seconds * 1_000
    assert found.poll_after_ms == PACE_MS[seconds]
    assert (found.turn, found.position, found.length) == (Turn.WAITING, 100 * seconds, 99_900)
    assert found.rate == 100


@pytest.mark.parametrize("part", [0.95, 0.975, 1])
def test_page_asks_before_and_after_its_turn_in_time(part: float) -> None:
    """Whoever asks at the given pace is seen within two seconds of the turn."""
    line, now_ms = a_line(), SINCE_MS
    while (found := view(line, 90_000, now_ms=now_ms)).turn is Turn.WAITING:
        turn_ms = now_ms + (found.wait_ms or 0)
        now_ms += round(found.poll_after_ms * part)

    assert found == LineView(5, Turn.IN, None, found.length, 0, 2_000)
    assert turn_ms == SINCE_MS + 899_000
    assert turn_ms <= now_ms <= turn_ms + 2_000


@pytest.mark.parametrize("seconds", [120, 121, 150, 180, 600])
def test_doubled_rate_finds_the_far_end_in_time(seconds: int) -> None:
    """The shop raises the rate just after a page has asked, which then sleeps for long."""
    number = 100 + 100 * seconds

    turn_in_ms = view(a_line(rate=200), number).wait_ms

    assert turn_in_ms
    assert view(a_line(), number).poll_after_ms <= turn_in_ms + 1_000


def test_raised_rate_shortens_the_next_pause() -> None:
    assert view(a_line(), 60_000).poll_after_ms == 120_000
    assert view(a_line(rate=1_000), 60_000).poll_after_ms == 47_200


def test_paused_room_names_no_wait() -> None:
    found = view(a_line(rate=0), 500)

    assert (found.turn, found.position, found.wait_ms) == (Turn.WAITING, 500, None)
    assert found.poll_after_ms == PAUSED_MS


def test_place_before_the_start_waits_for_it() -> None:
    found = view(a_line(), 150, now_ms=SINCE_MS - 60_000)

    assert (found.turn, found.position, found.wait_ms) == (Turn.WAITING, 150, 60_500)


@pytest.mark.parametrize("given", [1, 500, 100_000])
def test_place_that_is_drawn_later_shows_no_number(given: int) -> None:
    found = view(a_line(shuffled=True), given, now_ms=SINCE_MS - 60_000)

    assert found[:5] == (5, Turn.DRAWN_LATER, None, 100_000, None)
    assert 45_000 <= found.poll_after_ms <= 120_000


def test_early_visitors_are_seen_in_the_drawn_order() -> None:
    line = a_line(shuffled=True, early=100_000)
    number = 1 + draw_of(sale_id=5, user_id=7) * 100_000 // 2**32

    for found in (view(line, 77), held_view(line, 77)):
        assert found
        assert found.position == number - 100


@pytest.mark.parametrize("early", [0, 10])
def test_later_visitors_are_seen_in_the_order_of_arrival(early: int) -> None:
    line = a_line(shuffled=True, early=early)

    for found in (view(line, 5_000), held_view(line, 5_000)):
        assert found
        assert found.position == 4_900


@pytest.mark.parametrize("state", [PlaceState.IN, PlaceState.NONE])
def test_visitor_who_need_not_wait_is_in(state: PlaceState) -> None:
    place = Place(a_line(), 0, 0, 0, state)

    found = view_of_place(place, **IDS, now_ms=SINCE_MS)

    assert found == LineView(5, Turn.IN, None, 99_900, 0, 2_000)


def test_expired_place_has_no_position() -> None:
    place = Place(a_line(), 1, 1, 1, PlaceState.EXPIRED)

    found = view_of_place(place, **IDS, now_ms=SINCE_MS)

    assert found == LineView(5, Turn.EXPIRED, None, 99_900, None, 120_000)


# --- a signed place, by a snapshot ----------------------------------------------------------------


@pytest.mark.parametrize("given", [1, 100, 101, 5_000])
@pytest.mark.parametrize("now_ms", [SINCE_MS - 1, SINCE_MS, SINCE_MS + 1_234])
def test_held_place_is_seen_as_the_ledger_would(given: int, now_ms: int) -> None:
    found = held_view(a_line(), given, now_ms=now_ms)

    assert found == view(a_line(), given, now_ms=now_ms)


@pytest.mark.parametrize("line", [None, a_line(opened_ms=1_001), a_line(opened_ms=999)])
def test_place_of_another_opening_is_left_to_the_ledger(line: Line | None) -> None:
    assert held_view(line, 500) is None


@pytest.mark.parametrize("early", [None, 100_000])
def test_place_whose_turn_may_have_passed_is_left_to_the_ledger(early: int | None) -> None:
    line = a_line(shuffled=early is not None, early=early)
    number = line.number_of(5_000, draw_of(sale_id=5, user_id=7))
    expires_ms = SINCE_MS + number * 10 + PLACE_KEPT_MS

    found = held_view(line, 5_000, now_ms=expires_ms - 1)
    assert found
    assert found.turn is Turn.IN
    assert held_view(line, 5_000, now_ms=expires_ms) is None
