"""Orders in the admin: search, read, export, retry, cancel and refund."""

import logging
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.options import IncorrectLookupParameters
from django.contrib.admin.widgets import AdminTextInputWidget
from django.core.exceptions import BadRequest, PermissionDenied
from django.db import transaction
from django.db.models import Count, QuerySet, Sum
from django.http import HttpRequest, HttpResponse, HttpResponseBase, HttpResponseRedirect
from django.shortcuts import get_object_or_404
from django.urls import URLPattern, path, reverse
from django.utils import timezone
from django.utils.html import format_html
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from backoffice.admin.pages import ReadOnlyAdmin, admin_page, timestamp_column
from backoffice.bulk_jobs import (
    MAX_ORDERS,
    end_order,
    publish_job,
    refusal_text,
    required_status,
    start_job,
)
from backoffice.job_engine import UNAVAILABLE
from backoffice.navigation import SEE_CUSTOMERS
from backoffice.order_export import export_orders
from orders.fulfilment.retry import Retry, is_set_aside, retry_orders
from orders.lifecycle.cancellation import Busy
from orders.lifecycle.transitions import Actor, WrongState
from orders.models import OrderJob, OrderStatus, Payment, VoucherOrder
from orders.payments.refunds import Decision, NothingToDecide, decide, decisions_about
from seckill_site.clocks.database import database_now
from seckill_site.formatting import NO_VALUE, grouped, money, money_in
from seckill_site.web.admin_lists import column, moment, pill
from seckill_site.web.csv_files import csv_parts, csv_response
from seckill_site.web.url_converters import LARGEST_ID
from vouchers.catalogue.history import entry
from vouchers.catalogue.staff_texts import NO_ANSWER
from vouchers.models import SaleStage

logger = logging.getLogger(__name__)

STATUS_TONES = {
    OrderStatus.UNPAID: "warn",
    OrderStatus.PAID: "good",
    OrderStatus.USED: "good",
    OrderStatus.REFUNDING: "warn",
    OrderStatus.REFUSED: "bad",
}
"""The colour of a status; what has ended without a voucher is quiet."""

TITLES = {
    OrderJob.Kind.CANCEL: _("Cancel orders"),
    OrderJob.Kind.REFUND: _("Refund orders"),
}
HISTORY = {
    OrderJob.Kind.CANCEL: "order_cancelled",
    OrderJob.Kind.REFUND: "order_refunded",
}
"""The code of each in an order's history."""

DECISIONS = {
    Decision.REFUND_REST: _("Refund the rest"),
    Decision.COUNT_AS_REFUNDED: _("Count as refunded"),
}
_ENDS = _("The order ends as refunded, unless the voucher was used; its voucher goes back on sale.")
WILL = {
    Decision.REFUND_REST: (
        _("%(rest)s is refunded to the original payment method, if the provider agrees."),
        _ENDS,
    ),
    Decision.COUNT_AS_REFUNDED: (
        _("The provider moves no money: what has not gone back (%(rest)s) is settled otherwise."),
        _ENDS,
    ),
}

YES = {OrderJob.Kind.CANCEL: _("Yes, cancel"), OrderJob.Kind.REFUND: _("Yes, refund")}


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


