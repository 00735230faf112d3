"""Receipts: the state of an order, from its row if there is one, else from the ledger."""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Self

from django.db.models import BigIntegerField, Case, F, QuerySet, Value, When
from django.db.models.lookups import Exact

from locks.lua_script import ScriptCall
from orders.draws.standing import Stage, standing_of
from orders.models import (
    FOR_STAFF,
    GOING_BACK,
    DrawEntry,
    OrderStatus,
    PaymentStatus,
    RefusalReason,
    VoucherOrder,
    WaitingEntry,
)
from orders.placing.order_ids import minted_ms
from orders.placing.tokens import CLOCK_TOLERANCE_MS
from orders.receipts.payment_state import NO_PAYMENT, PaymentView, view_of_payments
from orders.receipts.row_copy import KEPT_STATUSES, ReceiptRow, read_receipt_row
from vouchers.catalogue.listing import public_sale
from vouchers.inventory.holdings import read_buyer_holdings
from vouchers.inventory.keys import LedgerUnavailable, send
from vouchers.inventory.purchases import (
    BLOCK_MARK,
    BLOCK_MARK_AT,
    BLOCK_SIZE,
    ids_of_purchase,
    purchase_of,
)
from vouchers.inventory.rebuild import snapshot_or_load
from vouchers.inventory.receipt_cache import ReceiptLookup, cache_row, look_up_receipt_call
from vouchers.inventory.reservations import ended_reason
from vouchers.inventory.restart_watch import is_same_ledger
from vouchers.inventory.sale_state import Snapshot

QUEUED = "queued"
"""The status of a reservation without a row: the ledger holds it as pending."""

ENTERED = "entered"
"""The status of an entry in a draw that has not been drawn."""

ENTERED_POLL_MS = (2_000, 60_000)
"""The shortest and longest polling interval of an entry's receipt."""

ENTERED_SPREAD_MS = 5_000
"""The time over which the receipts of a crowd are spread that waits for the same draw."""

SOONEST_POLL_MS, LATEST_POLL_MS = 300, 2_000
"""The shortest and longest polling interval of a queued order's receipt."""

_STATUSES_WITH_CODE = (OrderStatus.PAID, OrderStatus.USED)

_MARK = BLOCK_MARK << BLOCK_MARK_AT
PURCHASE = Case(
    When(
        Exact(F("pk").bitand(_MARK), Value(_MARK)),
        then=F("pk") - F("pk").bitand(BLOCK_SIZE - 1),
    ),
    default="pk",
    output_field=BigIntegerField(),
)
"""The id of an order's purchase in SQL, as ``purchase_of`` has it."""

_URGENCY = (
    QUEUED,
    *(OrderStatus.UNPAID, OrderStatus.PAID, OrderStatus.REFUNDING, OrderStatus.USED),
    *(OrderStatus.REFUNDED, OrderStatus.EXPIRED, OrderStatus.CANCELLED, OrderStatus.REFUSED),
)


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


def find_units(receipt: Receipt, *, user_id: int) -> list[Receipt]:
    """Return the receipts of all units of an order's purchase, if it has several, in their order.

    :raises LedgerUnavailable: the order is queued, and Redis did not respond.
    """
    ids = ids_of_purchase(receipt.order_id)
    if len(ids) == 1:
        return []
    if receipt.status == QUEUED:
        held = read_buyer_holdings(sale_id=receipt.sale_id, user_id=user_id).units
        ours = sorted((it.order_id, it.queue_position) for it in held if it.order_id in ids)
        units = [Receipt(it, receipt.sale_id, QUEUED, place=place) for it, place in ours]
    else:
        orders = orders_with_sales().filter(pk__range=(ids[0], ids[-1]), user=user_id)
        units = [receipt_of(it) for it in orders.order_by("pk")]
    return units if len(units) > 1 else []


def lead_of(units: Sequence[Receipt]) -> Receipt:
    """Return the unit whose state is that of a purchase: what its buyer has to do first."""

    def key(unit: Receipt) -> tuple[int, bool, int]:
        money_moves = unit.payment != NO_PAYMENT or bool(unit.late_payment)
        return _URGENCY.index(unit.status), not money_moves, unit.order_id

    return min(units, key=key)


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


def in_purchases(orders: Iterable[VoucherOrder]) -> list[list[VoucherOrder]]:
    """Return orders purchase by purchase; those of one purchase are side by side."""
    return [list(units) for _, units in groupby(orders, key=lambda it: purchase_of(it.pk))]


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
    late = [it for it in order.payments.all() if not it.settles and it.status in GOING_BACK]
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
    stage, reason = standing.stage, standing.reason
    until_ms = standing.ends_at_ms if stage is Stage.ENTERED else None
    return Receipt(order_id, sale_id, stage.value, reason, entered_until_ms=until_ms)


def _lost(sale_id: int, order_id: int, ledger: Snapshot, has_token: bool) -> Receipt:
    if not ledger.loaded_at_ms:  # it was removed, once all that was accepted were rows
        public_sale(sale_id=sale_id)
        raise NoReceipt("the order was never accepted")
    if not is_same_ledger(sale_id=sale_id, loaded_at_ms=ledger.loaded_at_ms):
        # Lost and rebuilt since the first look, or restored from older data: it may come back.
        raise LedgerUnavailable("the ledger was replaced while it was read")
    if not has_token:
        public_sale(sale_id=sale_id)  # a draft must not show by another answer
        raise NoReceipt("neither ledger nor database knows the order")
    waits = WaitingEntry.objects.filter(order_id=order_id, live=True)
    # A server that took over may have been behind: better a refusal too many than no answer.
    behind_ms = CLOCK_TOLERANCE_MS if ledger.epoch > 1 else 0
    if minted_ms(order_id) >= ledger.loaded_at_ms + behind_ms or waits.exists():
        raise NoReceipt("the order was never accepted")
    return Receipt(order_id, sale_id, OrderStatus.REFUSED, RefusalReason.LOST)
