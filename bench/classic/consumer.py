"""The back half of the classic design: one process, one transaction for each order."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from django.db import transaction
from django.db.models import F
from redis.exceptions import ResponseError

from bench.classic.keys import GROUP, STREAM
from bench.classic.models import ClassicOrder, ClassicSale
from seckill_site.ledger_connection import ledger_connection

READ_AT_ONCE = 100
BLOCK_MS = 500


def consume() -> None:
    """Write the orders of the stream, for ever."""
    join_group()
    while True:
        consume_some()


def join_group() -> None:
    """Make the group, unless it is there."""
    with suppress(ResponseError):
        ledger_connection().xgroup_create(STREAM, GROUP, id="0", mkstream=True)


def consume_some() -> None:
    """Wait for messages, write an order for each, and say that they are done."""
    redis = ledger_connection()
    found = redis.xreadgroup(GROUP, "one", {STREAM: ">"}, count=READ_AT_ONCE, block=BLOCK_MS)
    for _, messages in found or []:
        for _, fields in messages:
            write(fields)
        redis.xack(STREAM, GROUP, *[number for number, _ in messages])


def write(fields: dict[str, Any]) -> None:
    """Write one order, unless its buyer has one or nothing is left."""
    order = ClassicOrder(
        id=int(fields["id"]), user_id=int(fields["user_id"]), sale_id=int(fields["sale_id"])
    )
    with transaction.atomic():
        if ClassicOrder.objects.filter(user_id=order.user_id, sale_id=order.sale_id).exists():
            return
        left = ClassicSale.objects.filter(pk=order.sale_id, stock__gt=0)
        if left.update(stock=F("stock") - 1):
            order.save(force_insert=True)
