"""Customers in the admin, the page of each, and the waiting list of a sale by name."""

from django import forms
from django.contrib import messages
from django.contrib.auth.models import User
from django.core.paginator import Paginator
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase, HttpResponseRedirect
from django.shortcuts import get_object_or_404, redirect
from django.urls import reverse
from django.utils.http import urlencode
from django.utils.translation import gettext

from backoffice.admin.pages import (
    SALE,
    TEXTS,
    check_may,
    log_change,
    office,
    read_sale,
    sale_at,
    sale_page,
)
from backoffice.customers import (
    MOST_ROWS,
    PER_PAGE,
    customers,
    find_customers,
    history_of,
    is_contact,
    newest_buyers,
    typed_id,
)
from backoffice.navigation import SEE_CUSTOMERS
from orders.lifecycle.notifications import NotSendable, send_voucher_again
from orders.lifecycle.personal_data import delete_account
from orders.models import OrderStatus, VoucherOrder, WaitingEntry
from orders.web.account_views import data_file
from seckill_site.clocks.database import database_now
from seckill_site.web.form_keys import make_once
from vouchers.catalogue.history import entry
from vouchers.catalogue.staff_texts import NO_ANSWER
from vouchers.inventory.keys import LedgerUnavailable

WAITING_PER_PAGE = 100


@office.page("customers/", name="customers")
def customers_page(request: HttpRequest) -> HttpResponse:
    """Show the newest buyers, or the accounts that a search finds."""
    check_may(request, SEE_CUSTOMERS)
    search = (request.POST or request.GET).get("q", "")[:254]
    before = typed_id(request.GET.get("before", "")) or None
    ids = find_customers(search) if search.strip() else newest_buyers(before=before)
    if request.method == "POST":  # a contact must be in no address
        if search.strip() and len(ids) == 1:
            return redirect("admin:customer", ids[0])
        if not is_contact(search):
            return HttpResponseRedirect(f"?{urlencode({'q': search})}")
    return office.show(
        request,
        "customers/customers.html",
        title=gettext("Customers"),
        search=search,
        customers=customers(ids),
        next_before=ids[-1] if len(ids) == PER_PAGE and not search.strip() else None,
        is_first=before is None,
        most=PER_PAGE,
    )


@office.page("customers/<id:user_id>/", name="customer")
def customer_page(request: HttpRequest, *, user_id: int) -> HttpResponse:
    """Show one customer; who looked at whom is in the list of activity."""
    check_may(request, SEE_CUSTOMERS)
    try:
        history = history_of(user_id=user_id, now=database_now())
    except User.DoesNotExist:
        raise Http404 from None
    return office.show(
        request,
        "customers/customer.html",
        title=gettext("Customer: %(name)s") % {"name": history.user.get_username()},
        history=history,
        most=MOST_ROWS,
        is_customer=not (history.user.is_staff or ":" in history.user.username),  # deleted: no name
    )


@office.page("customers/<id:user_id>/data/", name="customer-data")
def export_customer(request: HttpRequest, *, user_id: int) -> HttpResponseBase:
    """Answer with everything stored about a customer, as the file that its owner gets."""
    user = _customer(request, "orders.export_customer", user_id)
    return data_file(user)


@office.page("customers/<id:user_id>/delete/", name="customer-delete")
def delete_customer(request: HttpRequest, *, user_id: int) -> HttpResponseBase:
    """Say what goes and what stays and why, and delete a customer's data once that is confirmed."""
    user = _customer(request, "orders.delete_customer", user_id)
    form, back = forms.Form(request.POST or None), reverse("admin:customer", args=[user_id])
    if not form.is_valid():
        return office.show(
            request,
            "customers/delete.html",
            title=gettext("Delete the data of %(name)s") % {"name": user.get_username()},
            orders=user.voucher_orders.count(),
            unused=user.voucher_orders.filter(status=OrderStatus.PAID).count(),
            form=form,
            yes=gettext("Yes, delete"),
            is_final=True,
            back=back,
        )
    try:
        delete_account(user)
    except LedgerUnavailable:
        messages.error(request, NO_ANSWER)
        return HttpResponseRedirect(back)
    log_change(request, user, entry(("customer_deleted", {})))
    messages.success(request, gettext("The personal data is deleted."))
    return HttpResponseRedirect(back)


@office.page("customers/orders/<id:order_id>/send/", name="customer-send")
def send_voucher(request: HttpRequest, *, order_id: int) -> HttpResponse:
    """Send the mail with a paid voucher's code to its buyer again."""
    order = get_object_or_404(VoucherOrder, pk=order_id)
    user = _customer(request, "orders.resend_voucher", order.user_id)

    def send() -> VoucherOrder:
        send_voucher_again(order_id=order_id)
        log_change(request, order, entry(("voucher_sent_again", {})))
        return order

    if request.method == "POST":
        try:
            make_once(request, f"mail of order {order_id}", send)
        except NotSendable:
            messages.warning(request, TEXTS["voucher_not_sent"])
        else:
            messages.success(request, gettext("The voucher is being sent by email."))
    return HttpResponseRedirect(reverse("admin:customer", args=[user.pk]))


def _customer(request: HttpRequest, permission: str, user_id: int | None) -> User:
    """Return a customer for an action; the data of staff is its owner's alone."""
    check_may(request, SEE_CUSTOMERS)
    check_may(request, permission)
    return get_object_or_404(User, pk=user_id, is_staff=False)


@sale_page("waiting/", name="sale-waiting")
def waiting_page(request: HttpRequest, *, sale_id: int) -> HttpResponse:
    sale = read_sale(request, sale_at, "orders.view_waitingentry", sale_id=sale_id)
    entries = WaitingEntry.objects.filter(seckill_voucher=sale).select_related("user")
    only_waiting = "all" not in request.GET
    if only_waiting:
        entries = entries.filter(live=True)
    shown = Paginator(entries, WAITING_PER_PAGE).get_page(request.GET.get("page"))
    return office.show(
        request,
        "vouchers/seckillvoucher/waiting.html",
        opts=SALE,
        title=gettext("Waiting list: %(sale)s") % {"sale": sale},
        sale=sale,
        page_obj=shown,
        only_waiting=only_waiting,
    )
