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
from functools import lru_cache, partial
from http.client import responses

from django.conf import settings
from django.http import HttpRequest
from django.utils import translation

from orders.placing.service import place_order
from orders.placing.tokens import read_token
from orders.receipts.service import receipt_at_hand
from orders.web.order_api import accepted_json, receipt_json
from orders.web.refusals import REFUSALS, Refusal, count, refusal_of, sold_out_since
from orders.web.request_parsing import LARGEST_BODY_BYTES, InvalidRequest, read_json_order
from seckill_site.clock import now_ms
from seckill_site.web.fast_path import Environ, GateAnswer, Headers, path_of
from seckill_site.web.responses import UNAVAILABLE_RETRY_AFTER_S, UNAVAILABLE_TEXT, names_html
from vouchers.inventory import sold_out_cache
from vouchers.inventory.keys import LedgerUnavailable, NotLoaded
from vouchers.inventory.request_stats import ACCEPTED

_ORDERS = re.compile(r"/vouchers/([1-9][0-9]{0,17})/orders/")
_RECEIPT = re.compile(r"/vouchers/([1-9][0-9]{0,17})/orders/([1-9][0-9]{0,18})/")
_FOR_OWNER = (("Cache-Control", "private, no-store"), ("Vary", "Accept-Language, Cookie"))
_REFUSED = (("Cache-Control", "no-store"), ("Vary", "Accept-Language, Cookie"))
_STATUS_LINES = {number: f"{number} {phrase}" for number, phrase in responses.items()}
_UNAVAILABLE = Refusal(
    503, "unavailable", UNAVAILABLE_TEXT, retry_after_s=UNAVAILABLE_RETRY_AFTER_S
)


def order(environ: Environ) -> GateAnswer | None:
    """Accept or refuse a program's order request; None where Django is to answer."""
    match = _ORDERS.fullmatch(environ.get("PATH_INFO", ""))
    if match is None or environ["REQUEST_METHOD"] != "POST" or not _is_a_programs(environ):
        return None
    sale_id, asked_ms = int(match[1]), now_ms()
    try:
        request = read_json_order(_body(environ))
        heard = sold_out_cache.recall_sold_out(sale_id=sale_id) if request.attempt == 1 else None
        if heard is not None:
            read_token(request.token, sale_id=sale_id, now_ms=asked_ms)
            refusal = sold_out_since(heard.arrival_ms(), heard.sold_out_at_ms)
        else:
            return _placed(environ, request.token, sale_id, asked_ms)
    except (NotLoaded, InvalidRequest):
        return None
    except LedgerUnavailable:
        refusal = _UNAVAILABLE
    except REFUSALS as error:
        refusal = refusal_of(error)
    count(sale_id=sale_id, status=refusal.status, answer=refusal.code)
    return _refused(environ, refusal)


def _placed(environ: Environ, token_text: object, sale_id: int, now_ms: int) -> GateAnswer:
    token = place_order(token_text=token_text, sale_id=sale_id, now_ms=now_ms, may_load=False)
    count(sale_id=sale_id, status=202, answer=ACCEPTED)
    return _answer(202, json.dumps(accepted_json(token, path=path_of(environ))), _FOR_OWNER)


def receipt(environ: Environ) -> GateAnswer | None:
    """Tell who holds an order's token what became of it, if Redis knows; None is for Django."""
    match = _RECEIPT.fullmatch(environ.get("PATH_INFO", ""))
    text = environ.get("HTTP_PURCHASE_TOKEN")
    if match is None or text is None or environ["REQUEST_METHOD"] != "GET" or names_html(environ):
        return None
    sale_id, order_id = int(match[1]), int(match[2])
    try:
        token = read_token(text, sale_id=sale_id, now_ms=now_ms())
        if token.order_id != order_id:
            return None
        found = receipt_at_hand(sale_id=sale_id, order_id=order_id, user_id=token.user_id)
    except LedgerUnavailable:
        return None
    except REFUSALS as error:
        return _refused(environ, refusal_of(error))
    if found is None:
        return None
    return _answer(200, json.dumps(receipt_json(found, path=path_of(environ))), _FOR_OWNER)


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
    headers: Headers = _REFUSED
    if refusal.retry_after_s is not None:
        headers += (("Retry-After", str(refusal.retry_after_s)),)
    if refusal.values:
        message = refusal.message(partial(_said_in, language))
        words = _words(refusal.code, message)
    else:
        words = _known_words(language, refusal.code, refusal.text)
    rest = "".join([f', "{name}": {_value(it)}' for name, it in refusal.details.items()])
    return _answer(refusal.status, f"{{{words}{rest}}}", headers)


def _value(detail: object) -> str:
    """Return a detail as JSON; most are times."""
    return str(detail) if type(detail) is int else json.dumps(detail)


def _words(code: str, message: str) -> str:
    """Return the fields that every refusal has, as JSON without its braces."""
    return json.dumps({"code": code, "message": message})[1:-1]


@lru_cache(maxsize=256)
def _known_words(language: str, code: str, text: str) -> str:
    return _words(code, _said_in(language, text))


def _answer(status: int, content: str, headers: Headers) -> GateAnswer:
    return GateAnswer(_STATUS_LINES[status], content.encode(), headers)


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


def _said_in(language: str, text: str) -> str:
    with translation.override(language):
        return translation.gettext(text)
