"""The front half: turn a buyer's token into a reservation, and publish a fulfil task if due."""

from collections.abc import Callable
from functools import partial
from typing import TypeVar

from locks.lua_script import ScriptCall
from orders.placing.order_ids import minted_ms
from orders.placing.publishing import publish_fulfilment
from orders.placing.tokens import PurchaseToken, check_work, read_token
from seckill_site.failpoints import failpoint
from vouchers.inventory import reservations
from vouchers.inventory.entering import OneEntryOnly, enter_call
from vouchers.inventory.keys import send
from vouchers.inventory.rebuild import once_loaded
from vouchers.inventory.reservations import NotReplicated, Reply, finish_reservation, reserve_call
from vouchers.inventory.sale_state import LedgerRemoved
from vouchers.models import SeckillVoucher

T = TypeVar("T")


def read_order_token(text: object, *, sale_id: int, now_ms: int) -> PurchaseToken:
    """Read the token of a request that asks for a unit, or for a place in the waiting list.

    :raises MalformedToken: the request has no token.
    :raises BadToken: the token is forged, expired or another sale's.
    :raises WorkMissing: the token asks for work that was not done.
    """
    token = read_token(text, sale_id=sale_id, now_ms=now_ms)
    check_work(token, str(text))
    failpoint("place.read")
    return token


def place_order(
    token: PurchaseToken,
    *,
    finish: Callable[..., T],
    address: str = "",
    quantity: int = 1,
    all_or_none: bool = False,
) -> T:
    """Reserve units under the token's order id; the same token always gets the same answer.

    One Redis command and no SQL, plus a message to the broker if a fulfil task is due; a sale that
    is not loaded is loaded first. A failed publish does not concern the buyer: the sweep finds what
    is pending. ``finish`` is :func:`finish_order` or calls it, ``address`` is the client's, empty
    if it has no limit. Of a ``quantity`` the buyer gets what is left, or all of it or nothing.

    :raises OneEntryOnly: the token enters a draw, and the quantity is above one.
    :raises OtherSale: the token is that of another sale which had this id.
    :raises ReservationRefused: the ledger refuses this buyer; the subclass says why.
    :raises SaleBehind: orders are written too slowly to accept anybody new.
    :raises NotLoaded: the sale cannot be loaded now.
    :raises NotReplicated: reserved, but not safely yet; the same token may be sent again.
    :raises LedgerUnavailable: the outcome is unknown; the same token may be sent again.
    :raises SeckillVoucher.DoesNotExist: the sale was deleted.
    """
    call = order_call(
        token,
        address=address,
        finish=finish,
        publish=publish_fulfilment,
        quantity=quantity,
        all_or_none=all_or_none,
    )
    try:
        return once_loaded(partial(send, call), sale_id=token.sale_id)
    except LedgerRemoved:
        return answer_from_rows(token, finish=finish)


def answer_from_rows(token: PurchaseToken, *, finish: Callable[..., T]) -> T:
    """Answer an order for a sale whose ledger was removed: what is a row was accepted."""
    sale = SeckillVoucher.objects.get(pk=token.sale_id)
    orders = sale.orders.filter(pk=token.order_id, user=token.user_id)
    entries = sale.draw_entries.filter(order_id=token.order_id, user=token.user_id)
    ended = (f"sale {sale.pk} has ended",)
    reply: Reply = reservations.Refused(reservations.SaleEnded, ended, sale.pk)
    if orders.exists() or entries.exists():
        reply = reservations.Reservation(token.order_id, kick_due=False)
    return finish(reply, token=token, publish=publish_fulfilment)


def order_call(
    token: PurchaseToken,
    *,
    address: str,
    finish: Callable[..., T],
    publish: Callable[..., object],
    quantity: int = 1,
    all_or_none: bool = False,
) -> ScriptCall[T]:
    """Build the call of :func:`place_order`; to a coroutine, ``publish`` must not block.

    :raises OneEntryOnly: the token enters a draw, and the quantity is above one.
    """
    ids = {"sale_id": token.sale_id, "order_id": token.order_id, "user_id": token.user_id}
    identity, price = token.identity, token.price_cents
    if token.enters:
        if quantity > 1:
            raise OneEntryOnly("a draw takes one entry of a buyer")
        call = enter_call(**ids, identity=identity, address=address, price_cents=price)
    else:
        call = reserve_call(
            **ids,
            identity=identity,
            minted_ms=None if token.admission else minted_ms(token.order_id),
            address=address,
            price_cents=price,
            quantity=quantity,
            all_or_none=all_or_none,
        )
    return call.finished_by(partial(finish, token=token, publish=publish))


def finish_order(
    reply: Reply, *, token: PurchaseToken, publish: Callable[..., object]
) -> PurchaseToken:
    """Do what follows the ledger's reply, once: publish a task if one is due, or raise the refusal.

    The kick is set by then, so it is done even if nobody waits for the answer any more.
    """
    try:
        reservation = finish_reservation(reply)
    except NotReplicated as error:
        if error.reservation.kick_due:  # its order is written all the same
            publish(sale_id=token.sale_id)
        raise
    failpoint("place.reserved")
    if reservation.kick_due:
        publish(sale_id=token.sale_id)
        failpoint("place.published")
    return token
