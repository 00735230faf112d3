"""Orders in the admin: search, read, export, retry, cancel and refund."""

import datetime as dt
import logging
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.options import IncorrectLookupParameters
from django.contrib.admin.widgets import AdminTextInputWidget
from django.core.exceptions import BadRequest, PermissionDenied
from django.db import transaction
from django.db.models import Count, Q, QuerySet, Sum
from django.http import HttpRequest, HttpResponse, HttpResponseBase, HttpResponseRedirect
from django.shortcuts import get_object_or_404, redirect
from django.urls import reverse
from django.utils import timezone
from django.utils.html import format_html
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from backoffice.admin.pages import (
    TEXTS,
    ReadOnlyAdmin,
    check_may,
    log_change,
    office,
    timestamp_column,
)
from backoffice.bulk_jobs import (
    MAX_ORDERS,
    end_order,
    publish_job,
    refusal_text,
    required_status,
    start_job,
)
from backoffice.customers import find_orders, name_in_address, without_rehearsals
from backoffice.job_engine import UNAVAILABLE
from backoffice.navigation import REDEEM, SEE_CUSTOMERS
from backoffice.order_export import export_orders
from backoffice.report.period import Period
from orders.fulfilment.retry import Retry, is_set_aside, retry_orders
from orders.lifecycle.cancellation import Busy
from orders.lifecycle.guesses import GuessesUnknown, TooManyGuesses, counted_guess
from orders.lifecycle.redemption import GUESSES, NoSuchCode, find_by_code, read_code
from orders.lifecycle.transitions import Actor, WrongState
from orders.models import CODE_LENGTH, OrderJob, OrderStatus, Payment, VoucherOrder
from orders.payments.refunds import Decision, NothingToDecide, decide, decisions_about
from orders.payments.unused import due_this_month
from orders.web.refusals import refusal_of
from seckill_site.clocks.database import database_now
from seckill_site.formatting import NO_VALUE, grouped, money, money_in
from seckill_site.web.admin_lists import ConditionFilter, column, moment, pill
from seckill_site.web.csv_files import csv_parts, csv_response
from seckill_site.web.form_keys import make_once
from seckill_site.web.large_lists import TypedFilter
from seckill_site.web.text_files import read_texts
from seckill_site.web.url_converters import LARGEST_ID
from vouchers.catalogue.history import entry
from vouchers.catalogue.staff_texts import NO_ANSWER

logger = logging.getLogger(__name__)

ROUTE = "orders/voucherorder/"
SEE_ORDERS = ("orders.view_voucherorder", "orders.change_voucherorder")
END = "orders.end_voucherorder"

STATUS_TONES = {
    OrderStatus.UNPAID: "warn",
    OrderStatus.PAID: "good",
    OrderStatus.USED: "good",
    OrderStatus.REFUNDING: "warn",
    OrderStatus.REFUSED: "bad",
}
"""The colour of a status; what has ended without a voucher is quiet."""

HISTORY = {
    OrderJob.Kind.CANCEL: "order_cancelled",
    OrderJob.Kind.REFUND: "order_refunded",
}
"""The code of each in an order's history."""

_TEXTS = read_texts(Path(__file__).with_name("order_texts.toml"))


class EndForm(forms.Form):
    """The reason for ending orders."""

    reason = forms.CharField(
        label=_("Reason"),
        max_length=200,
        widget=AdminTextInputWidget,
        help_text=_("Recorded in the order's history and included in the email to the buyer."),
    )


class EndManyForm(EndForm):
    """A reason and the confirmed order ids, in one field because Django limits their number."""

    order_ids = forms.RegexField(r"^[0-9]{1,19}(,[0-9]{1,19})*$", widget=forms.HiddenInput)

    def clean_order_ids(self) -> list[int]:
        ids = [int(order_id) for order_id in self.cleaned_data["order_ids"].split(",")]
        if len(ids) > MAX_ORDERS or max(ids) > LARGEST_ID:
            raise forms.ValidationError(_too_many())
        return ids


class OrderedOn(admin.SimpleListFilter):
    """Orders of one day, in the shop's time zone; the search form has a field for any other."""

    title, parameter_name = _("ordered"), "day"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[Any, Any]]:
        today = timezone.localdate()
        return [(str(today), _("Today")), (str(today - dt.timedelta(days=1)), _("Yesterday"))]

    def queryset(self, request: HttpRequest, queryset: QuerySet[VoucherOrder]) -> Any:
        if not (text := self.value()):
            return queryset
        day = dt.date.fromisoformat(text)  # its ValueError is answered as any odd query is
        return queryset.filter(**Period(day, day).within("accepted_at"))


