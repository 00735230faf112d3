"""V2: one order per buyer, checked in the transaction that writes it.

Two presses of one buyer may both count zero before either has written: a row that does not exist
yet cannot be locked, and no unique key rejects the second one.

Points: "orders counted", "unit taken", "order written".
"""

from django.db import transaction
from django.db.models import F

from lab.models import LabOrder, LabSale
from lab.points import point
from lab.steps.step import Answer


@transaction.atomic
def buy(*, sale_id: int, user_id: int) -> Answer:
    """Sell a unit to a buyer without a visible order."""
    return order_once(sale_id=sale_id, user_id=user_id)


def order_once(*, sale_id: int, user_id: int) -> Answer:
    """Do what ``buy`` does, inside the caller's transaction."""
    has_some = LabOrder.objects.filter(sale_id=sale_id, user_id=user_id).count()  # breaks: doubled
    point("orders counted")
    if has_some:
        return Answer.ALREADY_ORDERED
    if not LabSale.objects.filter(pk=sale_id, stock__gt=0).update(stock=F("stock") - 1):
        return Answer.SOLD_OUT
    point("unit taken")
    LabOrder.objects.create(sale_id=sale_id, user_id=user_id)
    point("order written")
    return Answer.BOUGHT
