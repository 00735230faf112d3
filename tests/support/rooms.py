"""Waiting rooms for tests: their terms in a ledger, and visits to them."""

from __future__ import annotations

from typing import Any

from tests.support.orders import make_sale
from tests.support.sales import change_state, open_ledger, redis_now_ms
from vouchers.inventory.holdings import known_buyer_call
from vouchers.inventory.keys import LedgerKeys, send
from vouchers.inventory.waiting_room import Place, RoomTerms, SignedPlace, Visitor
from vouchers.models import RoomKind, SeckillVoucher

OPENED_MS = 1_000
HALF = 2**31
"""A draw in the middle."""


def terms_from(*, since_ms: int = -1_000, **changes: Any) -> RoomTerms:
    """Return terms since a time counted from now; by default nobody is let in."""
    fields = {"opened_ms": OPENED_MS, "rate": 0, "base": 0, **changes}
    return RoomTerms(since_ms=redis_now_ms() + since_ms, **fields)


def open_room(sale_id: int, *, state: dict[str, Any] | None = None, **terms: Any) -> LedgerKeys:
    """Write the ledger of an open sale with a waiting room, without a row."""
    return open_ledger(sale_id, mode_terms=terms_from(**terms).word(), **(state or {}))


def change_room(sale_id: int, **terms: Any) -> None:
    """Change the terms of the room in a loaded ledger."""
    change_state(sale_id, mode_terms=terms_from(**terms).word())


def make_room(*, terms: dict[str, Any] | None = None, **fields: Any) -> SeckillVoucher:
    """Return a sale with a waiting room; by default nobody is let in yet."""
    line = {"room": RoomKind.BUSY, "room_opened_ms": OPENED_MS, "room_since_ms": 1}
    sale = make_sale(**{**line, **fields})
    change_room(sale.pk, **(terms or {}))
    return sale


def visit(
    sale_id: int,
    user_id: int,
    *,
    draw: int = HALF,
    signed: SignedPlace | None = None,
    again: bool = False,
) -> Place | None:
    """Ask the ledger for a buyer, as ``me/`` and ``room/`` do; return their place."""
    visitor = Visitor(draw, signed, again)
    buyer = send(known_buyer_call(sale_id=sale_id, user_id=user_id, visitor=visitor))
    assert buyer is not None, "the sale is not loaded"
    return buyer.place


def place_at(sale_id: int, user_id: int, **visitor: Any) -> Place:
    """Return the place of a buyer in a sale that has a waiting room."""
    place = visit(sale_id, user_id, **visitor)
    assert place is not None, "the sale has no waiting room"
    return place


def signed(place: Place) -> SignedPlace:
    """Return what a place says when it is signed."""
    return SignedPlace(place.line.terms.opened_ms, place.given, place.joined_ms)
