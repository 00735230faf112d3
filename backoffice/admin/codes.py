"""Invitation codes in the admin: make, import and download those of a sale; the list of all."""

from functools import partial
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.widgets import AdminIntegerFieldWidget
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseBase, HttpResponseRedirect
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext, pgettext, pgettext_lazy
from django.utils.translation import gettext_lazy as _

from backoffice.admin.pages import (
    SALE,
    TEXTS,
    ReadOnlyAdmin,
    log_change,
    office,
    order_link,
    read_sale,
    sale_at,
    sale_page,
    timestamp_column,
)
from backoffice.figures import count
from orders.lifecycle.invitations import (
    MOST_CODES,
    UnusableCode,
    import_codes,
    make_codes,
    written_invitation,
)
from orders.models import CodeUse, InvitationCode
from seckill_site.formatting import NO_VALUE, grouped, timestamp
from seckill_site.web.admin_lists import column
from seckill_site.web.csv_files import csv_parts, csv_response, exact, harmless
from seckill_site.web.form_keys import make_once
from vouchers.catalogue.history import entry, text_of
from vouchers.models import SeckillVoucher

PERMISSION = "orders.issue_invitationcode"
_FIELDS = TEXTS["codes"]
LARGEST_UPLOAD_BYTES = 4 * 1024 * 1024


class CodesForm(forms.Form):
    """How many codes to make, or those to import."""

    count = forms.IntegerField(
        min_value=1,
        max_value=MOST_CODES,
        required=False,
        widget=AdminIntegerFieldWidget,
        **_FIELDS["count"],
    )
    lines = forms.CharField(
        required=False,
        widget=forms.Textarea(attrs={"rows": 6, "class": "vLargeTextField"}),
        **_FIELDS["lines"],
    )
    file = forms.FileField(required=False, **_FIELDS["file"])

    def clean_file(self) -> str:
        upload = self.cleaned_data["file"]
        if not upload:
            return ""
        if upload.size > LARGEST_UPLOAD_BYTES:
            raise forms.ValidationError(gettext("The file is too large."))
        try:
            return str(upload.read().decode("utf-8-sig"))
        except UnicodeDecodeError as error:
            raise forms.ValidationError(gettext("The file is not text in UTF-8.")) from error

    def clean(self) -> dict[str, Any]:
        data = super().clean() or self.cleaned_data
        if not self.errors and sum(bool(data.get(it)) for it in ("count", "lines", "file")) != 1:
            raise forms.ValidationError(gettext("Fill in one of the three fields."))
        if not self.errors and len(self.imported) > MOST_CODES:
            text = gettext("This is more than %(most)s lines.")
            raise forms.ValidationError(text % {"most": grouped(MOST_CODES)})
        return data

    @property
    def imported(self) -> list[str]:
        return str(self.cleaned_data["lines"] or self.cleaned_data["file"]).splitlines()


@sale_page("codes/", name="sale-codes")
def codes_page(request: HttpRequest, *, sale_id: int) -> HttpResponse:
    """Show how many codes a sale has, and add some."""
    sale = read_sale(request, sale_at, PERMISSION, sale_id=sale_id)
    is_post = request.method == "POST"
    form = CodesForm(request.POST, request.FILES) if is_post else CodesForm()
    if form.is_valid():
        try:
            add = partial(_add, request, sale, form)
            change = make_once(request, f"codes of {sale.pk}", add)
        except UnusableCode as error:
            text = gettext("Line %(line)s is not a code. Nothing was imported.")
            form.add_error(None, text % {"line": error.line})
        else:
            messages.success(request, text_of(change))
            return HttpResponseRedirect(request.path)
    codes = InvitationCode.objects.filter(seckill_voucher=sale)
    return office.show(
        request,
        "vouchers/seckillvoucher/codes.html",
        opts=SALE,
        title=gettext("Invitation codes: %(sale)s") % {"sale": sale},
        sale=sale,
        form=form,
        yes=gettext("Add codes"),
        back=reverse("admin:vouchers_seckillvoucher_change", args=[sale_id]),
        figures=[
            count(gettext("Codes"), codes.count()),
            count(gettext("Entered by a buyer"), codes.exclude(user=None).count()),
            count(gettext("Used for an order"), codes.exclude(uses=None).count()),
        ],
    )


@sale_page("codes/csv/", name="sale-codes-csv")
def codes_file(request: HttpRequest, *, sale_id: int) -> HttpResponseBase:
    """Send the codes of a sale as CSV: who has entered each, and the order it was used for."""
    sale = read_sale(request, sale_at, PERMISSION, sale_id=sale_id)
    headings = [
        gettext("Invitation code"), gettext("Entered by"),
        pgettext("a code", "Entered at"), gettext("Order"),
    ]  # fmt: skip
    codes = InvitationCode.objects.filter(seckill_voucher=sale).order_by("pk")
    columns = ("code", "user__username", "entered_at", "uses__order_id")
    rows = [
        [
            harmless(written_invitation(code)),
            harmless(name or ""),
            timestamp(entered_at) if entered_at else "",
            exact(str(order_id or "")),
        ]
        for code, name, entered_at, order_id in codes.values_list(*columns)
    ]
    log_change(request, sale, entry(("codes_downloaded", {})))
    name = f"sale-{sale_id}-codes-{timezone.localdate():%Y-%m-%d}.csv"
    return csv_response(list(csv_parts(headings, [rows])), name=name)


def _add(request: HttpRequest, sale: SeckillVoucher, form: CodesForm) -> str:
    """Make or import codes, and return their entry in the sale's history."""
    if wanted := form.cleaned_data["count"]:
        make_codes(sale_id=sale.pk, count=wanted)
        change = entry(("codes_made", {"count": wanted}))
    else:
        imported = import_codes(sale_id=sale.pk, lines=form.imported)
        change = entry(("codes_imported", {"new": imported.new, "known": imported.known}))
    log_change(request, sale, change)
    return change


@admin.register(InvitationCode)
class InvitationCodeAdmin(ReadOnlyAdmin):
    """All invitation codes; one that no order uses may be deleted."""

    list_display = ("written", "seckill_voucher", "buyer_name", "entered", "its_order")
    list_filter = (("user", admin.EmptyFieldListFilter),)
    list_select_related = ("seckill_voucher__voucher", "user")
    search_fields = ("code", "user__username", "seckill_voucher")
    search_help_text = _("Code without dashes, buyer or sale id")
    ordering = ("-pk",)
    fields = ("written", "seckill_voucher", "buyer_name", "entered", "its_order")
    written = column(_("invitation code"), lambda it: written_invitation(it.code), ordering="code")
    entered = timestamp_column("entered_at", pgettext_lazy("a code", "entered at"))

    def get_queryset(self, request: HttpRequest) -> QuerySet[InvitationCode]:
        return super().get_queryset(request).prefetch_related("uses")

    def has_view_permission(self, request: HttpRequest, obj: InvitationCode | None = None) -> bool:
        return request.user.has_perm(PERMISSION)

    has_module_permission = has_delete_permission = has_view_permission

    @admin.display(description=_("used for order"))
    def its_order(self, code: InvitationCode) -> str:
        use: CodeUse | None = next(iter(code.uses.all()), None)
        return order_link(use.order_id) if use else NO_VALUE
