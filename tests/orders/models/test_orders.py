"""Changes of an order as their readers see them, and what the migration makes of old rows."""

from __future__ import annotations

import datetime as dt
from importlib import import_module

import pytest
from django.apps import apps
from django.utils import timezone, translation

from orders.models import EventCode, OrderEvent, OrderStatus
from tests.support.orders import make_buyers, make_order, make_sale
from vouchers.models import SeckillVoucher

LATE = "The payment arrived too late and is being refunded."


@pytest.mark.parametrize(
    ("event", "english", "chinese"),
    [
        (OrderEvent(code="retried"), "retried", "已重试"),
        (OrderEvent(code="late_payment", values={"payment": "P1"}), LATE, None),
        (OrderEvent(reason="the buyer called"), "the buyer called", "the buyer called"),
        (OrderEvent(reason=LATE), LATE, None),
        (OrderEvent(code="of_tomorrow"), "of_tomorrow", "of_tomorrow"),
        (OrderEvent(), "", ""),
    ],
    ids=["code", "code-with-values", "typed", "from-before", "unknown", "none"],
)
def test_reason_is_in_the_readers_language(
    event: OrderEvent, english: str, chinese: str | None
) -> None:
    with translation.override("en"):
        assert event.text == english
    with translation.override("zh-hans"):
        late = str(EventCode.LATE_PAYMENT.label)
        assert event.text == (late if chinese is None else chinese)
        assert late != LATE


@pytest.mark.django_db
def test_migration_fills_the_first_sell_out_of_old_sales() -> None:
    """As reports found it before: refused orders do not count, ended ones do."""
    sale, never, now = make_sale(stock=2), make_sale(stock=4), timezone.now()
    for it in (sale, never):
        buyers = make_buyers(4)
        statuses = [
            OrderStatus.REFUSED, OrderStatus.CANCELLED, OrderStatus.PAID, OrderStatus.PAID,
        ]  # fmt: skip
        for second, (buyer, status) in enumerate(zip(buyers, statuses, strict=True)):
            reason = "sold_out" if status == OrderStatus.REFUSED else ""
            order = make_order(it, buyer, status=status, reason=reason)
            order.accepted_at = now + dt.timedelta(seconds=second)
            order.save()
    import_module("orders.migrations.0009_reports").fill_sold_out_at(apps, None)
    found = dict(SeckillVoucher.objects.values_list("pk", "sold_out_at"))
    assert found == {sale.pk: now + dt.timedelta(seconds=2), never.pk: None}
