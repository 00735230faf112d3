"""The JSON of ``me/`` and ``token/``, the same at the front door and in Django."""

import re
from typing import Any

from orders.placing.tokens import PurchaseToken
from orders.receipts.place_in_line import view_of_place
from orders.receipts.token_admission import BuyerInSale
from orders.web.order_answers import owner_answer
from orders.web.serializers import buyer_status_json, line_json
from seckill_site.sessions import Buyer
from seckill_site.web.responses import Answer
from vouchers.inventory.waiting_room import PlaceState
from vouchers.models import SeckillVoucher

_QUERY = re.compile(r"(?:sale=([1-9][0-9]{0,17}))?")


class UnknownQuery(SeckillVoucher.DoesNotExist):
    """The query of ``me/`` is not the id of a sale."""


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
        if buyer.desk:
            content["staff_desk"] = buyer.desk
    content["server_time_ms"] = now_ms
    if sale is not None:
        content["sale"] = sale
    return owner_answer(content)


def sale_json(buyer: BuyerInSale, *, order_id: int | None) -> dict[str, Any]:
    """Return what a buyer has of a sale.

    It has a token, unless the buyer may have none (``order_id`` None). It has the rule that refuses
    the buyer, or the place in line of one whom a waiting room has not let in.
    """
    status = buyer.status
    content = buyer_status_json(status)
    if order_id is not None:
        most = buyer.status.most(audience=buyer.audience, is_draw=buyer.is_draw)
        if most > 1:
            content["most"] = most
        return content | token_json(buyer.token(order_id))
    content |= {"token": "", "expires_at_ms": None}
    if status.verdict.rule:
        return content  # in line or not: first they need to know what keeps them out
    if buyer.place and buyer.place.state is not PlaceState.NONE and not buyer.is_over:
        now_ms, ids = status.now_ms, {"sale_id": status.sale_id, "user_id": status.user_id}
        content["room"] = line_json(view_of_place(buyer.place, **ids, now_ms=now_ms))
    return content


def token_json(token: PurchaseToken) -> dict[str, Any]:
    """Return a purchase token."""
    return {"token": token.sign(), "expires_at_ms": token.expires_at_ms}
