"""Vouchers in the admin: by themselves, whatever sale they are in; and many at once from a file."""

from __future__ import annotations

import csv
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db import InterfaceError, OperationalError
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils import timezone
from django.utils.html import format_html
from django.utils.translation import get_language, gettext
from django.utils.translation import gettext_lazy as _

from seckill_site.formatting import money
from vouchers.catalogue.overlaps import on_sale_now
from vouchers.imports.plan import Plan, What
from vouchers.imports.rows import HEADINGS, example_rows
from vouchers.imports.service import (
    Importer,
    Preview,
    PreviewGone,
    PreviewNotKept,
    VouchersChanged,
    confirm_import,
    preview_import,
)
from vouchers.imports.spreadsheet import MOST_BYTES, FileRefused
from vouchers.models import Voucher

TEMPLATES = "admin/vouchers/voucher"
RUN = "vouchers.run_seckillvoucher"


class UploadForm(forms.Form):
    """The file that vouchers are imported from."""

    file = forms.FileField(
        label=_("File"),
        help_text=_("CSV or Excel (.xlsx), at most 5 MB and 5,000 rows."),
        widget=forms.FileInput(attrs={"accept": ".csv,.xlsx,.txt"}),
    )

    def clean_file(self) -> Any:
        file = self.cleaned_data["file"]
        if file.size > MOST_BYTES:
            raise forms.ValidationError(gettext("The file is larger than 5 MB. Split it."))
        return file


class VoucherAdmin(admin.ModelAdmin):  # type: ignore[type-arg]
    """What vouchers are, whatever sale they are in. The import's URLs are named as is usual."""

    list_display = ("title", "price", "face_value", "new_sale")
    search_fields = ("title",)

    def get_urls(self) -> list[URLPattern]:
        views = {
            "import": self.import_page,
            "process_import": self.process_import,
            "import_example": self.import_example,
        }
        own = [
            path(f"{name}/", self.admin_site.admin_view(view), name=f"vouchers_voucher_{name}")
            for name, view in views.items()
        ]
        return [*own, *super().get_urls()]

    @admin.display(description=_("Price"), ordering="price_cents")
    def price(self, voucher: Voucher) -> str:
        return money(voucher.price_cents)

    @admin.display(description=_("Face value"), ordering="face_value_cents")
    def face_value(self, voucher: Voucher) -> str:
        return money(voucher.face_value_cents)

    @admin.display(description=_("sale"))
    def new_sale(self, voucher: Voucher) -> str:
        url = reverse("admin:vouchers_seckillvoucher_add")
        return format_html(
            '<a href="{}?existing_voucher={}">{}</a>', url, voucher.pk, gettext("Put on sale")
        )

    def has_change_permission(self, request: HttpRequest, obj: Voucher | None = None) -> bool:
        """What is on sale now is changed only by who may run sales, here as in the sale's form."""
        if not super().has_change_permission(request, obj):
            return False
        if obj is None or request.user.has_perm(RUN):
            return True
        return not on_sale_now(voucher_ids=[obj.pk], now=timezone.now())

    def has_import_permission(self, request: HttpRequest) -> bool:
        """A file makes vouchers and changes them, so whoever imports may do both."""
        may_change = request.user.has_perm("vouchers.change_voucher")
        return may_change and self.has_add_permission(request)

    def import_page(self, request: HttpRequest) -> HttpResponse:
        """Take a file and show what it would do."""
        by = self._importer(request)
        is_sent = request.method == "POST"
        form = UploadForm(request.POST, request.FILES) if is_sent else UploadForm()
        if not form.is_valid():
            return self._page(request, "import", form=form)
        file = form.cleaned_data["file"]
        try:
            preview = preview_import(
                content=file.read(), file_name=file.name, by=by, now=timezone.now()
            )
        except (FileRefused, PreviewNotKept) as error:
            form.add_error("file", _why_not(error))
            return self._page(request, "import", form=form)
        return self._preview(request, preview)

    def process_import(self, request: HttpRequest) -> HttpResponse:
        """Do what was looked at and confirmed."""
        by = self._importer(request)
        if request.method != "POST":
            return HttpResponseRedirect(reverse("admin:vouchers_voucher_import"))
        try:
            plan = confirm_import(key=request.POST.get("key", ""), by=by, now=timezone.now())
        except VouchersChanged as error:
            self.message_user(request, _why_not(error), messages.WARNING)
            return self._preview(request, error.preview, status=409)
        except (PreviewGone, PreviewNotKept, OperationalError, InterfaceError) as error:
            self.message_user(request, _why_not(error), messages.ERROR)
        else:
            self.message_user(request, _summary(plan), messages.SUCCESS)
        return HttpResponseRedirect(reverse("admin:vouchers_voucher_changelist"))

    def import_example(self, request: HttpRequest) -> HttpResponse:
        """Answer a file that can be imported as it is, for Excel to open."""
        self._importer(request)
        response = HttpResponse(content_type="text/csv; charset=utf-8")
        response["Content-Disposition"] = 'attachment; filename="vouchers.csv"'
        response.write("\ufeff")
        chinese = (get_language() or "").startswith("zh")
        csv.writer(response).writerows(example_rows(chinese=chinese, now=timezone.now()))
        return response

    def _importer(self, request: HttpRequest) -> Importer:
        if not self.has_import_permission(request):
            raise PermissionDenied
        may_sell = request.user.has_perm("vouchers.add_seckillvoucher")
        may_run = request.user.has_perm(RUN)
        return Importer(request.user.pk or 0, may_sell, may_run)

    def _preview(
        self, request: HttpRequest, preview: Preview, *, status: int = 200
    ) -> HttpResponse:
        counts = [(it, it.label, preview.plan.counts[it]) for it in What]
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


def _why_not(error: Exception) -> str:
    if isinstance(error, FileRefused):
        return str(error)
    if isinstance(error, VouchersChanged):
        return gettext(
            "Nothing was imported: vouchers or sales have changed since the preview. Here is what "
            "the file would do now."
        )
    if isinstance(error, PreviewGone):
        return gettext(
            "This preview has already been confirmed or is more than an hour old. If "
            "its vouchers do not appear in the list shortly, upload the file again."
        )
    if isinstance(error, PreviewNotKept):
        return gettext("The cache did not respond. Nothing was imported. Try again in a moment.")
    return gettext(
        "The database did not respond, so the file may or may not have been "
        "imported. Look for its vouchers in the list before you upload it again."
    )


def _summary(plan: Plan) -> str:
    text = gettext(
        "Imported: %(new)s new, %(changed)s changed and %(unchanged)s unchanged vouchers, and "
        "%(sales)s draft sales."
    )
    return text % {**{str(what): plan.counts[what] for what in What}, "sales": plan.sales}
