"""The report on a sale in the admin: a page to read and to print, and a file for a spreadsheet."""

from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.utils import timezone
from django.utils.translation import gettext

from backoffice.admin.customers import SEE_WAITING
from backoffice.admin.pages import admin_page, check_may, read_sale, sale_at
from backoffice.report.figures import MAX_CHANGES, report_sale
from backoffice.report.room import room_csv
from backoffice.report.tables import change_heads, changes, report_csv, requests
from backoffice.report.texts import headline, sections
from seckill_site.web.csv_files import csv_response
from vouchers.admin.sale import SeckillVoucherAdmin

SEE_VISITS = "orders.export_voucherorder"
"""The file of visits names buyers, as the export of orders does."""


def report_page(
    model_admin: SeckillVoucherAdmin, request: HttpRequest, *, sale_id: int
) -> HttpResponse:
    """Show the report; for a running sale, the figures so far."""
    report = read_sale(model_admin, request, report_sale, sale_id=sale_id)
    name = gettext("Report: %(sale)s") if report.is_over else gettext("Report so far: %(sale)s")
    parts = requests(report)
    return admin_page(
        model_admin,
        request,
        "vouchers/seckillvoucher/report.html",
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
        may_see_waiting=report.waiting_list.joined > 0 and request.user.has_perm(SEE_WAITING),
        may_see_visits=report.room is not None and request.user.has_perm(SEE_VISITS),
    )


def report_file(
    model_admin: SeckillVoucherAdmin, request: HttpRequest, *, sale_id: int
) -> HttpResponseBase:
    report = read_sale(model_admin, request, report_sale, sale_id=sale_id)
    name = f"sale-{sale_id}-report-{timezone.localtime(report.at):%Y-%m-%d}.csv"
    return csv_response(report_csv(report), name=name)


def room_file(
    model_admin: SeckillVoucherAdmin, request: HttpRequest, *, sale_id: int
) -> HttpResponseBase:
    """Send the visits to the sale's waiting room as CSV, to staff who may export orders."""
    sale = read_sale(model_admin, request, sale_at, sale_id=sale_id)
    check_may(request, SEE_VISITS)
    name = f"sale-{sale_id}-waiting-room-{timezone.localdate():%Y-%m-%d}.csv"
    return csv_response(room_csv(sale=sale), name=name)
