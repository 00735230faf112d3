"""How each refusal is answered: status, code and message of the HTTP contract."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from django.conf import settings
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, gettext_noop

from orders.ending import Busy
from orders.life import WrongState
from orders.models import OrderStatus, VoucherOrder
from orders.providers import ProviderUnavailable
from orders.receipts import NoReceipt
from orders.refunding import NotRefundable
from orders.requests import InvalidRequest
from orders.tokens import BadToken, MalformedToken
from orders.waiting import NotWaiting
from seckill_site.metrics import ORDER_REQUESTS
from seckill_site.responses import code_of, problem, unavailable, wants_html, with_code
from vouchers.ledger import LedgerUnavailable, NotLoaded
from vouchers.models import SeckillVoucher
from vouchers.reservations import (
    AlreadyOrdered,
    NotStarted,
    SaleBehind,
    SaleEnded,
    SalePaused,
    SoldOut,
)
from vouchers.tally import ACCEPTED, count_answer
from vouchers.waiting_list import UnitAvailable

SOLD_OUT_TEXT = gettext_noop("Sold out: no unit is left.")

_PLAIN: dict[type[Exception], tuple[int, str, Any]] = {
    MalformedToken: (400, "invalid", gettext_lazy("The purchase token is missing or malformed.")),
    BadToken: (
        403,
        "bad_token",
        gettext_lazy("The purchase token is not valid for this sale. Load the page again."),
    ),
    NoReceipt: (404, "not_found", gettext_lazy("There is no such order of yours.")),
    SeckillVoucher.DoesNotExist: (404, "not_found", gettext_lazy("There is no such sale.")),
    NotStarted: (409, "not_started", gettext_lazy("The sale has not begun yet.")),
    SaleEnded: (409, "ended", gettext_lazy("The sale is over.")),
    SalePaused: (409, "paused", gettext_lazy("The sale is paused. Stay on the page.")),
    VoucherOrder.DoesNotExist: (404, "not_found", gettext_lazy("There is no such order of yours.")),
    NotWaiting: (404, "not_found", gettext_lazy("You are not in the waiting list of this sale.")),
    NotRefundable: (
        409,
        "not_refundable",
        gettext_lazy("A voucher of this sale cannot be given back once it is paid."),
    ),
    UnitAvailable: (409, "available", gettext_lazy("There is a unit left: you can buy it now.")),
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
        except tuple(_WORDED) as error:
            return _WORDED[type(error)](request, sale_id, error)
        except tuple(_PLAIN) as error:
            status, code, message = _PLAIN[type(error)]
            return problem(
                request, status=status, code=code, message=str(message), **_links(request, sale_id)
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
        ORDER_REQUESTS.labels(str(response.status_code)).inc()
        answer = code_of(response) or ACCEPTED
        if answer in _TALLIED:
            count_answer(sale_id=sale_id, answer=answer)
        return response

    return wrapped


def _behind(request: HttpRequest, sale_id: int, error: SaleBehind) -> HttpResponseBase:
    """Answer that nobody new is accepted now, with how late the orders of the others are."""
    behind_s = error.behind_ms // 1000
    message = _(
        "Orders are being written %(seconds)s seconds late, so no new one is accepted just now. "
        "You are not in the queue. Try again."
    )
    return problem(
        request,
        status=503,
        code="unavailable",
        message=message % {"seconds": behind_s},
        retry_after_s=min(max(behind_s - settings.SECKILL_BEHIND_MS // 1000, 2), LONGEST_RETRY_S),
        **_links(request, sale_id),
    )


def _sold_out(request: HttpRequest, sale_id: int, error: SoldOut) -> HttpResponseBase:
    """Answer that nothing is left, with as much as is known of who was faster."""
    return problem(
        request,
        status=409,
        code="sold_out",
        message=_(SOLD_OUT_TEXT),
        **who_was_faster(error.arrived_at_ms, error.sold_out_at_ms),
        **_links(request, sale_id),
    )


def who_was_faster(arrived_at_ms: int | None, sold_out_at_ms: int | None) -> dict[str, Any]:
    """Return what a refusal says of when it arrived and since when nothing was left."""
    if arrived_at_ms is None:
        return {}
    # Later than the arrival it cannot have been: then a clock was set.
    if sold_out_at_ms is None or sold_out_at_ms > arrived_at_ms:
        return {"arrived_at_ms": arrived_at_ms}
    return {"arrived_at_ms": arrived_at_ms, "sold_out_at_ms": sold_out_at_ms}


def _wrong_state(request: HttpRequest, sale_id: int, error: WrongState) -> HttpResponseBase:
    """Answer that the order is not in a state for that, and in which it is."""
    message = _("That cannot be done with this order now: it is %(status)s.")
    label = OrderStatus(error.status).label
    return problem(
        request,
        status=409,
        code="wrong_state",
        message=message % {"status": label},
        **_links(request, sale_id),
    )


def _already_ordered(request: HttpRequest, sale_id: int, error: AlreadyOrdered) -> HttpResponseBase:
    """Answer which order the buyer has; a form is led to it."""
    if wants_html(request):
        response = redirect(reverse("receipt", args=[sale_id, error.order_id]))
        response.status_code = 303
        return with_code(response, "already_ordered")
    return problem(
        request,
        status=409,
        code="already_ordered",
        message=_("You already have an order of this sale."),
        order_id=str(error.order_id),
    )


_WORDED: dict[type[Exception], Callable[[HttpRequest, int, Any], HttpResponseBase]] = {
    AlreadyOrdered: _already_ordered,
    SaleBehind: _behind,
    SoldOut: _sold_out,
    WrongState: _wrong_state,
}
"""The refusals that carry more than their name."""


def _links(request: HttpRequest, sale_id: int) -> dict[str, Any]:
    """A refusal's page leads back to the sale; JSON carries only what the contract names."""
    return {"sale_id": sale_id} if wants_html(request) else {}
