"""What an actor may do besides pressing the button; run in the actor's own process."""

from __future__ import annotations

from functools import cache

from lab.steps import STEPS
from lab.steps.step import Writer
from orders.fulfilment.worker import fulfill_sale
from orders.models import OrderStatus, RefusalReason

TOLD_LOST = f"{OrderStatus.REFUSED.value} {RefusalReason.LOST.value}"


def write_order(step: str, process_name: str) -> None:
    """Let the background half of a step look for one order, and write it."""
    _writer_of(step, process_name).work_once()


def fulfill(sale_id: int) -> None:
    """Do a fulfil task, and the tasks that it would publish."""
    while fulfill_sale(sale_id=sale_id):
        pass


@cache
def _writer_of(step: str, process_name: str) -> Writer:
    make = STEPS[step].writer
    assert make is not None
    return make(process_name)
