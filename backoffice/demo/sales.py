"""The sales of the demo, and the one that is about to start after each start of the shop."""

import datetime as dt
import tomllib
from dataclasses import replace
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


_OFFERS = tomllib.loads(Path(__file__).with_name("offers.toml").read_text("utf-8"))
NEXT = _OFFERS["next"]
_WINDOWS = {
    "open": (dt.timedelta(0), LENGTH),
    "next": (SOON, LENGTH),
    "past": (-dt.timedelta(hours=2), -dt.timedelta(hours=1)),
}


def make_sales(*, now: dt.datetime) -> dict[str, int]:
    """Create the sales of the demo: open, soon and ended; return their ids by title."""
    return {offer["title"]: _put_on_sale(name, now=now).pk for name, offer in _OFFERS.items()}


def renew_next_sale(*, now: dt.datetime) -> int | None:
    """Let the demo's next sale start soon again, unless anybody has ever bought anything.

    Return the id of the sale that was moved. A sale that the shop has paused, withdrawn or renamed
    is left alone.
    """
    sale = SeckillVoucher.objects.filter(
        voucher__title=NEXT["title"],
        voucher__merchant__name=NEXT["merchant"]["name"],
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


def _put_on_sale(name: str, *, now: dt.datetime) -> SeckillVoucher:
    begins, ends = _WINDOWS[name]
    offer = dict(_OFFERS[name])
    made_by, picture = offer.pop("merchant"), PICTURES / f"{offer.pop('picture')}.webp"
    merchant, _made = Merchant.objects.get_or_create(name=made_by["name"], defaults=made_by)
    details = VoucherDetails(
        **offer,
        picture=picture.read_bytes(),
        merchant=merchant,
        valid_until=(now + VALID).date(),
    )
    terms = SaleTerms(stock=STOCK, begins_at=now + begins, ends_at=now + ends)
    return create_voucher_on_sale(details=details, terms=terms)
