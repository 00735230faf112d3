"""What an actor may do besides pressing the button; run in the actor's own process."""

from __future__ import annotations

from functools import cache

from lab.steps import STEPS
from lab.steps.step import Writer
from orders.fulfilment.worker import fulfill_sale
from orders.models import OrderStatus, RefusalReason
from orders.placing.tokens import PurchaseToken
from orders.receipts.service import find_receipt

TOLD_LOST = f"{OrderStatus.REFUSED.value} {RefusalReason.LOST.value}"


def write_order(step: str, process_name: str) -> None:
    """Let the background half of a step look for one order, and write it."""
    _writer_of(step, process_name).work_once()


def fulfil(sale_id: int) -> None:
    """Do what a fulfil task does, and what the task does that it would hand on to."""
    while fulfill_sale(sale_id=sale_id):
        pass


def ask_for_receipt(token: PurchaseToken) -> str:
    """Return what became of the order of this token, as its page says it."""
    receipt = find_receipt(
        sale_id=token.sale_id, order_id=token.order_id, user_id=token.user_id, has_token=True
    )
    return f"{receipt.status} {receipt.reason}".strip()


@cache
def _writer_of(step: str, process_name: str) -> Writer:
    make = STEPS[step].writer
    assert make is not None
    return make(process_name)
