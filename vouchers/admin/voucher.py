"""The admin of vouchers: edit them one by one, or import many at once from a file."""

from typing import Any

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.options import IncorrectLookupParameters
from django.core.exceptions import PermissionDenied
from django.db import InterfaceError, OperationalError
from django.http import HttpRequest, HttpResponse, HttpResponseBase, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils import timezone
from django.utils.html import format_html
from django.utils.translation import get_language, gettext
from django.utils.translation import gettext_lazy as _

from seckill_site.clocks.database import database_now
from seckill_site.formatting import money
from seckill_site.mysql.collations import AnyCase
from seckill_site.web.admin_lists import CheckedList, column
from seckill_site.web.csv_files import csv_parts, csv_response
from seckill_site.web.large_lists import TypedFilter
from vouchers.admin.history import RecordedAdmin
from vouchers.catalogue.listing import on_sale_now
from vouchers.catalogue.prices import ask_first, close_to_reprice, lock_to_reprice
from vouchers.catalogue.staff_texts import SALE_REFUSALS, StaffRefusal, refusal_text
from vouchers.forms.fields import LastDayForm, MoneyField
from vouchers.forms.sale import RecordedForm
from vouchers.imports.plan import Importer, RowOutcome
from vouchers.imports.rows import HEADINGS, example_rows, file_rows
from vouchers.imports.service import (
    Preview,
    VouchersChanged,
    add_merchants,
    confirm_import,
    preview_import,
)
from vouchers.imports.spreadsheet import MOST_BYTES
from vouchers.imports.texts import OUTCOME
from vouchers.lock_objects import lock_vouchers
from vouchers.models import RUN_PERMISSION, Merchant, Voucher

TEMPLATES = "admin/vouchers/voucher"
MERCHANT_NAME = f"name__{AnyCase.lookup_name}__istartswith"


class UploadForm(forms.Form):
    """The file of an import."""

    file = forms.FileField(
        label=_("File"),
        help_text=_("CSV or Excel (.xlsx), at most 5 MB and 5,000 rows."),
        widget=forms.FileInput(attrs={"accept": ".csv,.xlsx,.txt"}),
    )


class VoucherForm(RecordedForm, LastDayForm, forms.ModelForm):  # type: ignore[type-arg]
    """A voucher, new or stored; amounts are entered in yuan."""

    price_cents = MoneyField(label=_("Price"), help_text=_("In yuan, such as 80 or 79.90."))
    face_value_cents = MoneyField(label=_("Face value"), help_text=_("In yuan."))


class MerchantAdmin(CheckedList):
    """Merchants, who redeem vouchers."""

    list_display = ("name", "address", "contact")
    search_fields = (MERCHANT_NAME, "^name_en", "^address")
    search_help_text = _("Beginning of the name or address")
    exclude = ("staff",)

    def has_delete_permission(self, request: HttpRequest, obj: Merchant | None = None) -> bool:
        """Keep a merchant with staff of its own: without it they would redeem for all."""
        is_free = obj is None or not obj.staff.exists()
        return is_free and super().has_delete_permission(request, obj)


