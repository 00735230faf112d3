"""Opening, closing and changing the waiting room of a sale: Note [Places in line]."""

from vouchers.inventory.waiting_room import RoomTerms
from vouchers.models import RoomKind, SeckillVoucher

OPENING_MS = 1_000
"""An opening is dated so far ahead: by then it has reached Redis, or the edit has failed.

Whoever got a token before that counts as let in.
"""


def date_room(sale: SeckillVoucher, *, before: SeckillVoucher | None, now_ms: int) -> None:
    """Set what follows for the line from a change of a sale's terms; ``before`` is its stored row.

    The number whose turn it is does not jump: it goes on from ``now_ms`` at the new rate.
    """
    if sale.room == RoomKind.OFF:
        sale.room_opened_ms = sale.room_base = sale.room_since_ms = 0
    elif before is None or before.room == RoomKind.OFF:
        sale.room_opened_ms, sale.room_base, sale.room_since_ms = now_ms + OPENING_MS, 0, now_ms
    elif (terms := RoomTerms.from_sale(before)) and terms != RoomTerms.from_sale(sale):
        sale.room_base, sale.room_since_ms = terms.passed(now_ms), now_ms
