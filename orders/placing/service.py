"""The front half: turn a buyer's request into a reservation, and publish a fulfil task if due."""

from collections.abc import Callable
from typing import Any, TypeVar

from locks.lua_script import ScriptCall
from orders.placing.order_ids import minted_ms
from orders.placing.publishing import publish_fulfillment
from orders.placing.tokens import BadToken, PurchaseToken, check_work, read_token
from seckill_site.failpoints import failpoint
from vouchers.inventory.entering import enter_call
from vouchers.inventory.keys import NotLoaded, OtherSale, send
from vouchers.inventory.rebuild import load_sale_exclusively
from vouchers.inventory.reservations import NotReplicated, Reservation, reserve_call

T = TypeVar("T")


def place_order(
    *, token_text: object, sale_id: int, now_ms: int, address: str = ""
) -> PurchaseToken:
    """Reserve a unit under the token's order id; the same token always gets the same answer.

    One Redis command and no SQL, plus a message to the broker if a fulfil task is due. A failed
    publish does not concern the buyer: the sweep finds what is pending. ``address`` is the
    client's, empty if it has no limit.

    :raises MalformedToken: the request has no token.
    :raises BadToken: the token is forged, expired or another sale's.
    :raises WorkMissing: the token asks for work that was not done.
    :raises ReservationRefused: the ledger refuses this buyer; the subclass says why.
    :raises SaleBehind: orders are written too slowly to accept anybody new.
    :raises NotLoaded: the sale has to be loaded first.
    :raises NotReplicated: reserved, but not safely yet; the same token may be sent again.
    :raises LedgerUnavailable: the outcome is unknown; the same token may be sent again.
    """
    token = read_order_token(token_text, sale_id=sale_id, now_ms=now_ms)
    return send(place_call(token, address=address))


def read_order_token(text: object, *, sale_id: int, now_ms: int) -> PurchaseToken:
    """Read the token of a request that asks for a unit, or for a place in the waiting list.

    :raises MalformedToken: as above.
    :raises BadToken: as above.
    :raises WorkMissing: as above.
    """
    token = read_token(text, sale_id=sale_id, now_ms=now_ms)
    check_work(token, str(text))
    failpoint("place.read")
    return token


def place_call(
    token: PurchaseToken,
    *,
    publish: Callable[..., object] = publish_fulfillment,
    address: str = "",
) -> ScriptCall[PurchaseToken]:
    """Build the call of :func:`place_order`; reading its reply publishes the task if one is due."""
    sale_id, call = token.sale_id, _reserve_or_enter(token, address=address)

    def read(reply: Any) -> PurchaseToken:
        try:
            reservation = call.read(reply)
        except NotReplicated as error:
            if error.reservation.kick_due:  # its order is written all the same
                publish(sale_id=sale_id)
            raise
        failpoint("place.reserved")
        if reservation.kick_due:
            publish(sale_id=sale_id)
            failpoint("place.published")
        return token

    return call.with_read(read)


def _reserve_or_enter(token: PurchaseToken, *, address: str) -> ScriptCall[Reservation]:
    ids = {"sale_id": token.sale_id, "order_id": token.order_id, "user_id": token.user_id}
    if token.enters:
        return enter_call(**ids, identity=token.identity, address=address)
    minted = None if token.admission else minted_ms(token.order_id)
    return reserve_call(**ids, identity=token.identity, minted_ms=minted, address=address)


def load_and_send(call: ScriptCall[T], *, sale_id: int) -> T:
    """Send the call that places an order, and load the sale first if it is not loaded.

    :raises SeckillVoucher.DoesNotExist: the sale was deleted.
    :raises: what reading the reply raises.
    """
    try:
        return send(call)
    except NotLoaded:
        load_sale_exclusively(sale_id=sale_id)
    return send(once_loaded(call))


def once_loaded(call: ScriptCall[T]) -> ScriptCall[T]:
    """Return the same call for after the sale was loaded: then another sale's token is a bad one.

    Reading its reply raises ``BadToken`` in the place of ``OtherSale``.
    """

    def read(reply: Any) -> T:
        try:
            return call.read(reply)
        except OtherSale as error:
            raise BadToken("the token is for another sale that had this id") from error

    return call.with_read(read)
