"""The JSON of ``me/`` and ``token/``, the same at the front door and in Django."""

import re
from typing import Any

from orders.placing.tokens import PurchaseToken
from orders.receipts.buyer_in_sale import BuyerInSale
from orders.web.order_answers import owner_answer
from orders.web.serializers import buyer_status_json
from seckill_site.sessions import Buyer
from seckill_site.web.responses import Answer

_QUERY = re.compile(r"(?:sale=([1-9][0-9]{0,17}))?")


class UnknownQuery(Exception):
    """The query of ``me/`` is not just a sale."""


def read_query(query: str) -> int | None:
    """Return the sale that ``me/`` was asked for, or None for no sale.

    :raises UnknownQuery: it says anything else.
    """
    match = _QUERY.fullmatch(query)
    if match is None:
        raise UnknownQuery(query)
    return int(match[1]) if match[1] else None


def me_answer(buyer: Buyer | None, *, now_ms: int, sale: dict[str, Any] | None = None) -> Answer:
    """Answer who is signed in, and with ``sale`` what they have of it."""
    content: dict[str, Any] = {"signed_in": buyer is not None}
    if buyer:
        content["name"] = buyer.name
    content["server_time_ms"] = now_ms
    if sale is not None:
        content["sale"] = sale
    return owner_answer(content)


def sale_json(found: BuyerInSale, *, order_id: int | None) -> dict[str, Any]:
    """Return what a buyer has of a sale, with a token unless it is over (``order_id`` None)."""
    content = buyer_status_json(found.status)
    if order_id is None:
        return content | {"token": "", "expires_at_ms": None}
    return content | token_json(found.token(order_id))


def token_json(token: PurchaseToken) -> dict[str, Any]:
    """Return a purchase token."""
    return {"token": token.sign(), "expires_at_ms": token.expires_at_ms}
