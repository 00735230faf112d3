"""The front half: a buyer's request becomes a reservation, and a fulfil task where one is due."""

from __future__ import annotations

from orders.placing.publishing import publish_fulfillment
from orders.placing.tokens import PurchaseToken, read_token
from seckill_site.failpoints import failpoint
from vouchers.inventory.keys import NotLoaded
from vouchers.inventory.rebuild import load_sale_exclusively
from vouchers.inventory.reservations import Reservation, reserve


def place_order(
    *, token_text: object, sale_id: int, now_ms: int, may_load: bool = True
) -> PurchaseToken:
    """Reserve a unit under the token's order id; the same token always gets the same answer.

    One Redis command and no SQL, unless the sale has to be loaded or a kick is due. A publish that
    fails is not the buyer's concern: what is pending is swept.

    :raises MalformedToken: there is no token in the request.
    :raises BadToken: it is forged, expired, or another sale's.
    :raises ReservationRefused: by its subclass.
    :raises SaleBehind: not accepted now, because orders are written too slowly.
    :raises LedgerUnavailable: unknown; the same token may be sent again.
    :raises NotLoaded: the sale has to be loaded first, and ``may_load`` says not here.
    :raises SeckillVoucher.DoesNotExist: the sale was deleted.
    """
    token = read_token(token_text, sale_id=sale_id, now_ms=now_ms)
    failpoint("place.read")
    reservation = _reserve(token, may_load=may_load)
    failpoint("place.reserved")
    if reservation.kick_due:
        publish_fulfillment(sale_id=sale_id)
        failpoint("place.published")
    return token


def _reserve(token: PurchaseToken, *, may_load: bool) -> Reservation:
    try:
        return reserve(sale_id=token.sale_id, order_id=token.order_id, user_id=token.user_id)
    except NotLoaded:
        if not may_load:
            raise
        load_sale_exclusively(sale_id=token.sale_id)
        return reserve(sale_id=token.sale_id, order_id=token.order_id, user_id=token.user_id)
