"""Waiting: who came when all was sold out may be next, in the order of asking.

The row is the truth, the line in Redis gives out the units: a line that was lost is built again
from the rows. A turn that has come is an ordinary order, with its own time to pay.
"""

from __future__ import annotations

import datetime as dt
import logging
from collections.abc import Sequence, Set
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from django.db import DatabaseError, IntegrityError, transaction
from django.utils import timezone

from orders.models import VoucherOrder, WaitingEntry
from orders.placing.tokens import BadToken, read_token
from seckill_site.clock import epoch_ms
from vouchers.inventory.keys import LedgerUnavailable, NotLoaded
from vouchers.inventory.rebuild import load_sale, load_sale_exclusively
from vouchers.inventory.reservations import AlreadyOrdered, NotStarted, SaleEnded, held_order_ids
from vouchers.inventory.sale_state import snapshots
from vouchers.inventory.waiting_list import (
    NoLongerWaiting,
    UnitAvailable,
    clear_waiting_list,
    join_waiting,
    leave_waiting,
    waiting_order_ids,
    waiting_position,
)
from vouchers.models import MAX_LIMIT, SeckillVoucher

logger = logging.getLogger(__name__)

REFUSALS = (AlreadyOrdered, UnitAvailable, NotStarted, SaleEnded)
"""The expected noes to one who would wait; after each, nobody waits."""


@dataclass(frozen=True)
class Place:
    """Where a buyer is in line, from 1; None where the turn has come, or nobody waits any more."""

    order_id: int
    place: int | None
    has_come: bool = False


class NotWaiting(Exception):
    """The buyer is not in the waiting list of this sale."""


def join(*, token_text: object, sale_id: int, user_id: int, now_ms: int) -> Place:
    """Put the owner of a purchase token in line, or find them there; one place to a buyer.

    :raises MalformedToken: there is no token in the request; also ``BadToken``.
    :raises AlreadyOrdered: the buyer has an order, or had one that bars another.
    :raises UnitAvailable: a unit is free, it need only be bought.
    :raises NotStarted: the sale has not begun; also ``SaleEnded``.
    :raises SeckillVoucher.DoesNotExist: there is no such sale.
    :raises LedgerUnavailable: unknown; the same call again is safe.
    """
    token = read_token(token_text, sale_id=sale_id, now_ms=now_ms)
    if token.user_id != user_id:
        raise BadToken
    entry = _entry_of(sale_id, user_id, token.order_id)
    is_new = entry.order_id == token.order_id
    try:
        return Place(entry.order_id, _join(entry))
    except NoLongerWaiting:
        _close([entry.order_id], WaitingEntry.Outcome.OFFERED)
        return Place(entry.order_id, None, has_come=True)
    except (AlreadyOrdered, UnitAvailable):
        _close([entry.order_id], WaitingEntry.Outcome.LEFT)
        raise
    except (NotStarted, SaleEnded):
        if is_new:  # else it is for the row to say that the waiting is over
            _close([entry.order_id], WaitingEntry.Outcome.LEFT)
        raise


def leave(*, sale_id: int, user_id: int) -> Place:
    """Take a buyer out of line; where the turn has come meanwhile, return that instead.

    :raises NotWaiting: the buyer does not wait.
    :raises LedgerUnavailable: unknown; the same call again is safe.
    """
    entry = _live_entry(sale_id, user_id)
    # First from the line: after that no unit can come to a buyer who believes to have left.
    leave_waiting(sale_id=sale_id, order_id=entry.order_id, user_id=user_id)
    come = _has_come(entry)
    _close([entry.order_id], WaitingEntry.Outcome.OFFERED if come else WaitingEntry.Outcome.LEFT)
    # Whoever took the line for lost meanwhile has put the buyer back.
    leave_waiting(sale_id=sale_id, order_id=entry.order_id, user_id=user_id)
    return Place(entry.order_id, None, has_come=come)


def place_of(*, sale_id: int, user_id: int) -> Place:
    """Return where a buyer is in line; without a place where the turn has come, or all is over.

    :raises NotWaiting: the buyer never waited in this sale, or has left.
    :raises LedgerUnavailable: Redis did not answer.
    """
    mine = WaitingEntry.objects.filter(seckill_voucher=sale_id, user=user_id)
    entry = mine.order_by("-pk").first()
    if entry is None or entry.outcome == WaitingEntry.Outcome.LEFT:
        raise NotWaiting
    if not entry.live:
        has_come = entry.outcome == WaitingEntry.Outcome.OFFERED
        return Place(entry.order_id, None, has_come=has_come)
    place = waiting_position(sale_id=sale_id, order_id=entry.order_id, user_id=user_id)
    if place is None and _has_come(entry):
        _close([entry.order_id], WaitingEntry.Outcome.OFFERED)
        return Place(entry.order_id, None, has_come=True)
    if place is None:
        place = _restored(entry)
    return Place(entry.order_id, place)


