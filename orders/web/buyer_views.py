"""A buyer's pages and actions: purchase page, My orders, their orders, the waiting list."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import wraps
from itertools import chain
from math import ceil
from typing import Any, NamedTuple

from csp.decorators import csp_replace
from django.contrib.auth.models import AnonymousUser, User
from django.core.paginator import Paginator
from django.http import HttpRequest, HttpResponse, HttpResponseBase, JsonResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _
from django.utils.translation import gettext_noop
from django.views.decorators.clickjacking import xframe_options_sameorigin

from accounts.codes import code_contact, send_code
from accounts.contacts import confirmed_contact
from accounts.second_factor import lacks_second_factor
from accounts.sessions import user_of
from orders.audience.refusal_log import Refused, note_refusal
from orders.audience.verdicts import NotEligible
from orders.draws.rules import commitment_of
from orders.draws.standing import entries_of
from orders.lifecycle.cancellation import cancel_order
from orders.lifecycle.guesses import GuessesUnknown, TooManyGuesses
from orders.lifecycle.invitations import CodeRefused, EnoughCodes, enter_code
from orders.lifecycle.transitions import Actor
from orders.lifecycle.waiting_list import join, leave, place_of, places_of
from orders.models import OrderStatus, Payment, VoucherOrder
from orders.payments.confirmation import note_return
from orders.payments.extension import extend_time
from orders.payments.providers import (
    ClientKind,
    PaymentProvider,
    current_provider,
    offered_providers,
    provider_named,
)
from orders.payments.refunds import refund_order
from orders.payments.service import code_to_scan, start_payment
from orders.placing.places import sign_place
from orders.placing.tokens import BadToken, MalformedToken
from orders.receipts.place_in_line import view_of_place
from orders.receipts.purchase_page import PurchaseOffer, purchase_offer
from orders.receipts.service import (
    PURCHASE,
    find_receipt,
    in_purchases,
    lead_of,
    orders_of,
    receipt_of,
)
from orders.web.challenge import PURPOSE, challenge_form, has_answered, note_answer
from orders.web.order_api import login_required_answer
from orders.web.refusals import REFUSED, Refusal, refusal_of, refusals_answered
from orders.web.request_parsing import (
    InvalidRequest,
    read_code_request,
    read_order_request,
    read_pay_request,
)
from orders.web.room_answers import visitor_in
from orders.web.room_views import room_page
from orders.web.serializers import buyer_status_json, receipt_json, waiting_json
from seckill_site.clocks.database import database_now
from seckill_site.clocks.ledger import ledger_now_ms
from seckill_site.web.clients import client_ip
from seckill_site.web.responses import (
    absolute_url,
    allow,
    as_shell,
    for_owner,
    see_page,
    wants_html,
)
from vouchers.inventory.keys import LedgerUnavailable
from vouchers.inventory.purchases import ids_of_purchase
from vouchers.inventory.waiting_room import Place
from vouchers.models import SeckillVoucher
from vouchers.web.live_answer import live_json

View = Callable[..., HttpResponse]

PAGE_ROWS = 20


class Filter(NamedTuple):
    """A part of the buyer's orders, chosen by ``?state=``."""

    state: str
    label: Promise
    statuses: tuple[OrderStatus, ...]


_NOT_OVER = (OrderStatus.UNPAID, OrderStatus.PAID)
ALL = Filter("", _("All"), tuple(OrderStatus))
FILTERS = (
    ALL,
    Filter("to-pay", _("To pay"), (OrderStatus.UNPAID,)),
    Filter("to-use", _("To use"), (OrderStatus.PAID,)),
    Filter("over", _("Past"), tuple(it for it in OrderStatus if it not in _NOT_OVER)),
)


def signed_in(view: View) -> View:
    """Require a session."""

    @wraps(view)
    def wrapped(request: HttpRequest, **kwargs: Any) -> HttpResponse:
        if request.user.pk is None:
            return login_required_answer(request, back_to=_page_of(request))
        return for_owner(view(request, **kwargs))

    return wrapped


def for_buyer(*methods: str) -> Callable[[View], Callable[..., HttpResponseBase]]:
    """Serve these methods to a signed-in buyer, and answer what the domain call refuses."""
    return lambda view: allow(*methods)(refusals_answered(signed_in(view)))


