"""Ours: the shop itself, not a copy, with a sale, buyers and tokens for a race.

The sale is a shadow, like that of a rehearsal: no visitor sees it, and the same cleanup removes it.
Its buyers cannot sign in, and stay for the next race. Its orders are written by the shop's own back
half (``orders.fulfilment.worker``), so a worker has to run.

Points: the failpoints of the shop, such as "place.reserved", "batch.before_commit" and
"fulfill.confirmed".
"""

import datetime as dt
import time
from collections.abc import Iterable

from django.contrib.auth import get_user_model
from django.contrib.auth.hashers import make_password

from backoffice.rehearsal.cleanup import WORKER_WAIT, clear_shadow
from lab.models import LONG_AGO
from lab.steps.step import Answer, Step
from lab.waiting import wait_until
from orders.fulfilment.reconcile import reconcile
from orders.models import OrderStatus, VoucherOrder
from orders.placing.service import finish_order, place_order, read_order_token
from orders.placing.tokens import PurchaseToken, issue_tokens
from orders.receipts.service import NoReceipt, find_receipt
from seckill_site.clocks.database import database_now
from seckill_site.clocks.ledger import ledger_now_ms
from vouchers.catalogue.sales import SaleTerms, VoucherDetails, create_voucher_on_sale
from vouchers.inventory.keys import LedgerUnavailable
from vouchers.inventory.reservations import AlreadyOrdered, NotStarted, SaleBehind, SoldOut
from vouchers.models import SaleStage, SeckillVoucher

TITLE = "Race of the lab"
WINDOW = dt.timedelta(hours=1)
_CHUNK_SIZE = 500
STARTED_AGO = dt.timedelta(minutes=1)
"""Time by which the start precedes the creation of a sale: the clock of Redis may differ."""

PAY_WITHIN_S = 24 * 3600
"""A payment deadline so late that no order expires during a race."""

CLEAR_S, RETRY_S = 20.0, 0.05
"""Seconds for which the cleanup retries while a worker uses the sale, and the interval."""

RECEIPT_S = 30.0
"""Seconds for which receipts may be unreadable because the ledger is being rebuilt."""


class OurShop(Step):
    """The shop, with shadow sales in its own tables."""

    def open(self, units: int, begins_at: dt.datetime = LONG_AGO) -> int:
        now = database_now()
        terms = SaleTerms(
            stock=units,
            begins_at=max(begins_at, now - STARTED_AGO),
            ends_at=max(begins_at, now) + WINDOW,
            pay_within_s=PAY_WITHIN_S,
            stage=SaleStage.REHEARSAL,
        )
        details = VoucherDetails(title=TITLE, rules="", price_cents=8_000, face_value_cents=10_000)
        sale = create_voucher_on_sale(details=details, terms=terms)
        # Beat removes shadow sales without a rehearsal after some seconds. This one must stay
        # until it is over.
        SeckillVoucher.objects.filter(pk=sale.pk).update(created_at=terms.ends_at)
        return sale.pk

    def buyers(self, count: int) -> list[int]:
        """Return the ids of this many users who cannot sign in; those of earlier races first."""
        users = get_user_model().objects
        ids: list[int] = []
        for first in range(0, count, _CHUNK_SIZE):
            numbers = range(first, min(first + _CHUNK_SIZE, count))
            names = [f"lab:{number + 1}" for number in numbers]  # nobody signs up with a colon
            made = users.filter(username__in=names)
            new = {*names} - {*made.values_list("username", flat=True)}
            users.bulk_create(
                (users.model(username=name, password=make_password(None)) for name in new),
                ignore_conflicts=True,
            )
            ids += made.order_by("pk").values_list("pk", flat=True)
        return ids

    def rows(self, sale_id: int) -> list[int]:
        """Return the user id of each order that holds a unit."""
        orders = VoucherOrder.objects.filter(seckill_voucher_id=sale_id, live=True).order_by("pk")
        return [user_id for user_id in orders.values_list("user_id", flat=True) if user_id]

    def barred_buyers(self, sale_id: int) -> set[int]:
        """Return an empty set: the shop repairs what a fault left behind."""
        return set()

    def clear(self, sale_id: int) -> None:
        """Remove a sale that no race uses any more, with its orders and keys.

        :raises TimeoutError: a worker uses it for too long; beat removes it when it is over.
        """
        # A sale that has not started cannot be closed.
        too_late = SeckillVoucher.objects.filter(pk=sale_id, begins_at__gt=database_now())
        too_late.update(begins_at=database_now() - STARTED_AGO)
        is_gone = clear_shadow(shadow_id=sale_id, now=database_now()) or wait_until(
            # The sale is closed by now. No web process of a race can still use it.
            lambda: clear_shadow(shadow_id=sale_id, now=database_now() + WORKER_WAIT),
            within_s=CLEAR_S,
            every_s=RETRY_S,
        )
        if not is_gone:
            raise TimeoutError(f"sale {sale_id} is not cleared up")


def tokens_for(sale_id: int, user_ids: Iterable[int]) -> list[PurchaseToken]:
    """Issue a token to each buyer, as the page does each time it is opened.

    :raises LedgerUnavailable: Redis did not respond.
    """
    sale = SeckillVoucher.objects.get(pk=sale_id)
    return issue_tokens(sale=sale, user_ids=list(user_ids))


def buy(*, sale_id: int, user_id: int, token: str | None = None) -> Answer:
    """Press the button of the page with this token, or of a page opened for this press.

    :raises LedgerUnavailable: outcome unknown; press again with the same token, as the page does.
    :raises NotLoaded: likewise.
    """
    token = token or tokens_for(sale_id, [user_id])[0].sign()
    try:
        read = read_order_token(token, sale_id=sale_id, now_ms=ledger_now_ms())
        place_order(read, finish=finish_order)
    except SoldOut:
        return Answer.SOLD_OUT
    except AlreadyOrdered:
        return Answer.ALREADY_ORDERED
    except NotStarted:
        return Answer.NOT_ON_SALE
    except SaleBehind:
        return Answer.BUSY
    return Answer.QUEUED


def receipt(token: PurchaseToken) -> str:
    """Return the status of a token's order, with the reason of a refusal.

    :raises NoReceipt: there is no such order.
    :raises LedgerUnavailable: Redis did not respond.
    """
    order_receipt = find_receipt(
        sale_id=token.sale_id, order_id=token.order_id, user_id=token.user_id, has_token=True
    )
    return f"{order_receipt.status} {order_receipt.reason}".strip()


def refused_buyers(tokens: Iterable[PurchaseToken]) -> set[int]:
    """Return the user ids whose receipt says why their order was refused."""
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
    """Return whether no order is pending, and ledger and database agree."""
    try:
        books = reconcile(sale_id=sale_id)
    except LedgerUnavailable:
        return False
    return books.remaining is not None and not books.pending and not books.difference


OUR_SHOP = OurShop("ours", buy)
