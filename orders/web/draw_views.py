"""The public page of a draw, its record for anybody to check, and the withdrawal of an entry."""

from typing import Any

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render
from django.urls import reverse

from orders.draws.entries import withdraw
from orders.draws.publishing import PublishedDraw, closed_draw, compressed_record, find_draw
from orders.draws.standing import Stage, entry_id_of, standing_of
from orders.models import VoucherOrder
from orders.receipts.service import find_receipt
from orders.web.buyer_views import for_buyer
from orders.web.published_files import file_response
from orders.web.refusals import refusals_answered
from orders.web.serializers import receipt_json
from seckill_site.clocks.ledger import ledger_now_ms
from seckill_site.clocks.machine import epoch_ms
from seckill_site.web.responses import allow, as_shell, see_page, wants_html
from vouchers.catalogue.listing import public_sale


@allow("GET", "HEAD")
@refusals_answered
def draw(request: HttpRequest, *, sale_id: int) -> HttpResponse:
    """Show a draw, the same to everyone: the promise, the list, the result."""
    published = find_draw(sale_id=sale_id)
    if not wants_html(request):
        return as_shell(JsonResponse(_draw_json(published)))
    context = {"draw": published, "sale": published.sale, "about": _draw_json(published)}
    return as_shell(render(request, "orders/draw.html", context))


@allow("GET", "HEAD")
@refusals_answered
def record(request: HttpRequest, *, sale_id: int) -> HttpResponse:
    """Return the record of a draw as a file: the list without names, the seed, the drawn order."""
    published = closed_draw(sale_id=sale_id)
    return file_response(
        request,
        name=f"draw-{sale_id}.txt",
        tag=published.record_tag,
        compressed=lambda: compressed_record(published),
    )


@for_buyer("GET", "HEAD")
def own_entry(request: HttpRequest, *, sale_id: int) -> HttpResponse:
    """Lead a buyer to the receipt of their entry; tell a script what became of it."""
    public_sale(sale_id=sale_id)
    user_id = request.user.pk or 0
    entry_id = entry_id_of(sale_id=sale_id, user_id=user_id)
    if wants_html(request):
        return see_page("receipt", sale_id, entry_id) if entry_id else see_page("draw", sale_id)
    if entry_id and VoucherOrder.objects.filter(pk=entry_id).exists():
        return JsonResponse({"result": Stage.WON.name.lower()})
    standing = standing_of(sale_id=sale_id, order_id=entry_id or 0, user_id=user_id)
    return JsonResponse({"result": standing.stage.name.lower() if standing else None})


@for_buyer("POST")
def withdraw_entry(request: HttpRequest, *, sale_id: int, order_id: int) -> HttpResponse:
    """Take the buyer's entry out of a draw that takes entries."""
    user_id = request.user.pk or 0
    now_ms = ledger_now_ms()
    public_sale(sale_id=sale_id)
    withdraw(sale_id=sale_id, order_id=order_id, user_id=user_id, now_ms=now_ms)
    if wants_html(request):
        return see_page("receipt", sale_id, order_id)
    receipt = find_receipt(sale_id=sale_id, order_id=order_id, user_id=user_id)
    return JsonResponse(receipt_json(receipt, now_ms=now_ms))


def _draw_json(draw: PublishedDraw) -> dict[str, Any]:
    return {
        "voucher_id": str(draw.sale.pk),
        "commitment": draw.commitment,
        "entries": draw.entries,
        "units": draw.units,
        "winners": draw.sale.draw.winners,
        "digest": draw.digest,
        "seed": draw.seed,
        "ends_at_ms": epoch_ms(draw.sale.ends_at),
        "closed_at_ms": epoch_ms(draw.closed_at) if draw.closed_at else None,
        "drawn_at_ms": epoch_ms(draw.drawn_at) if draw.drawn_at else None,
        "record_url": reverse("draw-record", args=[draw.sale.pk]) if draw.closed_at else None,
    }
