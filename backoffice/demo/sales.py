"""The sales of the demo, and the one that is about to start after each start of the shop."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, replace
from pathlib import Path

from orders.models import VoucherOrder
from vouchers.catalogue.sales import (
    SaleTerms,
    VoucherDetails,
    create_voucher_on_sale,
    edit_sale,
    has_buyers,
    terms_of,
)
from vouchers.inventory.rebuild import load_sale
from vouchers.models import Merchant, SaleStage, SeckillVoucher

PICTURES = Path(__file__).with_name("pictures")
STOCK = 100
SOON = dt.timedelta(minutes=5)
"""The time from a start of the shop to the start of its next sale."""

AT_LEAST = dt.timedelta(minutes=1)
"""A sale that starts later than this is about to start already."""

LENGTH = dt.timedelta(days=7)
VALID = dt.timedelta(days=90)


@dataclass(frozen=True)
class Offer:
    """A voucher of the demo, its merchant, and when it is sold."""

    title: str
    title_en: str
    rules: str
    rules_en: str
    price_cents: int
    face_value_cents: int
    picture: str
    merchant: dict[str, str]
    begins: dt.timedelta
    ends: dt.timedelta


OPEN = Offer(
    "100元代金券",
    "¥100 voucher",
    "全场茶饮与点心通用，周末同样可用。\n每桌限用一张，不找零，不与其他优惠同享。",
    "For all teas and snacks, at weekends too.\nOne per table. No change, no other discounts.",
    8_000,
    10_000,
    "tea",
    {
        "name": "老街茶馆",
        "name_en": "Old Street Teahouse",
        "address": "上海市黄浦区老街 18 号",
        "address_en": "18 Old Street, Huangpu, Shanghai",
        "contact": "021-5555-0118",
    },
    dt.timedelta(0),
    LENGTH,
)
NEXT = Offer(
    "双人火锅套餐",
    "Hotpot for two",
    "含鸳鸯锅底、六份涮品和两份饮料。\n请提前一天电话预约。",
    "A divided pot, six plates and two drinks.\nPlease book by phone a day ahead.",
    12_900,
    25_800,
    "hotpot",
    {
        "name": "川味火锅",
        "name_en": "Sichuan Hotpot House",
        "address": "上海市徐汇区衡山路 7 号",
        "address_en": "7 Hengshan Road, Xuhui, Shanghai",
        "contact": "021-5555-0107",
    },
    SOON,
    LENGTH,
)
PAST = Offer(
    "早餐券",
    "Breakfast for one",
    "每日 6:30 至 10:00 可用。",
    "Every day from 6:30 to 10:00.",
    500,
    1_500,
    "breakfast",
    {
        "name": "早安小笼",
        "name_en": "Good Morning Dumplings",
        "address": "上海市静安区南京西路 200 号",
        "address_en": "200 West Nanjing Road, Jing'an, Shanghai",
        "contact": "021-5555-0200",
    },
    -dt.timedelta(hours=2),
    -dt.timedelta(hours=1),
)


def make_sales(*, now: dt.datetime) -> dict[str, int]:
    """Create the sales of the demo: open, soon and ended; return their ids by title."""
    return {offer.title: _put_on_sale(offer, now=now).pk for offer in (OPEN, NEXT, PAST)}


def renew_next_sale(*, now: dt.datetime) -> int | None:
    """Let the demo's next sale start soon again, unless anybody has ever bought anything.

    Return the id of the sale that was moved. A sale that the shop has paused, withdrawn or renamed
    is left alone.
    """
    sale = SeckillVoucher.objects.filter(
        voucher__title=NEXT.title,
        voucher__merchant__name=NEXT.merchant["name"],
        stage=SaleStage.PUBLIC,
        paused=False,
    ).first()
    if sale is None or sale.begins_at >= now + AT_LEAST or VoucherOrder.objects.exists():
        return None
    load_sale(sale_id=sale.pk)
    if has_buyers(sale=sale):
        return None
    begins_at = now + SOON
    terms = replace(terms_of(sale), begins_at=begins_at, ends_at=begins_at + LENGTH)
    return edit_sale(sale_id=sale.pk, terms=terms).pk


def _put_on_sale(offer: Offer, *, now: dt.datetime) -> SeckillVoucher:
    merchant, _made = Merchant.objects.get_or_create(
        name=offer.merchant["name"], defaults=offer.merchant
    )
    details = VoucherDetails(
        title=offer.title,
        title_en=offer.title_en,
        rules=offer.rules,
        rules_en=offer.rules_en,
        price_cents=offer.price_cents,
        face_value_cents=offer.face_value_cents,
        picture=(PICTURES / f"{offer.picture}.webp").read_bytes(),
        merchant=merchant,
        valid_until=(now + VALID).date(),
    )
    terms = SaleTerms(stock=STOCK, begins_at=now + offer.begins, ends_at=now + offer.ends)
    return create_voucher_on_sale(details=details, terms=terms)
