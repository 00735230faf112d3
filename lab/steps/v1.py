"""V1: straight to the database. Read the stock, take one unit, write the order.

Between reading and taking, any other buyer may read the same stock. Two ways of taking a unit guard
against that, and so does a lock on the row. None checks whether the buyer already has a unit.

Points: "stock read", "unit taken".
"""

from collections.abc import Callable

from django.db import transaction
from django.db.models import F

from lab.models import LabOrder, LabSale
from lab.points import point
from lab.steps.step import Answer


def buy(
    *, sale_id: int, user_id: int, take: Callable[[LabSale], bool], lock_row: bool = False
) -> Answer:
    """Sell a unit that ``take`` takes; ``lock_row`` locks the sale's row before reading."""
    sales = LabSale.objects.select_for_update() if lock_row else LabSale.objects.all()
    with transaction.atomic():
        sale = sales.get(pk=sale_id)
        point("stock read")
        if sale.stock < 1 or not take(sale):
            return Answer.SOLD_OUT
        point("unit taken")
        LabOrder.objects.create(sale_id=sale_id, user_id=user_id)  # breaks: doubled
    return Answer.BOUGHT


def take_unguarded(sale: LabSale) -> bool:
    LabSale.objects.filter(pk=sale.pk).update(stock=F("stock") - 1)  # breaks: oversold
    return True


def take_if_as_read(sale: LabSale) -> bool:
    found = LabSale.objects.filter(pk=sale.pk, stock=sale.stock)  # breaks: undersold
    return bool(found.update(stock=sale.stock - 1))


def take_if_any_left(sale: LabSale) -> bool:
    return bool(LabSale.objects.filter(pk=sale.pk, stock__gt=0).update(stock=F("stock") - 1))
