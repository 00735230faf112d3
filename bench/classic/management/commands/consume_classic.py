"""``consume_classic``: the back half of the classic design, one transaction for each order."""

from contextlib import suppress
from typing import Any

from django.core.management.base import BaseCommand
from django.db import transaction
from django.db.models import F
from redis.exceptions import ResponseError

from bench.classic.models import ClassicOrder, ClassicSale
from bench.classic.orders import STREAM
from seckill_site.redis.ledger_connection import ledger_connection

GROUP = "writers"
READ = {"streams": {STREAM: ">"}, "count": 100, "block": 500}


class Command(BaseCommand):
    help = "Write the orders of the classic design, one transaction each."

    def handle(self, *args: Any, **options: Any) -> None:
        """Write the orders of the stream, forever."""
        redis = ledger_connection()
        with suppress(ResponseError):  # the group exists already
            redis.xgroup_create(STREAM, GROUP, id="0", mkstream=True)
        while True:
            for _, messages in redis.xreadgroup(GROUP, "one", **READ) or []:
                for _, fields in messages:
                    write(fields)
                redis.xack(STREAM, GROUP, *[number for number, _ in messages])


def write(fields: dict[str, Any]) -> None:
    """Write one order, unless its buyer has one or nothing is left."""
    order_id, user_id, sale_id = (int(fields[name]) for name in ("id", "user_id", "sale_id"))
    with transaction.atomic():
        if ClassicOrder.objects.filter(user_id=user_id, sale_id=sale_id).exists():
            return
        left = ClassicSale.objects.filter(pk=sale_id, stock__gt=0)
        if left.update(stock=F("stock") - 1):
            ClassicOrder(id=order_id, user_id=user_id, sale_id=sale_id).save(force_insert=True)
