"""The report on a sale in the admin: a page to read and to print, and a file for a spreadsheet."""

from __future__ import annotations

from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse
from django.urls import URLPattern
from django.utils import timezone
from django.utils.translation import gettext

from backoffice.admin.pages import admin_page, sale_url
from backoffice.report.csv_file import file_name, report_csv
from backoffice.report.figures import MAX_CHANGES, SaleReport, report_sale
from backoffice.report.tables import change_heads, changes, requests
from backoffice.report.texts import headline, sections
from seckill_site.web.responses import for_owner
from vouchers.admin.sale import SeckillVoucherAdmin
from vouchers.models import SeckillVoucher


def report_urls(model_admin: SeckillVoucherAdmin) -> list[URLPattern]:
    """Return the addresses of the report."""
    return [
        sale_url(model_admin, "report/", report_page, "sale-report"),
        sale_url(model_admin, "report/csv/", report_file, "sale-report-csv"),
    ]


def report_page(
    model_admin: SeckillVoucherAdmin, request: HttpRequest, *, sale_id: int
) -> HttpResponse:
    """Show the report, of a running sale so far."""
    report = _report(model_admin, request, sale_id)
    name = gettext("Report: %(sale)s") if report.is_over else gettext("Report so far: %(sale)s")
    parts = requests(report)
    page = admin_page(
        model_admin,
        request,
        "vouchers/seckillvoucher/report.html",
        is_nav_sidebar_enabled=False,  # the charts need the width
        title=name % {"sale": report.sale},
        report=report,
        headline=headline(report),
        sections=sections(report),
        requests=parts,
        charts={
            "zone": timezone.get_current_timezone_name(),
            "words": {"time": gettext("Time")},
            "parts": [part.chart for part in parts],
        },
        change_heads=change_heads(),
        changes=changes(report),
        max_changes=MAX_CHANGES,
    )
    return for_owner(page)


def report_file(
    model_admin: SeckillVoucherAdmin, request: HttpRequest, *, sale_id: int
) -> HttpResponse:
    """Send the report as CSV."""
    report = _report(model_admin, request, sale_id)
    response = HttpResponse(report_csv(report), content_type="text/csv; charset=utf-8")
    response["Content-Disposition"] = f'attachment; filename="{file_name(report)}"'
    return for_owner(response)


def _report(model_admin: SeckillVoucherAdmin, request: HttpRequest, sale_id: int) -> SaleReport:
    if not model_admin.has_view_permission(request):
        raise PermissionDenied
    try:
        return report_sale(sale_id=sale_id, now=timezone.now())
    except SeckillVoucher.DoesNotExist:
        raise Http404 from None
