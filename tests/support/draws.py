"""Helpers of the tests of draws: a sale that draws, entries, the end of its window."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from typing import Any

from django.contrib.auth.models import User

from orders.draws.drawing import take_due_steps
from orders.fulfilment.worker import fulfil_sale
from orders.models import DrawEntry
from orders.placing.tokens import PurchaseToken
from seckill_site.clocks.machine import from_epoch_ms
from tests.support.orders import make_sale, tokens_for
from tests.support.sales import redis_now_ms
from vouchers.inventory.draw_entries import read_entries
from vouchers.inventory.entering import enter_call
from vouchers.inventory.keys import send
from vouchers.inventory.rebuild import load_sale
from vouchers.inventory.reservations import finish_reservation
from vouchers.models import Draw, SaleMode, SeckillVoucher


def make_draw(*, stock: int = 2, **fields: Any) -> SeckillVoucher:
    """Return a sale that draws its buyers; it takes entries by default."""
    sale = make_sale(stock=stock, mode=SaleMode.DRAW, **fields)
    Draw.of(sale)
    return sale


def enter(token: PurchaseToken) -> None:
    call = enter_call(
        sale_id=token.sale_id,
        order_id=token.order_id,
        user_id=token.user_id,
        identity=token.identity,
    )
    send(call.finished_by(finish_reservation))


def entered(sale: SeckillVoucher, buyers: Sequence[User]) -> list[PurchaseToken]:
    """Enter each buyer, and return their tokens."""
    tokens = tokens_for(sale, buyers)
    for token in tokens:
        enter(token)
    return tokens


def entered_draw(
    buyers: Sequence[User], **fields: Any
) -> tuple[SeckillVoucher, list[PurchaseToken]]:
    """Return a draw that these buyers have entered, and their tokens."""
    sale = make_draw(**fields)
    return sale, entered(sale, buyers)


def end(sale: SeckillVoucher) -> None:
    """Move the end of a draw to a moment ago."""
    ends_at = from_epoch_ms(redis_now_ms()) - dt.timedelta(seconds=1)
    SeckillVoucher.objects.filter(pk=sale.pk).update(ends_at=ends_at)
    load_sale(sale_id=sale.pk)
    sale.refresh_from_db()


def draw_to_the_end(sale: SeckillVoucher) -> None:
    """Take the steps of a draw as beat and workers do, until it is finished."""
    for _ in range(5):
        take_due_steps(sale_id=sale.pk)
        fulfil_sale(sale_id=sale.pk)
        if Draw.of(sale).finished_at:
            return
    raise AssertionError("the draw does not finish")


def listed(sale: SeckillVoucher) -> list[int]:
    """Return the ids of the list, by the rows."""
    rows = DrawEntry.objects.filter(seckill_voucher=sale, live=True)
    return sorted(rows.values_list("order_id", flat=True))


def in_redis(sale: SeckillVoucher) -> list[int]:
    """Return the ids of the entries that Redis has."""
    return sorted(entry.order_id for entry in read_entries(sale_id=sale.pk))
