"""The waiting list: after "sold out", returned units go to buyers in the order of joining.

The rows are the source of truth, and the list in Redis hands out the units; a lost list is rebuilt
from the rows. An offer is an ordinary order, with its own time to pay.
"""

import datetime as dt
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from django.db import IntegrityError, transaction
from django.db.models import QuerySet

from orders.draws.standing import MOST_ENTRIES
from orders.models import VoucherOrder, WaitingEntry
from orders.placing.publishing import publish_fulfilment
from orders.placing.service import read_order_token
from orders.placing.tokens import BadToken, PurchaseToken
from seckill_site.clocks.machine import epoch_ms, from_epoch_ms
from vouchers.inventory.holdings import held_order_ids
from vouchers.inventory.keys import LedgerUnavailable, NotLoaded
from vouchers.inventory.passes import Passes
from vouchers.inventory.rebuild import load_sale, once_loaded
from vouchers.inventory.reservations import (
    AlreadyOrdered,
    NotStarted,
    SaleEnded,
    claim_kick,
    pending_entries,
)
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
from vouchers.models import SaleMode, SeckillVoucher

Outcome = WaitingEntry.Outcome

RESTORED_AT_ONCE = 200
"""The entries of a line that one call puts back or takes out, each with a few round trips."""

_passes = Passes("restore_lines")


@dataclass(frozen=True)
class WaitingListPlace:
    """A buyer's position in line, from 1; None once a unit was offered or the waiting is over."""

    order_id: int
    place: int | None
    offered: bool = False


class NotWaiting(Exception):
    """The buyer is not in the waiting list of this sale."""


def join(*, token_text: object, sale_id: int, user_id: int, now_ms: int) -> WaitingListPlace:
    """Add a token's owner to the waiting list, unless already on it, and return their place.

    :raises MalformedToken: the request has no token.
    :raises BadToken: the token is forged, expired, or another sale's or buyer's.
    :raises WorkMissing: the token asks for work that was not done.
    :raises AlreadyOrdered: the buyer has an order, or an ended order bars another.
    :raises UnitAvailable: a unit is free and can be bought.
    :raises NotStarted: the sale has not started.
    :raises SaleEnded: the sale has ended.
    :raises SeckillVoucher.DoesNotExist: there is no such sale.
    :raises LedgerUnavailable: the outcome is unknown; the same call again is safe.
    """
    token = read_order_token(token_text, sale_id=sale_id, now_ms=now_ms)
    if token.user_id != user_id:
        raise BadToken("the token is another buyer's")
    entry = _get_or_create_entry(token, now_ms)
    is_new = entry.order_id == token.order_id
    try:
        return WaitingListPlace(entry.order_id, _join(entry))
    except NoLongerWaiting:
        _close([entry.order_id], Outcome.OFFERED)
        return WaitingListPlace(entry.order_id, None, offered=True)
    except (AlreadyOrdered, UnitAvailable):
        _close([entry.order_id], Outcome.LEFT)
        raise
    except (NotStarted, SaleEnded):
        if is_new:  # restore_lines closes an older entry, going by the sale's row
            _close([entry.order_id], Outcome.LEFT)
        raise


def leave(*, sale_id: int, user_id: int) -> WaitingListPlace:
    """Take a buyer out of line; if a unit was offered meanwhile, return that instead.

    :raises NotWaiting: the buyer is not in line.
    :raises LedgerUnavailable: the outcome is unknown; the same call again is safe.
    """
    entry = _live_entries(sale_id, user_id).first()
    if entry is None:
        raise NotWaiting(f"buyer {user_id} does not wait in sale {sale_id}")
    # Redis first: after that no unit can go to a buyer who believes they have left.
    _leave(entry)
    offered = _is_offered(entry)
    _close([entry.order_id], Outcome.OFFERED if offered else Outcome.LEFT)
    _leave(entry)  # again, because restore_lines may have put the entry back meanwhile
    return WaitingListPlace(entry.order_id, None, offered=offered)


def place_of(*, sale_id: int, user_id: int) -> WaitingListPlace:
    """Return a buyer's place in line; restore it if Redis has lost it.

    :raises NotWaiting: the buyer never waited in this sale, or has left.
    :raises LedgerUnavailable: Redis did not respond.
    """
    entries = WaitingEntry.objects.filter(seckill_voucher=sale_id, user=user_id)
    entry = entries.order_by("-pk").first()
    if entry is None or entry.outcome == Outcome.LEFT:
        raise NotWaiting(f"buyer {user_id} does not wait in sale {sale_id}")
    if not entry.live:
        return WaitingListPlace(entry.order_id, None, offered=entry.outcome == Outcome.OFFERED)
    place = waiting_position(sale_id=sale_id, order_id=entry.order_id, user_id=user_id)
    if place is None and _is_offered(entry):
        _close([entry.order_id], Outcome.OFFERED)
        return WaitingListPlace(entry.order_id, None, offered=True)
    return WaitingListPlace(entry.order_id, _restore(entry) if place is None else place)


def price_when_joining(*, order_id: int) -> int | None:
    """Return the price at which the buyer of an order joined the list, if it came from there."""
    entries = WaitingEntry.objects.filter(order_id=order_id)
    return entries.values_list("price_cents", flat=True).first()


