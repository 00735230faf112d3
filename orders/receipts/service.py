"""Receipts: the state of an order, from its row if there is one, else from the ledger."""

from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Self, assert_never

from django.db.models import QuerySet

from locks.lua_script import ScriptCall
from orders.draws.standing import Stage, standing_of
from orders.models import (
    FOR_STAFF,
    DrawEntry,
    OrderStatus,
    PaymentStatus,
    RefusalReason,
    VoucherOrder,
    WaitingEntry,
)
from orders.placing.order_ids import minted_at
from orders.placing.tokens import CLOCK_TOLERANCE_MS
from orders.receipts.payment_state import NO_PAYMENT, PaymentView, view_of_payments
from orders.receipts.row_copy import KEPT_STATUSES, ReceiptRow, read_receipt_row
from seckill_site.clocks.machine import epoch_ms
from vouchers.catalogue.listing import public_sale
from vouchers.inventory.holdings import read_buyer_holdings
from vouchers.inventory.keys import LedgerUnavailable, send
from vouchers.inventory.rebuild import snapshot_or_load
from vouchers.inventory.receipt_cache import ReceiptLookup, cache_row, look_up_receipt_call
from vouchers.inventory.reservations import ended_reason
from vouchers.inventory.restart_watch import is_same_ledger
from vouchers.inventory.sale_state import Snapshot

QUEUED = "queued"
"""The status of a reservation without a row: the ledger holds it as pending."""

ENTERED = "entered"
"""The status of an entry in a draw that has not been drawn."""

WAITING = "waiting"
"""The status of an entry that did not win and is on the waiting list."""

ENTERED_POLL_MS = (2_000, 60_000)
"""The shortest and longest polling interval of an entry's receipt."""

ENTERED_SPREAD_MS = 5_000
"""The time over which the receipts of a crowd are spread that waits for the same draw."""

SOONEST_POLL_MS, LATEST_POLL_MS = 300, 2_000
"""The shortest and longest polling interval of a queued order's receipt."""

_STATUSES_WITH_CODE = (OrderStatus.PAID, OrderStatus.USED)


class NoReceipt(Exception):
    """This buyer has no such order."""


@dataclass(frozen=True)
class Receipt:
    """An order as its owner may see it; ``accepted_at_ms`` is None without a row.

    ``place`` is the queue position of a queued order, 1 for the next to be written.
    ``payment`` is what is known of a payment that the buyer may just have made.
    ``late_payment`` is the status of money that arrived when the order was no longer unpaid.
    ``entered_until_ms`` is the end of a draw that the buyer has entered.
    """

    order_id: int
    sale_id: int
    status: str
    reason: str = ""
    price_cents: int | None = None
    accepted_at_ms: int | None = None
    pay_by_ms: int | None = None
    extended: bool = False
    code: str = ""
    refundable: bool = False
    payment: PaymentView = NO_PAYMENT
    late_payment: str = ""
    place: int | None = None
    entered_until_ms: int | None = None

    @classmethod
    def from_row(cls, order_id: int, row: ReceiptRow, **after_payment: Any) -> Self:
        unpaid = row.status == OrderStatus.UNPAID
        return cls(
            order_id=order_id,
            sale_id=row.sale_id,
            status=row.status,
            reason=row.reason,
            price_cents=row.price_cents,
            accepted_at_ms=row.accepted_at_ms,
            pay_by_ms=row.pay_by_ms if unpaid else None,
            extended=row.is_extended,
            **after_payment,
        )


