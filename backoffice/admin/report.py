"""The report on a sale in the admin: a page to read and to print, and a file for a spreadsheet."""

from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.utils import timezone
from django.utils.translation import gettext

from backoffice.admin.pages import SALE, office, read_sale, sale_at, sale_page
from backoffice.report.figures import MAX_CHANGES, report_sale
from backoffice.report.room import room_csv
from backoffice.report.tables import change_heads, changes, report_csv, requests
from backoffice.report.texts import headline, sections
from seckill_site.web.csv_files import csv_response


@sale_page("report/", name="sale-report")
def report_page(request: HttpRequest, *, sale_id: int) -> HttpResponse:
    """Show the report; for a running sale, the figures so far."""
    report = read_sale(request, report_sale, sale_id=sale_id)
    name = gettext("Report: %(sale)s") if report.is_over else gettext("Report so far: %(sale)s")
    parts = requests(report)
    return office.show(
        request,
        "vouchers/seckillvoucher/report.html",
        opts=SALE,
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


@sale_page("report/csv/", name="sale-report-csv")
def report_file(request: HttpRequest, *, sale_id: int) -> HttpResponseBase:
    report = read_sale(request, report_sale, sale_id=sale_id)
    name = f"sale-{sale_id}-report-{timezone.localtime(report.at):%Y-%m-%d}.csv"
    return csv_response(report_csv(report), name=name)


@sale_page("report/room/", name="sale-report-room")
def room_file(request: HttpRequest, *, sale_id: int) -> HttpResponseBase:
    """Send the visits to the sale's waiting room as CSV, to staff who may export orders."""
    # The file names buyers, as that of orders does.
    sale = read_sale(request, sale_at, "orders.export_voucherorder", sale_id=sale_id)
    name = f"sale-{sale_id}-waiting-room-{timezone.localdate():%Y-%m-%d}.csv"
    return csv_response(room_csv(sale=sale), name=name)
