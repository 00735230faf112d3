"""From the end of the entries to the last winner's order: beat repeats idempotent steps.

Note [A draw is never half done]
~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
The steps are: close the list, draw, give the winners their units until each has a row, let the
others wait, note that they are to be told. Each is one transaction under the sale's row, or one
that only one process can make, or a script that is safe to repeat, and looks at what the one before
has stored. A process may die anywhere; two may do the same step.

- Closing reads Redis while it holds the row: no ledger that takes entries can be built meanwhile.
- Winners are given units until each has a row, since a lost Redis loses what is pending. They are
  known by their tickets, so nothing is lost with it.
- The others join the waiting list only after that: it takes any unit that is free.

So a step takes as long as its list needs, and orders come between the steps of two draws.
"""

import logging
from functools import partial

from django.db import transaction
from django.db.models import Q

from accounts.contacts import has_confirmed_email
from orders.draws.entries import COLUMNS, sql_time, store_all, store_entries
from orders.draws.rules import drawn_order, list_digest, ticket
from orders.draws.standing import is_winner
from orders.models import DrawEntry, Notice, VoucherOrder, WaitingEntry
from orders.placing.publishing import publish_fulfilment
from seckill_site.clocks.ledger import read_ledger_ms
from seckill_site.clocks.machine import epoch_ms
from seckill_site.failpoints import failpoint
from seckill_site.mysql.bulk_rows import insert_new
from vouchers.inventory.draw_entries import (
    close_entries,
    drop_entries_later,
    give_to_winners,
    queue_losers,
)
from vouchers.inventory.keys import ledger_errors
from vouchers.inventory.passes import Passes
from vouchers.inventory.rebuild import load_sale, once_loaded
from vouchers.inventory.reservations import entries_set_aside, set_kick
from vouchers.lock_objects import lock_seckill_voucher
from vouchers.models import Draw, SaleMode, SaleStage, SeckillVoucher

logger = logging.getLogger(__name__)

_passes = Passes("draws")

TOLD_AT_ONCE = 500
"""The entries of one transaction that notes who is to be told that they did not win."""


class ListChanged(Exception):
    """The rows of a closed list do not have its digest: somebody changed them."""


def advance_draws() -> bool:
    """Store entries of draws and take the steps that are due, for the time of a pass; for beat.

    Return whether some may be left. One draw that fails does not stop the others, and is tried
    again. Only one process at a time does this, to leave others to orders; nothing depends on it.
    """
    is_open = Q(finished_at=None) | Q(told_to__isnull=False)
    draws = Draw.objects.filter(is_open, seckill_voucher__mode=SaleMode.DRAW)
    public = draws.exclude(seckill_voucher__stage=SaleStage.DRAFT)
    sale_ids = public.values_list("seckill_voucher", flat=True)
    return _passes.work(_passes.in_turn(sale_ids), _advance)


def _advance(sale_id: int) -> bool:
    try:
        return take_due_steps(sale_id=sale_id)
    except ListChanged:
        logger.exception("the draw of sale %s is stopped", sale_id)
        return False


def take_due_steps(*, sale_id: int) -> bool:
    """Take the steps of a draw that are due; return whether to go on. Safe to repeat.

    :raises ListChanged: the stored list is not the one that was closed.
    :raises NotLoaded: the ledger was lost meanwhile.
    :raises LedgerUnavailable: Redis did not respond.
    """
    draw = Draw.objects.filter(seckill_voucher=sale_id).first()
    if draw and draw.finished_at:
        return note_losers(draw=draw)
    if not draw or not draw.closed_at:
        if store_entries(sale_id=sale_id):
            return True
        failpoint("draw.entries_stored")
        if not close_list(sale_id=sale_id):
            return False
        failpoint("draw.closed")
    draw_winners(sale_id=sale_id)
    failpoint("draw.drawn")
    if give_units(sale_id=sale_id):
        finish(sale_id=sale_id)
    return False


def close_list(*, sale_id: int) -> bool:
    """Close the list of a draw whose time is over, once; return whether it is closed."""
    return once_loaded(partial(_close_list, sale_id), sale_id=sale_id, load=load_sale)


def _close_list(sale_id: int) -> bool:
    with transaction.atomic(durable=True):
        sale = lock_seckill_voucher(sale_id=sale_id)
        draw = Draw.of(sale)
        if draw.closed_at:
            return True
        if not close_entries(sale=sale):
            return False
        failpoint("draw.entries_closed")
        store_all(sale=sale)
        ids = _listed_ids(sale_id)
        draw.entries, draw.units, draw.digest = len(ids), sale.stock, list_digest(ids)
        draw.closed_at = sale.locked_at
        draw.save(update_fields=["entries", "units", "digest", "closed_at"])
        failpoint("draw.before_close")
    logger.info(
        "sale %s: the list is closed, %s entries, digest %s", sale_id, len(ids), draw.digest
    )
    return True


def _listed_ids(sale_id: int) -> list[int]:
    rows = DrawEntry.objects.filter(seckill_voucher=sale_id, live=True)
    return list(rows.values_list("order_id", flat=True))


