"""The HTTP contract's answer to each refusal: status, code and message.

The purchase page words them for buyers by their code: ``vouchers/templatetags/buyer_texts.py``.
"""

import json
import tomllib
from collections.abc import Callable, Mapping
from functools import lru_cache, wraps
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from django.conf import settings
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.utils import translation
from django.utils.translation import gettext

from orders.audience.verdicts import NotEligible
from orders.draws.publishing import ListOpen, NoDraw
from orders.lifecycle.cancellation import Busy
from orders.lifecycle.guesses import GuessesUnknown, TooManyGuesses
from orders.lifecycle.invitations import CodeRefused, EnoughCodes
from orders.lifecycle.notices import NoContact, TooLate
from orders.lifecycle.transitions import WrongState
from orders.lifecycle.waiting_list import NotWaiting
from orders.models import OrderStatus, VoucherOrder
from orders.payments.providers import ChargeRefused, ProviderUnavailable
from orders.payments.refunds import NotRefundable
from orders.placing.tokens import BadToken, MalformedToken, WorkMissing
from orders.proof.rows import NoChain
from orders.receipts.service import NoReceipt
from orders.web.request_parsing import InvalidRequest, OrderRequest
from seckill_site.formatting import short_money
from seckill_site.web.responses import (
    UNAVAILABLE_RETRY_AFTER_S,
    UNAVAILABLE_TEXT,
    Answer,
    Headers,
    as_response,
    problem,
    see_page,
    wants_html,
)
from vouchers.catalogue.audience import RULES
from vouchers.inventory import reservations
from vouchers.inventory.draw_entries import NoEntry
from vouchers.inventory.entering import OneEntryOnly
from vouchers.inventory.keys import LedgerUnavailable, NotLoaded, OtherSale
from vouchers.inventory.order_limits import LimitKind
from vouchers.inventory.request_stats import ACCOUNT_LIMITED, ADDRESS_LIMITED
from vouchers.inventory.waiting_list import UnitAvailable
from vouchers.models import SeckillVoucher
from vouchers.web.live_answer import NO_SALE_TEXT

_TEXTS = tomllib.loads(Path(__file__).with_name("refusal_texts.toml").read_text("utf-8"))
"""In English: they are translated with their values, in the language of each answer."""

WAITING_RETRY_AFTER_S = 5
"""The ``Retry-After`` of a request that the waiting room has not let in; ``room/`` knows better."""

LONGEST_RETRY_S = 30
"""The longest ``Retry-After``, however late orders are written."""


class Refusal(NamedTuple):
    """The contract's answer to an error: status, code, and the text before translation.

    ``values`` are filled into the text; ``details`` stand beside code and message. The statistics
    count it by its code, or ``counted_as``.
    """

    status: int
    code: str
    text: str
    values: Mapping[str, Any] = MappingProxyType({})
    details: Mapping[str, Any] = MappingProxyType({})
    retry_after_s: int | None = None
    counted_as: str = ""

    def message(self) -> str:
        """Return the text in the active language."""
        return gettext(self.text) % self.values if self.values else gettext(self.text)


def sold_out_refusal(arrived_at_ms: int | None, sold_out_at_ms: int | None) -> Refusal:
    """Return the refusal of a sold-out sale, with both times if they are known."""
    details = {}
    if arrived_at_ms is not None:
        details["arrived_at_ms"] = arrived_at_ms
        # It cannot be later than the arrival, unless a clock was set back.
        if sold_out_at_ms is not None and sold_out_at_ms <= arrived_at_ms:
            details["sold_out_at_ms"] = sold_out_at_ms
    return Refusal(409, "sold_out", _TEXTS["SoldOut"], details=details)


