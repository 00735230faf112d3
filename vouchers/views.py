"""What everybody may see: the sales, and the live figures of one."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponseBase, JsonResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext as _

from seckill_site.responses import allow, problem, wants_html
from vouchers.figures import Snapshot, epoch_ms, snapshot
from vouchers.ledger import LedgerUnavailable, NotLoaded
from vouchers.listing import SaleCard, list_sales


@allow("GET", "HEAD")
def voucher_list(request: HttpRequest) -> HttpResponseBase:
    """List the current and coming sales."""
    cards = list_sales(now=timezone.now())
    if wants_html(request):
        return render(request, "vouchers/list.html", {"cards": cards})
    return JsonResponse({"vouchers": [card_json(card) for card in cards]})


@allow("GET", "HEAD")
def live(request: HttpRequest, sale_id: int) -> HttpResponseBase:
    """Answer the public figures of one sale; may be a second old."""
    try:
        response = JsonResponse(live_json(snapshot(sale_id=sale_id)))
    except (LedgerUnavailable, NotLoaded):
        message = _("The sale is not loaded yet. Try again in a moment.")
        return problem(request, status=503, code="unavailable", message=message, retry_after_s=1)
    response["Cache-Control"] = "public, max-age=1"
    return response


def live_json(found: Snapshot) -> dict[str, Any]:
    """Return what ``live/`` says of a sale."""
    return {
        "state": found.state.value,
        "server_time_ms": found.now_ms,
        "begins_at_ms": found.figures.begins_at_ms,
        "ends_at_ms": found.figures.ends_at_ms,
        "total": found.figures.total,
        "remaining": found.remaining,
    }


def card_json(card: SaleCard) -> dict[str, Any]:
    """Return what the list says of a sale."""
    sale = card.sale
    return {
        "voucher_id": str(sale.pk),
        "title": sale.voucher.title,
        "price_cents": sale.voucher.price_cents,
        "face_value_cents": sale.voucher.face_value_cents,
        "state": card.state.value,
        "begins_at_ms": epoch_ms(sale.begins_at),
        "ends_at_ms": epoch_ms(sale.ends_at),
        "total": card.total,
        "remaining": card.remaining,
        "url": reverse("purchase", args=[sale.pk]),
    }
