"""The content of the purchase page: the offer, and what the buyer already has in the sale."""

import logging
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from django.db.models import Exists, FilteredRelation, OuterRef, Q, Value

from orders.audience.eligibility import judge_buyer
from orders.audience.verdicts import ELIGIBLE, Verdict
from orders.models import BARRING_STATUSES, OrderStatus, WaitingEntry
from orders.placing.tokens import issue_tokens
from orders.receipts.row_copy import pay_by_ms
from orders.receipts.service import ENTERED, QUEUED
from seckill_site.clocks.machine import epoch_ms, from_epoch_ms
from vouchers.catalogue.audience import Audience, audience_of
from vouchers.catalogue.listing import public_sale
from vouchers.inventory.holdings import BuyerHoldings, known_buyer_call, read_buyer_holdings
from vouchers.inventory.keys import LedgerUnavailable, send
from vouchers.inventory.purchases import purchase_of
from vouchers.inventory.sale_state import Snapshot, shown_snapshots
from vouchers.inventory.waiting_room import Place, PlaceState, Visitor
from vouchers.models import SaleStage, SaleState, SeckillVoucher

logger = logging.getLogger(__name__)

_OWN_STATES = {ENTERED: "entered", QUEUED: "queued", OrderStatus.UNPAID: "yours"}
_OWN_TIMES = ("own__accepted_at", "own__created_at", "own__pay_by")


@dataclass(frozen=True)
class OwnOrder:
    """A buyer's order as the purchase page shows it; ``place`` is a queued order's position."""

    order_id: int
    status: str
    pay_by_ms: int | None = None
    place: int | None = None


class BuyerStatus(NamedTuple):
    """A buyer's status in a sale at one moment: the order to show first, and the units held.

    ``barred``: an ended order rules out another, and is the one shown. ``waits``: the buyer is in
    the waiting list; the purchase page looks that up only when the sale is sold out. ``verdict``
    names the rule that refuses the buyer a token, if one does.
    """

    sale_id: int
    user_id: int
    now_ms: int
    limit: int
    holds: int
    barred: bool
    waits: bool
    order: OwnOrder | None
    verdict: Verdict = ELIGIBLE

    @property
    def may_buy(self) -> bool:
        """Whether the buyer's own orders allow another unit."""
        return self.holds < self.limit and not self.barred

    def most(self, *, audience: Audience, is_draw: bool) -> int:
        """Return how many units the buyer may take in one press, if the sale's rules allow any."""
        if is_draw or audience.first_order_only:
            return 1
        left = self.limit - self.holds
        return min(left, self.verdict.codes) if audience.needs_code else left

    @property
    def own_state(self) -> str | None:
        """The state of the buy button if the buyer's own orders decide it, else None."""
        if self.may_buy:
            return "not_eligible" if self.verdict.rule else None
        if self.order is None or not self.holds:
            return "barred"
        return _OWN_STATES.get(self.order.status, "already_ordered")


@dataclass(frozen=True)
class PurchaseOffer:
    """The purchase page's content; ``place`` is the buyer's in the waiting room, if there is one.

    ``token`` is empty for a visitor, after the end, and until the waiting room lets the buyer in.
    It is also empty if the buyer ``must_answer`` a question first, which stands in for work, or if
    a rule refuses the buyer.
    """

    sale: SeckillVoucher
    snapshot: Snapshot | None
    state: SaleState
    token: str = ""
    buyer: BuyerStatus | None = None
    place: Place | None = None
    must_answer: bool = False

    @property
    def keeps_out(self) -> bool:
        """Whether the buyer, who could buy, has to wait in the waiting room."""
        waits = self.place is not None and self.place.state in (
            PlaceState.WAITING,
            PlaceState.EXPIRED,
        )
        return waits and not self.is_over and not self.is_refused

    @property
    def most(self) -> int:
        """How many units the buyer may take in one press."""
        if self.buyer is None:
            return 1
        return self.buyer.most(audience=audience_of(self.sale), is_draw=self.sale.is_draw)

    @property
    def is_refused(self) -> bool:
        """Whether a rule refuses the buyer a token."""
        return self.buyer is not None and bool(self.buyer.verdict.rule)

    @property
    def is_old_too_late(self) -> bool:
        """Whether the sale ends before the buyer's account is old enough for it."""
        from_ms = self.buyer.verdict.from_ms if self.buyer else None
        return from_ms is not None and from_ms >= epoch_ms(self.sale.ends_at)

    @property
    def is_over(self) -> bool:
        return self.state is SaleState.ENDED

    @property
    def total(self) -> int:
        return self.snapshot.terms.total if self.snapshot else self.sale.stock

    @property
    def remaining(self) -> int | None:
        return self.snapshot.remaining if self.snapshot else None


