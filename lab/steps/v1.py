"""V1: straight to the database. Read the stock, take one off, write the order.

Between the reading and the taking anybody else may read the same. Three forms of the stock guard,
and a fourth that locks the row, stand beside the bare one. None asks what the buyer has already.

Points: "stock read", "unit taken".
"""

from __future__ import annotations

from collections.abc import Callable

from django.db import transaction
from django.db.models import F

from lab.answers import Answer
from lab.models import LabOrder, LabSale
from lab.points import point


def buy(*, sale_id: int, user_id: int) -> Answer:
    """Sell a unit with no guard at all."""
    return _buy(sale_id, user_id, _take_unguarded)


def buy_if_as_read(*, sale_id: int, user_id: int) -> Answer:
    """Sell a unit if the stock is still what was read."""
    return _buy(sale_id, user_id, _take_if_as_read)


def buy_if_any_left(*, sale_id: int, user_id: int) -> Answer:
    """Sell a unit if the statement that takes it finds one."""
    return _buy(sale_id, user_id, _take_if_any_left)


def buy_locked(*, sale_id: int, user_id: int) -> Answer:
    """Sell a unit while the sale's row is locked from the reading on."""
    with transaction.atomic():
        sale = LabSale.objects.select_for_update().get(pk=sale_id)
        point("stock read")
        if sale.stock < 1:
            return Answer.SOLD_OUT
        LabSale.objects.filter(pk=sale_id).update(stock=F("stock") - 1)
        point("unit taken")
        _write_order(sale_id, user_id)
    return Answer.BOUGHT


def _buy(sale_id: int, user_id: int, take: Callable[[LabSale], bool]) -> Answer:
    with transaction.atomic():
        sale = LabSale.objects.get(pk=sale_id)
        point("stock read")
        if sale.stock < 1 or not take(sale):
            return Answer.SOLD_OUT
        point("unit taken")
        _write_order(sale_id, user_id)
    return Answer.BOUGHT


def _take_unguarded(sale: LabSale) -> bool:
    LabSale.objects.filter(pk=sale.pk).update(stock=F("stock") - 1)  # breaks: oversold
    return True


def _take_if_as_read(sale: LabSale) -> bool:
    found = LabSale.objects.filter(pk=sale.pk, stock=sale.stock)  # breaks: undersold
    return bool(found.update(stock=sale.stock - 1))


def _take_if_any_left(sale: LabSale) -> bool:
    return bool(LabSale.objects.filter(pk=sale.pk, stock__gt=0).update(stock=F("stock") - 1))


def _write_order(sale_id: int, user_id: int) -> None:
    LabOrder.objects.create(sale_id=sale_id, user_id=user_id)  # breaks: doubled
