"""The demo: three sales, an admin and two buyers."""

from __future__ import annotations

import datetime as dt
import secrets
from dataclasses import dataclass

from django.contrib.auth.models import User
from django.db import transaction

from vouchers.catalogue.sales import SaleTerms, VoucherDetails, create_voucher_on_sale

ADMIN = "admin"
BUYERS = ("alice", "bob")

_RULES = "每人限购一份，周一至周日可用，不与其他优惠同享。\nOne per buyer. Valid all week."
_SALES = (
    # title, price, face value in cents, begins, ends from now
    ("100元代金券 · ¥100 voucher", 8_000, 10_000, dt.timedelta(0), dt.timedelta(days=7)),
    (
        "双人火锅套餐 · Hotpot for two",
        12_900,
        25_800,
        dt.timedelta(minutes=10),
        dt.timedelta(days=7),
    ),
    ("早餐券 · Breakfast", 500, 1_500, -dt.timedelta(hours=2), -dt.timedelta(hours=1)),
)
_STOCK = 100


@dataclass(frozen=True)
class Demo:
    """What was made: passwords by user name, sale ids by title."""

    passwords: dict[str, str]
    sales: dict[str, int]


def make_demo(*, now: dt.datetime) -> Demo | None:
    """Make the demo in one transaction; None, and nothing changed, where it was made before."""
    with transaction.atomic():
        if User.objects.filter(username=ADMIN).exists():
            return None
        passwords = {name: secrets.token_urlsafe(9) for name in (ADMIN, *BUYERS)}
        User.objects.create_superuser(ADMIN, password=passwords[ADMIN])
        for name in BUYERS:
            User.objects.create_user(name, password=passwords[name])
        return Demo(passwords, {sale[0]: _make_sale(sale, now) for sale in _SALES})


def _make_sale(sale: tuple[str, int, int, dt.timedelta, dt.timedelta], now: dt.datetime) -> int:
    title, price_cents, face_value_cents, begins, ends = sale
    terms = SaleTerms(stock=_STOCK, begins_at=now + begins, ends_at=now + ends)
    details = VoucherDetails(title, _RULES, price_cents, face_value_cents)
    return create_voucher_on_sale(details=details, terms=terms).pk