class Due(ConditionFilter):
    """Paid, unused vouchers whose money goes back this month."""

    title, parameter_name = _("refund"), "refund"
    labels = {"due": _("Due this month")}

    def conditions(self, now: dt.datetime) -> dict[str, Q]:
        return {"due": Q(pk__in=due_this_month(timezone.localdate(now)).values("pk"))}


@admin.register(VoucherOrder)
class VoucherOrderAdmin(ReadOnlyAdmin):
    """Orders, which change only through their life cycle."""

    # The help text of this field is for developers.
    form = forms.modelform_factory(VoucherOrder, fields=(), help_texts={"user": ""})
    list_display = (
        "number", "buyer", "voucher", "state", "due", "price", "accepted",
    )  # fmt: skip
    list_filter = (
        OrderedOn,
        "status",
        Due,
        "reason",
        ("seckill_voucher", TypedFilter),
        ("seckill_voucher__voucher__merchant", TypedFilter),
    )
    list_select_related = ("user", "seckill_voucher__voucher")
    search_fields = ("id",)  # so that there is a form; see ``get_search_results``
    search_help_text = _(
        "Order id, buyer, email address, phone number, payment number or voucher code"
    )
    actions = ("try_again", "cancel_selected", "refund_selected", "export_selected")
    fields = (
        "buyer", "seckill_voucher", "unit", "price", "state", "reason", "due", "code", "accepted",
    )  # fmt: skip
    number = column(_("order"), lambda it: str(it.pk), ordering="id")
    voucher = column(_("sale"), lambda it: str(it.seckill_voucher), ordering="seckill_voucher")
    price = column(_("price"), lambda it: money(it.price_cents), ordering="price_cents")
    due = column(
        _("payment due"),
        lambda it: moment(it.pay_by if it.status == OrderStatus.UNPAID else None),
        ordering="pay_by",
    )
    accepted = timestamp_column("accepted_at", _("ordered"))

    def get_queryset(self, request: HttpRequest) -> QuerySet[VoucherOrder]:
        # Orders of a rehearsal are temporary.
        return without_rehearsals(super().get_queryset(request))

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[VoucherOrder], search_term: str
    ) -> tuple[QuerySet[VoucherOrder], bool]:
        """Find orders by whole values, each by its index."""
        if search_term:
            by_contact = request.user.has_perm(SEE_CUSTOMERS)
            queryset = queryset.filter(pk__in=find_orders(search_term, by_contact=by_contact))
        return queryset, False

    @admin.display(description=_("user"), ordering="user")
    def buyer(self, order: VoucherOrder) -> str:
        """Return the buyer, with a link to their page; see ``_for``."""
        if order.user is None:
            return NO_VALUE
        url = reverse("admin:customer", args=[order.user.pk])
        return format_html('<a href="{}">{}</a>', url, order.user.get_username())

    @admin.display(description=_("status"), ordering="status")
    def state(self, order: VoucherOrder) -> str:
        """Return the status, with the reason of a refusal below it."""
        shown = pill(STATUS_TONES.get(OrderStatus(order.status), ""), order.get_status_display())
        if not order.reason:
            return shown
        return format_html(
            '{} <span class="office-why">{}</span>', shown, order.get_reason_display()
        )

    def get_fields(self, request: HttpRequest, obj: VoucherOrder | None = None) -> Any:
        # Anyone who knows the code of a paid voucher can use it.
        may_redeem = request.user.has_perm(REDEEM)
        return [it for it in _for(request, self.fields) if may_redeem or it != "code"]

    def get_list_display(self, request: HttpRequest) -> Any:
        return _for(request, self.list_display)

    def get_fieldsets(self, request: HttpRequest, obj: VoucherOrder | None = None) -> Any:
        fieldsets = super().get_fieldsets(request, obj)
        if obj is not None and is_set_aside(obj):
            fieldsets[0][1]["description"] = TEXTS["order_set_aside"]
        return fieldsets

    def render_change_form(
        self, request: HttpRequest, context: dict[str, Any], *args: Any, **kwargs: Any
    ) -> HttpResponse:
        """Add the order's history, its payments and the possible actions."""
        order: VoucherOrder = context["original"]
        if order.code and request.user.has_perm(REDEEM):  # the page shows it
            request.looked_at = f"order:{order.pk}"  # type: ignore[attr-defined]
        kinds = [kind for kind in OrderJob.Kind.values if required_status(kind) == order.status]
        may_end = self.has_end_permission(request)
        context |= {
            "events": order.events.select_related("actor"),
            "payments": [
                (it, decisions_about(it) if may_end else ()) for it in order.payments.all()
            ],
            "kinds": kinds if may_end else [],
        }
        return super().render_change_form(request, context, *args, **kwargs)

    def has_retry_permission(self, request: HttpRequest) -> bool:
        """Allow everyone who may change orders to retry."""
        return request.user.has_perm("orders.change_voucherorder")

    def has_end_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm(END)

    def has_export_permission(self, request: HttpRequest) -> bool:
        may_export = request.user.has_perm("orders.export_voucherorder")
        return may_export and self.has_view_permission(request)

    @admin.action(description=_("Export the selected orders (CSV)"), permissions=["export"])
    def export_selected(
        self, request: HttpRequest, queryset: QuerySet[VoucherOrder]
    ) -> HttpResponseBase:
        codes = request.user.has_perm(REDEEM)
        logger.info("user %s exports orders: %s", request.user.pk, request.get_full_path())
        now = timezone.now()
        export = export_orders(orders=queryset, codes=codes, now=now)
        name = f"orders-{timezone.localtime(now):%Y-%m-%d}.csv"
        return csv_response(csv_parts(*export), name=name)

    @admin.action(description=_("Retry orders that could not be written"), permissions=["retry"])
    def try_again(self, request: HttpRequest, queryset: QuerySet[VoucherOrder]) -> None:
        orders = {order.pk: order for order in queryset.order_by("pk")}
        try:
            for retry in retry_orders(order_ids=orders, by=Actor.staff(request.user.pk)):
                self._report(request, orders[retry.order_id], retry)
        except UNAVAILABLE:
            self.message_user(request, NO_ANSWER, messages.ERROR)

    def _report(self, request: HttpRequest, order: VoucherOrder, retry: Retry) -> None:
        if retry.refusal is None:
            text = gettext("Order %(order_id)s is now live and waiting for payment.")
            self.message_user(request, text % {"order_id": order.pk}, messages.SUCCESS)
            self.log_change(request, order, entry(("order_retried", {})))
            return
        text = gettext("Order %(order_id)s was not retried: %(reason)s.")
        values = {"order_id": order.pk, "reason": retry.reason}
        self.message_user(request, text % values, messages.WARNING)

    @admin.action(description=_("Cancel the selected orders"), permissions=["end"])
    def cancel_selected(self, request: HttpRequest, queryset: QuerySet[VoucherOrder]) -> Any:
        return self._confirm_selected(request, queryset, OrderJob.Kind.CANCEL)

    @admin.action(description=_("Refund the selected orders"), permissions=["end"])
    def refund_selected(self, request: HttpRequest, queryset: QuerySet[VoucherOrder]) -> Any:
        return self._confirm_selected(request, queryset, OrderJob.Kind.REFUND)

    def _confirm_selected(
        self, request: HttpRequest, queryset: QuerySet[VoucherOrder], kind: str
    ) -> HttpResponse | None:
        ids = list(queryset.order_by("pk").values_list("pk", flat=True)[: MAX_ORDERS + 1])
        if not ids or len(ids) > MAX_ORDERS:
            text = _too_many() if ids else gettext("These orders are no longer in the list.")
            self.message_user(request, text, messages.ERROR)
            return None
        form = EndManyForm(initial={"order_ids": ",".join(map(str, ids))})
        return _confirmation(request, kind, ids, form, back=request.get_full_path())


