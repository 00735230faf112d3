"""Whether a buyer gets a token now, for ``me/`` and ``token/``: ``BuyerInSale.may_have_token``.

One script on the ledger finds the buyer. SQL is needed where the ledger cannot know:

- the sale is not loaded;
- a unit that the buyer holds is neither queued nor has a copy of its row: paid, used, or unpaid and
  not asked for in the last half minute;
- an ended order rules out another: it is the one shown;
- somebody waits in the sale's waiting list: the ledger has no index by user.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from django.conf import settings

from orders.audience.eligibility import judge_buyer, recall_verdict
from orders.audience.verdicts import NotEligible, Verdict
from orders.models import OrderStatus
from orders.placing.tokens import PurchaseToken
from orders.receipts.purchase_page import BuyerStatus, OwnOrder, buyer_status, most_urgent
from orders.receipts.row_copy import ReceiptRow
from orders.receipts.service import ENTERED, QUEUED
from seckill_site.clocks.machine import epoch_ms
from seckill_site.kept_settings import kept
from vouchers.catalogue.audience import EVERYBODY, Audience
from vouchers.catalogue.listing import public_sale
from vouchers.catalogue.public_sales import KnownSale, learn_sale
from vouchers.inventory.holdings import KnownBuyer, known_buyer_call
from vouchers.inventory.keys import NotLoaded, send
from vouchers.inventory.rebuild import load_sale_exclusively
from vouchers.inventory.reservations import NotAdmitted, SaleEnded
from vouchers.inventory.waiting_room import Place, Visitor


class BuyerInSale(NamedTuple):
    """A buyer's status, their place in the waiting room, and what a token of theirs would say."""

    status: BuyerStatus
    ends_at_ms: int
    identity: int
    place: Place | None = None
    is_draw: bool = False
    work: int = 0
    audience: Audience = EVERYBODY
    price_cents: int | None = None

    @property
    def is_over(self) -> bool:
        return self.ends_at_ms <= self.status.now_ms

    @property
    def may_have_token(self) -> bool:
        """Whether the sale is not over, no rule refuses this buyer, and its room lets them in."""
        is_in = self.place is None or self.place.is_in
        return is_in and not self.is_over and not self.status.verdict.rule

    @property
    def is_to_judge(self) -> bool:
        """Whether the sale's rules matter: the buyer might buy now."""
        return not self.is_over and self.status.may_buy

    @property
    def takes_several(self) -> bool:
        """Whether a token of theirs has a block of order ids, and may take several units."""
        return self.status.limit > 1 and not self.is_draw

    def token(self, order_id: int) -> PurchaseToken:
        """Return a token with this order id, for a buyer who may have one."""
        expires_at_ms = self.ends_at_ms + _grace_ms()
        ids = (order_id, self.status.user_id, self.status.sale_id)
        admission = self.place.number if self.place else 0
        about = (self.identity, admission, int(self.is_draw), self.work)
        return PurchaseToken(*ids, expires_at_ms, *about, price_cents=self.price_cents)

    def of_sale(self, sale: KnownSale) -> BuyerInSale:
        """Return the same buyer, under this sale's rules, its price, and the work it asks for."""
        return self._replace(work=sale.work, audience=sale.audience, price_cents=sale.price_cents)

    def with_verdict(self, verdict: Verdict) -> BuyerInSale:
        """Return the same buyer, with what the rules say of them."""
        return self._replace(status=self.status._replace(verdict=verdict))

    def check_admitted(self) -> None:
        """Refuse a buyer who may not have a token.

        :raises SaleEnded: the sale is over.
        :raises NotEligible: a rule refuses the buyer.
        :raises NotAdmitted: the buyer waits in the waiting room.
        """
        if self.is_over:
            raise SaleEnded("the sale is over")
        if self.status.verdict.rule:
            raise NotEligible(self.status.verdict)
        if not self.may_have_token:
            raise NotAdmitted("the waiting room has not let this buyer in")


