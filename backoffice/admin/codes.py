"""Invitation codes in the admin: make, import and download those of a sale; the list of all."""

from typing import Any

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.widgets import AdminIntegerFieldWidget
from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase, HttpResponseRedirect
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext, pgettext, pgettext_lazy
from django.utils.translation import gettext_lazy as _

from backoffice.admin.pages import ReadOnlyAdmin, admin_page, order_link, timestamp_column
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
from vouchers.admin.sale import SeckillVoucherAdmin
from vouchers.catalogue.history import entry, text_of
from vouchers.models import SeckillVoucher

PERMISSION = "orders.issue_invitationcode"
LARGEST_UPLOAD_BYTES = 4 * 1024 * 1024


class CodesForm(forms.Form):
    """How many codes to make, or those to import."""

    count = forms.IntegerField(
        label=_("Number of new codes"),
        min_value=1,
        max_value=MOST_CODES,
        required=False,
        widget=AdminIntegerFieldWidget,
    )
    lines = forms.CharField(
        label=_("Import codes"),
        required=False,
        widget=forms.Textarea(attrs={"rows": 6, "class": "vLargeTextField"}),
        help_text=_(
            "One per line: 6 to 32 letters and digits. Spaces, dashes and case do not matter."
        ),
    )
    file = forms.FileField(
        label=_("Import a text file"), required=False, help_text=_("One code per line, UTF-8.")
    )

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


def codes_page(
    model_admin: SeckillVoucherAdmin, request: HttpRequest, *, sale_id: int
) -> HttpResponse:
    """Show how many codes a sale has, and add some."""
    sale = _sale(model_admin, request, sale_id)
    is_post = request.method == "POST"
    form = CodesForm(request.POST, request.FILES) if is_post else CodesForm()
    if form.is_valid():
        try:
            change = _add(sale, form)
        except UnusableCode as error:
            text = gettext("Line %(line)s is not a code. Nothing was imported.")
            form.add_error(None, text % {"line": error.line})
        else:
            model_admin.log_change(request, sale, change)
            messages.success(request, text_of(change))
            return HttpResponseRedirect(request.path)
    codes = InvitationCode.objects.filter(seckill_voucher=sale)
    return admin_page(
        model_admin,
        request,
        "vouchers/seckillvoucher/codes.html",
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


def codes_file(
    model_admin: SeckillVoucherAdmin, request: HttpRequest, *, sale_id: int
) -> HttpResponseBase:
    """Send the codes of a sale as CSV: who has entered each, and the order it was used for."""
    sale = _sale(model_admin, request, sale_id)
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
    model_admin.log_change(request, sale, entry(("codes_downloaded", {})))
    name = f"sale-{sale_id}-codes-{timezone.localdate():%Y-%m-%d}.csv"
    return csv_response(list(csv_parts(headings, [rows])), name=name)


def _sale(model_admin: SeckillVoucherAdmin, request: HttpRequest, sale_id: int) -> SeckillVoucher:
    if not (model_admin.has_view_permission(request) and request.user.has_perm(PERMISSION)):
        raise PermissionDenied
    sale = model_admin.get_queryset(request).filter(pk=sale_id).first()
    if sale is None:
        raise Http404
    return sale


@transaction.atomic
def _add(sale: SeckillVoucher, form: CodesForm) -> str:
    """Make or import codes, and return the entry for the sale's history."""
    if wanted := form.cleaned_data["count"]:
        make_codes(sale_id=sale.pk, count=wanted)
        return entry(("codes_made", {"count": wanted}))
    imported = import_codes(sale_id=sale.pk, lines=form.imported)
    return entry(("codes_imported", {"new": imported.new, "known": imported.known}))


@admin.register(InvitationCode)
class InvitationCodeAdmin(ReadOnlyAdmin):
    """All invitation codes; one that no order uses may be deleted."""

    list_display = ("written", "seckill_voucher", "user", "entered", "its_order")
    list_filter = (("user", admin.EmptyFieldListFilter),)
    list_select_related = ("seckill_voucher__voucher", "user")
    search_fields = ("code", "user__username", "=seckill_voucher__id")
    search_help_text = _("Code without dashes, buyer or sale id")
    ordering = ("-pk",)
    fields = ("written", "seckill_voucher", "user", "entered", "its_order")
    written = column(_("invitation code"), lambda it: written_invitation(it.code), ordering="code")
    entered = timestamp_column("entered_at", pgettext_lazy("a code", "entered at"))

    def get_queryset(self, request: HttpRequest) -> QuerySet[InvitationCode]:
        return super().get_queryset(request).prefetch_related("uses")

    def has_module_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm(PERMISSION)

    def has_view_permission(self, request: HttpRequest, obj: InvitationCode | None = None) -> bool:
        return request.user.has_perm(PERMISSION)

    def has_delete_permission(
        self, request: HttpRequest, obj: InvitationCode | None = None
    ) -> bool:
        return request.user.has_perm(PERMISSION)

    @admin.display(description=_("used for order"))
    def its_order(self, code: InvitationCode) -> str:
        use: CodeUse | None = next(iter(code.uses.all()), None)
        return order_link(use.order_id) if use else NO_VALUE
