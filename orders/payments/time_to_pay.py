"""The time to pay: over once the database and Redis both say so (``seckill_site/clocks/steps.py``).

The database gave an order ``created_at`` and ``pay_by``, Redis gave it ``accepted_at``. Each clock
is compared with its own times alone, so it does not matter how far they are apart.
"""

import datetime as dt

from django.db.models import DateTimeField, DurationField, ExpressionWrapper, F, Q
from django.db.models.lookups import LessThanOrEqual

from orders.models import VoucherOrder
from seckill_site.clocks.steps import Clocks, ClocksUnsettled, settled_clocks


def over(clocks: Clocks, *, of: str = "") -> Q:
    """Return the condition that an order's time to pay is over; ``of`` leads to the order."""
    given = F(f"{of}pay_by") - F(f"{of}created_at")
    by_ledger = ExpressionWrapper(F(f"{of}accepted_at") + given, output_field=DateTimeField())
    is_over = Q(**{f"{of}pay_by__lte": clocks.database}) & Q(
        LessThanOrEqual(by_ledger, clocks.ledger)
    )
    if clocks.anew_since is None:
        return is_over
    anew = clocks.database - clocks.anew_since
    given_anew = ExpressionWrapper(given, output_field=DurationField())
    begun_since = Q(**{f"{of}created_at__gte": clocks.anew_since})
    return is_over & (begun_since | Q(LessThanOrEqual(given_anew, anew)))


def is_over(order: VoucherOrder, *, now: dt.datetime) -> bool:
    """Return whether an order's time to pay is over, at this time of the database."""
    if order.pay_by is None or order.pay_by > now:
        return False
    try:
        clocks = settled_clocks()
    except ClocksUnsettled:
        return False
    at = clocks._replace(database=now)
    return VoucherOrder.objects.filter(over(at), pk=order.pk).exists()