_grace_ms = kept(lambda: int(settings.SECKILL_TOKEN_GRACE_MS))


def buyer_from_ledger(
    *, sale_id: int, user_id: int, known: KnownBuyer | None
) -> BuyerInSale | None:
    """Return a buyer by what the ledger knows of them; None if that takes SQL, too."""
    if known is None:
        return None
    orders = [_own_order(known, it.order_id, it.queue_position) for it in known.holdings.units]
    if known.barred_by or known.line or None in orders:
        return None
    if not orders and known.holdings.entry_id:
        orders = [OwnOrder(known.holdings.entry_id, ENTERED)]
    status = BuyerStatus(
        sale_id=sale_id,
        user_id=user_id,
        now_ms=known.holdings.now_ms,
        limit=known.limit,
        holds=len(orders),
        barred=False,
        waits=False,
        order=most_urgent(it for it in orders if it),
    )
    return BuyerInSale(status, known.ends_at_ms, known.identity, known.place, known.is_draw)


def buyer_from_rows(
    *, sale_id: int, user_id: int, visitor: Visitor, known: KnownBuyer | None
) -> BuyerInSale:
    """Return a buyer with SQL, beside what the ledger knows.

    :raises SeckillVoucher.DoesNotExist: there is no such sale for buyers.
    :raises LedgerUnavailable: Redis did not respond.
    :raises NotLoaded: the sale has a waiting room, and no ledger.
    """
    entry_id = known.holdings.entry_id if known else 0
    status = buyer_status(sale_id=sale_id, user_id=user_id, entry_id=entry_id)
    sale = public_sale(sale_id=sale_id)
    if known is None and sale.room_opened_ms and not sale.ledger_removed_at:
        load_sale_exclusively(sale_id=sale_id)
        known = send(known_buyer_call(sale_id=sale_id, user_id=user_id, visitor=visitor))
        if known is None:
            raise NotLoaded(f"sale {sale_id} is not loaded")
    place = known.place if known else None
    return BuyerInSale(status, epoch_ms(sale.ends_at), sale.identity, place, sale.is_draw)


def judged(buyer: BuyerInSale) -> BuyerInSale:
    """Return the same buyer with the verdict of the rules, with SQL if this process has to ask."""
    if not buyer.is_to_judge:
        return buyer
    return buyer.with_verdict(judge_buyer(**_parties(buyer)))


def judged_already(buyer: BuyerInSale) -> BuyerInSale | None:
    """Return the same buyer with the verdict that this process knows; None if it has to ask."""
    if not buyer.is_to_judge:
        return buyer
    verdict = recall_verdict(**_parties(buyer))
    return buyer.with_verdict(verdict) if verdict else None


def _parties(buyer: BuyerInSale) -> dict[str, Any]:
    ids = {"sale_id": buyer.status.sale_id, "user_id": buyer.status.user_id}
    return {**ids, "audience": buyer.audience}


def find_buyer_in_sale(*, sale_id: int, user_id: int, visitor: Visitor) -> BuyerInSale:
    """Return a buyer of a public sale, by the ledger or with SQL; raises as both do."""
    sale = learn_sale(sale_id=sale_id)
    sale.check_public()
    ids = {"sale_id": sale_id, "user_id": user_id}
    known = send(known_buyer_call(**ids, visitor=visitor))
    buyer = buyer_from_ledger(**ids, known=known)
    return (buyer or buyer_from_rows(**ids, visitor=visitor, known=known)).of_sale(sale)


def _own_order(known: KnownBuyer, order_id: int, place: int | None) -> OwnOrder | None:
    if place:
        return OwnOrder(order_id, QUEUED, place=place)
    text = known.copies.get(order_id)
    row = ReceiptRow.unpack(text) if text else None
    if row is None or row.status != OrderStatus.UNPAID:
        return None
    return OwnOrder(order_id, row.status, pay_by_ms=row.pay_by_ms)
