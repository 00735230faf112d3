"""The caps on every account: unpaid orders at once, and cancellations per hour.

A token is issued without SQL. So each process keeps the ids of the few accounts that have too many
unpaid orders, and one of its requests reads them again every few seconds. This cap is soft: it
misses tokens issued earlier, queued orders, and orders of the last seconds.
"""

import datetime as dt
import logging
from collections.abc import Mapping
from time import monotonic

from django.conf import settings
from django.db import DatabaseError
from django.db.models import Count, Max

from orders.audience.verdicts import NotEligible, Verdict
from orders.models import ActorKind, OrderEvent, OrderStatus, VoucherOrder
from seckill_site.process_memory import Latest
from vouchers.catalogue.audience import CANCELLATIONS, UNPAID_ORDERS

KNOWN_S = 5.0
"""How long a process keeps the accounts with too many unpaid orders."""

SHARE = 20
"""Keep them at least this many times as long as it took to read them."""

HOUR = dt.timedelta(hours=1)

logger = logging.getLogger(__name__)


capped_accounts = Latest[Mapping[int, tuple[int, int]]]({}, for_s=KNOWN_S)
"""The accounts with too many unpaid orders as this process knows them, each with the sale and the
id of the latest of these orders: the one with the most time left to be paid."""


def refresh_capped_accounts() -> None:
    """Read them; if the database does not respond, keep the old ones."""
    started = monotonic()
    try:
        capped_accounts.value = _read_capped()
    except DatabaseError as error:  # what else the request needs will say so too
        logger.warning("the unpaid orders of accounts are not counted now: %s", error)
    capped_accounts.trust(for_s=max(KNOWN_S, SHARE * (monotonic() - started)))


def _read_capped() -> dict[int, tuple[int, int]]:
    most = settings.SECKILL_UNPAID_ORDERS
    if not most:
        return {}
    unpaid = VoucherOrder.objects.filter(status=OrderStatus.UNPAID).order_by()
    counts = unpaid.values("user_id").annotate(orders=Count("pk"), latest=Max("pk"))
    latest = counts.filter(orders__gte=most).values("latest")
    orders = VoucherOrder.objects.filter(pk__in=[it["latest"] for it in latest], user__isnull=False)
    rows = orders.values_list("user_id", "seckill_voucher_id", "pk")
    return {user_id: (sale_id, order_id) for user_id, sale_id, order_id in rows}


def unpaid_verdict(unpaid: tuple[int, int]) -> Verdict:
    """Return the verdict on an account with too many unpaid orders."""
    return Verdict(UNPAID_ORDERS.name, settings.SECKILL_UNPAID_ORDERS, unpaid=unpaid)


def check_cancellations(*, user_id: int, now: dt.datetime) -> None:
    """Refuse a buyer who has cancelled too many orders within the hour.

    Cancellations at the same moment do not see each other, so this cap is soft, too.

    :raises NotEligible: they have; the order stays, and ends by itself if it is not paid.
    """
    most = settings.SECKILL_CANCELLATIONS_PER_HOUR
    cancelled = OrderEvent.objects.filter(
        actor=user_id, actor_kind=ActorKind.BUYER, after=OrderStatus.CANCELLED, at__gt=now - HOUR
    )
    if most and cancelled.count() >= most:
        raise NotEligible(Verdict(CANCELLATIONS.name, most))