# --- Pages ----------------------------------------------------------------------------------------


@office.page(f"{ROUTE}export/", name="orders_voucherorder_export")
def export_list(request: HttpRequest) -> HttpResponseBase:
    """Export the orders that the list shows for the same query."""
    orders: Any = office.get_model_admin(VoucherOrder)
    if not orders.has_export_permission(request):
        raise PermissionDenied
    try:
        shown = orders.get_changelist_instance(request)
    except IncorrectLookupParameters:
        # The list reports what is wrong with the query.
        the_list = reverse("admin:orders_voucherorder_changelist")
        return HttpResponseRedirect(f"{the_list}?{request.GET.urlencode()}")
    return orders.export_selected(request, shown.queryset)  # type: ignore[no-any-return]


@office.page(f"{ROUTE}find/", name="orders_voucherorder_find")
def find(request: HttpRequest) -> HttpResponse:
    """Lead to the order of a whole code, or to the list of what is found.

    A code or a contact comes by POST alone, because addresses are logged.
    """
    check_may(request, *SEE_ORDERS)
    query = request.POST.copy()
    query.pop("csrfmiddlewaretoken", None)
    text, now = query.get("q", ""), database_now()
    the_list = f"{reverse('admin:orders_voucherorder_changelist')}?"
    if len(read_code(text)) == CODE_LENGTH:
        try:
            with counted_guess(GUESSES, user_id=request.user.pk or 0, now=now):
                order = find_by_code(code=text).order
            if request.user.has_perm(REDEEM):
                request.looked_at = f"order:{order.pk}"  # type: ignore[attr-defined]
                return redirect("admin:orders_voucherorder_change", order.pk)
            refusal = gettext("Only staff who may redeem vouchers can search by code.")
        except (TooManyGuesses, GuessesUnknown) as error:
            refusal = refusal_of(error).message()
        except NoSuchCode:
            refusal = ""  # it may be the number of a payment
        if refusal:
            messages.error(request, refusal)
            return HttpResponseRedirect(the_list)
    query["q"] = name_in_address(text, by_contact=request.user.has_perm(SEE_CUSTOMERS))
    if text and not query["q"]:
        messages.warning(request, gettext("Nothing matches."))
    return HttpResponseRedirect(the_list + query.urlencode())


