"""A buyer's place in the line of a waiting room as its page shows it, and when the page asks again.

A page that holds a signed place needs nothing from Redis: who is let in is a function of time
(Note [Places in line] in ``vouchers/inventory/waiting_room.py``).
"""

from enum import StrEnum
from typing import NamedTuple

from orders.placing.places import HeldPlace, draw_of
from vouchers.inventory.sale_state import Snapshot
from vouchers.inventory.waiting_room import PLACE_KEPT_MS, Line, Place, PlaceState

POLL_MS = (2_000, 120_000)
"""The shortest and the longest time between two requests of a page in line."""

ASK_AGAIN_AT, FAR_ASK_AGAIN_AT, FAR_MS = 0.8, 0.5, 60_000
"""The part of its wait after which a page asks again. It is smaller where the page would sleep for
longer than ``FAR_MS``, so that it is in time even if the shop doubles the rate meanwhile."""

LAST_WAIT_MS, EARLIEST = 15_000, 0.95
"""A wait this short ends with the next request, which comes after 0.95 to 1 times what is asked."""

PAUSED_MS = 15_000
"""The time between two requests while nobody is let in."""


class Turn(StrEnum):
    """What a visitor of the waiting room can do now."""

    IN = "in"
    WAITING = "waiting"
    DRAWN_LATER = "drawn_later"
    EXPIRED = "expired"


class LineView(NamedTuple):
    """A place in line: the position from 1, None until it is drawn, and the numbers that wait.

    ``wait_ms`` is an estimate, None while nobody is let in or before the draw. By ``rate``, in
    people per second, a page moves its place until it asks again.
    """

    sale_id: int
    turn: Turn
    position: int | None
    length: int
    wait_ms: int | None
    poll_after_ms: int
    rate: int = 0


def view_of_place(place: Place, *, sale_id: int, user_id: int, now_ms: int) -> LineView:
    """Return a place that the ledger has just named."""
    if place.state is PlaceState.EXPIRED:
        return LineView(sale_id, Turn.EXPIRED, None, place.line.length(now_ms), None, POLL_MS[1])
    if place.is_in or place.state is PlaceState.NONE:
        return LineView(sale_id, Turn.IN, None, place.line.length(now_ms), 0, POLL_MS[0])
    number = _number_of(place.line, place.given, sale_id=sale_id, user_id=user_id)
    return _view(sale_id, place.line, number, now_ms)


def view_of_held_place(held: HeldPlace, snapshot: Snapshot, *, sale_id: int) -> LineView | None:
    """Return a signed place by a recent snapshot; None if only the ledger can tell."""
    line, now_ms = snapshot.line, snapshot.now_ms
    if line is None or line.terms.opened_ms != held.place.opened_ms:
        return None
    number = _number_of(line, held.place.given, sale_id=sale_id, user_id=held.user_id)
    if number <= line.terms.passed(now_ms - PLACE_KEPT_MS):
        return None
    return _view(sale_id, line, number, now_ms)


def _number_of(line: Line, given: int, *, sale_id: int, user_id: int) -> int:
    """Return the number in line; of a place that is not drawn yet, what will be drawn."""
    draw = draw_of(sale_id=sale_id, user_id=user_id) if line.terms.shuffled else 0
    return line.number_of(given, draw)


def _poll_after_ms(wait_ms: int) -> int:
    if wait_ms <= LAST_WAIT_MS:
        return max(POLL_MS[0], round(wait_ms / EARLIEST))
    soon_ms = min(wait_ms * ASK_AGAIN_AT, FAR_MS)
    return round(max(soon_ms, min(wait_ms * FAR_ASK_AGAIN_AT, POLL_MS[1])))


def _view(sale_id: int, line: Line, number: int, now_ms: int) -> LineView:
    terms, length = line.terms, line.length(now_ms)
    is_drawn_later = terms.shuffled and now_ms < terms.since_ms
    wait_ms = terms.wait_ms(number, now_ms)
    poll_ms = PAUSED_MS if wait_ms is None else _poll_after_ms(wait_ms)
    if is_drawn_later:
        return LineView(sale_id, Turn.DRAWN_LATER, None, length, None, poll_ms, terms.rate)
    position = number - terms.head(now_ms)
    if position <= 0:
        return LineView(sale_id, Turn.IN, None, length, 0, POLL_MS[0])
    return LineView(sale_id, Turn.WAITING, position, length, wait_ms, poll_ms, terms.rate)
