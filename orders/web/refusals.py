"""How each refusal is answered: status, code and message of the HTTP contract."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache, wraps
from types import MappingProxyType
from typing import Any, NamedTuple

from django.conf import settings
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop
from prometheus_client import Counter

from orders.lifecycle.cancellation import Busy
from orders.lifecycle.transitions import WrongState
from orders.lifecycle.waiting_list import NotWaiting
from orders.models import OrderStatus, VoucherOrder
from orders.payments.providers import ProviderUnavailable
from orders.payments.refunds import NotRefundable
from orders.placing.tokens import BadToken, MalformedToken
from orders.receipts.service import NoReceipt
from orders.web.request_parsing import InvalidRequest
from seckill_site.metrics import ORDER_REQUESTS
from seckill_site.web.responses import code_of, problem, unavailable, wants_html, with_code
from vouchers.inventory.keys import LedgerUnavailable, NotLoaded
from vouchers.inventory.request_stats import ACCEPTED, count_request
from vouchers.inventory.reservations import (
    AlreadyOrdered,
    NotStarted,
    SaleBehind,
    SaleEnded,
    SalePaused,
    SoldOut,
)
from vouchers.inventory.waiting_list import UnitAvailable
from vouchers.models import SeckillVoucher

SOLD_OUT_TEXT = gettext_noop("Sold out: no unit is left.")


class Refusal(NamedTuple):
    """How the contract answers what was raised: status, code, and the text before translation.

    ``values`` go into the text; ``details`` stand in the answer beside code and message.
    """

    status: int
    code: str
    text: str
    values: Mapping[str, Any] = MappingProxyType({})
    details: Mapping[str, Any] = MappingProxyType({})
    retry_after_s: int | None = None

    def message(self, translate: Callable[[str], str]) -> str:
        """Return the text in the language of ``translate``."""
        return translate(self.text) % self.values if self.values else translate(self.text)


_PLAIN: dict[type[Exception], Refusal] = {
    MalformedToken: Refusal(
        400, "invalid", gettext_noop("The purchase token is missing or malformed.")
    ),
    BadToken: Refusal(
        403,
        "bad_token",
        gettext_noop("The purchase token is not valid for this sale. Load the page again."),
    ),
    NoReceipt: Refusal(404, "not_found", gettext_noop("There is no such order of yours.")),
    SeckillVoucher.DoesNotExist: Refusal(404, "not_found", gettext_noop("There is no such sale.")),
    NotStarted: Refusal(409, "not_started", gettext_noop("The sale has not begun yet.")),
    SaleEnded: Refusal(409, "ended", gettext_noop("The sale is over.")),
    SalePaused: Refusal(409, "paused", gettext_noop("The sale is paused. Stay on the page.")),
    VoucherOrder.DoesNotExist: Refusal(
        404, "not_found", gettext_noop("There is no such order of yours.")
    ),
    NotWaiting: Refusal(
        404, "not_found", gettext_noop("You are not in the waiting list of this sale.")
    ),
    NotRefundable: Refusal(
        409,
        "not_refundable",
        gettext_noop("A voucher of this sale cannot be given back once it is paid."),
    ),
    UnitAvailable: Refusal(
        409, "available", gettext_noop("There is a unit left: you can buy it now.")
    ),
}

_TALLIED = {
    ACCEPTED, "sold_out", "already_ordered", "not_started", "ended", "paused", "unavailable",
}  # fmt: skip
"""What is counted sale by sale: answers to a valid token. Anybody can send one that is not, for any
number of sales that do not exist."""

LONGEST_RETRY_S = 30
"""However late the orders are, a buyer is not sent away for longer."""

UNAVAILABLE = (LedgerUnavailable, NotLoaded, Busy, ProviderUnavailable)
"""Unknown what happened: the same request may be sent again."""


def refusal_of(error: Exception) -> Refusal:
    """Return how the contract answers one of ``REFUSALS``."""
    kind = type(error)
    return _WORDED[kind](error) if kind in _WORDED else _PLAIN[kind]


def answered(view: Callable[..., HttpResponse]) -> Callable[..., HttpResponseBase]:
    """Answer what the view's one domain call raises as the contract says."""

    @wraps(view)
    def wrapped(request: HttpRequest, sale_id: int, **kwargs: Any) -> HttpResponseBase:
        try:
            return view(request, sale_id=sale_id, **kwargs)
        except InvalidRequest as error:
            return problem(request, status=error.status, code="invalid", message=error.message)
        except UNAVAILABLE:
            return unknown_yet(request, sale_id=sale_id)
        except REFUSALS as error:
            if isinstance(error, AlreadyOrdered) and wants_html(request):
                return _led_to_their_order(sale_id, error)
            refusal = refusal_of(error)
            return problem(
                request,
                status=refusal.status,
                code=refusal.code,
                message=refusal.message(_),
                retry_after_s=refusal.retry_after_s,
                **refusal.details,
                **_links(request, sale_id),
            )

    return wrapped


