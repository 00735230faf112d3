"""Answers to order requests and receipts, the same for the fast path and for Django's views."""

import json
from collections.abc import Callable
from functools import cache
from typing import Any

from prometheus_client import Counter

from orders.placing.service import place_order
from orders.placing.tokens import PurchaseToken, read_token
from orders.web.refusals import REFUSED, Refusal, refusal_answer, refusal_of, sold_out_refusal
from orders.web.request_parsing import OrderRequest
from orders.web.serializers import accepted_json
from seckill_site.metrics import ORDER_REQUESTS
from seckill_site.web.responses import Answer
from vouchers.inventory import sold_out_cache
from vouchers.inventory.keys import NotLoaded
from vouchers.inventory.request_stats import ACCEPTED, count_request

_COUNTED_PER_SALE = {
    ACCEPTED, "sold_out", "already_ordered", "not_started", "ended", "paused", "unavailable",
}  # fmt: skip
"""Answers to a valid token. Without a token, anybody could make up sales to be counted."""


def request_order(
    order: OrderRequest,
    *,
    sale_id: int,
    now_ms: int,
    place: Callable[..., PurchaseToken] = place_order,
) -> PurchaseToken | Refusal:
    """Place an order and count the answer; return its token, or the refusal.

    Only a first attempt is refused from the cache. A later one may be the retry of a buyer whose
    unit is reserved but whose answer was lost: that buyer must never be told "sold out".

    :raises NotLoaded: the sale has to be loaded first, and ``place`` does not do that.
    """
    try:
        notice = sold_out_cache.recall_sold_out(sale_id=sale_id) if order.attempt == 1 else None
        if notice is None:
            token = place(token_text=order.token, sale_id=sale_id, now_ms=now_ms)
            _count(sale_id=sale_id, status=202, answer=ACCEPTED)
            return token
        read_token(order.token, sale_id=sale_id, now_ms=now_ms)
        refusal = sold_out_refusal(notice.redis_now_ms(), notice.sold_out_at_ms)
    except NotLoaded:
        raise
    except REFUSED as error:
        refusal = refusal_of(error)
    return count_refusal(refusal, sale_id=sale_id)


def order_answer(outcome: PurchaseToken | Refusal, *, path: str, language: str) -> Answer:
    """Return the JSON answer to an order request; ``path`` is the request's."""
    if isinstance(outcome, Refusal):
        return refusal_answer(outcome, language=language)
    return owner_answer(accepted_json(outcome, path=path), status=202)


def owner_answer(content: dict[str, Any], *, status: int = 200) -> Answer:
    """Return JSON that only its owner may see and no cache may keep."""
    headers = (("Cache-Control", "private, no-store"), ("Vary", "Accept-Language, Cookie"))
    return Answer(status, json.dumps(content), headers)


def count_refusal(refusal: Refusal, *, sale_id: int) -> Refusal:
    """Count a refused order request, and return the refusal."""
    _count(sale_id=sale_id, status=refusal.status, answer=refusal.code)
    return refusal


def _count(*, sale_id: int, status: int, answer: str) -> None:
    """Count one answer: by status for all sales, by code for each sale."""
    _counter(status).inc()
    if answer in _COUNTED_PER_SALE:
        count_request(sale_id=sale_id, answer=answer)


@cache
def _counter(status: int) -> Counter:
    return ORDER_REQUESTS.labels(str(status))
