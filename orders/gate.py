"""What the gate answers of orders: a program's order request, and the receipt of a token.

Both carry their proof with them and cost one command to Redis, or none where this process has just
heard that all is sold out. Only a request that says ``attempt=1`` is refused without the ledger:
any other may be the second try of a winner whose answer was lost, and a winner is never told "sold
out".

What is odd about a request, what needs the database, and whoever wants a page is left to Django, to
whom it makes no difference that the ledger was asked once already.
"""

from __future__ import annotations

import io
import json
import re
import time
from collections.abc import Mapping
from functools import lru_cache, partial
from http.client import responses
from typing import Any

from django.conf import settings
from django.http import HttpRequest
from django.utils import translation

from orders.answers import REFUSALS, Refusal, count, refusal_of
from orders.placing import place_order
from orders.receipts import receipt_at_hand
from orders.requests import LARGEST_BODY_BYTES, InvalidRequest, read_json_order
from orders.tokens import read_token
from orders.views import accepted_json, receipt_json
from seckill_site.gate import Environ, GateAnswer, Headers, path_of
from seckill_site.responses import UNAVAILABLE_RETRY_AFTER_S, UNAVAILABLE_TEXT, names_html
from vouchers import sold_out
from vouchers.ledger import LedgerUnavailable, NotLoaded
from vouchers.reservations import SoldOut
from vouchers.tally import ACCEPTED

_ORDERS = re.compile(r"/vouchers/([1-9][0-9]{0,17})/orders/")
_RECEIPT = re.compile(r"/vouchers/([1-9][0-9]{0,17})/orders/([1-9][0-9]{0,18})/")
_FOR_OWNER = (("Cache-Control", "private, no-store"), ("Vary", "Accept-Language, Cookie"))
_REFUSED = (("Cache-Control", "no-store"), ("Vary", "Accept-Language, Cookie"))
_UNAVAILABLE = Refusal(
    503, "unavailable", UNAVAILABLE_TEXT, retry_after_s=UNAVAILABLE_RETRY_AFTER_S
)


def order(environ: Environ) -> GateAnswer | None:
    """Accept or refuse a program's order request; None where Django is to answer."""
    match = _ORDERS.fullmatch(environ.get("PATH_INFO", ""))
    if match is None or environ["REQUEST_METHOD"] != "POST" or not _is_a_programs(environ):
        return None
    sale_id = int(match[1])
    try:
        accepted = _placed(environ, sale_id)
    except (NotLoaded, InvalidRequest):
        return None
    except LedgerUnavailable:
        refusal = _UNAVAILABLE
    except REFUSALS as error:
        refusal = refusal_of(error)
    else:
        count(sale_id=sale_id, status=202, answer=ACCEPTED)
        return _answer(202, accepted, _FOR_OWNER)
    count(sale_id=sale_id, status=refusal.status, answer=refusal.code)
    return _refused(environ, refusal)


def _placed(environ: Environ, sale_id: int) -> dict[str, Any]:
    """Place the order and return what its buyer is told; all else is raised."""
    now_ms = time.time_ns() // 1_000_000
    request = read_json_order(_body(environ))
    heard = sold_out.heard(sale_id=sale_id) if request.attempt == 1 else None
    if heard is not None:
        read_token(request.token, sale_id=sale_id, now_ms=now_ms)
        raise SoldOut(heard.arrival_ms(), heard.sold_out_at_ms)
    token = place_order(token_text=request.token, sale_id=sale_id, now_ms=now_ms, may_load=False)
    return accepted_json(token, path=path_of(environ))


def receipt(environ: Environ) -> GateAnswer | None:
    """Tell who holds an order's token what became of it, if Redis knows; None is for Django."""
    match = _RECEIPT.fullmatch(environ.get("PATH_INFO", ""))
    text = environ.get("HTTP_PURCHASE_TOKEN")
    if match is None or text is None or environ["REQUEST_METHOD"] != "GET" or names_html(environ):
        return None
    sale_id, order_id = int(match[1]), int(match[2])
    try:
        token = read_token(text, sale_id=sale_id, now_ms=time.time_ns() // 1_000_000)
        if token.order_id != order_id:
            return None
        found = receipt_at_hand(sale_id=sale_id, order_id=order_id, user_id=token.user_id)
    except LedgerUnavailable:
        return None
    except REFUSALS as error:
        return _refused(environ, refusal_of(error))
    if found is None:
        return None
    return _answer(200, receipt_json(found, path=path_of(environ)), _FOR_OWNER)


def _is_a_programs(environ: Environ) -> bool:
    return (
        environ.get("CONTENT_TYPE") == "application/json"
        and not names_html(environ)
        and environ.get("CONTENT_LENGTH", "").isdecimal()
        and int(environ["CONTENT_LENGTH"]) <= LARGEST_BODY_BYTES
    )


def _body(environ: Environ) -> bytes:
    """Read the body, and put it back for whoever answers in the end."""
    body: bytes = environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"]))
    environ["wsgi.input"] = io.BytesIO(body)
    return body


def _refused(environ: Environ, refusal: Refusal) -> GateAnswer:
    language = _language(environ.get("HTTP_COOKIE", ""), environ.get("HTTP_ACCEPT_LANGUAGE", ""))
    message = refusal.message(partial(_said_in, language))
    headers: Headers = _REFUSED
    if refusal.retry_after_s is not None:
        headers += (("Retry-After", str(refusal.retry_after_s)),)
    content = {"code": refusal.code, "message": message, **refusal.details}
    return _answer(refusal.status, content, headers)


def _answer(status: int, content: Mapping[str, Any], headers: Headers) -> GateAnswer:
    return GateAnswer(f"{status} {responses[status]}", json.dumps(content).encode(), headers)


def _language(cookies: str, accepted: str) -> str:
    # Of the cookies only that of the language counts: others, as a session's, are one to a buyer.
    chosen = cookies.partition(f"{settings.LANGUAGE_COOKIE_NAME}=")[2].partition(";")[0]
    return _language_of(chosen[:16], accepted[:128])


@lru_cache(maxsize=512)
def _language_of(chosen: str, accepted: str) -> str:
    """Return the language that Django would choose for this cookie and header."""
    request = HttpRequest()
    request.META["HTTP_ACCEPT_LANGUAGE"] = accepted
    request.COOKIES[settings.LANGUAGE_COOKIE_NAME] = chosen
    return translation.get_language_from_request(request)


@lru_cache(maxsize=256)
def _said_in(language: str, text: str) -> str:
    with translation.override(language):
        return translation.gettext(text)
