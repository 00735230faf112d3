"""The waiting list: after "sold out", returned units go to buyers in the order of joining.

The rows are the source of truth, and the list in Redis hands out the units; a lost list is rebuilt
from the rows. An offer is an ordinary order, with its own time to pay.
"""

import datetime as dt
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import chain

from django.db import IntegrityError, transaction
from django.db.models import Q, QuerySet

from orders.audience.checks import unused_codes
from orders.draws.standing import MOST_ENTRIES
from orders.models import VoucherOrder, WaitingEntry
from orders.placing.order_ids import mint_order_ids
from orders.placing.publishing import publish_fulfilment
from orders.placing.service import read_order_token
from orders.placing.tokens import BadToken, PurchaseToken
from seckill_site.clocks.machine import epoch_ms, from_epoch_ms
from vouchers.inventory.holdings import held_order_ids
from vouchers.inventory.keys import LedgerUnavailable, NotLoaded
from vouchers.inventory.passes import Passes
from vouchers.inventory.purchases import BLOCK_SIZE, blocks_from
from vouchers.inventory.rebuild import load_sale, once_loaded
from vouchers.inventory.reservations import (
    AlreadyOrdered,
    NotStarted,
    SaleEnded,
    TooFew,
    claim_kick,
    pending_entries,
)
from vouchers.inventory.sale_state import shown_snapshots
from vouchers.inventory.waiting_list import (
    LinePlace,
    NoLongerWaiting,
    UnitAvailable,
    clear_waiting_list,
    join_waiting,
    leave_waiting,
    waiting_order_ids,
    waiting_position,
)
from vouchers.models import MAX_LIMIT, SaleMode, SeckillVoucher

Outcome = WaitingEntry.Outcome

RESTORED_AT_ONCE = 200
"""The entries of a line that one call puts back or takes out, each with a few round trips."""

_passes = Passes("restore_lines")


@dataclass(frozen=True)
class WaitingListPlace:
    """A buyer's position in line, from 1; None once a unit was offered or the waiting is over.

    Of the ``quantity`` that the buyer wants, ``given`` units came so far; the rest waits. The order
    id is that of the latest purchase that came, or will be that of the first.
    """

    order_id: int
    place: int | None
    offered: bool = False
    quantity: int = 1
    all_or_none: bool = False
    given: int = 0


class NotWaiting(Exception):
    """The buyer is not in the waiting list of this sale."""


def join(
    *,
    token_text: object,
    sale_id: int,
    user_id: int,
    now_ms: int,
    quantity: int = 1,
    all_or_none: bool = False,
) -> WaitingListPlace:
    """Add a token's owner to the waiting list, unless already on it, and return their place.

    A buyer who is on it already waits for what they asked for then.

    :raises MalformedToken: the request has no token.
    :raises BadToken: the token is forged, expired, or another sale's or buyer's.
    :raises WorkMissing: the token asks for work that was not done.
    :raises AlreadyOrdered: the buyer has an order, or an ended order bars another.
    :raises TooFew: the buyer wants all or none, and more than the sale's limit.
    :raises UnitAvailable: the units are free and can be bought.
    :raises NotStarted: the sale has not started.
    :raises SaleEnded: the sale has ended.
    :raises SeckillVoucher.DoesNotExist: there is no such sale.
    :raises LedgerUnavailable: the outcome is unknown; the same call again is safe.
    """
    token = read_order_token(token_text, sale_id=sale_id, now_ms=now_ms)
    if token.user_id != user_id:
        raise BadToken("the token is another buyer's")
    entry, is_new = _get_or_create_entry(token, now_ms, quantity, all_or_none)
    try:
        return _shown(entry, _join(entry))
    except NoLongerWaiting:
        _close([entry.order_id], Outcome.OFFERED)
        return _shown(entry, offered=True)
    except (AlreadyOrdered, UnitAvailable, TooFew):
        _close([entry.order_id], Outcome.LEFT)
        raise
    except (NotStarted, SaleEnded):
        if is_new:  # restore_lines closes an older entry, going by the sale's row
            _close([entry.order_id], Outcome.LEFT)
        raise


def leave(*, sale_id: int, user_id: int) -> WaitingListPlace:
    """Take a buyer out of line; if all was offered meanwhile, return that instead.

    :raises NotWaiting: the buyer is not in line.
    :raises LedgerUnavailable: the outcome is unknown; the same call again is safe.
    """
    entry = _live_entries(sale_id, user_id).first()
    if entry is None:
        raise NotWaiting(f"buyer {user_id} does not wait in sale {sale_id}")
    # Redis first: after that no unit can go to a buyer who believes they have left.
    waited_for_rest = _leave(entry) and entry.quantity > 1
    offered = not waited_for_rest and _is_offered(entry)
    _close([entry.order_id], Outcome.OFFERED if offered else Outcome.LEFT)
    _leave(entry)  # again, because restore_lines may have put the entry back meanwhile
    return _shown(entry, offered=offered)