def end_one(request: HttpRequest, *, order_id: int, kind: str) -> HttpResponse:
    """Ask for a reason, then cancel or refund one order."""
    _check_may_end(request)
    order = get_object_or_404(VoucherOrder, pk=order_id)
    back = HttpResponseRedirect(reverse("admin:orders_voucherorder_change", args=[order_id]))
    form = EndForm(request.POST or None)
    if order.status != required_status(kind):
        _report_refusal(request, order_id, refusal_text(order.status))
        return back
    if form.is_valid():
        _end(request, order, kind, form.cleaned_data["reason"])
        return back
    return _confirmation(request, kind, [order_id], form, back=back.url, order=order)


def _end(request: HttpRequest, order: VoucherOrder, kind: str, why: str) -> None:
    by = Actor.staff(request.user.pk)
    try:
        end_order(kind=kind, order_id=order.pk, by=by, why=why)
    except WrongState as error:
        _report_refusal(request, order.pk, refusal_text(error.status))
    except Busy:
        busy = gettext("someone else is changing this buyer's orders right now")
        _report_refusal(request, order.pk, busy)
    except UNAVAILABLE:
        messages.error(request, NO_ANSWER)
    else:
        order.refresh_from_db()
        text = gettext("Order %(order_id)s is now %(status)s.")
        values = {"order_id": order.pk, "status": order.get_status_display()}
        messages.success(request, text % values)
        log_change(request, order, entry((HISTORY[OrderJob.Kind(kind)], {}), why=why))


def decide_refund(
    request: HttpRequest, *, order_id: int, payment_id: int, decision: str
) -> HttpResponse:
    """Ask for a reason, then refund the rest of a payment or count it as refunded."""
    _check_may_end(request)
    payment = get_object_or_404(Payment, pk=payment_id, order=order_id)
    back = reverse("admin:orders_voucherorder_change", args=[order_id])
    form = EndForm(request.POST or None)
    if decision not in decisions_about(payment):
        _report_undecided(request, payment)
    elif form.is_valid():
        _decide(request, payment, Decision(decision), form.cleaned_data["reason"])
    else:
        rest_cents = payment.paid_cents - payment.refunded_cents
        rest = money_in(rest_cents, payment.received_currency)
        texts = _TEXTS[decision]
        lines = [*texts["will"], *(_TEXTS["share"]["will"] if payment.total_cents else ())]
        total = money(payment.total_cents or 0)
        return office.show(
            request,
            "confirmation.html",
            opts=VoucherOrder._meta,
            title=texts["title"],
            will=[it % {"rest": rest, "total": total} for it in lines],
            form=form,
            yes=texts["yes"],
            is_final=True,
            back=back,
        )
    return HttpResponseRedirect(back)