def purchase_offer(
    *,
    sale_id: int,
    user_id: int | None,
    now_ms: int,
    drafts_too: bool = False,
    as_public: bool = False,
    visitor: Visitor | None = None,
    has_answered: bool = False,
) -> PurchaseOffer:
    """Return the sale with what this buyer may do, even while Redis is down.

    Without a user, it is for everybody; a user is also a ``visitor`` of the waiting room, and
    ``has_answered`` the question that a browser without JavaScript gets in the place of work.
    A draft ``as_public`` is as it will be once it is published.

    :raises SeckillVoucher.DoesNotExist: there is no such sale.
    """
    sale = public_sale(sale_id=sale_id, drafts_too=drafts_too or as_public)
    ledger, token, known, place = None, "", BuyerHoldings(now_ms, []), None
    must_answer = sale.work > 0 and not has_answered
    ledger_answers = True
    try:
        ledger = shown_snapshots(sales=[sale])[sale_id]
        if user_id and visitor:
            known, place = _read_buyer(sale, user_id, visitor)
    except LedgerUnavailable:
        ledger_answers = False
        logger.warning("the page of sale %s is shown without its ledger", sale_id)
    if as_public:
        sale.stage = SaleStage.PUBLIC
        ledger = ledger and ledger._replace(terms=replace(ledger.terms, paused=sale.paused))
    now = from_epoch_ms(now_ms)
    state = ledger.state if ledger else sale.state_at(now)
    buyer = None
    if user_id:
        # A paused sale may be sold out as well.
        is_gone = state is SaleState.SOLD_OUT or (ledger is not None and ledger.remaining == 0)
        rows = _sale_and_orders(sale_id, user_id, with_waiting=is_gone)
        buyer = _judged(_merge(user_id, known, rows), sale, now_ms)
        is_let_in = place.is_in if place else sale.room_opened_ms == 0
        may_have_token = is_let_in and now_ms < epoch_ms(sale.ends_at) and not buyer.verdict.rule
        if visitor and ledger_answers and may_have_token and not must_answer:
            token = _token(sale, user_id, place)
    return PurchaseOffer(sale, ledger, state, token, buyer, place, must_answer)


def _judged(buyer: BuyerStatus, sale: SeckillVoucher, now_ms: int) -> BuyerStatus:
    """Return the same buyer with the verdict of the rules, if they might buy."""
    if not buyer.may_buy or epoch_ms(sale.ends_at) <= now_ms:
        return buyer
    ids = {"sale_id": sale.pk, "user_id": buyer.user_id}
    return buyer._replace(verdict=judge_buyer(**ids, audience=audience_of(sale)))


def _read_buyer(
    sale: SeckillVoucher, user_id: int, visitor: Visitor
) -> tuple[BuyerHoldings, Place | None]:
    """Return the units of a buyer, and their place in the waiting room of a public sale."""
    if sale.stage == SaleStage.PUBLIC:
        known = send(known_buyer_call(sale_id=sale.pk, user_id=user_id, visitor=visitor))
        if known:
            return known.holdings, known.place
    return read_buyer_holdings(sale_id=sale.pk, user_id=user_id), None


