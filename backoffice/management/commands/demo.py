"""``manage.py demo``: sales, an admin and buyers for a fresh installation."""

from __future__ import annotations

import datetime as dt
import secrets
from typing import Any

from django.contrib.auth.models import User
from django.core.management.base import BaseCommand
from django.db import transaction
from django.utils import timezone

from vouchers.catalogue.sales import SaleTerms, VoucherDetails, create_voucher_on_sale

ADMIN = "admin"
BUYERS = ("alice", "bob")
STOCK = 100
RULES = "每人限购一份，周一至周日可用，不与其他优惠同享。\nOne per buyer. Valid all week."
SALES = (
    # title, price and face value in cents, start and end relative to now
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


class Command(BaseCommand):
    help = (
        "Make three demo sales (open, soon, ended), an admin and two buyers with generated "
        "passwords, printed once. Run again it changes nothing."
    )

    def handle(self, *args: Any, **options: Any) -> None:
        if User.objects.filter(username=ADMIN).exists():
            self.stdout.write("The demo is there already; nothing was changed.")
            return
        passwords = {name: secrets.token_urlsafe(9) for name in (ADMIN, *BUYERS)}
        with transaction.atomic():
            User.objects.create_superuser(ADMIN, password=passwords[ADMIN])
            for name in BUYERS:
                User.objects.create_user(name, password=passwords[name])
            sale_ids = make_sales(now=timezone.now().replace(microsecond=0))
        self.stdout.write("Demo accounts, shown this once:")
        for name, password in passwords.items():
            self.stdout.write(f"  {name:<8} {password}")
        for title, sale_id in sale_ids.items():
            self.stdout.write(f"  /vouchers/{sale_id}/  {title}")


def make_sales(*, now: dt.datetime) -> dict[str, int]:
    """Create the sales of the demo; return their ids by title."""
    sale_ids = {}
    for title, price_cents, face_value_cents, begins, ends in SALES:
        terms = SaleTerms(stock=STOCK, begins_at=now + begins, ends_at=now + ends)
        details = VoucherDetails(title, RULES, price_cents, face_value_cents)
        sale_ids[title] = create_voucher_on_sale(details=details, terms=terms).pk
    return sale_ids