def find_receipt(
    *,
    sale_id: int,
    order_id: int,
    user_id: int,
    has_token: bool = False,
    by_session: bool = False,
) -> Receipt:
    """Return the receipt of this buyer's order.

    An id that neither side knows and that is older than the ledger was lost with an earlier ledger,
    and so may be one of the first minute of a ledger that replaced another. Only the holder of its
    token is told so: anybody can make up an old id.
    ``has_token``: the buyer proved ownership with the token of this very order. Requests with
    a token ask Redis first; requests with a session, ``by_session``, ask the database.

    :raises NoReceipt: the id is unknown, somebody else's, or was never accepted.
    :raises SeckillVoucher.DoesNotExist: there is no such sale for buyers.
    :raises LedgerUnavailable: there is no row, and Redis did not respond.
    """
    receipt, ledger_answered = None, False
    if has_token and not by_session:
        with suppress(LedgerUnavailable):
            receipt = cached_receipt(sale_id=sale_id, order_id=order_id, user_id=user_id)
            ledger_answered = True
    receipt = receipt or _from_row(sale_id, order_id, user_id, has_token, cache=ledger_answered)
    if receipt:
        return receipt
    ledger = snapshot_or_load(sale_id=sale_id)
    return (
        _from_pending(sale_id, order_id, user_id)
        # It may have become a row, and left the ledger, since the first look at the row.
        or _from_row(sale_id, order_id, user_id, has_token)
        or _ended_without_row(sale_id, order_id, user_id)
        or _entered(sale_id, order_id, user_id)
        or _lost(sale_id, order_id, ledger, has_token)
    )


def cached_receipt(*, sale_id: int, order_id: int, user_id: int) -> Receipt | None:
    """Return the receipt for the holder of the order's token with one command to Redis.

    None unless the order is pending or Redis has a copy of its row.

    :raises NoReceipt: the order is another buyer's or another sale's.
    :raises LedgerUnavailable: Redis did not respond.
    """
    return send(cached_receipt_call(sale_id=sale_id, order_id=order_id, user_id=user_id))


def cached_receipt_call(*, sale_id: int, order_id: int, user_id: int) -> ScriptCall[Receipt | None]:
    """Build the call of :func:`cached_receipt`."""
    call = look_up_receipt_call(sale_id=sale_id, order_id=order_id, user_id=user_id)

    def finish(known: ReceiptLookup) -> Receipt | None:
        if known.queue_position:
            return Receipt(order_id, sale_id, QUEUED, place=known.queue_position)
        if known.entered_until_ms:
            until_ms = known.entered_until_ms
            return Receipt(order_id, sale_id, ENTERED, entered_until_ms=until_ms)
        if not known.row:
            return None
        row = ReceiptRow.unpack(known.row)
        _check_owner(row, sale_id, user_id, has_token=True)
        return Receipt.from_row(order_id, row)

    return call.finished_by(finish)


def poll_after_ms(*, place: int | None) -> int:
    """Return when to poll a queued order again: after one millisecond per order ahead of it.

    Orders are written faster than that, so buyers far back rarely poll in vain.
    """
    return min(max(place or 0, SOONEST_POLL_MS), LATEST_POLL_MS)


def entry_poll_ms(*, order_id: int, until_ms: int, now_ms: int) -> int:
    """Return when to poll an entry in a draw again: a few seconds after the end, or in a minute."""
    soonest, latest = ENTERED_POLL_MS
    return min(max(until_ms - now_ms, 0) + soonest + order_id % ENTERED_SPREAD_MS, latest)


def orders_of(*, user_id: int) -> QuerySet[VoucherOrder]:
    """Return a buyer's orders with their vouchers, newest first."""
    orders = orders_with_sales().select_related("seckill_voucher__voucher__picture")
    orders = orders.defer("seckill_voucher__voucher__picture__content")
    return orders.filter(user_id=user_id).order_by("-pk")


def orders_with_sales() -> QuerySet[VoucherOrder]:
    """Return all orders with the rows that their receipts need."""
    orders = VoucherOrder.objects.select_related("seckill_voucher__voucher__merchant")
    return orders.prefetch_related("payments")


def receipt_of(order: VoucherOrder) -> Receipt:
    """Return the receipt of an order that has its row."""
    return Receipt.from_row(
        order.pk,
        ReceiptRow.of(order),
        code=order.code if order.code and order.status in _STATUSES_WITH_CODE else "",
        refundable=order.status == OrderStatus.PAID and order.seckill_voucher.refundable,
        payment=view_of_payments(order.payments.all(), status=order.status),
        late_payment=_late_payment(order),
    )