def draw_winners(*, sale_id: int) -> None:
    """Draw a closed list, once.

    :raises ListChanged: the rows do not have the digest of the list.
    """
    with transaction.atomic(durable=True):
        sale = lock_seckill_voucher(sale_id=sale_id)
        draw = Draw.of(sale)
        if draw.drawn_at:
            return
        ids = _listed_ids(sale_id)
        if list_digest(ids) != draw.digest:
            raise ListChanged(f"the list of sale {sale_id} does not have its digest")
        winners = drawn_order(seed=draw.seed, digest=draw.digest, entry_ids=ids)[: draw.units or 0]
        draw.cutoff = _ticket(draw, winners[-1]) if winners else ""
        draw.drawn_at = sale.locked_at
        draw.save(update_fields=["cutoff", "drawn_at"])
        failpoint("draw.before_draw")
    logger.info("sale %s: drawn, %s of %s entries win", sale_id, len(winners), len(ids))


def _ticket(draw: Draw, entry_id: int) -> str:
    return ticket(seed=draw.seed, digest=draw.digest, entry_id=entry_id)


def give_units(*, sale_id: int) -> bool:
    """Give units to winners without an order; return whether every winner has one.

    Accounts that were deleted get none, and a winner that is set aside waits for staff.
    """
    sale = SeckillVoucher.objects.get(pk=sale_id)
    winners, _ = split(sale=sale)
    settled = set(VoucherOrder.objects.filter(seckill_voucher=sale).values_list("pk", flat=True))
    settled |= {entry.order_id for entry in entries_set_aside(sale_id=sale_id)}
    missing = [(order_id, user_id) for order_id, user_id in winners if order_id not in settled]
    give = partial(give_to_winners, sale=sale, winners=missing)
    if short := once_loaded(give, sale_id=sale_id, load=load_sale):
        logger.error("sale %s: no unit is left for %s winners", sale_id, short)
    failpoint("draw.given")
    if missing and set_kick(sale_id=sale_id):
        publish_fulfilment(sale_id=sale_id)
    return not missing


def split(*, sale: SeckillVoucher) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """Return the order id and user of winners and of the others, in drawn order.

    Entries of deleted accounts are left out.
    """
    draw = Draw.of(sale)
    rows = DrawEntry.objects.filter(seckill_voucher=sale, live=True)
    users = dict(rows.exclude(user=None).values_list("order_id", "user_id"))
    keys = sorted((_ticket(draw, order_id), order_id) for order_id in users)
    order = [(key, order_id, users[order_id] or 0) for key, order_id in keys]
    winners = [(order_id, user_id) for key, order_id, user_id in order if key <= draw.cutoff]
    return winners, [(order_id, user_id) for _, order_id, user_id in order[len(winners) :]]


def finish(*, sale_id: int) -> None:
    """Put the other buyers on the waiting list in drawn order, if the sale has one.

    Every winner has a row.
    """
    with ledger_errors():
        now_ms = read_ledger_ms()
    with transaction.atomic(durable=True):
        sale = lock_seckill_voucher(sale_id=sale_id)
        draw = Draw.of(sale)
        if draw.finished_at:
            return
        drop_entries_later(sale=sale)  # all of them are rows
        losers = _losers(sale, draw) if now_ms < epoch_ms(sale.gives_until) else []
        rows = [
            f"({order_id:d},{user_id:d},{sale_id:d},{sql_time(joined_ms)},1,%(outcome)s)"
            for order_id, user_id, joined_ms in losers
        ]
        insert_new(WaitingEntry, (*COLUMNS, "joined_at", "live", "outcome"), rows, outcome="")
        draw.finished_at, draw.told_to = sale.locked_at, 0
        draw.save(update_fields=["finished_at", "told_to"])
        failpoint("draw.before_finish")
    failpoint("draw.finished")
    # What is lost here is put back by restore_lines, from the rows.
    queue_losers(sale=sale, losers=losers)


def note_losers(*, draw: Draw) -> bool:
    """Note for the next entries that their buyers are to be told, if they did not win.

    Return whether some are left. Buyers without a confirmed address are told by pages alone.
    """
    if draw.told_to is None or draw.finished_at is None:
        return False
    rows = DrawEntry.objects.filter(seckill_voucher=draw.seckill_voucher_id, live=True)
    rows = rows.filter(pk__gt=draw.told_to).annotate(has_email=has_confirmed_email("user"))
    entries = list(rows.order_by("pk")[:TOLD_AT_ONCE])
    told_to = entries[-1].pk if len(entries) == TOLD_AT_ONCE else None
    about = {"seckill_voucher_id": draw.seckill_voucher_id, "kind": Notice.Kind.RESULT}
    notices = [
        Notice(user_id=it.user_id, asked_at=draw.finished_at, **about)
        for it in entries
        if it.user_id and it.has_email and not is_winner(draw=draw, entry_id=it.pk)
    ]
    with transaction.atomic(durable=True):
        # Only one process moves on from here, so each entry has one notice.
        if Draw.objects.filter(pk=draw.pk, told_to=draw.told_to).update(told_to=told_to):
            Notice.objects.bulk_create(notices)
        failpoint("draw.before_notices")
    return told_to is not None


def _losers(sale: SeckillVoucher, draw: Draw) -> list[tuple[int, int, int]]:
    """Return order ids, users and when they join the waiting list, a millisecond apart."""
    closed_ms = epoch_ms(draw.closed_at or sale.ends_at)
    _, losers = split(sale=sale)
    return [
        (order_id, user_id, closed_ms + place)
        for place, (order_id, user_id) in enumerate(losers, start=1)
    ]
