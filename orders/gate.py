"""What the gate may answer of orders: a first attempt at a sale that has just been sold out.

Only a request that says ``attempt=1`` is refused without the ledger. Any other may be the second
try of a winner whose answer was lost, and a winner is never told "sold out".
"""

from __future__ import annotations

import io
import json
import re
import time
from functools import lru_cache

from django.conf import settings
from django.http import HttpRequest
from django.utils import translation
from django.utils.translation import gettext

from orders.answers import SOLD_OUT_TEXT, who_was_faster
from orders.requests import LARGEST_BODY_BYTES
from orders.tokens import BadToken, MalformedToken, read_token
from seckill_site.gate import Environ, GateAnswer
from seckill_site.metrics import ORDER_REQUESTS
from seckill_site.responses import names_html
from vouchers import sold_out
from vouchers.sold_out import Heard
from vouchers.tally import count_answer

_PATH = re.compile(r"/vouchers/([1-9][0-9]{0,17})/orders/")
_REFUSED = ORDER_REQUESTS.labels("409")
_HEADERS = (("Cache-Control", "no-store"), ("Vary", "Accept-Language, Cookie"))


def refuse_sold_out(environ: Environ) -> GateAnswer | None:
    """Refuse a program's first attempt, with a token of its own, at a sale without units."""
    match = _PATH.fullmatch(environ.get("PATH_INFO", ""))
    if match is None or environ["REQUEST_METHOD"] != "POST":
        return None
    sale_id = int(match[1])
    heard = sold_out.heard(sale_id=sale_id)
    if heard is None or not _is_a_programs(environ):
        return None
    now_ms = time.time_ns() // 1_000_000
    if not _is_first_attempt(_body(environ), sale_id, now_ms):
        return None
    count_answer(sale_id=sale_id, answer="sold_out")
    _REFUSED.inc()
    return GateAnswer("409 Conflict", _refusal(environ, heard), _HEADERS)


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


def _is_first_attempt(body: bytes, sale_id: int, now_ms: int) -> bool:
    """Say whether it is one beyond doubt; whatever is odd about it Django answers by name."""
    try:
        fields = json.loads(body.decode())
        if not isinstance(fields, dict) or fields.get("attempt") not in (1, "1"):
            return False
        read_token(fields.get("token"), sale_id=sale_id, now_ms=now_ms)
    except (ValueError, RecursionError, MalformedToken, BadToken):
        return False
    # A key that stands twice, or a "true" that equals 1, is for Django to refuse.
    return body.count(b'"attempt"') == 1 and body.count(b'"token"') == 1 and b"true" not in body


def _refusal(environ: Environ, heard: Heard) -> bytes:
    message = _message(environ.get("HTTP_COOKIE", ""), environ.get("HTTP_ACCEPT_LANGUAGE", ""))
    moments = who_was_faster(heard.arrival_ms(), heard.sold_out_at_ms)
    return json.dumps({"code": "sold_out", "message": message, **moments}).encode()


def _message(cookies: str, accepted: str) -> str:
    # Of the cookies only that of the language counts: others, as a session's, are one to a buyer.
    chosen = cookies.partition(f"{settings.LANGUAGE_COOKIE_NAME}=")[2].partition(";")[0]
    return _message_in(chosen[:16], accepted[:128])


@lru_cache(maxsize=512)
def _message_in(chosen: str, accepted: str) -> str:
    """Return the refusal in the language that Django would choose for this cookie and header."""
    request = HttpRequest()
    request.META["HTTP_ACCEPT_LANGUAGE"] = accepted
    request.COOKIES[settings.LANGUAGE_COOKIE_NAME] = chosen
    with translation.override(translation.get_language_from_request(request)):
        return gettext(SOLD_OUT_TEXT)
