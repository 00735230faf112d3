"""Answers to order requests and receipts, the same at the front door and in Django."""

import json
from collections.abc import Callable
from typing import Any

from orders.audience.refusal_log import Refused, note_refusal
from orders.placing.service import finish_order, place_order, read_order_token
from orders.placing.tokens import PurchaseToken, WorkMissing
from orders.web.refusals import REFUSED, Refusal, refusal_answer, refusal_of, sold_out_refusal
from orders.web.request_parsing import OrderRequest
from orders.web.serializers import accepted_text
from seckill_site.metrics import counter
from seckill_site.web.responses import Answer
from vouchers.inventory import sold_out_cache
from vouchers.inventory.keys import NotLoaded
from vouchers.inventory.request_stats import (
    ACCEPTED,
    ACCOUNT_LIMITED,
    ADDRESS_LIMITED,
    count_request,
)
from vouchers.inventory.reservations import Reply

_COUNTED_PER_SALE = {
    ACCEPTED, "sold_out", "already_ordered", "not_started", "ended", "paused", "unavailable",
    "waiting_room", "price_changed", "too_few", ADDRESS_LIMITED, ACCOUNT_LIMITED,
}  # fmt: skip
"""Answers to a valid token. Without a token, anybody could make up sales to be counted."""


_OWNER_HEADERS = (("Cache-Control", "private, no-store"), ("Vary", "Accept-Language, Cookie"))

Outcome = PurchaseToken | Refusal
"""What an order request led to: its token if it was accepted."""


def request_order(order: OrderRequest, *, sale_id: int, now_ms: int, address: str) -> Outcome:
    """Place an order, or refuse it; count the answer. ``address`` is empty if it has no limit."""
    token = read_request_token(order, sale_id=sale_id, now_ms=now_ms)
    if isinstance(token, Refusal):
        return token
    try:
        return place_order(
            token,
            finish=finish_and_count,
            address=address,
            quantity=order.quantity,
            all_or_none=order.all_or_none,
        )
    except REFUSED as error:
        return count_refusal(refusal_of(error), sale_id=sale_id, user_id=token.user_id)


def read_request_token(order: OrderRequest, *, sale_id: int, now_ms: int) -> Outcome:
    """Return the token of a request that is for the ledger; else refuse it, and count that.

    Only a first attempt is refused from the cache. A later one may be the retry of a buyer whose
    unit is reserved but whose answer was lost: that buyer must never be told "sold out".
    """
    try:
        token = read_order_token(order.token, sale_id=sale_id, now_ms=now_ms)
    except WorkMissing as error:
        return count_refusal(refusal_of(error), sale_id=sale_id, user_id=error.user_id)
    except REFUSED as error:
        return count_refusal(refusal_of(error), sale_id=sale_id)
    notice = sold_out_cache.recall_sold_out(sale_id=sale_id) if order.attempt == 1 else None
    if notice is None:
        return token
    refusal = sold_out_refusal(notice.redis_now_ms(), notice.sold_out_at_ms)
    return count_refusal(refusal, sale_id=sale_id, user_id=token.user_id)


def finish_and_count(
    reply: Reply, *, token: PurchaseToken, publish: Callable[..., object]
) -> Outcome:
    """Finish an order, and count its answer.

    :raises NotLoaded: the sale has to be loaded first.
    """
    try:
        finish_order(reply, token=token, publish=publish)
    except NotLoaded:
        raise
    except REFUSED as error:
        return count_refusal(refusal_of(error), sale_id=token.sale_id, user_id=token.user_id)
    _count(sale_id=token.sale_id, status=202, answer=ACCEPTED)
    return token


def order_answer(outcome: Outcome, *, path: str, language: str) -> Answer:
    """Return the JSON answer to an order request; ``path`` is the request's."""
    if isinstance(outcome, Refusal):
        return refusal_answer(outcome, language=language)
    return Answer(202, accepted_text(outcome.order_id, path=path), _OWNER_HEADERS)


def owner_answer(content: dict[str, Any], *, status: int = 200) -> Answer:
    """Return JSON that only its owner may see and no cache may keep."""
    return Answer(status, json.dumps(content), _OWNER_HEADERS)


def count_refusal(refusal: Refusal, *, sale_id: int, user_id: int | None = None) -> Refusal:
    """Count a refused order request, and return the refusal; note whose valid token it was."""
    answer = refusal.counted_as or refusal.code
    counter("refusals", answer).inc()
    if user_id is not None:
        note_refusal(Refused(sale_id, answer, user_id))
    _count(sale_id=sale_id, status=refusal.status, answer=answer)
    return refusal


def _count(*, sale_id: int, status: int, answer: str) -> None:
    """Count one answer: by status for all sales, by code for each sale."""
    counter("order_requests", str(status)).inc()
    if answer in _COUNTED_PER_SALE:
        count_request(sale_id=sale_id, answer=answer)
