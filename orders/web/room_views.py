"""The page of a waiting room, and ``room/`` in Django."""

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from orders.receipts.place_in_line import LineView
from orders.receipts.purchase_page import PurchaseOffer
from orders.web.order_api import find_visitor, login_required_answer
from orders.web.refusals import refusals_answered
from orders.web.room_answers import answer_buyer, place_cookie
from orders.web.serializers import line_json
from seckill_site.web.responses import allow, as_response, as_shell, for_owner, wants_html
from vouchers.catalogue.listing import public_sale
from vouchers.inventory.rebuild import snapshot_or_load
from vouchers.inventory.waiting_room import Place


@allow("GET", "HEAD")
@refusals_answered
def room(request: HttpRequest, *, sale_id: int) -> HttpResponse:
    """Show the waiting room to everybody alike, or say a signed-in buyer's place in line."""
    if wants_html(request):
        sale = public_sale(sale_id=sale_id)
        return as_shell(render(request, "orders/room.html", {"sale": sale}))
    user_id = request.user.pk
    if user_id is None:
        public_sale(sale_id=sale_id)  # as at the front door
        return login_required_answer(request)
    buyer = find_visitor(request, sale_id, user_id)
    snapshot = snapshot_or_load(sale_id=sale_id)
    session_key = request.session.session_key or ""
    return as_response(answer_buyer(buyer, snapshot, session_key=session_key))


def room_page(
    request: HttpRequest, *, offer: PurchaseOffer, place: Place, view: LineView, held: str
) -> HttpResponse:
    """Show one buyer's place in line, without JavaScript; ``held`` is the place, signed.

    The bar begins at ``first``, the position on joining, or at the last change of the rate.
    """
    context = {
        "sale": offer.sale,
        "line": line_json(view),
        "state": offer.state.value,
        "remaining": offer.remaining,
        "first": place.number - place.line.terms.head(place.joined_ms) if view.position else 0,
        "reload_s": -(-view.poll_after_ms // 1000),
    }
    response = for_owner(render(request, "orders/room.html", context))
    response.cookies.load(place_cookie(held, sale_id=offer.sale.pk))
    return response
