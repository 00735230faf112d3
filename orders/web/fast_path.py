"""Orders on the fast path: a program's order request, and the receipt of a token's holder.

Both carry their proof with them and cost at most one command to Redis. Requests for pages, and any
that need the database, are left to Django, which may safely ask the ledger again.
"""

import io
import re

from orders.placing.tokens import read_token
from orders.receipts.service import cached_receipt
from orders.web.order_answers import count_refusal, order_answer, owner_answer, request_order
from orders.web.refusals import REFUSED, refusal_answer, refusal_of
from orders.web.request_parsing import LARGEST_BODY_BYTES, InvalidRequest, read_json_order
from orders.web.serializers import receipt_json
from seckill_site.clocks.ledger import ledger_now_ms
from seckill_site.web.fast_path import Environ, request_language, request_path
from seckill_site.web.responses import Answer, names_html
from vouchers.inventory.keys import LedgerUnavailable, NotLoaded

_ORDERS = re.compile(r"/vouchers/([1-9][0-9]{0,17})/orders/")
_RECEIPT = re.compile(r"/vouchers/([1-9][0-9]{0,17})/orders/([1-9][0-9]{0,18})/")


def order(environ: Environ) -> Answer | None:
    """Accept or refuse a program's order request; None if Django has to answer."""
    match = _ORDERS.fullmatch(environ.get("PATH_INFO", ""))
    if match is None or environ["REQUEST_METHOD"] != "POST" or not _is_small_json(environ):
        return None
    body = environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"]))
    environ["wsgi.input"] = io.BytesIO(body)  # Django may have to read it too
    try:
        request = read_json_order(body)
        outcome = request_order(request, sale_id=int(match[1]), now_ms=ledger_now_ms())
    except NotLoaded:
        return None
    except InvalidRequest as error:
        outcome = count_refusal(refusal_of(error), sale_id=int(match[1]))
    path, language = request_path(environ), request_language(environ)
    return order_answer(outcome, path=path, language=language)


def _is_small_json(environ: Environ) -> bool:
    return (
        environ.get("CONTENT_TYPE") == "application/json"
        and not names_html(environ)
        and environ.get("CONTENT_LENGTH", "").isdecimal()
        and int(environ["CONTENT_LENGTH"]) <= LARGEST_BODY_BYTES
    )


def receipt(environ: Environ) -> Answer | None:
    """Return the receipt of an order's token if Redis has it; None if Django has to answer."""
    match = _RECEIPT.fullmatch(environ.get("PATH_INFO", ""))
    text = environ.get("HTTP_PURCHASE_TOKEN")
    if match is None or text is None or environ["REQUEST_METHOD"] != "GET" or names_html(environ):
        return None
    sale_id, order_id = int(match[1]), int(match[2])
    try:
        token = read_token(text, sale_id=sale_id, now_ms=ledger_now_ms())
        if token.order_id != order_id:
            return None
        found = cached_receipt(sale_id=sale_id, order_id=order_id, user_id=token.user_id)
    except LedgerUnavailable:
        return None  # the database may have the row
    except REFUSED as error:
        return refusal_answer(refusal_of(error), language=request_language(environ))
    if found is None:
        return None
    return owner_answer(receipt_json(found, now_ms=ledger_now_ms(), path=request_path(environ)))
