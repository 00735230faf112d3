"""What a buyer is offered on the purchase page: the sale as it stands, and a token to buy with."""

from __future__ import annotations

import datetime as dt
import logging
from dataclasses import dataclass

from orders.models import WaitingEntry
from orders.tokens import issue_token
from vouchers.figures import Snapshot, snapshots
from vouchers.ledger import LedgerUnavailable
from vouchers.listing import public_sale
from vouchers.models import SaleState, SeckillVoucher
from vouchers.reservations import SaleEnded, holdings

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Offer:
    """The purchase page's content; ``token`` is empty for a visitor and after the end.

    ``waits`` says that the buyer is in the waiting list; it is asked when all is sold out.
    """

    sale: SeckillVoucher
    snapshot: Snapshot | None
    state: SaleState
    token: str = ""
    held_order_id: int | None = None
    waits: bool = False

    @property
    def total(self) -> int:
        return self.snapshot.figures.total if self.snapshot else self.sale.stock

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
    try:
        found = snapshots(sale_ids=[sale_id])[sale_id]
        token, held = _personal(sale, user_id, now_ms) if user_id else ("", None)
    except LedgerUnavailable:
        logger.warning("the page of sale %s is shown without its ledger", sale_id)
        found, token, held = None, "", None
    now = dt.datetime.fromtimestamp(now_ms / 1000, tz=dt.UTC)
    state = found.state if found else sale.state_at(now)
    waits = state is SaleState.SOLD_OUT and user_id is not None and _waits(sale_id, user_id)
    return Offer(sale, found, state, token=token, held_order_id=held, waits=waits)


def _waits(sale_id: int, user_id: int) -> bool:
    entries = WaitingEntry.objects.filter(seckill_voucher=sale_id, user=user_id, live=True)
    return entries.exists()


def _personal(sale: SeckillVoucher, user_id: int, now_ms: int) -> tuple[str, int | None]:
    """Return a token, and the order held where the buyer has as many as the limit allows."""
    held = holdings(sale_id=sale.pk, user_id=user_id, limit=sale.limit)
    held_id = held[-1] if len(held) >= sale.limit else None
    try:
        token = issue_token(sale=sale, user_id=user_id, now_ms=now_ms).sign()
    except SaleEnded:
        token = ""
    return token, held_id