def places_of(*, user_id: int) -> list[tuple[SeckillVoucher, int | None]]:
    """Return the sales in whose line a buyer is, and the place if Redis tells it; no draws."""
    entries = WaitingEntry.objects.filter(user=user_id, live=True)
    entries = entries.filter(seckill_voucher__mode=SaleMode.FIRST_COME).order_by("-pk")
    found = list(entries.select_related("seckill_voucher__voucher")[:MOST_ENTRIES])
    places: dict[int, int | None] = {}
    with suppress(LedgerUnavailable):  # the first failure is the last: each costs a timeout
        for it in found:
            ids = {"sale_id": it.seckill_voucher_id, "order_id": it.order_id, "user_id": user_id}
            places[it.pk] = waiting_position(**ids)
    return [(it.seckill_voucher, places.get(it.pk)) for it in found]


def fulfil_line(*, sale_id: int) -> None:
    """Send the fulfil task of units that a change of the sale may have given to the line.

    A change gives them without a word; the sweep finds them if this fails.
    """
    with suppress(LedgerUnavailable):
        if pending_entries(sale_id=sale_id, skip=0, count=1) and claim_kick(sale_id=sale_id):
            publish_fulfilment(sale_id=sale_id)


def restore_lines(*, now: dt.datetime) -> bool:
    """Put entries that Redis has lost back in line, and close those whose waiting is over.

    If a unit is free while buyers wait (the sale has just started, for example), the first of them
    gets it. One sale that fails does not stop the rest. Return whether some may be left.
    """
    live = WaitingEntry.objects.filter(live=True).order_by()
    sale_ids = live.values_list("seckill_voucher", flat=True).distinct()
    return _passes.work(_passes.in_turn(sale_ids), partial(_restore_line, now=now))


def _restore_line(sale_id: int, *, now: dt.datetime) -> bool:
    ledger = snapshots(sale_ids=[sale_id])[sale_id]
    if ledger is None:
        raise NotLoaded(f"sale {sale_id} is not loaded")
    sale = SeckillVoucher.objects.get(pk=sale_id)
    in_line = waiting_order_ids(sale_id=sale_id)
    live = WaitingEntry.objects.filter(seckill_voucher=sale_id, live=True).order_by("pk")
    order_ids = list(live.values_list("order_id", flat=True))
    missing_ids = [order_id for order_id in order_ids if order_id not in in_line]
    missing = list(live.filter(order_id__in=missing_ids[:RESTORED_AT_ONCE]))
    are_left = len(missing_ids) > RESTORED_AT_ONCE
    offered = [entry.order_id for entry in missing if _is_offered(entry)]
    _close(offered, Outcome.OFFERED)
    if sale.gives_until <= now:
        _close(missing_ids[:RESTORED_AT_ONCE] if are_left else order_ids, Outcome.OVER)
        if not are_left:
            clear_waiting_list(sale_id=sale_id)
        return are_left
    closed = WaitingEntry.objects.filter(order_id__in=in_line.difference(order_ids), live=None)
    gone = list(closed[:RESTORED_AT_ONCE])
    for entry in gone:
        _leave(entry)
    places = [_restore(entry) for entry in missing if entry.order_id not in offered]
    is_restored = any(place is not None for place in places)
    if ledger.remaining and (in_line or is_restored):
        load_sale(sale_id=sale_id)
        fulfil_line(sale_id=sale_id)
    return (are_left and is_restored) or len(gone) == RESTORED_AT_ONCE


def _restore(entry: WaitingEntry) -> int | None:
    """Put an entry back in line and return its place; None if it no longer waits."""
    try:
        place = _join(entry, restoring=True)
    except NoLongerWaiting:
        _close([entry.order_id], Outcome.OFFERED)
        return None
    except AlreadyOrdered:
        _close([entry.order_id], Outcome.OVER)
        return None
    except (NotStarted, SaleEnded):
        return None  # the sale is being edited: its row decides
    if WaitingEntry.objects.filter(pk=entry.pk, live=True).exists():
        return place
    _leave(entry)  # its buyer has left since it was read
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
    return once_loaded(ask, sale_id=entry.seckill_voucher_id)


def _leave(entry: WaitingEntry) -> None:
    sale_id, order_id = entry.seckill_voucher_id, entry.order_id
    leave_waiting(sale_id=sale_id, order_id=order_id, user_id=entry.user_id)


def _live_entries(sale_id: int, user_id: int) -> QuerySet[WaitingEntry]:
    return WaitingEntry.objects.filter(seckill_voucher=sale_id, user=user_id, live=True)


def _get_or_create_entry(token: PurchaseToken, now_ms: int) -> WaitingEntry:
    sale_id, user_id = token.sale_id, token.user_id
    entry = _live_entries(sale_id, user_id).first()
    if entry is None:
        sale = SeckillVoucher.objects.get(pk=sale_id)
        if sale.is_draw:  # only those who have entered wait, in drawn order
            raise SaleEnded(f"nobody joins the waiting list of draw {sale_id}")
        # A concurrent click may have created the entry.
        with suppress(IntegrityError), transaction.atomic(durable=True):
            WaitingEntry.objects.create(
                seckill_voucher_id=sale_id,
                user_id=user_id,
                order_id=token.order_id,
                joined_at=from_epoch_ms(now_ms),
                price_cents=token.price_cents,
            )
        entry = _live_entries(sale_id, user_id).first()
    if entry is None:
        raise BadToken("the token's order id has waited before")
    return entry


def _is_offered(entry: WaitingEntry) -> bool:
    """Return whether the entry's order id has been given a unit, in Redis or as a row."""
    held = held_order_ids(sale_id=entry.seckill_voucher_id, user_id=entry.user_id)
    return entry.order_id in held or VoucherOrder.objects.filter(pk=entry.order_id).exists()


def _close(order_ids: Sequence[int], outcome: Outcome) -> None:
    entries = WaitingEntry.objects.filter(order_id__in=order_ids, live=True)
    entries.update(live=None, outcome=outcome)
