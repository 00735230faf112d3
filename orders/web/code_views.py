"""The codes of paid vouchers, for their owner: to show, and to keep on a device."""

from pathlib import Path

from django.contrib.staticfiles import finders
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse

from orders.lifecycle.redemption import written_code
from orders.models import OrderStatus, VoucherOrder
from orders.receipts.code_picture import draw_code_picture
from orders.receipts.service import PURCHASE, in_purchases, orders_of, receipt_of
from orders.web.buyer_views import for_buyer, own_order, signed_in
from orders.web.serializers import receipt_json
from seckill_site.clocks.ledger import ledger_now_ms
from seckill_site.clocks.machine import from_epoch_ms
from seckill_site.web.responses import absolute_url, allow, see_page

MOST_CODES = 50
"""The most codes on one page: it is for the counter, and each picture takes its time."""


@allow("GET", "HEAD")
@signed_in
def codes_page(request: HttpRequest) -> HttpResponse:
    """Show all codes that can be used, newest first, on a page that a device may keep."""
    now_ms = ledger_now_ms()
    orders = orders_of(user_id=request.user.pk or 0).filter(status=OrderStatus.PAID)
    usable = orders.exclude(code=None).annotate(purchase=PURCHASE).order_by("-purchase", "pk")
    codes = [
        {
            "sale": it.seckill_voucher,
            "receipt": receipt_json(receipt_of(it), now_ms=now_ms),
            "number": number,
            "count": len(units),
        }
        for units in in_purchases(usable[: MOST_CODES + 1])
        for number, it in enumerate(units, start=1)
    ]
    context = {
        "codes": codes[:MOST_CODES],
        "has_more": len(codes) > MOST_CODES,
        "as_of": from_epoch_ms(now_ms),
    }
    return render(request, "orders/codes.html", context)


@allow("GET", "HEAD")
def keeper_worker(request: HttpRequest) -> HttpResponse:
    """Serve the script that keeps a page; it may answer for nothing outside of its directory."""
    script = Path(str(finders.find("seckill/keeper_worker.js"))).read_bytes()
    return HttpResponse(
        script, content_type="text/javascript", headers={"Cache-Control": "no-cache"}
    )


@for_buyer("GET", "HEAD")
def code_page(request: HttpRequest, *, sale_id: int, order_id: int) -> HttpResponse:
    """Show the code as large as the screen; without a code that can be used, go to the receipt."""
    order = own_order(request, sale_id, order_id)
    if not _is_usable(order):
        return see_page("receipt", sale_id, order_id)
    content = receipt_json(receipt_of(order), now_ms=ledger_now_ms())
    return render(request, "orders/code.html", {"receipt": content, "sale": order.seckill_voucher})


@for_buyer("GET", "HEAD")
def code_picture(request: HttpRequest, *, sale_id: int, order_id: int) -> HttpResponse:
    """Download the code as a picture."""
    order = own_order(request, sale_id, order_id)
    if not _is_usable(order):
        return see_page("receipt", sale_id, order_id)
    code = written_code(order.code or "")
    picture = draw_code_picture(
        address=f"{absolute_url(reverse('redeem'))}#code={code}", code=code, order_id=order_id
    )
    name = f'attachment; filename="voucher-{order_id}.png"'
    return HttpResponse(picture, content_type="image/png", headers={"Content-Disposition": name})


def _is_usable(order: VoucherOrder) -> bool:
    return order.status == OrderStatus.PAID and bool(order.code)