def _late_payment(order: VoucherOrder) -> str:
    """Return the status of a late payment that is being or has been refunded, if any."""
    if order.status in KEPT_STATUSES:
        return ""  # a crowd asks for these: skip the query for payments
    going_back = (PaymentStatus.REFUNDING, PaymentStatus.REFUNDED, *FOR_STAFF)
    late = [it for it in order.payments.all() if not it.settles and it.status in going_back]
    if not late:
        return ""
    return PaymentStatus.REFUNDING if late[-1].status in FOR_STAFF else late[-1].status


def _from_row(
    sale_id: int, order_id: int, user_id: int, has_token: bool, *, cache: bool = False
) -> Receipt | None:
    row = read_receipt_row(order_id=order_id)
    if row is None:
        return None
    _check_owner(row, sale_id, user_id, has_token)
    if row.status not in KEPT_STATUSES or (row.has_returned and row.status == OrderStatus.UNPAID):
        return receipt_of(orders_with_sales().get(pk=order_id))
    if cache and not row.is_extended:
        with suppress(LedgerUnavailable):
            cache_row(sale_id=sale_id, order_id=order_id, row=row.pack())
    return Receipt.from_row(order_id, row)


def _check_owner(row: ReceiptRow, sale_id: int, user_id: int, has_token: bool) -> None:
    # The row of a deleted account names nobody: then only the order's token proves ownership.
    owned = row.user_id == user_id or (row.user_id is None and has_token)
    if not owned or row.sale_id != sale_id:
        raise NoReceipt("the order is another buyer's or another sale's")


def _from_pending(sale_id: int, order_id: int, user_id: int) -> Receipt | None:
    for unit in read_buyer_holdings(sale_id=sale_id, user_id=user_id).units:
        if unit.order_id == order_id:
            return Receipt(order_id, sale_id, QUEUED, place=unit.queue_position)
    return None


def _ended_without_row(sale_id: int, order_id: int, user_id: int) -> Receipt | None:
    """Return the receipt of an entry that cannot have a row: only the ledger has its refusal."""
    reason = ended_reason(sale_id=sale_id, order_id=order_id, user_id=user_id)
    return None if reason is None else Receipt(order_id, sale_id, OrderStatus.REFUSED, reason)


def _entered(sale_id: int, order_id: int, user_id: int) -> Receipt | None:
    """Return the receipt of an entry in a draw that has no order."""
    standing = standing_of(sale_id=sale_id, order_id=order_id, user_id=user_id)
    if standing is None:
        if DrawEntry.objects.filter(pk=order_id).exists():
            raise NoReceipt("the entry is another buyer's or another sale's")
        return None
    match standing.stage:
        case Stage.ENTERED:
            return Receipt(order_id, sale_id, ENTERED, entered_until_ms=standing.ends_at_ms)
        case Stage.WON:
            return Receipt(order_id, sale_id, QUEUED)
        case Stage.WAITING:
            return Receipt(order_id, sale_id, WAITING)
        case Stage.OUT:
            return Receipt(order_id, sale_id, OrderStatus.REFUSED, standing.reason)
        case unknown:
            assert_never(unknown)


def _lost(sale_id: int, order_id: int, ledger: Snapshot, has_token: bool) -> Receipt:
    if not is_same_ledger(sale_id=sale_id, loaded_at_ms=ledger.loaded_at_ms):
        # Lost and rebuilt since the first look, or restored from older data: it may come back.
        raise LedgerUnavailable("the ledger was replaced while it was read")
    if not has_token:
        public_sale(sale_id=sale_id)  # a draft must not show by another answer
        raise NoReceipt("neither ledger nor database knows the order")
    waits = WaitingEntry.objects.filter(order_id=order_id, live=True)
    # A server that took over may have been behind: better a refusal too many than no answer.
    behind_ms = CLOCK_TOLERANCE_MS if ledger.epoch > 1 else 0
    if epoch_ms(minted_at(order_id)) >= ledger.loaded_at_ms + behind_ms or waits.exists():
        raise NoReceipt("the order was never accepted")
    return Receipt(order_id, sale_id, OrderStatus.REFUSED, RefusalReason.LOST)
