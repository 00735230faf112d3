"""The JSON of the HTTP contract (``docs/http.md``), as dictionaries."""

import json
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from django.urls import reverse

from orders.lifecycle.redemption import written_code
from orders.lifecycle.waiting_list import WaitingListPlace
from orders.receipts.payment_state import BEING_CONFIRMED
from orders.receipts.place_in_line import LineView
from orders.receipts.purchase_page import BuyerStatus
from orders.receipts.service import ENTERED, QUEUED, Receipt, entry_poll_ms, lead_of, poll_after_ms
from vouchers.inventory.purchases import purchase_of

CONFIRM_POLL_MS = 500
"""The polling interval of a receipt whose payment is being confirmed."""


def accepted_text(order_id: int, *, path: str) -> str:
    """Return the answer to an accepted order request, written out; ``path`` is the request's.

    A token's order is the first of its purchase.
    """
    return (
        f'{{"order_id": "{order_id}", "purchase": "{order_id}", "status": "{QUEUED}", '
        f'"status_url": "{receipt_path(order_id, path=_quoted(path))}", '
        f'"poll_after_ms": {poll_after_ms(place=None)}}}'
    )


def receipt_path(order_id: int, *, path: str) -> str:
    """Return what ``reverse("receipt")`` returns, for free; ``path`` is the order request's."""
    return f"{path}{order_id}/"


@lru_cache(maxsize=256)
def _quoted(path: str) -> str:
    return json.dumps(path)[1:-1]


def receipt_json(receipt: Receipt, *, now_ms: int, path: str = "") -> dict[str, Any]:
    """Return a receipt; ``path`` is its own address, if the caller knows it."""
    content: dict[str, Any] = {
        "order_id": str(receipt.order_id),
        "purchase": str(purchase_of(receipt.order_id)),
        "voucher_id": str(receipt.sale_id),
        "status": receipt.status,
        "reason": receipt.reason,
        "price_cents": receipt.price_cents,
        "accepted_at_ms": receipt.accepted_at_ms,
        "pay_by_ms": receipt.pay_by_ms,
        "extended": receipt.extended,
        "server_time_ms": now_ms,
        "code": written_code(receipt.code) if receipt.code else "",
        "refundable": receipt.refundable,
        "payment": receipt.payment.state_at(now_ms),
        "late_payment": receipt.late_payment,
        "status_url": path or reverse("receipt", args=[receipt.sale_id, receipt.order_id]),
    }
    if receipt.status == QUEUED:
        content |= _queue_json(receipt.place)
    elif receipt.status == ENTERED:
        until_ms = receipt.entered_until_ms or now_ms
        poll_ms = entry_poll_ms(order_id=receipt.order_id, until_ms=until_ms, now_ms=now_ms)
        content |= {"entered_until_ms": until_ms, "poll_after_ms": poll_ms}
    elif content["payment"] in BEING_CONFIRMED:
        content["poll_after_ms"] = CONFIRM_POLL_MS
    return content


def purchase_json(receipt: Receipt, units: Sequence[Receipt], *, now_ms: int) -> dict[str, Any]:
    """Return a receipt with those of all ``units`` of its purchase, if it has several."""
    content = receipt_json(receipt, now_ms=now_ms)
    if not units:
        return content
    lead = str(lead_of(units).order_id)
    return content | {"lead": lead, "units": [receipt_json(it, now_ms=now_ms) for it in units]}


def buyer_status_json(status: BuyerStatus) -> dict[str, Any]:
    """Return what a buyer has of a sale; the order's fields are null without an order."""
    content: dict[str, Any] = {
        "holds": status.holds,
        "limit": status.limit,
        "may_buy": status.may_buy,
        "own_state": status.own_state,
        "waits": status.waits,
        "buyer_id": str(status.user_id),
        "server_time_ms": status.now_ms,
    }
    verdict = status.verdict
    if verdict.rule:
        content |= {"rule": verdict.rule, "rule_number": verdict.number}
    if verdict.from_ms:
        content["eligible_at_ms"] = verdict.from_ms
    if verdict.unpaid:
        content["unpaid_url"] = reverse("receipt", args=verdict.unpaid)
    order = status.order
    if order is None:
        return content | dict.fromkeys(("order_id", "status", "pay_by_ms", "place", "status_url"))
    content |= {
        "order_id": str(order.order_id),
        "status": order.status,
        "pay_by_ms": order.pay_by_ms,
        "place": None,
        "status_url": reverse("receipt", args=[status.sale_id, order.order_id]),
    }
    return content | (_queue_json(order.place) if order.status == QUEUED else {})


def line_json(view: LineView) -> dict[str, Any]:
    """Return a place in the line of a waiting room."""
    return {
        "turn": view.turn.value,
        "position": view.position,
        "waiting": view.length,
        "wait_ms": view.wait_ms,
        "poll_after_ms": view.poll_after_ms,
        "rate": view.rate,
        "url": _room_url(view.sale_id),
    }


@lru_cache(maxsize=256)
def _room_url(sale_id: int) -> str:
    return reverse("room", args=[sale_id])


def waiting_json(place: WaitingListPlace, *, sale_id: int) -> dict[str, Any]:
    """Return a buyer's place in a sale's waiting list."""
    in_line = "first" if place.place == 1 else "place"
    several = "all" if place.all_or_none else "rest" if place.given else "several"
    return {
        "order_id": str(place.order_id),
        "voucher_id": str(sale_id),
        "state": in_line if place.place else "over",
        "waiting": place.place is not None,
        "place": place.place,
        "offered": place.offered,
        "quantity": place.quantity,
        "given": place.given,
        "wants": several if place.quantity > 1 else "one",
        "status_url": reverse("receipt", args=[sale_id, place.order_id]),
    }


def _queue_json(place: int | None) -> dict[str, Any]:
    return {"place": place, "poll_after_ms": poll_after_ms(place=place)}