def restore_lines(*, now: dt.datetime) -> int:
    """Put back in line those whom Redis has forgotten, and let go of those whose wait is over.

    Where a unit is free beside them (a begin has passed since, say), it is given.
    Returns how many were put back. One sale that fails does not stop the rest.
    """
    live = WaitingEntry.objects.filter(live=True).order_by("seckill_voucher")
    restored = 0
    for sale_id in list(live.values_list("seckill_voucher", flat=True).distinct()):
        try:
            restored += _restore_line(sale_id, now)
        except (LedgerUnavailable, NotLoaded, DatabaseError) as error:
            logger.warning("the waiting list of sale %s is not restored now: %s", sale_id, error)
    return restored


def _restore_line(sale_id: int, now: dt.datetime) -> int:
    found = snapshots(sale_ids=[sale_id])[sale_id]
    if found is None:
        raise NotLoaded
    sale = SeckillVoucher.objects.get(pk=sale_id)
    in_line = waiting_order_ids(sale_id=sale_id)
    entries = list(WaitingEntry.objects.filter(seckill_voucher=sale_id, live=True))
    missing = [entry for entry in entries if entry.order_id not in in_line]
    come = [entry.order_id for entry in missing if _has_come(entry)]
    _close(come, WaitingEntry.Outcome.OFFERED)
    if sale.ends_at <= now:
        _close([entry.order_id for entry in entries], WaitingEntry.Outcome.OVER)
        clear_waiting_list(sale_id=sale_id)
        return 0
    _remove_ghosts(sale_id, in_line - {entry.order_id for entry in entries})
    places = [_restored(entry) for entry in missing if entry.order_id not in come]
    restored = sum(place is not None for place in places)
    if found.remaining and (in_line or restored):
        load_sale(sale_id=sale_id)
    return restored


def _remove_ghosts(sale_id: int, order_ids: Set[int]) -> None:
    """Take out of line whose row says that they wait no more."""
    gone = WaitingEntry.objects.filter(order_id__in=order_ids, live=None)
    for entry in gone:
        leave_waiting(sale_id=sale_id, order_id=entry.order_id, user_id=entry.user_id)


def _restored(entry: WaitingEntry) -> int | None:
    """Put an entry back in line and return its place; None where it is to wait no more."""
    try:
        place = _join(entry, restoring=True)
    except NoLongerWaiting:
        _close([entry.order_id], WaitingEntry.Outcome.OFFERED)
        return None
    except AlreadyOrdered:
        _close([entry.order_id], WaitingEntry.Outcome.OVER)
        return None
    except (NotStarted, SaleEnded):
        return None  # an edit is going on: the row has the last word
    if WaitingEntry.objects.filter(pk=entry.pk, live=True).exists():
        return place
    # It has left since it was read.
    sale_id, order_id = entry.seckill_voucher_id, entry.order_id
    leave_waiting(sale_id=sale_id, order_id=order_id, user_id=entry.user_id)
    return None


def _join(entry: WaitingEntry, *, restoring: bool = False) -> int:
    ask = partial(
        join_waiting,
        sale_id=entry.seckill_voucher_id,
        order_id=entry.order_id,
        user_id=entry.user_id,
        joined_at_ms=epoch_ms(entry.joined_at),
        restoring=restoring,
    )
    try:
        return ask()
    except NotLoaded:
        load_sale_exclusively(sale_id=entry.seckill_voucher_id)
        return ask()


def _entry_of(sale_id: int, user_id: int, order_id: int) -> WaitingEntry:
    """Return the buyer's entry in this sale, made now where there is none: one to a buyer."""
    mine = WaitingEntry.objects.filter(seckill_voucher=sale_id, user=user_id, live=True)
    entry = mine.first()
    if entry is None:
        if not SeckillVoucher.objects.filter(pk=sale_id).exists():
            raise SeckillVoucher.DoesNotExist
        with suppress(IntegrityError), transaction.atomic():  # two clicks at once
            WaitingEntry.objects.create(
                seckill_voucher_id=sale_id,
                user_id=user_id,
                order_id=order_id,
                joined_at=timezone.now(),
            )
        entry = mine.first()
    if entry is None:
        raise BadToken  # its order id has waited before
    return entry


def _live_entry(sale_id: int, user_id: int) -> WaitingEntry:
    entry = WaitingEntry.objects.filter(seckill_voucher=sale_id, user=user_id, live=True).first()
    if entry is None:
        raise NotWaiting
    return entry


def _has_come(entry: WaitingEntry) -> bool:
    """Say whether the entry's order id has been given a unit, in either place."""
    sale_id, limit = entry.seckill_voucher_id, MAX_LIMIT
    held = held_order_ids(sale_id=sale_id, user_id=entry.user_id, limit=limit)
    return entry.order_id in held or VoucherOrder.objects.filter(pk=entry.order_id).exists()


def _close(order_ids: Sequence[int], outcome: WaitingEntry.Outcome) -> int:
    entries = WaitingEntry.objects.filter(order_id__in=order_ids, live=True)
    return entries.update(live=None, outcome=outcome)
