"""Purchases: the order ids of the units that one press takes, and what an id says of its purchase.

Note [Blocks of order ids]
~~~~~~~~~~~~~~~~~~~~~~~~~~
An order id is seconds above 32 bits of sequence (``orders/placing/order_ids.py``). Where a buyer
may have several units, a token gets a block of 64 ids, whose sequence begins with four bits that
are all set in no single id. The token names the first id, which is also the id of the purchase and
of its first unit. The further units follow it, at an offset that says what the buyer chose:

=========  ============================================
offset     the id of
=========  ============================================
0          the purchase and its first unit
1 to 19    further units, as many as are left
33 to 51   further units, all or none
=========  ============================================

So nothing has to be stored: whoever has an id, from a ledger, a row or a token, knows its purchase.
An id outside any block is a purchase of one unit (``docs/adr/0045``).
"""

from collections.abc import Sequence

from vouchers.models import MAX_LIMIT

BLOCK_SIZE = 64
BLOCK_MARK_AT, BLOCK_MARK = 28, 0b1111
"""The position and the value of the four bits that mark a block."""

BLOCKS_A_SECOND = (1 << BLOCK_MARK_AT) // BLOCK_SIZE
_ALL_OR_NONE = BLOCK_SIZE // 2

assert MAX_LIMIT <= _ALL_OR_NONE


def is_in_block(order_id: int) -> bool:
    """Return whether this id belongs to a block, so that its purchase may have several units."""
    return order_id >> BLOCK_MARK_AT & BLOCK_MARK == BLOCK_MARK


def purchase_of(order_id: int) -> int:
    """Return the id of an order's purchase, which is that of its first unit."""
    return order_id & -BLOCK_SIZE if is_in_block(order_id) else order_id


def is_all_or_none(order_id: int) -> bool:
    """Return whether this is a further unit of a purchase whose buyer wants all units or none."""
    return is_in_block(order_id) and bool(order_id & _ALL_OR_NONE)


def further_ids(order_id: int, *, quantity: int, all_or_none: bool) -> Sequence[int]:
    """Return the ids of the units after the first; none if the token's id has no block."""
    if not is_in_block(order_id):
        return ()
    first = order_id + 1 + (_ALL_OR_NONE if all_or_none else 0)
    return range(first, first + quantity - 1)


def ids_of_purchase(order_id: int) -> Sequence[int]:
    """Return every id that a unit of the same purchase may have."""
    first = purchase_of(order_id)
    return range(first, first + (BLOCK_SIZE if is_in_block(order_id) else 1))


def blocks_from(order_id: int, *, count: int) -> Sequence[int]:
    """Return the first ids of so many blocks that were minted together; of one, any id will do."""
    return range(order_id, order_id + count * BLOCK_SIZE, BLOCK_SIZE)