def _page_of(request: HttpRequest) -> str:
    """Return the page to come back to after the login: this one, or the one with the button."""
    if request.method in ("GET", "HEAD"):
        return request.get_full_path()
    return request.path.rstrip("/").rpartition("/")[0] + "/"


# --- Pages --------------------------------------------------------------------------------------


@allow("GET", "HEAD")
@refusals_answered
def purchase(request: HttpRequest, *, sale_id: int) -> HttpResponse:
    """Show a sale to everybody alike; the page's script asks ``me/`` who is there."""
    offer = purchase_offer(sale_id=sale_id, user_id=None, now_ms=ledger_now_ms())
    return as_shell(render(request, "orders/purchase.html", _context(offer)))


@allow("GET", "HEAD")
@xframe_options_sameorigin
@csp_replace({"frame-ancestors": ["'self'"]})
@refusals_answered
def preview(request: HttpRequest, *, sale_id: int) -> HttpResponse:
    """Show staff the page that everybody will see once a draft is public.

    Its script asks here for what ``live/`` and ``me/`` will tell a visitor then.
    """
    if not _may_see_drafts(request.user):
        raise SeckillVoucher.DoesNotExist("a draft is for staff")
    offer = purchase_offer(sale_id=sale_id, user_id=None, now_ms=ledger_now_ms(), as_public=True)
    if not wants_html(request):
        if offer.snapshot is None:
            raise LedgerUnavailable("the draft is not loaded")
        return for_owner(JsonResponse(live_json(offer.snapshot)))
    context = {**_context(offer), "is_preview": True}
    return for_owner(render(request, "orders/purchase.html", context))


@allow("GET", "HEAD", "POST")
@refusals_answered
def purchase_form(request: HttpRequest, *, sale_id: int) -> HttpResponse:
    """Show a sale to one buyer, without JavaScript, or a draft to staff who may see sales.

    A signed-in buyer's form carries a purchase token. By a POST the buyer enters an invitation code
    or, if the sale asks for work, first answers a question.
    """
    user = request.user
    code_text = request.POST.get("code", "") if user.pk else ""
    refusal = _refusal_of_code(code_text, sale_id, user.pk) if user.pk and code_text else None
    now_ms, visitor, answered = ledger_now_ms(), None, False
    if user.pk:
        visitor = visitor_in(request.META, sale_id=sale_id, user_id=user.pk)
        answered = has_answered(request, sale_id=sale_id, now_ms=now_ms)
    offer = purchase_offer(
        sale_id=sale_id,
        user_id=user.pk,
        now_ms=now_ms,
        drafts_too=_may_see_drafts(user),
        visitor=visitor,
        has_answered=answered,
    )
    if user.pk and offer.place and offer.keeps_out:
        return _room_page(request, offer, offer.place, now_ms)
    challenge = challenge_form(request, offer)
    if challenge and isinstance(user, User) and request.POST.get("action") == "send":
        send_code(request, user, purpose=PURPOSE)
        return HttpResponse(status=303, headers={"Location": request.path})
    if request.method == "POST" and refusal is None:
        if challenge and challenge.is_valid():
            note_answer(request, sale_id=sale_id, now_ms=now_ms)
        if challenge is None or challenge.is_valid():
            return HttpResponse(status=303, headers={"Location": request.path})
    context = {
        **_context(offer),
        "challenge": challenge,
        "code_way": code_contact(user)[0] if challenge and isinstance(user, User) else "",
        "live": live_json(offer.snapshot) if offer.snapshot else None,
        "token": offer.token,
        "buyer": buyer_status_json(offer.buyer) if offer.buyer else None,
        "quantities": range(1, offer.most + 1),
        "is_turn": offer.place is not None and offer.token != "",
        "eligible_too_late": offer.is_old_too_late,
        "code_text": code_text,
        "code_error": refusal.message() if refusal else "",
    }
    status = refusal.status if refusal else 200
    return for_owner(render(request, "orders/purchase_form.html", context, status=status))