def place_of(*, sale_id: int, user_id: int) -> WaitingListPlace:
    """Return a buyer's place in line; restore it if Redis has lost it.

    :raises NotWaiting: the buyer never waited in this sale, or has left.
    :raises LedgerUnavailable: Redis did not respond.
    """
    entries = WaitingEntry.objects.filter(seckill_voucher=sale_id, user=user_id)
    entry = entries.order_by("-pk").first()
    if entry is None or entry.outcome == Outcome.LEFT:
        raise NotWaiting(f"buyer {user_id} does not wait in sale {sale_id}")
    if entry.live and (found := _position(entry) or _restore(entry)):
        return _shown(entry, found)
    entry.refresh_from_db()
    return _shown(entry, offered=entry.outcome == Outcome.OFFERED)


def price_when_joining(*, order_id: int) -> int | None:
    """Return the price at which the buyer of an order joined the list, if it came from there."""
    return WaitingEntry.of_order(order_id).values_list("price_cents", flat=True).first()


def places_of(*, user_id: int) -> list[tuple[SeckillVoucher, int | None]]:
    """Return the sales in whose line a buyer is, and the place if Redis tells it; no draws."""
    entries = WaitingEntry.objects.filter(user=user_id, live=True)
    entries = entries.filter(seckill_voucher__mode=SaleMode.FIRST_COME).order_by("-pk")
    found = list(entries.select_related("seckill_voucher__voucher")[:MOST_ENTRIES])
    places: dict[int, int | None] = {}
    with suppress(LedgerUnavailable):  # the first failure is the last: each costs a timeout
        for it in found:
            position = _position(it)
            places[it.pk] = position and position.place
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
    sale = SeckillVoucher.objects.get(pk=sale_id)
    ledger = shown_snapshots(sales=[sale])[sale_id]
    if ledger is None:
        raise NotLoaded(f"sale {sale_id} is not loaded")
    in_line = waiting_order_ids(sale_id=sale_id)
    live = WaitingEntry.objects.filter(seckill_voucher=sale_id, live=True).order_by("pk")
    blocks = {it: blocks_from(it, count=n) for it, n in live.values_list("order_id", "quantity")}
    order_ids = list(blocks)
    missing_ids = [it for it in order_ids if in_line.isdisjoint(blocks[it])]
    missing = list(live.filter(order_id__in=missing_ids[:RESTORED_AT_ONCE]))
    are_left = len(missing_ids) > RESTORED_AT_ONCE
    if sale.gives_until <= now:
        came = VoucherOrder.objects.filter(pk__in=[it for it in order_ids if len(blocks[it]) > 1])
        _close([it.order_id for it in missing if _is_offered(it)], Outcome.OFFERED)
        _close(list(came.values_list("pk", flat=True)), Outcome.OFFERED)
        _close(missing_ids[:RESTORED_AT_ONCE] if are_left else order_ids, Outcome.OVER)
        if not are_left:
            clear_waiting_list(sale_id=sale_id)
        return are_left
    unknown = in_line.difference(chain.from_iterable(blocks.values()))
    # The first ids that an entry can have if one of these is among its blocks.
    before = (MAX_LIMIT - 1) * BLOCK_SIZE
    starts = {id for it in unknown for id in blocks_from(it - before, count=MAX_LIMIT)}
    closed = WaitingEntry.objects.filter(seckill_voucher=sale_id, live=None).filter(
        Q(order_id__in=unknown) | Q(order_id__in=starts, quantity__gt=1)
    )
    gone = list(closed[:RESTORED_AT_ONCE])
    for entry in gone:
        _leave(entry)
    places = [_restore(entry) for entry in missing]
    is_restored = any(place is not None for place in places)
    if ledger.remaining and (in_line or is_restored):
        load_sale(sale_id=sale_id)
        fulfil_line(sale_id=sale_id)
    return (are_left and is_restored) or len(gone) == RESTORED_AT_ONCE


def _restore(entry: WaitingEntry) -> LinePlace | None:
    """Put an entry back in line and return its place; None if it no longer waits."""
    if (entry.quantity == 1 or entry.all_or_none) and _is_offered(entry):
        _close([entry.order_id], Outcome.OFFERED)
        return None
    try:
        place = _join(entry, restoring=True)
    except (NoLongerWaiting, AlreadyOrdered, TooFew) as error:
        is_offered = isinstance(error, NoLongerWaiting)
        _close([entry.order_id], Outcome.OFFERED if is_offered else Outcome.OVER)
        return None
    except (NotStarted, SaleEnded):
        return None  # the sale is being edited: its row decides
    if WaitingEntry.objects.filter(pk=entry.pk, live=True).exists():
        return place
    _leave(entry)  # its buyer has left since it was read
    return None


