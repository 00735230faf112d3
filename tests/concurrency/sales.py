"""Helpers of the race tests: a sale, the requests of a crowd, and a check of the counts."""

from __future__ import annotations

import datetime as dt
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from django.utils import timezone

from backoffice.buyers import create_buyers
from orders.fulfilment.reconcile import reconcile
from orders.models import VoucherOrder
from orders.placing.tokens import issue_tokens
from tests.support.crowd import NO_ANSWER, Answer, fire, post
from tests.support.patience import wait_for
from vouchers.catalogue.sales import SaleTerms, VoucherDetails, create_voucher_on_sale
from vouchers.inventory.sale_state import snapshot
from vouchers.models import SeckillVoucher

TOLD_NOTHING = {503, NO_ANSWER}
"""The statuses of answers after which a buyer's page asks again."""

DETAILS = VoucherDetails(title="Race", rules="", price_cents=100, face_value_cents=200)


def make_sale(
    *, stock: int, begins_in_s: float = -1, ends_in_s: float = 600, **terms: Any
) -> SeckillVoucher:
    """Create a loaded sale, open by default."""
    now = timezone.now().replace(microsecond=0)  # a sale starts at a full second
    begins_at, ends_at = (now + dt.timedelta(seconds=it) for it in (begins_in_s, ends_in_s))
    return create_voucher_on_sale(
        details=DETAILS,
        terms=SaleTerms(stock=stock, begins_at=begins_at, ends_at=ends_at, **terms),
    )


def crowd_of(sale: SeckillVoucher, *, count: int) -> list[str]:
    """Create buyers, and return a purchase token for each."""
    chunks = create_buyers(count=count, sale_id=sale.pk)
    return [token.sign() for chunk in chunks for token in chunk]


def sale_and_crowd(*, stock: int, count: int) -> tuple[SeckillVoucher, list[str]]:
    """Create a sale, and return it with a purchase token of each of its buyers."""
    sale = make_sale(stock=stock)
    return sale, crowd_of(sale, count=count)


def more_tokens(sale: SeckillVoucher, *, user_id: int, count: int) -> list[str]:
    """Return several tokens of one buyer, as several tabs would have."""
    return [token.sign() for token in issue_tokens(sale=sale, user_ids=[user_id] * count)]


def order_requests(
    sale: SeckillVoucher, tokens: Iterable[str], *, attempt: int = 1, **wants: int
) -> list[bytes]:
    """Return an order request for each token.

    Only a first attempt may be refused from a process's memory of "sold out"; a later one always
    asks the ledger.
    """
    path = f"/vouchers/{sale.pk}/orders/"
    return [post(path, {"token": token, "attempt": attempt, **wants}) for token in tokens]


def order_all(requests: Sequence[bytes], *, url: str, connections: int) -> list[Answer]:
    """Send all requests; whoever is told nothing asks again, as pages do.

    On a machine that stands still, Redis may be late for any of them.
    """
    answers = fire(requests, url=url, connections=connections)

    def all_are_told() -> bool:
        untold = [n for n, it in enumerate(answers) if it.status in TOLD_NOTHING]
        again = fire([requests[n] for n in untold], url=url, connections=connections)
        for number, answer in zip(untold, again, strict=True):
            answers[number] = answer
        return not untold

    wait_for(all_are_told, what="an answer for everybody")
    return answers


def accepted_ids(answers: Sequence[Answer]) -> set[int]:
    return {int(answer.body["order_id"]) for answer in answers if answer.status == 202}


def live_orders(sale: SeckillVoucher) -> list[VoucherOrder]:
    return list(VoucherOrder.objects.filter(seckill_voucher=sale, live=True))


def wait_until_quiet(sale: SeckillVoucher) -> None:
    """Wait until nothing is pending."""
    wait_for(lambda: snapshot(sale_id=sale.pk).pending == 0, what="an empty pending set")


def assert_the_sum_is_right(sale: SeckillVoucher, *, ordered: int) -> None:
    """Assert that ledger and database agree exactly, and that nothing is pending."""
    comparison = reconcile(sale_id=sale.pk)
    assert comparison.difference == 0
    assert comparison.pending == 0
    assert (comparison.sold, comparison.live_orders, comparison.buyers) == (ordered,) * 3
    assert comparison.remaining == comparison.total - ordered


def assert_sold_exactly(sale: SeckillVoucher, answers: Sequence[Answer]) -> None:
    """Assert that the stock was sold to as many buyers, and that all others read "sold out"."""
    accepted = accepted_ids(answers)
    assert len(accepted) == sale.stock
    refusals = Counter(
        (answer.status, answer.body["code"]) for answer in answers if answer.status != 202
    )
    assert refusals == {(409, "sold_out"): len(answers) - sale.stock}
    orders = live_orders(sale)
    assert {order.pk for order in orders} == accepted
    assert len({order.user_id for order in orders}) == sale.stock
    assert_the_sum_is_right(sale, ordered=sale.stock)


class Crowd(threading.Thread):
    """A crowd that keeps ordering while the test edits the sale."""

    def __init__(self, sale: SeckillVoucher, tokens: list[str], url: str) -> None:
        super().__init__()
        self.tokens = tokens
        self.requests = order_requests(sale, tokens)
        self.url = url
        self.answers: list[Answer] = []

    def run(self) -> None:
        self.answers = fire(self.requests, url=self.url, connections=64)


@contextmanager
def crowd_at(sale: SeckillVoucher, *, tokens: list[str], url: str) -> Iterator[Crowd]:
    crowd = Crowd(sale, tokens, url)
    crowd.start()
    try:
        yield crowd
    finally:
        crowd.join()