def _refusal_of_code(text: str, sale_id: int, user_id: int) -> Refusal | None:
    """Enter an invitation code; return what was wrong with it, which the page then says."""
    try:
        enter_code(sale_id=sale_id, user_id=user_id, text=text, now=database_now())
    except (CodeRefused, TooManyGuesses, GuessesUnknown) as error:
        return refusal_of(error)
    except (EnoughCodes, NotEligible):
        pass  # the page says what is so now
    return None


def _may_see_drafts(user: User | AnonymousUser) -> bool:
    """Return whether this is staff who may see sales, in a session as the back office wants it."""
    may_see = user.is_staff and user.has_perm("vouchers.view_seckillvoucher")
    return may_see and not lacks_second_factor(user)


def _room_page(
    request: HttpRequest, offer: PurchaseOffer, place: Place, now_ms: int
) -> HttpResponse:
    ids = {"sale_id": offer.sale.pk, "user_id": request.user.pk or 0}
    key = request.session.session_key or ""
    return room_page(
        request,
        offer=offer,
        place=place,
        view=view_of_place(place, **ids, now_ms=now_ms),
        held=sign_place(place, **ids, session_key=key),
    )


def _context(offer: PurchaseOffer) -> dict[str, Any]:
    return {
        "sale": offer.sale,
        "state": offer.state.value,
        "remaining": offer.remaining,
        "total": offer.total,
        "entries": offer.snapshot.entries if offer.snapshot else None,
        "commitment": commitment_of(offer.sale.draw.seed) if offer.sale.is_draw else "",
    }


class Card(NamedTuple):
    """A purchase in the list: its orders, their receipts, and the one with what is to do first."""

    orders: list[VoucherOrder]
    receipts: list[dict[str, Any]]
    order: VoucherOrder
    receipt: dict[str, Any]

    @classmethod
    def of(cls, orders: list[VoucherOrder], *, now_ms: int) -> Card:
        units = [receipt_of(it) for it in orders]
        first = units.index(lead_of(units))
        receipts = [receipt_json(it, now_ms=now_ms) for it in units]
        return cls(orders, receipts, orders[first], receipts[first])

    @property
    def states(self) -> list[tuple[str, int]]:
        """The states of its orders, with how many are in each."""
        return list(Counter(it.status for it in self.orders).items())

    @property
    def money(self) -> list[tuple[int, list[tuple[Payment, int]]]]:
        """What was paid, in cents, and with each payment what became of it, with its cents."""
        paid: dict[object, dict[object, tuple[Payment, int]]] = {}
        for it in chain.from_iterable(order.payments.all() for order in self.orders):
            moved = paid.setdefault((it.provider, it.paid_at), {})
            together = (it.status, it.refunded_at, it.refunded_cents)
            first, cents = moved.get(together, (it, 0))
            moved[together] = (first, cents + it.paid_cents)
        return [
            (sum(cents for _, cents in moved.values()), [*moved.values()])
            for moved in paid.values()
        ]

    @property
    def price_cents(self) -> int:
        return sum(it.price_cents for it in self.orders)

    @property
    def to_pay_cents(self) -> int:
        return sum(it.price_cents for it in self.orders if it.status == OrderStatus.UNPAID)


@allow("GET", "HEAD")
@signed_in
def my_orders(request: HttpRequest) -> HttpResponse:
    """List the buyer's orders, newest first, filtered by ``?state=``."""
    user_id = request.user.pk or 0
    state = request.GET.get("state")
    chosen = next((it for it in FILTERS if it.state == state), ALL)
    own = VoucherOrder.objects.filter(user=user_id, status__in=chosen.statuses)
    purchases = own.annotate(purchase=PURCHASE).values_list("purchase", flat=True).distinct()
    page = Paginator(purchases.order_by("-purchase"), PAGE_ROWS).get_page(request.GET.get("page"))
    now, is_first = ledger_now_ms(), chosen is ALL and page.number == 1
    orders = orders_of(user_id=user_id).filter(status__in=chosen.statuses)
    shown = orders.annotate(purchase=PURCHASE).filter(purchase__in=list(page))
    shown = shown.order_by("-purchase", "pk")
    cards = [Card.of(it, now_ms=now) for it in in_purchases(shown)]
    own_entries = entries_of(user_id=user_id) if is_first else []
    if wants_html(request):
        context = {
            "page_obj": page,
            "cards": cards,
            "now_ms": now,
            "labels": {it.name: it.label for it in offered_providers()},
            "places": places_of(user_id=user_id) if is_first else [],
            "state": chosen.state,
            "filters": FILTERS,
            "entries": own_entries,
        }
        return render(request, "orders/my_orders.html", context)
    entries = [
        {
            "order_id": str(it.order_id),
            "voucher_id": str(it.sale.pk),
            "status": it.stage.value,
            "status_url": reverse("receipt", args=[it.sale.pk, it.order_id]),
        }
        for it in own_entries
    ]
    content = {
        "entries": entries,
        "orders": [receipt for card in cards for receipt in card.receipts],
        "page": page.number,
        "pages": page.paginator.num_pages,
    }
    return JsonResponse(content)


