"""What a buyer is offered on the purchase page, and what of the sale is theirs already."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from django.db.models import Exists, FilteredRelation, OuterRef, Q, Value

from orders.models import OrderStatus, WaitingEntry
from orders.placing.tokens import issue_token
from orders.receipts.service import QUEUED
from seckill_site.clock import epoch_ms, from_epoch_ms
from vouchers.catalogue.listing import public_sale
from vouchers.inventory.buyer_holdings import BuyerHoldings, read_buyer_holdings
from vouchers.inventory.keys import LedgerUnavailable
from vouchers.inventory.reservations import SaleEnded
from vouchers.inventory.sale_state import Snapshot, snapshots
from vouchers.models import SaleStage, SaleState, SeckillVoucher

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class OwnOrder:
    """An order as the purchase page shows it; ``place`` is that of a queued one."""

    order_id: int
    status: str
    pay_by_ms: int | None = None
    place: int | None = None


@dataclass(frozen=True)
class Mine:
    """What a buyer has of a sale at one moment: the order to show first, and how many units.

    ``barred`` says that an order which is over stands in the way of another: then it is the one
    that is shown. ``waits`` says that the buyer is in the waiting list; the purchase page asks for
    that only when all is sold out.
    """

    sale_id: int
    user_id: int
    now_ms: int
    limit: int
    holds: int
    barred: bool
    waits: bool
    order: OwnOrder | None

    @property
    def may_buy(self) -> bool:
        """Whether nothing of the buyer's own stands in the way of another unit."""
        return self.holds < self.limit and not self.barred


@dataclass(frozen=True)
class Offer:
    """The purchase page's content; ``token`` is empty for a visitor and after the end."""

    sale: SeckillVoucher
    snapshot: Snapshot | None
    state: SaleState
    token: str = ""
    mine: Mine | None = None

    @property
    def total(self) -> int:
        return self.snapshot.terms.total if self.snapshot else self.sale.stock

    @property
    def remaining(self) -> int | None:
        return self.snapshot.remaining if self.snapshot else None


def purchase_offer(
    *, sale_id: int, user_id: int | None, now_ms: int, drafts_too: bool = False
) -> Offer:
    """Return the sale with what this buyer, or a visitor, may do; also while Redis is away.

    :raises SeckillVoucher.DoesNotExist: there is no such sale.
    """
    sale = public_sale(sale_id=sale_id, drafts_too=drafts_too)
    found, token, known = None, "", BuyerHoldings(now_ms, [])
    try:
        found = snapshots(sale_ids=[sale_id])[sale_id]
        if user_id:
            known = read_buyer_holdings(sale_id=sale_id, user_id=user_id)
            token = _token(sale, user_id, now_ms)
    except LedgerUnavailable:
        logger.warning("the page of sale %s is shown without its ledger", sale_id)
    now = from_epoch_ms(now_ms)
    state = found.state if found else sale.state_at(now)
    mine = None
    if user_id:
        rows = _rows_of(sale_id, user_id, ask_who_waits=state is SaleState.SOLD_OUT)
        mine = _merged(user_id, known, rows)
    return Offer(sale, found, state, token=token, mine=mine)


def what_is_mine(*, sale_id: int, user_id: int) -> Mine:
    """Return what this buyer has of a sale, in one statement and one look at the ledger.

    :raises SeckillVoucher.DoesNotExist: there is no such sale for buyers.
    :raises LedgerUnavailable: Redis did not answer: what is in the queue is unknown.
    """
    # The ledger first: what becomes a row between the two looks is then seen as a row.
    known = read_buyer_holdings(sale_id=sale_id, user_id=user_id)
    rows = _rows_of(sale_id, user_id, ask_who_waits=True)
    if rows[0]["stage"] != SaleStage.PUBLIC:
        raise SeckillVoucher.DoesNotExist
    return _merged(user_id, known, rows)


def _token(sale: SeckillVoucher, user_id: int, now_ms: int) -> str:
    try:
        return issue_token(sale=sale, user_id=user_id, now_ms=now_ms).sign()
    except SaleEnded:
        return ""


def _rows_of(sale_id: int, user_id: int, *, ask_who_waits: bool) -> list[dict[str, Any]]:
    """Return the sale's rules beside each order that this buyer ever had of it, or beside none.

    :raises SeckillVoucher.DoesNotExist: there is no such sale.
    """
    waiting = WaitingEntry.objects.filter(seckill_voucher=OuterRef("pk"), user=user_id, live=True)
    sale = SeckillVoucher.objects.filter(pk=sale_id).annotate(
        own=FilteredRelation("orders", condition=Q(orders__user=user_id)),
        waits=Exists(waiting) if ask_who_waits else Value(False),
    )
    order = ("own__pk", "own__status", "own__live", "own__pay_by")
    rows = list(sale.values("pk", "stage", "limit", "rebuy", "waits", *order))
    if not rows:
        raise SeckillVoucher.DoesNotExist
    return rows


def _merged(user_id: int, known: BuyerHoldings, rows: list[dict[str, Any]]) -> Mine:
    sale = rows[0]
    orders = {row["own__pk"]: row for row in rows if row["own__pk"]}
    held = [_own_order(row) for row in orders.values() if row["own__live"]]
    held += [
        OwnOrder(unit.order_id, QUEUED, place=unit.queue_position)
        for unit in known.units
        if unit.order_id not in orders
    ]
    over = [] if sale["rebuy"] else [_own_order(row) for row in orders.values() if _bars(row)]
    return Mine(
        sale_id=sale["pk"],
        user_id=user_id,
        now_ms=known.now_ms,
        limit=sale["limit"],
        holds=len(held),
        barred=bool(over),
        waits=bool(sale["waits"]),
        order=_first(held) or _first(over),
    )


def _own_order(row: dict[str, Any]) -> OwnOrder:
    to_pay = row["own__status"] == OrderStatus.UNPAID and row["own__pay_by"]
    pay_by_ms = epoch_ms(row["own__pay_by"]) if to_pay else None
    return OwnOrder(row["own__pk"], row["own__status"], pay_by_ms=pay_by_ms)


def _bars(row: dict[str, Any]) -> bool:
    """Say whether this is an order that is over, in a sale in which that bars another."""
    return not row["own__live"] and row["own__status"] != OrderStatus.REFUSED


def _first(orders: Iterable[OwnOrder]) -> OwnOrder | None:
    """Return what needs its buyer first: to be paid soonest, else in the queue, else the latest."""
    urgency = (OrderStatus.UNPAID, QUEUED)

    def key(order: OwnOrder) -> tuple[int, int, int]:
        rank = urgency.index(order.status) if order.status in urgency else len(urgency)
        return rank, order.pay_by_ms or 0, -order.order_id

    return min(orders, key=key, default=None)
