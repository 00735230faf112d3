"""Public pages: the list of sales, live figures, pictures and reminders."""

from typing import Any

from django.db import DatabaseError
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase, JsonResponse
from django.shortcuts import get_object_or_404, render
from django.urls import reverse
from django.utils.cache import get_conditional_response, patch_vary_headers
from django.utils.translation import gettext as _

from seckill_site.clocks.ledger import ledger_now_ms
from seckill_site.clocks.machine import epoch_ms, from_epoch_ms
from seckill_site.web.responses import (
    absolute_url,
    allow,
    as_response,
    as_shell,
    for_ever,
    for_everybody,
    problem,
    unavailable,
    wants_html,
)
from vouchers.catalogue.listing import SaleCard, list_sales, public_sale
from vouchers.catalogue.pictures import thumbnail_of
from vouchers.catalogue.public_sales import KnownSale, last_public, learn_sale, recall_sale
from vouchers.inventory.keys import LedgerUnavailable, NotLoaded
from vouchers.inventory.rebuild import snapshot_or_load
from vouchers.inventory.reservations import SaleEnded
from vouchers.models import Picture, SeckillVoucher
from vouchers.web.live_answer import NO_SALE_TEXT, NOT_LOADED_TEXT, live_answer

REMINDER_KEPT_S = 60
"""The time for which a reminder is cached: it shows a moved start within that time."""


def _card_json(card: SaleCard) -> dict[str, Any]:
    sale = card.sale
    return {
        "voucher_id": str(sale.pk),
        "title": sale.voucher.title,
        "merchant": sale.voucher.merchant.name if sale.voucher.merchant else "",
        "price_cents": sale.voucher.price_cents,
        "face_value_cents": sale.voucher.face_value_cents,
        "state": card.state.value,
        "begins_at_ms": epoch_ms(sale.begins_at),
        "ends_at_ms": epoch_ms(sale.ends_at),
        "total": card.total,
        "remaining": card.remaining,
        "url": reverse("purchase", args=[sale.pk]),
    }


@allow("GET", "HEAD")
def voucher_list(request: HttpRequest) -> HttpResponseBase:
    """List the current and coming sales, or those with the words in ``?q=``."""
    cards = list_sales(now=from_epoch_ms(ledger_now_ms()))
    query = request.GET.get("q", "")[:100]
    words = query.casefold().split()
    cards = [card for card in cards if all(word in card.searched_text for word in words)]
    if not wants_html(request):
        return for_everybody(JsonResponse({"vouchers": [_card_json(card) for card in cards]}))
    return as_shell(render(request, "vouchers/list.html", {"cards": cards, "query": query}))


def _sale(sale_id: int) -> KnownSale:
    try:
        return recall_sale(sale_id=sale_id) or learn_sale(sale_id=sale_id)
    except DatabaseError:
        if sale := last_public(sale_id=sale_id):
            return sale
        raise


@allow("GET", "HEAD")
def live(request: HttpRequest, sale_id: int) -> HttpResponseBase:
    """Return the public figures of one sale, which may be a second old."""
    try:
        sale = _sale(sale_id)
        if sale.is_public:
            return as_response(live_answer(snapshot_or_load(sale_id=sale_id), sale))
    except SeckillVoucher.DoesNotExist:
        pass
    except (LedgerUnavailable, NotLoaded):
        return unavailable(request, _(NOT_LOADED_TEXT))
    return problem(request, status=404, code="not_found", message=_(NO_SALE_TEXT))


@allow("GET", "HEAD")
def calendar(request: HttpRequest, sale_id: int) -> HttpResponseBase:
    """Return a calendar file that reminds a buyer of a sale's start."""
    from vouchers.catalogue.calendar import calendar_file  # here, as icalendar takes 3 MB

    page_url = absolute_url(reverse("purchase", args=[sale_id]))
    try:
        sale = public_sale(sale_id=sale_id)
        content = calendar_file(sale=sale, page_url=page_url, now=from_epoch_ms(ledger_now_ms()))
    except SeckillVoucher.DoesNotExist:
        raise Http404 from None
    except SaleEnded:
        message = _("This sale has ended, so there is nothing to be reminded of.")
        return problem(request, status=410, code="ended", message=message)
    response = HttpResponse(content, content_type="text/calendar; charset=utf-8")
    response["Content-Disposition"] = f'attachment; filename="flash-sale-{sale_id}.ics"'
    patch_vary_headers(response, ["Cookie"])  # the language, if a visitor has chosen one
    return for_everybody(response, seconds=REMINDER_KEPT_S)


@allow("GET", "HEAD")
def picture(request: HttpRequest, digest: str) -> HttpResponseBase:
    """Return the bytes of a picture, which never change."""
    stored = get_object_or_404(Picture.objects.only("content"), pk=digest)
    return _picture(request, bytes(stored.content), tag=digest)


@allow("GET", "HEAD")
def thumbnail(request: HttpRequest, digest: str) -> HttpResponseBase:
    """Return a picture small enough for a list."""
    try:
        content = thumbnail_of(digest=digest)
    except Picture.DoesNotExist as error:
        raise Http404 from error
    return _picture(request, content, tag=f"{digest}-small")


def _picture(request: HttpRequest, content: bytes, *, tag: str) -> HttpResponseBase:
    response = for_ever(HttpResponse(content, content_type="image/webp"))
    response["ETag"] = f'"{tag}"'
    return get_conditional_response(request, response["ETag"], response=response) or response