@for_buyer("POST")
def invitation(request: HttpRequest, *, sale_id: int) -> HttpResponse:
    """Enter an invitation code; a browser is led back to the sale."""
    code, user_id = read_code_request(request), request.user.pk or 0
    enter_code(sale_id=sale_id, user_id=user_id, text=code, now=database_now())
    if not wants_html(request):
        return JsonResponse({"voucher_id": str(sale_id), "entered": True})
    return see_page("purchase", sale_id)


# --- The owner's order ----------------------------------------------------------------------------


@for_buyer("POST")
def pay(request: HttpRequest, *, sale_id: int, order_id: int) -> HttpResponse:
    """Send the owner to the payment provider."""
    order = own_order(request, sale_id, order_id)
    provider = _chosen_provider(request)
    pay_url = start_payment(
        order_id=order.pk,
        return_url=absolute_url(reverse("payment-return", args=[sale_id, order_id])),
        notify_url=absolute_url(reverse("notify", args=[provider.name])),
        now=database_now(),
        provider=provider,
        client=_client_of(request, provider),
        client_address=client_ip(request.META),
    )
    if pay_url.startswith(tuple(provider.code_apps)):
        pay_url = absolute_url(reverse("pay-code", args=[sale_id, order_id]))
    if wants_html(request):
        return HttpResponse(status=303, headers={"Location": pay_url})
    return JsonResponse({"order_id": str(order.pk), "status": order.status, "pay_url": pay_url})


def _client_of(request: HttpRequest, provider: PaymentProvider) -> ClientKind:
    """Return the device of the buyer; WeChat refuses its page for phones within its own browser."""
    is_phone = "Mobi" in request.headers.get("User-Agent", "")
    in_app = provider.code_apps and _is_in_wechat(request)
    return ClientKind.PHONE if is_phone and not in_app else ClientKind.DESKTOP


def _is_in_wechat(request: HttpRequest) -> bool:
    return "MicroMessenger" in request.headers.get("User-Agent", "")


@for_buyer("GET", "HEAD")
def payment_return(request: HttpRequest, *, sale_id: int, order_id: int) -> HttpResponse:
    """Note that the owner is back from the provider; lead to the receipt, which may be reloaded."""
    order = own_order(request, sale_id, order_id)
    if request.method == "GET":
        note_return(order=order, now=database_now())
    return see_page("receipt", sale_id, order_id)


def _chosen_provider(request: HttpRequest) -> PaymentProvider:
    """Return the provider that the buyer has chosen, or the default."""
    name = read_pay_request(request)
    try:
        return provider_named(name) if name else current_provider()
    except LookupError as error:
        raise InvalidRequest(400, gettext_noop("There is no such payment provider.")) from error


