"""Orders at the front door: a program's order request, and the receipt of a token's holder.

Both carry their proof with them and cost at most one command to Redis. Requests for pages, and any
that need the database, are left to Django, which may safely ask the ledger again; only a sale that
does not exist is found out here, because anybody can make up many.
"""

import re
from contextlib import suppress
from functools import partial

from django.db import DatabaseError
from django.http import Http404

from orders.audience.refusal_log import Refused, note_refusal
from orders.placing.publisher import publisher
from orders.placing.service import answer_from_rows, order_call
from orders.placing.tokens import PurchaseToken, read_token
from orders.receipts.service import cached_receipt_call
from orders.web.order_answers import (
    Outcome,
    count_refusal,
    finish_and_count,
    order_answer,
    owner_answer,
    read_request_token,
)
from orders.web.refusals import REFUSED, Refusal, refusal_answer, refusal_of
from orders.web.request_parsing import LARGEST_BODY_BYTES, OrderRequest, read_json_order
from orders.web.serializers import receipt_json
from seckill_site.clocks.ledger import ledger_now_ms
from seckill_site.front_door.requests import Environ, declared_bytes, request_language, request_path
from seckill_site.front_door.threads import Busy, threads
from seckill_site.web.clients import client_address
from seckill_site.web.request_rates import RateLimited, check_account, check_address
from seckill_site.web.responses import Answer, names_html
from vouchers.catalogue.public_sales import last_public, recall_sale
from vouchers.inventory.keys import LedgerUnavailable, NotLoaded, ask
from vouchers.inventory.sale_state import LedgerRemoved
from vouchers.models import SeckillVoucher
from vouchers.web.loading import load_once
from vouchers.web.public import known_sale

drain_publisher = partial(publisher.drain, longest_s=2.0)

_ORDERS = re.compile(r"/vouchers/([1-9][0-9]{0,17})/orders/")
_RECEIPT = re.compile(r"/vouchers/([1-9][0-9]{0,17})/orders/([1-9][0-9]{0,18})/")
_PUBLIC_PATHS = re.compile(r"/vouchers/([1-9][0-9]{0,17})/(?:room/|live/)?")
_SHARED_PAGES = re.compile(r"/|/vouchers/[1-9][0-9]{0,17}/(?:room/)?")


def is_shared_page(environ: Environ) -> bool:
    """Say whether this page is the same for everybody: the list, a purchase page, a waiting room.

    A waiting room is so in HTML alone; in JSON, a place in line is one buyer's.
    """
    path = environ["PATH_INFO"]
    is_one_buyers = path.endswith("/room/") and not names_html(environ)
    return not is_one_buyers and bool(_SHARED_PAGES.fullmatch(path))


async def unknown_sale(environ: Environ) -> Answer | None:
    """Answer whatever anybody may ask of a sale that is not public, without a thread of its own.

    :raises Http404: the answer is a page.
    :raises RateLimited: too many requests came from this address.
    """
    match = _PUBLIC_PATHS.fullmatch(environ["PATH_INFO"])
    if match is None or environ["REQUEST_METHOD"] not in ("GET", "HEAD"):
        return None
    sale_id = int(match[1])
    known = recall_sale(sale_id=sale_id)
    if known is None:
        if last_public(sale_id=sale_id):
            return None
        check_address(environ)
        try:
            known = await known_sale(sale_id)
        except (DatabaseError, Busy):
            return None
    if known.is_public:
        return None
    refusal = refusal_of(SeckillVoucher.DoesNotExist())
    if names_html(environ):
        raise Http404(refusal.text)
    return refusal_answer(refusal, language=request_language(environ))


async def order(environ: Environ) -> Answer | None:
    """Accept or refuse a program's order request; None if Django has to answer.

    :raises RateLimited: too many requests came from this address.
    """
    match = _ORDERS.fullmatch(environ["PATH_INFO"])
    if match is None or environ["REQUEST_METHOD"] != "POST" or not _is_small_json(environ):
        return None
    sale_id, body = int(match[1]), environ["wsgi.input"].read()
    environ["wsgi.input"].seek(0)  # Django may have to read it too
    try:
        check_address(environ)
    except RateLimited:
        _note_limited(sale_id, body)
        raise
    try:
        order, now_ms = read_json_order(body), ledger_now_ms(may_wait=False)
        outcome = read_request_token(order, sale_id=sale_id, now_ms=now_ms)
        if not isinstance(outcome, Refusal):
            outcome = await _place(outcome, order, address=client_address(environ))
    except REFUSED as error:
        outcome = count_refusal(refusal_of(error), sale_id=sale_id)
    return order_answer(outcome, path=request_path(environ), language=request_language(environ))


def _note_limited(sale_id: int, body: bytes) -> None:
    """Note whose token came from an address with too many requests."""
    with suppress(*REFUSED):
        text, now_ms = read_json_order(body).token, ledger_now_ms(may_wait=False)
        token = read_token(text, sale_id=sale_id, now_ms=now_ms)
        note_refusal(Refused(sale_id, "rate_limited", token.user_id))


async def _place(token: PurchaseToken, order: OrderRequest, *, address: str) -> Outcome:
    """Do what ``place_order`` does in a thread; the publisher's thread sends the task."""
    try:
        call = order_call(
            token,
            address=address,
            finish=finish_and_count,
            publish=publisher.request,
            quantity=order.quantity,
            all_or_none=order.all_or_none,
        )
        try:
            return await ask(call)
        except NotLoaded:
            try:
                await load_once(sale_id=token.sale_id)
            except LedgerRemoved:
                answer = partial(answer_from_rows, token, finish=finish_and_count)
                return await threads().query(answer)
        return await ask(call)
    except REFUSED as error:
        return count_refusal(refusal_of(error), sale_id=token.sale_id, user_id=token.user_id)
    except Busy:
        note_refusal(Refused(token.sale_id, "unavailable", token.user_id))
        raise


def _is_small_json(environ: Environ) -> bool:
    return (
        environ.get("CONTENT_TYPE") == "application/json"
        and not names_html(environ)
        and 0 < declared_bytes(environ) <= LARGEST_BODY_BYTES
    )


async def receipt(environ: Environ) -> Answer | None:
    """Return the receipt of an order's token if Redis has it; None if Django has to answer."""
    match = _RECEIPT.fullmatch(environ["PATH_INFO"])
    text = environ.get("HTTP_PURCHASE_TOKEN")
    if match is None or text is None or environ["REQUEST_METHOD"] != "GET" or names_html(environ):
        return None
    sale_id, order_id = int(match[1]), int(match[2])
    now_ms = ledger_now_ms(may_wait=False)
    try:
        token = read_token(text, sale_id=sale_id, now_ms=now_ms)
        if token.order_id != order_id:
            return None
        check_account(environ, token.user_id)
        call = cached_receipt_call(sale_id=sale_id, order_id=order_id, user_id=token.user_id)
        cached = await ask(call)
    except LedgerUnavailable:
        return None  # the database may have the row
    except REFUSED as error:
        return refusal_answer(refusal_of(error), language=request_language(environ))
    if cached is None:
        return None
    return owner_answer(receipt_json(cached, now_ms=now_ms, path=request_path(environ)))
