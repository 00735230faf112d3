"""Signed places in the line of a waiting room: what a visitor holds while Redis may forget.

A place is ``<number given>-<user>-<sale>-<opening>-<since, in ms>-<session>:<signature>``. It names
its account, so a copy gets nobody else in; and a digest of its session, so that a browser in which
somebody else signs in does not show the place of the one before.
"""

import hashlib
import re
from typing import NamedTuple

from orders.placing.signer import current_signer
from vouchers.inventory.waiting_room import Place, SignedPlace, Visitor

_SALT = "seckill.place-in-line"
_MAX_LENGTH = 240
_PAYLOAD = re.compile(
    r"([1-9][0-9]{0,15})-([1-9][0-9]{0,18})-([1-9][0-9]{0,18})-([0-9]{1,16})-([0-9]{1,16})-([0-9a-f]{16})"
)


class HeldPlace(NamedTuple):
    """A place that was signed for this sale, its owner, and the digest of their session."""

    user_id: int
    place: SignedPlace
    session: str


def sign_place(place: Place, *, sale_id: int, user_id: int, session_key: str) -> str:
    """Return a place as text."""
    opened_ms = place.line.terms.opened_ms
    payload = f"{place.given}-{user_id}-{sale_id}-{opened_ms}-{place.joined_ms}"
    return current_signer(_SALT).sign(f"{payload}-{digest_of(session_key)}")


def read_held_place(text: str, *, sale_id: int) -> HeldPlace | None:
    """Verify a place; None if it is malformed, forged or another sale's: there is Redis, too."""
    payload, _, signature = text[:_MAX_LENGTH].rpartition(":")
    match = _PAYLOAD.fullmatch(payload)
    if match is None or int(match[3]) != sale_id:
        return None
    if not current_signer(_SALT).has_signed(payload, signature):
        return None
    given, user_id, _sale, opened_ms, joined_ms = map(int, match.groups()[:5])
    return HeldPlace(user_id, SignedPlace(opened_ms, given, joined_ms), match[6])


def digest_of(session_key: str) -> str:
    """Return what a place says of its session."""
    return hashlib.blake2b(session_key.encode(), digest_size=8).hexdigest()


def draw_of(*, sale_id: int, user_id: int) -> int:
    """Return the draw of an account in a sale, below 2^32: Note [Places in line]."""
    return current_signer(_SALT).number(f"{sale_id}:{user_id}")


def visitor_of(*, sale_id: int, user_id: int, held: str = "", again: bool = False) -> Visitor:
    """Return an account as a visitor, with the place that it holds if that is its own."""
    held_place = read_held_place(held, sale_id=sale_id) if held else None
    signed = held_place.place if held_place and held_place.user_id == user_id else None
    return Visitor(draw_of(sale_id=sale_id, user_id=user_id), signed, again)