@admin.register(VoucherOrder)
class VoucherOrderAdmin(ReadOnlyAdmin):
    """Orders, which change only through their life cycle."""

    # The help text of this field is for developers.
    form = forms.modelform_factory(VoucherOrder, fields=(), help_texts={"user": ""})
    list_display = (
        "number", "buyer", "voucher", "state", "due", "price", "accepted",
    )  # fmt: skip
    list_filter = (
        "status",
        "reason",
        ("seckill_voucher", admin.RelatedOnlyFieldListFilter),
        "seckill_voucher__voucher__merchant",
    )
    list_select_related = ("user", "seckill_voucher__voucher")
    search_fields = (
        "=id",
        "user__username",
        "seckill_voucher__voucher__title",
        "seckill_voucher__voucher__title_en",
    )
    search_help_text = _("Order id, buyer or voucher")
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
        return super().get_queryset(request).exclude(seckill_voucher__stage=SaleStage.REHEARSAL)

    def get_urls(self) -> list[URLPattern]:
        def url(
            route: str, view: Callable[..., HttpResponseBase], name: str, **extra: str
        ) -> URLPattern:
            view = self.admin_site.admin_view(view)
            return path(route, view, extra, name=f"orders_voucherorder_{name}")

        own = [url("export/", self.export_list, "export")]
        for kind in OrderJob.Kind.values:
            own.append(url(f"<id:order_id>/{kind}/", self.end_one, kind, kind=kind))
            own.append(url(f"{kind}/", self.end_many, f"{kind}_many", kind=kind))
        for decision in Decision:
            route = f"<id:order_id>/payments/<id:payment_id>/{decision}/"
            own.append(url(route, self.decide_refund, f"{decision}_refund", decision=decision))
        return [*own, *super().get_urls()]

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
        may_redeem = request.user.has_perm("orders.redeem_voucherorder")
        return [it for it in _for(request, self.fields) if may_redeem or it != "code"]

    def get_list_display(self, request: HttpRequest) -> Any:
        return _for(request, self.list_display)

    def get_fieldsets(self, request: HttpRequest, obj: VoucherOrder | None = None) -> Any:
        fieldsets = super().get_fieldsets(request, obj)
        if obj is not None and is_set_aside(obj):
            fieldsets[0][1]["description"] = _(
                "This order could not be written. It could never be paid, so there is nothing "
                "to refund, and its voucher went back on sale at once. You can retry it from "
                "the list of orders."
            )
        return fieldsets

    def render_change_form(
        self, request: HttpRequest, context: dict[str, Any], *args: Any, **kwargs: Any
    ) -> HttpResponse:
        """Add the order's history, its payments and the possible actions."""
        order: VoucherOrder = context["original"]
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
        return request.user.has_perm("orders.end_voucherorder")

    def has_export_permission(self, request: HttpRequest) -> bool:
        may_export = request.user.has_perm("orders.export_voucherorder")
        return may_export and self.has_view_permission(request)

    def export_list(self, request: HttpRequest) -> HttpResponseBase:
        """Export the orders that the list shows for the same query."""
        if not self.has_export_permission(request):
            raise PermissionDenied
        try:
            shown = self.get_changelist_instance(request)
        except IncorrectLookupParameters:
            # The list reports what is wrong with the query.
            the_list = reverse("admin:orders_voucherorder_changelist")
            return HttpResponseRedirect(f"{the_list}?{request.GET.urlencode()}")
        return self.export_selected(request, shown.queryset)

    @admin.action(description=_("Export the selected orders (CSV)"), permissions=["export"])
    def export_selected(
        self, request: HttpRequest, queryset: QuerySet[VoucherOrder]
    ) -> HttpResponseBase:
        codes = request.user.has_perm("orders.redeem_voucherorder")
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

    def end_one(self, request: HttpRequest, *, order_id: int, kind: str) -> HttpResponse:
        """Ask for a reason, then cancel or refund one order."""
        self._check_may_end(request)
        order = get_object_or_404(VoucherOrder, pk=order_id)
        back = HttpResponseRedirect(reverse("admin:orders_voucherorder_change", args=[order_id]))
        form = EndForm(request.POST or None)
        if order.status != required_status(kind):
            self._report_refusal(request, order_id, refusal_text(order.status))
            return back
        if form.is_valid():
            self._end(request, order, kind, form.cleaned_data["reason"])
            return back
        return self._confirmation(request, kind, [order_id], form, back=back.url, order=order)

    def _end(self, request: HttpRequest, order: VoucherOrder, kind: str, why: str) -> None:
        by = Actor.staff(request.user.pk)
        try:
            end_order(kind=kind, order_id=order.pk, by=by, why=why)
        except WrongState as error:
            self._report_refusal(request, order.pk, refusal_text(error.status))
        except Busy:
            busy = gettext("someone else is changing this buyer's orders right now")
            self._report_refusal(request, order.pk, busy)
        except UNAVAILABLE:
            self.message_user(request, NO_ANSWER, messages.ERROR)
        else:
            order.refresh_from_db()
            text = gettext("Order %(order_id)s is now %(status)s.")
            values = {"order_id": order.pk, "status": order.get_status_display()}
            self.message_user(request, text % values, messages.SUCCESS)
            self.log_change(request, order, entry((HISTORY[OrderJob.Kind(kind)], {}), why=why))

    def decide_refund(
        self, request: HttpRequest, *, order_id: int, payment_id: int, decision: str
    ) -> HttpResponse:
        """Ask for a reason, then refund the rest of a payment or count it as refunded."""
        self._check_may_end(request)
        payment = get_object_or_404(Payment, pk=payment_id, order=order_id)
        back = reverse("admin:orders_voucherorder_change", args=[order_id])
        form = EndForm(request.POST or None)
        if decision not in decisions_about(payment):
            self._report_undecided(request, payment)
        elif form.is_valid():
            self._decide(request, payment, Decision(decision), form.cleaned_data["reason"])
        else:
            rest_cents = payment.paid_cents - payment.refunded_cents
            rest = money_in(rest_cents, payment.received_currency)
            return admin_page(
                self,
                request,
                "confirmation.html",
                title=DECISIONS[Decision(decision)],
                will=[it % {"rest": rest} for it in WILL[Decision(decision)]],
                form=form,
                action_url=request.path,
                yes=DECISIONS[Decision(decision)],
                is_final=True,
                back=back,
            )
        return HttpResponseRedirect(back)

    def _decide(self, request: HttpRequest, payment: Payment, decision: Decision, why: str) -> None:
        by, now = Actor.staff(request.user.pk), database_now()
        try:
            decide(decision, payment_id=payment.pk, by=by, now=now, why=why)
        except NothingToDecide:
            self._report_undecided(request, payment)
        except UNAVAILABLE:
            self.message_user(request, NO_ANSWER, messages.ERROR)
        else:
            payment.refresh_from_db()
            text = gettext("The payment is now %(status)s.")
            values = {"status": payment.get_status_display()}
            self.message_user(request, text % values, messages.SUCCESS)
            self.log_change(request, payment.order, entry((f"refund_{decision}", {}), why=why))

    def _report_undecided(self, request: HttpRequest, payment: Payment) -> None:
        payment.refresh_from_db()
        text = gettext("Nothing was changed: the payment is %(status)s.")
        values = {"status": payment.get_status_display()}
        self.message_user(request, text % values, messages.WARNING)

    def _report_refusal(self, request: HttpRequest, order_id: int, reason: str) -> None:
        text = gettext("Order %(order_id)s was not changed: %(reason)s.")
        values = {"order_id": order_id, "reason": reason}
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
        return self._confirmation(request, kind, ids, form, back=request.get_full_path())

    def end_many(self, request: HttpRequest, *, kind: str) -> HttpResponse:
        """Start a job from the confirmation page and redirect to it."""
        self._check_may_end(request)
        the_list = reverse("admin:orders_voucherorder_changelist")
        if request.method != "POST":
            return HttpResponseRedirect(the_list)
        form = EndManyForm(request.POST)
        if form.is_valid():
            with transaction.atomic():
                job = start_job(
                    kind=OrderJob.Kind(kind),
                    order_ids=form.cleaned_data["order_ids"],
                    by=Actor.staff(request.user.pk),
                    why=form.cleaned_data["reason"],
                )
                transaction.on_commit(partial(publish_job, job_id=job.pk))
            return HttpResponseRedirect(reverse("admin:orders_orderjob_change", args=[job.pk]))
        if "order_ids" in form.errors:
            raise BadRequest("not ids that our page sends")
        return self._confirmation(request, kind, form.cleaned_data["order_ids"], form, the_list)

    def _check_may_end(self, request: HttpRequest) -> None:
        if not (self.has_view_permission(request) and self.has_end_permission(request)):
            raise PermissionDenied

    def _confirmation(
        self,
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
        name = f"admin:orders_voucherorder_{kind}"
        return admin_page(
            self,
            request,
            "orders/voucherorder/end.html",
            title=TITLES[OrderJob.Kind(kind)],
            kind=kind,
            order=order,
            form=form,
            action_url=reverse(name, args=[order.pk]) if order else reverse(f"{name}_many"),
            yes=YES[OrderJob.Kind(kind)],
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
    return ["user" if it == "buyer" and not may_see else it for it in names]


def _too_many() -> str:
    text = gettext("At most %(count)s orders can be changed at once. Narrow down the list.")
    return text % {"count": grouped(MAX_ORDERS)}