def _join(entry: WaitingEntry, *, restoring: bool = False) -> LinePlace:
    ask = partial(
        join_waiting,
        sale_id=entry.seckill_voucher_id,
        order_id=entry.order_id,
        user_id=entry.user_id,
        joined_at_ms=epoch_ms(entry.joined_at),
        quantity=entry.quantity,
        all_or_none=entry.all_or_none,
        restoring=restoring,
    )
    return once_loaded(ask, sale_id=entry.seckill_voucher_id)


def _leave(entry: WaitingEntry) -> bool:
    return leave_waiting(**_in_line(entry))


def _position(entry: WaitingEntry) -> LinePlace | None:
    return waiting_position(**_in_line(entry))


def _in_line(entry: WaitingEntry) -> dict[str, int]:
    """Return what names an entry in the ledger."""
    return {
        "sale_id": entry.seckill_voucher_id,
        "order_id": entry.order_id,
        "user_id": entry.user_id,
        "quantity": entry.quantity,
    }


def _shown(
    entry: WaitingEntry, found: LinePlace | None = None, *, offered: bool = False
) -> WaitingListPlace:
    given, order_id = entry.quantity - found.quantity if found else 0, entry.order_id
    if entry.quantity > 1 and (given or offered):
        order_id = _latest_purchase(entry)
    return WaitingListPlace(
        order_id,
        found and found.place,
        offered,
        quantity=entry.quantity,
        all_or_none=entry.all_or_none,
        given=given,
    )


def _latest_purchase(entry: WaitingEntry) -> int:
    """Return the purchase that came last to an entry; those that are held before any that ended."""
    ids = blocks_from(entry.order_id, count=entry.quantity)
    held = held_order_ids(sale_id=entry.seckill_voucher_id, user_id=entry.user_id)
    rows = VoucherOrder.objects.filter(pk__in=ids).values_list("pk", flat=True)
    return max({*held}.intersection(ids) or rows, default=entry.order_id)


def _live_entries(sale_id: int, user_id: int) -> QuerySet[WaitingEntry]:
    return WaitingEntry.objects.filter(seckill_voucher=sale_id, user=user_id, live=True)


def _get_or_create_entry(
    token: PurchaseToken, now_ms: int, quantity: int, all_or_none: bool
) -> tuple[WaitingEntry, bool]:
    sale_id, user_id, order_id = token.sale_id, token.user_id, token.order_id
    entry = _live_entries(sale_id, user_id).first()
    if entry is None:
        sale = SeckillVoucher.objects.get(pk=sale_id)
        if sale.is_draw:  # only those who have entered wait, in drawn order
            raise SaleEnded(f"nobody joins the waiting list of draw {sale_id}")
        most = _most_of(sale, user_id)
        if all_or_none and quantity > max(most, 1):
            raise TooFew(most)
        quantity = max(min(quantity, most), 1)
        if quantity > 1:
            order_id = mint_order_ids(count=quantity, blocks=True)[0]
        # A concurrent click may have created the entry.
        with suppress(IntegrityError), transaction.atomic(durable=True):
            WaitingEntry.objects.create(
                seckill_voucher_id=sale_id,
                user_id=user_id,
                order_id=order_id,
                quantity=quantity,
                all_or_none=all_or_none and quantity > 1,
                joined_at=from_epoch_ms(now_ms),
                price_cents=token.price_cents,
            )
        entry = _live_entries(sale_id, user_id).first()
    if entry is None:
        raise BadToken("the token's order id has waited before")
    return entry, entry.order_id == order_id


def _most_of(sale: SeckillVoucher, user_id: int) -> int:
    """Return how many units the rules of a sale let anybody with this buyer's codes wait for."""
    if sale.first_order_only:
        return 1
    if not sale.needs_code:
        return sale.limit
    return min(unused_codes(sale.pk, user_id), sale.limit)


def _is_offered(entry: WaitingEntry) -> bool:
    """Return whether the entry has been given a unit, the first, in Redis or as a row."""
    held = held_order_ids(sale_id=entry.seckill_voucher_id, user_id=entry.user_id)
    return entry.order_id in held or VoucherOrder.objects.filter(pk=entry.order_id).exists()


def _close(order_ids: Sequence[int], outcome: Outcome) -> None:
    entries = WaitingEntry.objects.filter(order_id__in=order_ids, live=True)
    entries.update(live=None, outcome=outcome)
