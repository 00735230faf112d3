"""Sales, buyers and reservations to measure with."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence

from django.contrib.auth import get_user_model
from django.db.models import Model
from django.test import override_settings
from django.utils import timezone

from backoffice.buyers import create_buyers
from orders.placing.tokens import PurchaseToken, issue_tokens
from vouchers.catalogue.sales import SaleTerms, VoucherDetails, create_voucher_on_sale
from vouchers.inventory.reservations import reserve
from vouchers.models import SeckillVoucher

DETAILS = VoucherDetails(title="Benchmark", rules="", price_cents=100, face_value_cents=200)
MOST_UNITS = 1_000_000

STRANGERS_FROM = 1_000_000
"""Users from this id on have no row: requests that only use the ledger need none."""


def open_sale(*, stock: int = MOST_UNITS) -> SeckillVoucher:
    """Make a loaded sale that is open for hours."""
    now = timezone.now().replace(microsecond=0)  # a sale starts at a full second
    begins_at, ends_at = now - dt.timedelta(seconds=1), now + dt.timedelta(hours=4)
    terms = SaleTerms(stock=stock, begins_at=begins_at, ends_at=ends_at)
    return create_voucher_on_sale(details=DETAILS, terms=terms)


def strangers(sale: SeckillVoucher, *, count: int) -> list[PurchaseToken]:
    """Return tokens of users who have no row."""
    user_ids = range(STRANGERS_FROM, STRANGERS_FROM + count)
    return issue_tokens(sale=sale, user_ids=user_ids)


def users(*, count: int) -> list[int]:
    """Return users with rows, after making the missing ones."""
    found = get_user_model().objects.order_by("pk")
    missing = count - found.count()
    if missing > 0:
        for _ in create_buyers(count=missing, sale_id=open_sale(stock=1).pk):
            pass
    return list(found.values_list("pk", flat=True)[:count])


def reserve_all(tokens: Sequence[PurchaseToken]) -> None:
    """Reserve a unit for each, in this process and without a task."""
    with override_settings(SECKILL_BEHIND_MS=0):  # no worker runs meanwhile, however long it takes
        for token in tokens:
            reserve(sale_id=token.sale_id, order_id=token.order_id, user_id=token.user_id)


def insert_statement(model: type[Model], columns: Sequence[str]) -> str:
    """Return the statement that inserts rows of a model with the bare driver."""
    names = ", ".join(f"`{column}`" for column in columns)
    marks = ", ".join(["%s"] * len(columns))
    return f"INSERT INTO {model._meta.db_table} ({names}) VALUES ({marks})"
