"""Ours: the shop itself, with a sale, buyers and tokens for a race. Nothing of it is copied here.

The sale is a shadow, as that of a rehearsal: no visitor sees it, and what clears up after a
rehearsal clears it up. Its buyers cannot sign in, and stay for the next race. Its orders are
written by the shop's own back half (``orders.fulfilment.worker``): a worker has to run.

Points: none of its own, but the failpoints of the shop, such as "place.reserved",
"batch.before_commit" and "fulfill.confirmed".
"""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Iterable
from functools import lru_cache

from django.contrib.auth import get_user_model
from django.contrib.auth.hashers import make_password
from django.utils import timezone

from backoffice.rehearsal.cleanup import WORKER_WAIT, clear_shadow
from lab.answers import Answer
from orders.fulfilment.reconcile import reconcile
from orders.models import OrderStatus, VoucherOrder
from orders.placing.service import load_and_place_order
from orders.placing.tokens import PurchaseToken, issue_tokens
from orders.receipts.service import NoReceipt, find_receipt
from seckill_site.clock import now_ms
from vouchers.catalogue.sales import SaleTerms, VoucherDetails, create_voucher_on_sale
from vouchers.inventory.keys import LedgerUnavailable
from vouchers.inventory.reservations import AlreadyOrdered, SaleBehind, SoldOut
from vouchers.models import SaleStage, SeckillVoucher

TITLE = "Race of the lab"
WINDOW = dt.timedelta(hours=1)
AHEAD = dt.timedelta(minutes=1)
"""So long before its making the sale has begun: the clock of Redis may be another's."""

PAY_WITHIN_S = 24 * 3600
"""No order of a race expires while it is there."""

CLEAR_S, RETRY_S = 20.0, 0.05
"""How long the clearing tries while a worker is still at the sale, and how often."""

RECEIPT_S = 30.0
"""How long receipts may be unreadable because the ledger is being rebuilt."""

_BUYERS_AT_ONCE = 500


def open(offered: int) -> int:
    """Put so many units on sale, one to a buyer, and return the sale's id."""
    now = timezone.now()
    terms = SaleTerms(
        stock=offered,
        begins_at=now - AHEAD,
        ends_at=now + WINDOW,
        pay_within_s=PAY_WITHIN_S,
        stage=SaleStage.REHEARSAL,
    )
    details = VoucherDetails(title=TITLE, rules="", price_cents=8_000, face_value_cents=10_000)
    sale = create_voucher_on_sale(details=details, terms=terms)
    # Beat clears up shadows that are older than some seconds and of no rehearsal: of this one it
    # keeps off until it is over.
    SeckillVoucher.objects.filter(pk=sale.pk).update(created_at=terms.ends_at)
    return sale.pk


def make_buyers(count: int) -> list[int]:
    """Return the ids of so many users who cannot sign in; those of earlier races first."""
    users = get_user_model().objects
    names = [f"lab:{number}" for number in range(1, count + 1)]  # nobody signs up with a colon
    ids: list[int] = []
    for first in range(0, count, _BUYERS_AT_ONCE):
        chunk = names[first : first + _BUYERS_AT_ONCE]
        known = set(users.filter(username__in=chunk).values_list("username", flat=True))
        new = [name for name in chunk if name not in known]
        made = [users.model(username=name, password=make_password(None)) for name in new]
        users.bulk_create(made, ignore_conflicts=True)
        ids += users.filter(username__in=chunk).order_by("pk").values_list("pk", flat=True)
    return ids


def tokens_for(sale_id: int, user_ids: Iterable[int]) -> list[PurchaseToken]:
    """Issue a token to each, as the page does each time that it is opened: two tabs have two.

    :raises LedgerUnavailable: Redis did not answer.
    """
    return issue_tokens(sale=_sale(sale_id), user_ids=list(user_ids))


def buy(*, sale_id: int, user_id: int, token: str | None = None) -> Answer:
    """Press the button: of a page that is opened for it, or of the one that has this token.

    :raises LedgerUnavailable: unknown; to be asked again with the same token, as the page does.
    :raises NotLoaded: likewise.
    """
    token = token or tokens_for(sale_id, [user_id])[0].sign()
    try:
        load_and_place_order(token_text=token, sale_id=sale_id, now_ms=now_ms())
    except SoldOut:
        return Answer.SOLD_OUT
    except AlreadyOrdered:
        return Answer.ALREADY_ORDERED
    except SaleBehind:
        return Answer.BUSY
    return Answer.QUEUED


def user_ids_of(sale_id: int) -> list[int]:
    """Return the user id of each order that holds a unit."""
    orders = VoucherOrder.objects.filter(seckill_voucher_id=sale_id, live=True).order_by("pk")
    return [user_id for user_id in orders.values_list("user_id", flat=True) if user_id]


def receipt(token: PurchaseToken) -> str:
    """Return what became of the order of a token: its status and reason.

    :raises NoReceipt: there is no such order.
    :raises LedgerUnavailable: Redis did not answer.
    """
    found = find_receipt(
        sale_id=token.sale_id, order_id=token.order_id, user_id=token.user_id, has_token=True
    )
    return f"{found.status} {found.reason}".strip()


def refused_buyers(tokens: Iterable[PurchaseToken]) -> set[int]:
    """Return the user ids of those whose receipt says that their order is refused, and why."""
    until = time.monotonic() + RECEIPT_S
    return {token.user_id for token in tokens if _is_refused(token, until)}


def _is_refused(token: PurchaseToken, until: float) -> bool:
    while True:
        try:
            return receipt(token).startswith(f"{OrderStatus.REFUSED} ")
        except NoReceipt:
            return False
        except LedgerUnavailable:
            if time.monotonic() > until:
                return False
            time.sleep(RETRY_S)


def is_settled(sale_id: int) -> bool:
    """Return whether no promise is open, and ledger and database agree."""
    try:
        found = reconcile(sale_id=sale_id)
    except LedgerUnavailable:
        return False
    return found.remaining is not None and not found.pending and not found.difference


def clear(sale_id: int) -> None:
    """Remove a sale that nobody races at any more, with its orders and keys.

    :raises TimeoutError: a worker is at it for too long; beat removes it when it is over.
    """
    until = time.monotonic() + CLEAR_S
    is_gone = clear_shadow(shadow_id=sale_id, now=timezone.now())
    while not is_gone:
        if time.monotonic() > until:
            raise TimeoutError(f"sale {sale_id} is not cleared up")
        time.sleep(RETRY_S)
        # Closed by now. That a web process might be at it a while longer is no concern of a race.
        is_gone = clear_shadow(shadow_id=sale_id, now=timezone.now() + WORKER_WAIT)


@lru_cache(maxsize=8)
def _sale(sale_id: int) -> SeckillVoucher:
    return SeckillVoucher.objects.get(pk=sale_id)
