"""The API for programs of staff: sales with live figures, orders, redeeming (``docs/api.md``)."""

import datetime as dt
import re
from typing import Any, TypeVar

from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from api.models import ApiToken, Scope
from api.tokens import merchants_of
from api.web.bearer import api_view, refusal
from api.web.parameters import Query
from orders.lifecycle.guesses import counted_guess
from orders.lifecycle.redemption import (
    GUESSES,
    NoSuchCode,
    NotRedeemable,
    OtherMerchant,
    Redeemable,
    find_by_code,
)
from orders.lifecycle.redemption import redeem as redeem_once
from orders.lifecycle.transitions import Actor
from orders.models import PROGRAM, OrderEvent, OrderStatus, VoucherOrder
from orders.placing.order_ids import first_id_after
from orders.web.request_parsing import InvalidRequest, read_json_fields
from seckill_site.clocks.database import database_now
from seckill_site.clocks.machine import epoch_ms
from vouchers.catalogue.listing import SaleCard, cards
from vouchers.inventory.purchases import purchase_of
from vouchers.models import SaleStage, SeckillVoucher

LONGEST_CODE = 300
"""A code, or the whole address of a QR code."""

KEY = re.compile(r"[!-~]{1,64}", re.ASCII)
"""An ``Idempotency-Key``: up to 64 printable characters without blanks."""

STAGES = (SaleStage.PUBLIC, SaleStage.DRAFT)

Row = TypeVar("Row", SeckillVoucher, VoucherOrder)


def _page(matching: QuerySet[Row], query: Query) -> tuple[list[Row], str | None]:
    """Return the rows below the id ``after``, newest first, and the id to go on after."""
    if (after := query.number("after")) is not None:
        matching = matching.filter(pk__lt=after)
    rows = list(matching.order_by("-pk")[: query.limit + 1])
    page = rows[: query.limit]
    return page, str(page[-1].pk) if len(rows) > query.limit else None


# --- Sales ----------------------------------------------------------------------------------------


@api_view("GET", "HEAD", scope=Scope.READ_SALES)
def sale_list(request: HttpRequest, token: ApiToken) -> HttpResponse:
    """List sales with their live figures, newest first."""
    query = Query.read(request.GET, known=("limit", "after", "stage"))
    stage = query.choice("stage", of=[it.value for it in STAGES])
    sales = SeckillVoucher.objects.filter(stage__in=[stage] if stage else STAGES)
    page, following = _page(sales.select_related("voucher"), query)
    shown = cards(sales=page, now=database_now())
    return JsonResponse({"sales": [_sale_json(it) for it in shown], "next": following})


@api_view("GET", "HEAD", scope=Scope.READ_SALES)
def sale(request: HttpRequest, token: ApiToken, *, sale_id: int) -> HttpResponse:
    """Return one sale with its live figures."""
    Query.read(request.GET, known=())
    sales = SeckillVoucher.objects.filter(pk=sale_id, stage__in=STAGES).select_related("voucher")
    shown = cards(sales=sales, now=database_now())
    if not shown:
        return refusal(404, "not_found", _("There is no such sale."))
    return JsonResponse(_sale_json(shown[0]))


def _sale_json(card: SaleCard) -> dict[str, Any]:
    """Return a sale; the live figures are null while Redis does not respond or it is not loaded."""
    row = card.sale
    return {
        "voucher_id": str(row.pk),
        "title": row.voucher.title,
        "stage": row.stage,
        "state": card.state.value,
        "mode": row.mode,
        "begins_at_ms": epoch_ms(row.begins_at),
        "ends_at_ms": epoch_ms(row.ends_at),
        "price_cents": row.voucher.price_cents,
        "face_value_cents": row.voucher.face_value_cents,
        "limit": row.limit,
        "total": card.total,
        "remaining": card.remaining,
        "pending": card.pending,
        "sold": row.sold,
    }


# --- Orders ---------------------------------------------------------------------------------------


@api_view("GET", "HEAD", scope=Scope.READ_ORDERS)
def order_list(request: HttpRequest, token: ApiToken) -> HttpResponse:
    """List orders, newest first."""
    known = ("limit", "after", "voucher_id", "status", "from_ms", "until_ms")
    query = Query.read(request.GET, known=known)
    orders = VoucherOrder.objects.exclude(seckill_voucher__stage=SaleStage.REHEARSAL)
    if (sale_id := query.number("voucher_id")) is not None:
        orders = orders.filter(seckill_voucher=sale_id)
    if (status := query.choice("status", of=OrderStatus.values)) is not None:
        orders = orders.filter(status=status)
    if (start := query.moment("from_ms")) is not None:
        orders = orders.filter(accepted_at__gte=start)
    if (end := query.moment("until_ms")) is not None:
        # An id is minted before its order is accepted, so the index skips what is newer.
        orders = orders.filter(accepted_at__lt=end, pk__lt=first_id_after(end))
    page, following = _page(orders, query)
    return JsonResponse({"orders": [_order_json(it) for it in page], "next": following})