@for_buyer("GET", "HEAD")
def pay_code(request: HttpRequest, *, sale_id: int, order_id: int) -> HttpResponse:
    """Show the QR code with which the owner's phone pays; without one, the receipt.

    So a phone that opens this page in its browser, as WeChat's was told to, can pay there.
    """
    order, now = own_order(request, sale_id, order_id), database_now()
    code = code_to_scan(order_id=order.pk, now=now)
    in_wechat = _is_in_wechat(request)
    on_phone = "Mobi" in request.headers.get("User-Agent", "") and not in_wechat
    if order.status != OrderStatus.UNPAID or not code or on_phone:
        return see_page("receipt", sale_id, order_id)
    paid_together = VoucherOrder.objects.filter(pk__in=ids_of_purchase(order.pk))
    unpaid = paid_together.filter(status=OrderStatus.UNPAID)
    context = {
        "order": order,
        "total_cents": sum(unpaid.values_list("price_cents", flat=True)),
        "code": code,
        "ends_in_s": ceil((code.ends_at - now).total_seconds()) if code.ends_at else None,
        "in_wechat": in_wechat,
        "receipt_url": reverse("receipt", args=[sale_id, order_id]),
    }
    return render(request, "orders/pay_code.html", context)


@for_buyer("POST")
def cancel(request: HttpRequest, *, sale_id: int, order_id: int) -> HttpResponse:
    """Cancel the owner's unpaid order."""
    return _change(request, sale_id, order_id, cancel_order)


@for_buyer("POST")
def extend(request: HttpRequest, *, sale_id: int, order_id: int) -> HttpResponse:
    """Give the owner of an unpaid order more time to pay."""
    return _change(request, sale_id, order_id, extend_time)


@for_buyer("POST")
def refund(request: HttpRequest, *, sale_id: int, order_id: int) -> HttpResponse:
    """Refund the owner's paid and unused voucher."""
    return _change(request, sale_id, order_id, refund_order)


def own_order(request: HttpRequest, sale_id: int, order_id: int) -> VoucherOrder:
    """Return the order if it is this buyer's.

    :raises VoucherOrder.DoesNotExist: it is not.
    """
    orders = VoucherOrder.objects.select_related("seckill_voucher__voucher__merchant")
    return orders.get(pk=order_id, user=request.user.pk, seckill_voucher=sale_id)


def _change(
    request: HttpRequest, sale_id: int, order_id: int, change: Callable[..., object]
) -> HttpResponse:
    order = own_order(request, sale_id, order_id)
    change(order_id=order.pk, by=Actor.buyer(request.user.pk), now=database_now())
    if wants_html(request):
        return see_page("receipt", sale_id, order_id)
    receipt = find_receipt(sale_id=sale_id, order_id=order_id, user_id=request.user.pk or 0)
    return JsonResponse(receipt_json(receipt, now_ms=ledger_now_ms()))


# --- The waiting list -----------------------------------------------------------------------------


@for_buyer("GET", "HEAD", "POST")
def waiting(request: HttpRequest, *, sale_id: int) -> HttpResponse:
    """Join the waiting list with a purchase token, or show the buyer's place in it."""
    user_id = request.user.pk or 0
    if request.method == "POST":
        order = read_order_request(request)
        try:
            place = join(
                token_text=order.token,
                sale_id=sale_id,
                user_id=user_id,
                now_ms=ledger_now_ms(),
                quantity=order.quantity,
                all_or_none=order.all_or_none,
            )
        except REFUSED as error:
            if not isinstance(error, MalformedToken | BadToken):
                note_refusal(Refused(sale_id, refusal_of(error).code, user_id))
            raise
        if wants_html(request):
            return see_page("waiting", sale_id)
    else:
        place = place_of(sale_id=sale_id, user_id=user_id)
    if not wants_html(request):
        return JsonResponse(waiting_json(place, sale_id=sale_id))
    if place.offered:
        return see_page("receipt", sale_id, place.order_id)
    sale = SeckillVoucher.objects.select_related("voucher__merchant").get(pk=sale_id)
    context = {
        "sale": sale,
        "place": place.place,
        "waiting": waiting_json(place, sale_id=sale_id),
        "contact": confirmed_contact(user_of(request)),
    }
    return render(request, "orders/waiting.html", context)


@for_buyer("POST")
def leave_line(request: HttpRequest, *, sale_id: int) -> HttpResponse:
    """Leave the waiting list."""
    place = leave(sale_id=sale_id, user_id=request.user.pk or 0)
    if wants_html(request):
        if place.offered:
            return see_page("receipt", sale_id, place.order_id)
        return see_page("purchase", sale_id)
    return JsonResponse(waiting_json(place, sale_id=sale_id))