class VoucherAdmin(RecordedAdmin):
    """Vouchers and their import, whose URLs are named like those of django-import-export."""

    form = VoucherForm
    list_display = ("called", "merchant", "price", "face_value", "valid_until", "new_sale")
    list_filter = (("merchant", TypedFilter),)
    list_select_related = ("merchant",)
    search_fields = ("^title", "^title_en", f"merchant__{MERCHANT_NAME}")
    search_help_text = _("Beginning of the title or merchant")

    def get_urls(self) -> list[URLPattern]:
        views = {
            "import": self.import_page,
            "process_import": self.process_import,
            "import_example": self.import_example,
            "export": self.export,
        }
        own = [
            path(f"{name}/", self.admin_site.admin_view(view), name=f"vouchers_voucher_{name}")
            for name, view in views.items()
        ]
        return [*own, *super().get_urls()]

    def get_fields(self, request: HttpRequest, obj: Voucher | None = None) -> Any:
        # A reason is asked for beside what it is about.
        return [it for it in super().get_fields(request, obj) if it != "why"]

    def get_changeform_initial_data(self, request: HttpRequest) -> dict[str, Any]:
        return {"merchant": Merchant.default().pk, **super().get_changeform_initial_data(request)}

    called = column(_("Title"), lambda it: it.local_title, ordering="title")
    price = column(_("Price"), lambda it: money(it.price_cents), ordering="price_cents")
    face_value = column(
        _("Face value"), lambda it: money(it.face_value_cents), ordering="face_value_cents"
    )

    def get_list_display(self, request: HttpRequest) -> Any:
        may_sell = request.user.has_perm("vouchers.add_seckillvoucher")
        return [it for it in self.list_display if may_sell or it != "new_sale"]

    @admin.display(description=_("sale"))
    def new_sale(self, voucher: Voucher) -> str:
        url = reverse("admin:vouchers_seckillvoucher_add")
        return format_html(
            '<a href="{}?existing_voucher={}">{}</a>', url, voucher.pk, gettext("Put on sale")
        )

    def has_change_permission(self, request: HttpRequest, obj: Voucher | None = None) -> bool:
        """Require the permission to run sales if the voucher is on sale now."""
        if not super().has_change_permission(request, obj):
            return False
        if obj is None or request.user.has_perm(RUN_PERMISSION):
            return True
        return not on_sale_now(voucher_ids=[obj.pk], now=database_now())

    def save_model(self, request: HttpRequest, obj: Voucher, form: Any, change: bool) -> None:
        """Save the voucher, unless it was put on sale since the form was checked."""
        if change:
            locked = lock_to_reprice(prices={obj.pk: obj.price_cents})
            stored: Any = next(iter(lock_vouchers(voucher_ids=[obj.pk])), None)
            form.check(stored)
            if not self.has_change_permission(request, obj):
                raise PermissionDenied
            ask_first(
                voucher=stored,
                price_cents=obj.price_cents,
                last_day=obj.valid_until,
                confirmed=request.POST.get("confirmed", ""),
                why=form.cleaned_data["why"],
                now=database_now(),
            )
            if stored.price_cents != obj.price_cents:
                close_to_reprice(voucher_ids=[obj.pk], locked=locked)
        super().save_model(request, obj, form, change)

    def has_import_permission(self, request: HttpRequest) -> bool:
        """Require both permissions, because an import creates and changes vouchers."""
        may_change = request.user.has_perm("vouchers.change_voucher")
        return may_change and self.has_add_permission(request)

    def import_page(self, request: HttpRequest) -> HttpResponse:
        """Accept a file and show what it would do."""
        by = self._importer(request)
        is_sent = request.method == "POST"
        form = UploadForm(request.POST, request.FILES) if is_sent else UploadForm()
        if not form.is_valid():
            return self._page(request, "import", form=form)
        file = form.cleaned_data["file"]
        try:
            # One byte too many is enough to refuse; the rest is not read into memory.
            content = file.read(MOST_BYTES + 1)
            now = database_now()
            preview = preview_import(content=content, file_name=file.name, by=by, now=now)
        except StaffRefusal as error:
            form.add_error("file", str(error))
            return self._page(request, "import", form=form)
        return self._preview(request, preview)

    def process_import(self, request: HttpRequest) -> HttpResponse:
        """Carry out a confirmed preview."""
        by = self._importer(request)
        if request.method != "POST":
            return HttpResponseRedirect(reverse("admin:vouchers_voucher_import"))
        key, now = request.POST.get("key", ""), database_now()
        try:
            if "_merchants" in request.POST:
                names = request.POST.getlist("merchant")
                return self._preview(request, add_merchants(key=key, names=names, by=by, now=now))
            why = request.POST.get("why", "").strip()[:200]
            plan = confirm_import(key=key, by=by, now=now, why=why)
        except VouchersChanged as error:
            self.message_user(request, str(error), messages.WARNING)
            return self._preview(request, error.preview, status=409)
        except SALE_REFUSALS as error:
            self.message_user(request, refusal_text(error), messages.ERROR)
        except (OperationalError, InterfaceError):
            self.message_user(request, str(OUTCOME["unknown"]), messages.ERROR)
        else:
            counts = {str(outcome): plan.counts[outcome] for outcome in RowOutcome}
            text = OUTCOME["done"] % {**counts, "sales": plan.sales}
            self.message_user(request, text, messages.SUCCESS)
        return HttpResponseRedirect(reverse("admin:vouchers_voucher_changelist"))

    def import_example(self, request: HttpRequest) -> HttpResponseBase:
        """Return a valid example file that Excel can open."""
        self._importer(request)
        chinese = (get_language() or "").startswith("zh")
        headings, *rows = example_rows(chinese=chinese, now=database_now())
        return csv_response(list(csv_parts(headings, [rows])), name="vouchers.csv")

    def export(self, request: HttpRequest) -> HttpResponseBase:
        """Return the vouchers of the list in the form of the import."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        try:
            vouchers = self.get_changelist_instance(request).queryset
        except IncorrectLookupParameters:
            # The list reports what is wrong with the query.
            the_list = reverse("admin:vouchers_voucher_changelist")
            return HttpResponseRedirect(f"{the_list}?{request.GET.urlencode()}")
        chinese = (get_language() or "").startswith("zh")
        headings, *rows = file_rows(vouchers, chinese=chinese)
        name = f"vouchers-{timezone.localdate():%Y-%m-%d}.csv"
        return csv_response(list(csv_parts(headings, [rows])), name=name)

    def _importer(self, request: HttpRequest) -> Importer:
        if not self.has_import_permission(request):
            raise PermissionDenied
        may_sell = request.user.has_perm("vouchers.add_seckillvoucher")
        may_run = request.user.has_perm(RUN_PERMISSION)
        may_add_merchants = request.user.has_perm("vouchers.add_merchant")
        return Importer(request.user.pk or 0, may_sell, may_run, may_add_merchants)

    def _preview(
        self, request: HttpRequest, preview: Preview, *, status: int = 200
    ) -> HttpResponse:
        counts = [(it, it.label, preview.plan.counts[it]) for it in RowOutcome]
        return self._page(request, "import_preview", status=status, preview=preview, counts=counts)

    def _page(
        self, request: HttpRequest, name: str, *, status: int = 200, **context: Any
    ) -> HttpResponse:
        whole = {
            **self.admin_site.each_context(request),
            "opts": self.opts,
            "title": gettext("Import vouchers"),
            "headings": HEADINGS,
            "zone": timezone.get_default_timezone_name(),
            **context,
        }
        return TemplateResponse(request, f"{TEMPLATES}/{name}.html", whole, status=status)
