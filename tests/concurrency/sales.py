"""What the races have in common: a sale, a crowd's requests, and the sum of the sale afterwards."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Sequence

from django.utils import timezone

from backoffice.buyers import create_buyers
from orders.fulfilment.reconcile import reconcile
from orders.models import VoucherOrder
from orders.placing.tokens import issue_tokens
from tests.support.crowd import Answer, post
from tests.support.patience import wait_for
from vouchers.catalogue.sales import SaleTerms, VoucherDetails, create_voucher_on_sale
from vouchers.inventory.sale_state import snapshot
from vouchers.models import SeckillVoucher

DETAILS = VoucherDetails(title="Race", rules="", price_cents=100, face_value_cents=200)
QUIET_SECONDS = 30.0


def make_sale(
    *, stock: int, limit: int = 1, begins_in_s: float = -1, ends_in_s: float = 600
) -> SeckillVoucher:
    """Make a loaded sale that is open unless told otherwise."""
    now = timezone.now().replace(microsecond=0)  # a sale begins at a second
    terms = SaleTerms(
        stock=stock,
        limit=limit,
        begins_at=now + dt.timedelta(seconds=begins_in_s),
        ends_at=now + dt.timedelta(seconds=ends_in_s),
    )
    return create_voucher_on_sale(details=DETAILS, terms=terms)


def crowd_of(sale: SeckillVoucher, *, count: int) -> list[str]:
    """Make so many buyers, and return a purchase token of each."""
    chunks = create_buyers(count=count, sale_id=sale.pk)
    return [token.sign() for chunk in chunks for token in chunk]


def more_tokens(sale: SeckillVoucher, *, user_id: int, count: int) -> list[str]:
    """Return several tokens of one buyer, as several tabs would have."""
    return [token.sign() for token in issue_tokens(sale=sale, user_ids=[user_id] * count)]


def order_requests(sale: SeckillVoucher, tokens: Iterable[str]) -> list[bytes]:
    path = f"/vouchers/{sale.pk}/orders/"
    return [post(path, {"token": token, "attempt": 1}) for token in tokens]


def accepted_ids(answers: Sequence[Answer]) -> set[int]:
    return {int(answer.body["order_id"]) for answer in answers if answer.status == 202}


def live_orders(sale: SeckillVoucher) -> list[VoucherOrder]:
    return list(VoucherOrder.objects.filter(seckill_voucher=sale, live=True))


def wait_until_quiet(sale: SeckillVoucher, *, seconds: float = QUIET_SECONDS) -> None:
    """Wait until nothing is pending."""
    wait_for(
        lambda: snapshot(sale_id=sale.pk).pending == 0,
        what="an empty pending set",
        within_s=seconds,
    )


def assert_the_sum_is_right(sale: SeckillVoucher, *, ordered: int) -> None:
    """Both sides agree, to the unit, and nothing is on its way."""
    comparison = reconcile(sale_id=sale.pk)
    assert comparison.difference == 0
    assert comparison.pending == 0
    assert (comparison.sold, comparison.live_orders, comparison.buyers) == (ordered,) * 3
    assert comparison.remaining == comparison.total - ordered