def unknown_yet(request: HttpRequest, *, sale_id: int, token: object = None) -> HttpResponse:
    """Answer that nobody knows yet; a page sends the same token again, so it orders once."""
    links = _links(request, sale_id)
    if links and isinstance(token, str):
        links["token"] = token
    return unavailable(request, **links)


def counted(view: Callable[..., HttpResponseBase]) -> Callable[..., HttpResponseBase]:
    """Count the answers of the order request: by status for all sales, by code for each sale."""

    @wraps(view)
    def wrapped(request: HttpRequest, *, sale_id: int, **kwargs: Any) -> HttpResponseBase:
        response = view(request, sale_id=sale_id, **kwargs)
        count(sale_id=sale_id, status=response.status_code, answer=code_of(response) or ACCEPTED)
        return response

    return wrapped


def count(*, sale_id: int, status: int, answer: str) -> None:
    """Count one answer of the order request."""
    _counter(status).inc()
    if answer in _TALLIED:
        count_request(sale_id=sale_id, answer=answer)


@cache
def _counter(status: int) -> Counter:
    return ORDER_REQUESTS.labels(str(status))


def _behind(error: SaleBehind) -> Refusal:
    """Say that nobody new is accepted now, with how late the orders of the others are."""
    behind_s = error.behind_ms // 1000
    text = gettext_noop(
        "Orders are being written %(seconds)s seconds late, so no new one is accepted just now. "
        "You are not in the queue. Try again."
    )
    later_s = min(max(behind_s - settings.SECKILL_BEHIND_MS // 1000, 2), LONGEST_RETRY_S)
    return Refusal(503, "unavailable", text, {"seconds": behind_s}, retry_after_s=later_s)


def _sold_out(error: SoldOut) -> Refusal:
    return sold_out_since(error.arrived_at_ms, error.sold_out_at_ms)


def sold_out_since(arrived_at_ms: int | None, sold_out_at_ms: int | None) -> Refusal:
    """Say that nothing is left, with as much as is known of who was faster."""
    details = {}
    if arrived_at_ms is not None:
        details["arrived_at_ms"] = arrived_at_ms
        # Later than the arrival it cannot have been: then a clock was set.
        if sold_out_at_ms is not None and sold_out_at_ms <= arrived_at_ms:
            details["sold_out_at_ms"] = sold_out_at_ms
    return Refusal(409, "sold_out", SOLD_OUT_TEXT, details=details)


def _wrong_state(error: WrongState) -> Refusal:
    """Say that the order is not in a state for that, and in which it is."""
    text = gettext_noop("That cannot be done with this order now: it is %(status)s.")
    return Refusal(409, "wrong_state", text, {"status": OrderStatus(error.status).label})


def _already_ordered(error: AlreadyOrdered) -> Refusal:
    """Say which order the buyer has."""
    text = gettext_noop("You already have an order of this sale.")
    return Refusal(409, "already_ordered", text, details={"order_id": str(error.order_id)})


def _led_to_their_order(sale_id: int, error: AlreadyOrdered) -> HttpResponse:
    response = redirect(reverse("receipt", args=[sale_id, error.order_id]))
    response.status_code = 303
    return with_code(response, "already_ordered")


_WORDED: dict[type[Exception], Callable[[Any], Refusal]] = {
    AlreadyOrdered: _already_ordered,
    SaleBehind: _behind,
    SoldOut: _sold_out,
    WrongState: _wrong_state,
}
"""The refusals that carry more than their name."""

REFUSALS = (*_PLAIN, *_WORDED)
"""What the domain raises and the contract has an answer to, besides what is unknown."""


def _links(request: HttpRequest, sale_id: int) -> dict[str, Any]:
    """A refusal's page leads back to the sale; JSON carries only what the contract names."""
    return {"sale_id": sale_id} if wants_html(request) else {}