def _behind(error: reservations.SaleBehind) -> Refusal:
    behind_s = error.behind_ms // 1000
    text, values = _TEXTS["SaleBehind"], {"seconds": behind_s}
    retry_s = min(max(behind_s - settings.SECKILL_BEHIND_MS // 1000, 2), LONGEST_RETRY_S)
    return Refusal(503, "unavailable", text, values, retry_after_s=retry_s)


def _limited(error: reservations.OrdersLimited) -> Refusal:
    counted_as = ADDRESS_LIMITED if error.limit is LimitKind.ADDRESS else ACCOUNT_LIMITED
    text, wait_s = _TEXTS["OrdersLimited"][counted_as], max(1, -(-error.wait_ms // 1000))
    return Refusal(429, "rate_limited", text, retry_after_s=wait_s, counted_as=counted_as)


def _price_changed(error: reservations.PriceChanged) -> Refusal:
    [cents] = error.args
    text, price = _TEXTS["PriceChanged"], {"price": short_money(cents)}
    return Refusal(409, "price_changed", text, price, {"price_cents": cents})


def _not_eligible(error: NotEligible) -> Refusal:
    verdict = error.verdict
    text, details = RULES[verdict.rule].message, {"rule": verdict.rule}
    return Refusal(403, "not_eligible", text, {"number": verdict.number}, details)


_NO_SUCH_ORDER = Refusal(404, "not_found", _TEXTS["NoOrder"])
_UNAVAILABLE = Refusal(
    503, "unavailable", UNAVAILABLE_TEXT, retry_after_s=UNAVAILABLE_RETRY_AFTER_S
)
_NOT_REPLICATED = _UNAVAILABLE._replace(text=_TEXTS["NotReplicated"])
_BAD_TOKEN = Refusal(403, "bad_token", _TEXTS["BadToken"])

_PLAIN: dict[type[Exception], tuple[int, str]] = {
    MalformedToken: (400, "invalid"),
    WorkMissing: (403, "work_missing"),
    NoDraw: (404, "not_found"),
    ListOpen: (404, "not_found"),
    NoChain: (404, "not_found"),
    NotWaiting: (404, "not_found"),
    reservations.NotStarted: (409, "not_started"),
    reservations.SaleEnded: (409, "ended"),
    reservations.SalePaused: (409, "paused"),
    OneEntryOnly: (409, "one_entry"),
    NotRefundable: (409, "not_refundable"),
    ChargeRefused: (409, "payment_refused"),
    UnitAvailable: (409, "available"),
    NoContact: (409, "no_contact"),
    TooLate: (409, "too_late"),
    EnoughCodes: (409, "enough_codes"),
    CodeRefused: (409, "code_refused"),
}
"""Status and code of the errors whose text depends on their class alone."""

_REFUSALS: dict[type[Exception], Refusal | Callable[[Any], Refusal]] = {
    **{kind: Refusal(*answer, _TEXTS[kind.__name__]) for kind, answer in _PLAIN.items()},
    InvalidRequest: lambda error: Refusal(error.status, "invalid", error.text),
    BadToken: _BAD_TOKEN,
    reservations.OtherMode: _BAD_TOKEN,
    OtherSale: _BAD_TOKEN,
    NoEntry: _NO_SUCH_ORDER,
    NoReceipt: _NO_SUCH_ORDER,
    VoucherOrder.DoesNotExist: _NO_SUCH_ORDER,
    SeckillVoucher.DoesNotExist: Refusal(404, "not_found", NO_SALE_TEXT),
    reservations.SoldOut: lambda error: sold_out_refusal(error.arrived_at_ms, error.sold_out_at_ms),
    reservations.AlreadyOrdered: lambda error: Refusal(
        409, "already_ordered", _TEXTS["AlreadyOrdered"], details={"order_id": str(error.order_id)}
    ),
    reservations.PriceChanged: _price_changed,
    reservations.TooFew: lambda error: Refusal(
        409, "too_few", _TEXTS["TooFew"], {"left": error.left}, {"left": error.left}
    ),
    WrongState: lambda error: Refusal(
        409, "wrong_state", _TEXTS["WrongState"], {"status": OrderStatus(error.status).label}
    ),
    reservations.NotAdmitted: Refusal(
        429, "waiting_room", _TEXTS["NotAdmitted"], retry_after_s=WAITING_RETRY_AFTER_S
    ),
    reservations.OrdersLimited: _limited,
    NotEligible: _not_eligible,
    TooManyGuesses: lambda error: Refusal(
        429, "rate_limited", _TEXTS["TooManyGuesses"], retry_after_s=error.retry_after_s
    ),
    reservations.SaleBehind: _behind,
    reservations.NotReplicated: _NOT_REPLICATED,
    # The outcome is unknown: the same request may be sent again.
    LedgerUnavailable: _UNAVAILABLE,
    NotLoaded: _UNAVAILABLE,
    Busy: _UNAVAILABLE,
    ProviderUnavailable: _UNAVAILABLE,
    GuessesUnknown: _UNAVAILABLE,
}

REFUSED = tuple(_REFUSALS)
"""The errors for which the contract has an answer."""


def refusal_of(error: Exception) -> Refusal:
    """Return the contract's answer to one of the errors in ``REFUSED``."""
    kind = type(error)
    if kind not in _REFUSALS:
        kind = next(it for it in kind.__mro__ if it in _REFUSALS)
    refusal = _REFUSALS[kind]
    return refusal if isinstance(refusal, Refusal) else refusal(error)


def refusal_answer(refusal: Refusal, *, language: str) -> Answer:
    """Return a refusal as JSON: ``{"code", "message", …}``."""
    if refusal.values:
        with translation.override(language):
            words = _code_and_message(refusal.code, refusal.message())
    else:
        words = _cached_words(language, refusal.code, refusal.text)
    # Concatenated, because a refused crowd is the busiest moment of a sale (docs/performance.md).
    items = refusal.details.items()
    details = "".join([f', "{k}": {v if type(v) is int else json.dumps(v)}' for k, v in items])
    headers: Headers = (("Cache-Control", "no-store"), ("Vary", "Accept-Language, Cookie"))
    if refusal.retry_after_s is not None:
        headers += (("Retry-After", str(refusal.retry_after_s)),)
    return Answer(refusal.status, f"{{{words}{details}}}", headers)


@lru_cache(maxsize=256)
def _cached_words(language: str, code: str, text: str) -> str:
    with translation.override(language):
        return _code_and_message(code, gettext(text))


def _code_and_message(code: str, message: str) -> str:
    """Return the fields that every refusal has, as JSON without its braces."""
    return json.dumps({"code": code, "message": message})[1:-1]


def refusal_response(
    request: HttpRequest, refusal: Refusal, *, sale_id: int, order: OrderRequest | None = None
) -> HttpResponse:
    """Return a refusal as JSON, or as a page that leads to the buyer's order or to the sale.

    A page with an order request sends the same token again, so it orders once.
    """
    if not wants_html(request):
        return as_response(refusal_answer(refusal, language=translation.get_language() or ""))
    if refusal.code == "already_ordered":
        return see_page("receipt", sale_id, refusal.details["order_id"])
    page: dict[str, Any] = {"sale_id": sale_id}
    if refusal in (_UNAVAILABLE, _NOT_REPLICATED) and order and isinstance(order.token, str):
        page["again"] = order
    return problem(
        request,
        status=refusal.status,
        code=refusal.code,
        message=refusal.message(),
        retry_after_s=refusal.retry_after_s,
        page=page,
        **refusal.details,
    )


def refusals_answered(view: Callable[..., HttpResponse]) -> Callable[..., HttpResponseBase]:
    """Turn the errors that a view's domain call raises into the contract's answers."""

    @wraps(view)
    def wrapped(request: HttpRequest, sale_id: int, **kwargs: Any) -> HttpResponseBase:
        try:
            return view(request, sale_id=sale_id, **kwargs)
        except REFUSED as error:
            return refusal_response(request, refusal_of(error), sale_id=sale_id)

    return wrapped