@api_view("GET", "HEAD", scope=Scope.READ_ORDERS)
def order(request: HttpRequest, token: ApiToken, *, order_id: int) -> HttpResponse:
    """Return one order with its history."""
    Query.read(request.GET, known=())
    orders = VoucherOrder.objects.exclude(seckill_voucher__stage=SaleStage.REHEARSAL)
    row = orders.filter(pk=order_id).first()
    if row is None:
        return refusal(404, "not_found", _("There is no such order."))
    history = [_event_json(it) for it in row.events.order_by("pk")]
    return JsonResponse({**_order_json(row), "history": history})


def _order_json(row: VoucherOrder) -> dict[str, Any]:
    """Return an order without its code, which is the voucher itself."""
    return {
        "order_id": str(row.pk),
        "purchase": str(purchase_of(row.pk)),
        "voucher_id": str(row.seckill_voucher_id),
        "buyer_id": None if row.user_id is None else str(row.user_id),
        "status": row.status,
        "reason": row.reason or None,
        "unit": row.unit,
        "price_cents": row.price_cents,
        "accepted_at_ms": epoch_ms(row.accepted_at),
        "pay_by_ms": None if row.pay_by is None else epoch_ms(row.pay_by),
    }


def _event_json(event: OrderEvent) -> dict[str, Any]:
    return {
        "event_id": str(event.pk),
        "before": event.before or None,
        "status": event.after,
        "at_ms": epoch_ms(event.at),
        "by": event.actor_kind,
    }


# --- Redeeming ------------------------------------------------------------------------------------


@api_view("POST", scope=Scope.REDEEM)
def redeem(request: HttpRequest, token: ApiToken) -> HttpResponse:
    """Redeem a voucher by its code, or only look it up with ``check``.

    A program may repeat its request because an answer was lost: a key names one use of a voucher,
    also by the token that replaces an old one. Wrong codes are counted, as at the counter.
    """
    Query.read(request.GET, known=())
    code, is_check = _read_code(request)
    key = "" if is_check else _idempotency_key(request)
    now, merchants = database_now(), merchants_of(token)
    try:
        with counted_guess(GUESSES, user_id=token.owner_id, now=now):
            if is_check:
                found = find_by_code(code=code, merchants=merchants)
                looked_at = {"looked_at": f"order:{found.order.pk}", "acting_id": token.owner_id}
                vars(request).update(looked_at)  # for the list of activity
                if not found.may_be_used or found.is_past(now):
                    return _refused(found, now)
                return JsonResponse({"verdict": "valid", **_redeemable_json(found)})
            redeemed = redeem_once(
                code=code,
                by=Actor.staff(token.owner_id),
                now=now,
                key=key,
                program=f"{PROGRAM}{token.prefix}",
                merchants=merchants,
            )
    except NoSuchCode:
        return refusal(404, "not_found", _("No voucher has this code."), verdict="no_such_code")
    except OtherMerchant as error:
        name = error.merchant.name
        message = _("This voucher is of another merchant: %(merchant)s.") % {"merchant": name}
        return refusal(403, "no_permission", message, verdict="other_merchant", merchant=name)
    except NotRedeemable as error:
        return _refused(error.redeemable, now)
    verdict = "repeated" if redeemed.repeated else "redeemed"
    return JsonResponse({"verdict": verdict, **_redeemable_json(redeemed.redeemable)})


def _read_code(request: HttpRequest) -> tuple[str, bool]:
    fields = read_json_fields(request)
    code, is_check = fields.get("code"), fields.get("check", False)
    if not isinstance(code, str) or not 0 < len(code.strip()) <= LONGEST_CODE:
        raise InvalidRequest(400, gettext_noop("Send the voucher's code as code."))
    if not isinstance(is_check, bool):
        raise InvalidRequest(400, gettext_noop("check must be true or false."))
    return code, is_check


def _idempotency_key(request: HttpRequest) -> str:
    key: str = request.headers.get("Idempotency-Key", "")
    if key and not KEY.fullmatch(key):
        raise InvalidRequest(
            400, gettext_noop("The Idempotency-Key must be 1 to 64 printable characters.")
        )
    return key


def _refused(redeemable: Redeemable, now: dt.datetime) -> HttpResponse:
    if redeemable.order.status == OrderStatus.USED:
        message, verdict = _("This voucher was used before."), "used_before"
    elif redeemable.may_be_used and redeemable.is_past(now):
        message, verdict = _("This voucher has expired."), "expired"
    elif redeemable.may_be_used:
        message, verdict = _("The use with this key was undone."), "undone"
    else:
        message, verdict = _("This voucher is not valid."), "not_valid"
    return refusal(409, "wrong_state", message, verdict=verdict, **_redeemable_json(redeemable))


def _redeemable_json(redeemable: Redeemable) -> dict[str, Any]:
    row, use = redeemable.order, redeemable.use
    return {
        "order_id": str(row.pk),
        "purchase": str(purchase_of(row.pk)),
        "voucher_id": str(row.seckill_voucher_id),
        "title": row.seckill_voucher.voucher.title,
        "status": row.status,
        "used_at_ms": epoch_ms(use.at) if use else None,
    }