def buyer_status(*, sale_id: int, user_id: int, entry_id: int = 0) -> BuyerStatus:
    """Return this buyer's status in a sale, with one SQL statement and one command to Redis.

    ``entry_id`` is that of the buyer's entry in a draw.

    :raises SeckillVoucher.DoesNotExist: there is no such sale for buyers.
    :raises LedgerUnavailable: Redis did not respond, so queued orders are unknown.
    """
    # The ledger first: an entry that becomes a row between the two reads is then seen as a row.
    known = read_buyer_holdings(sale_id=sale_id, user_id=user_id)
    rows = _sale_and_orders(sale_id, user_id, with_waiting=True)
    if rows[0]["stage"] != SaleStage.PUBLIC:
        raise SeckillVoucher.DoesNotExist("the sale is not public")
    return _merge(user_id, known._replace(entry_id=entry_id), rows)


def _token(sale: SeckillVoucher, user_id: int, place: Place | None) -> str:
    """Return a token, or an empty text if Redis does not respond."""
    admission = place.number if place else 0
    try:
        return issue_tokens(sale=sale, user_ids=[user_id], admission=admission)[0].sign()
    except LedgerUnavailable:
        logger.warning("the page of sale %s is shown without a token", sale.pk)
        return ""


def _sale_and_orders(sale_id: int, user_id: int, *, with_waiting: bool) -> list[dict[str, Any]]:
    """Return a row for each order this buyer ever had in the sale, or one without an order.

    Each row has the sale's rules too.

    :raises SeckillVoucher.DoesNotExist: there is no such sale.
    """
    waiting = WaitingEntry.objects.filter(seckill_voucher=OuterRef("pk"), user=user_id, live=True)
    sale = SeckillVoucher.objects.filter(pk=sale_id).annotate(
        own=FilteredRelation("orders", condition=Q(orders__user=user_id)),
        waits=Exists(waiting) if with_waiting else Value(False),
    )
    order = ("own__pk", "own__status", "own__live", *_OWN_TIMES)
    rows = list(sale.values("pk", "stage", "limit", "rebuy", "waits", *order))
    if not rows:
        raise SeckillVoucher.DoesNotExist(f"no sale {sale_id}")
    return rows


def _merge(user_id: int, known: BuyerHoldings, rows: list[dict[str, Any]]) -> BuyerStatus:
    sale = rows[0]
    orders = {row["own__pk"]: row for row in rows if row["own__pk"]}
    held = [_own_order(row) for row in orders.values() if row["own__live"]]
    held += [
        OwnOrder(unit.order_id, QUEUED, place=unit.queue_position)
        for unit in known.units
        if unit.order_id not in orders
    ]
    if known.entry_id and not orders:  # a winner's entry has become an order
        held.append(OwnOrder(known.entry_id, ENTERED))
    # Note [Ended orders] in models/orders.py
    ended = [row for row in orders.values() if row["own__status"] in BARRING_STATUSES]
    barring = [] if sale["rebuy"] else [_own_order(row) for row in ended]
    return BuyerStatus(
        sale_id=sale["pk"],
        user_id=user_id,
        now_ms=known.now_ms,
        limit=sale["limit"],
        holds=len(held),
        barred=bool(barring),
        waits=bool(sale["waits"]),
        order=most_urgent(held) or most_urgent(barring),
    )


def _own_order(row: dict[str, Any]) -> OwnOrder:
    to_pay = row["own__status"] == OrderStatus.UNPAID and row["own__pay_by"]
    until_ms = pay_by_ms(*(row[it] for it in _OWN_TIMES)) if to_pay else None
    return OwnOrder(row["own__pk"], row["own__status"], pay_by_ms=until_ms)


def most_urgent(orders: Iterable[OwnOrder]) -> OwnOrder | None:
    """Return the order to be paid soonest, else one in the queue, else the latest.

    Of a purchase it is the first.
    """
    urgency = (OrderStatus.UNPAID, QUEUED)

    def key(order: OwnOrder) -> tuple[int, int, int, int]:
        rank = urgency.index(order.status) if order.status in urgency else len(urgency)
        return rank, order.pay_by_ms or 0, -purchase_of(order.order_id), order.order_id

    return min(orders, key=key, default=None)
