"""V1: straight to the database. Read the stock, take one unit, write the order.

Between reading and taking, any other buyer may read the same stock. Several ways of taking a unit
guard against that, and so does a lock on the row. None checks whether the buyer already has a unit.
The row has the window of the sale, and the clock of the application is compared with it.

Points: "stock read" (again before each further try), "unit taken".
"""

from collections.abc import Callable

from django.db import connection, transaction
from django.db.models import F, QuerySet
from django.utils import timezone

from lab.models import LabOrder, LabSale
from lab.points import point
from lab.steps.step import Answer

TRIES = 3
"""Tries before a buyer is turned away."""

Take = Callable[[LabSale], bool]
Read = Callable[[int], QuerySet[LabSale]]


def find(sale_id: int) -> QuerySet[LabSale]:
    return LabSale.objects.filter(pk=sale_id)


def buy(*, sale_id: int, user_id: int, take: Take, read: Read = find) -> Answer:
    """Sell a unit of the sale that ``read`` finds, if ``take`` takes it."""
    with transaction.atomic():
        sale = read(sale_id).get()
        point("stock read")
        if not sale.begins_at <= timezone.now() < sale.ends_at:
            return Answer.NOT_ON_SALE
        if sale.stock < 1 or not take(sale):
            return Answer.SOLD_OUT
        point("unit taken")
        LabOrder.objects.create(sale_id=sale_id, user_id=user_id)  # breaks: doubled
    return Answer.BOUGHT


def buy_from_snapshot(*, sale_id: int, user_id: int) -> Answer:
    """Do what ``buy`` does with retries, in a transaction that reads the same stock each time."""
    with connection.cursor() as cursor:  # it applies to the next transaction
        cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")  # breaks: undersold
    return buy(sale_id=sale_id, user_id=user_id, take=take_with_retries)


def take_unguarded(sale: LabSale) -> bool:
    find(sale.pk).update(stock=F("stock") - 1)  # breaks: oversold
    return True


def take_if_as_read(sale: LabSale) -> bool:
    unchanged = find(sale.pk).filter(stock=sale.stock)  # breaks: undersold
    return bool(unchanged.update(stock=sale.stock - 1))


def take_if_version_as_read(sale: LabSale) -> bool:
    unchanged = find(sale.pk).filter(version=sale.version)  # breaks: undersold
    return bool(unchanged.update(stock=F("stock") - 1, version=F("version") + 1))


def take_with_retries(sale: LabSale) -> bool:
    for _ in range(TRIES):  # breaks: undersold
        if sale.stock < 1 or take_if_as_read(sale):
            return sale.stock > 0
        sale.refresh_from_db(fields=["stock"])
        point("stock read")
    return False


def take_if_any_left(sale: LabSale) -> bool:
    return bool(find(sale.pk).filter(stock__gt=0).update(stock=F("stock") - 1))


def take_and_filter_late(sale: LabSale) -> bool:
    """Put the condition on the query after its ``update()``: it is in no statement."""
    row = find(sale.pk)
    row.update(stock=F("stock") - 1)
    row.filter(stock__gt=0)  # breaks: oversold
    return True


def lock_row(sale_id: int) -> QuerySet[LabSale]:
    return find(sale_id).select_for_update()


def lock_by_scan(sale_id: int) -> QuerySet[LabSale]:
    """Find the row by an expression that no index has, so that each row is locked to look at it."""
    numbered = LabSale.objects.select_for_update().alias(number=F("pk") + 0)
    return numbered.filter(number=sale_id)  # breaks: delayed
