"""The back half of the classic design: one process, one transaction for each order."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from django.db import transaction
from django.db.models import F
from redis.exceptions import ResponseError

from bench.classic.models import ClassicOrder, ClassicSale
from bench.classic.orders import STREAM
from seckill_site.ledger_connection import ledger_connection

GROUP = "writers"
READ_AT_ONCE = 100
BLOCK_MS = 500


def consume() -> None:
    """Write the orders of the stream, forever."""
    redis = ledger_connection()
    with suppress(ResponseError):  # the group exists already
        redis.xgroup_create(STREAM, GROUP, id="0", mkstream=True)
    while True:
        found = redis.xreadgroup(GROUP, "one", {STREAM: ">"}, count=READ_AT_ONCE, block=BLOCK_MS)
        for _, messages in found or []:
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