def _decide(request: HttpRequest, payment: Payment, decision: Decision, why: str) -> None:
    by, now = Actor.staff(request.user.pk), database_now()
    try:
        decide(decision, payment_id=payment.pk, by=by, now=now, why=why)
    except NothingToDecide:
        _report_undecided(request, payment)
    except UNAVAILABLE:
        messages.error(request, NO_ANSWER)
    else:
        payment.refresh_from_db()
        text = gettext("The payment is now %(status)s.")
        values = {"status": payment.get_status_display()}
        messages.success(request, text % values)
        log_change(request, payment.order, entry((f"refund_{decision}", {}), why=why))


def _report_undecided(request: HttpRequest, payment: Payment) -> None:
    payment.refresh_from_db()
    text = gettext("Nothing was changed: the payment is %(status)s.")
    values = {"status": payment.get_status_display()}
    messages.warning(request, text % values)


def _report_refusal(request: HttpRequest, order_id: int, reason: str) -> None:
    text = gettext("Order %(order_id)s was not changed: %(reason)s.")
    values = {"order_id": order_id, "reason": reason}
    messages.warning(request, text % values)


def end_many(request: HttpRequest, *, kind: str) -> HttpResponse:
    """Start a job from the confirmation page and redirect to it."""
    _check_may_end(request)
    the_list = reverse("admin:orders_voucherorder_changelist")
    if request.method != "POST":
        return HttpResponseRedirect(the_list)
    form = EndManyForm(request.POST)
    if form.is_valid():
        job_id = make_once(request, kind, partial(_start_job, request, kind, form))
        return HttpResponseRedirect(reverse("admin:orders_orderjob_change", args=[job_id]))
    if "order_ids" in form.errors:
        raise BadRequest("not ids that our page sends")
    return _confirmation(request, kind, form.cleaned_data["order_ids"], form, the_list)


def _start_job(request: HttpRequest, kind: str, form: EndManyForm) -> int:
    job = start_job(
        kind=OrderJob.Kind(kind),
        order_ids=form.cleaned_data["order_ids"],
        by=Actor.staff(request.user.pk),
        why=form.cleaned_data["reason"],
    )
    transaction.on_commit(partial(publish_job, job_id=job.pk))
    return job.pk


def _check_may_end(request: HttpRequest) -> None:
    check_may(request, *SEE_ORDERS)
    check_may(request, END)


for _kind in OrderJob.Kind.values:
    _name = f"orders_voucherorder_{_kind}"
    office.page(f"{ROUTE}<id:order_id>/{_kind}/", name=_name, kind=_kind)(end_one)
    office.page(f"{ROUTE}{_kind}/", name=f"{_name}_many", kind=_kind)(end_many)
for _it in Decision:
    _route, _name = f"<id:order_id>/payments/<id:payment_id>/{_it}/", f"{_it}_refund"
    office.page(ROUTE + _route, name=f"orders_voucherorder_{_name}", decision=_it)(decide_refund)


def _confirmation(
    request: HttpRequest,
    kind: str,
    order_ids: Sequence[int],
    form: EndForm,
    back: str,
    order: VoucherOrder | None = None,
) -> HttpResponse:
    """Show how many orders would change and how, and ask for a reason."""
    statuses = VoucherOrder.objects.filter(pk__in=order_ids).order_by().values_list("status")
    sums = statuses.annotate(count=Count("pk"), cents=Sum("price_cents"))
    states = {status: (count, cents) for status, count, cents in sums}
    count, cents = states.pop(required_status(kind), (0, 0))
    return office.show(
        request,
        "orders/voucherorder/end.html",
        opts=VoucherOrder._meta,
        title=_TEXTS[kind]["title"],
        kind=kind,
        order=order,
        form=form,
        action_url="" if order else reverse(f"admin:orders_voucherorder_{kind}_many"),
        yes=_TEXTS[kind]["yes"],
        is_final=True,
        back=back,
        total=len(order_ids),
        count=count,
        cents=cents,
        others=[(OrderStatus(it).label, states[it][0]) for it in sorted(states)],
    )


def _for(request: HttpRequest, names: Iterable[str]) -> list[str]:
    """Return columns, in which the buyer is only a name to staff who may see no customers."""
    may_see = request.user.has_perm(SEE_CUSTOMERS)
    return ["buyer_name" if it == "buyer" and not may_see else it for it in names]


def _too_many() -> str:
    text = gettext("At most %(count)s orders can be changed at once. Narrow down the list.")
    return text % {"count": grouped(MAX_ORDERS)}
