"""The report's page, its CSV file and their permissions."""

from __future__ import annotations

import csv
import datetime as dt
import io
import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.admin.models import CHANGE, LogEntry
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone

from backoffice.report import tables
from orders.models import OrderStatus, RoomVisit
from tests.support.orders import make_buyer, make_buyers, make_order, make_sale
from tests.support.staff import staff_with
from tests.support.tiers import slow_after
from vouchers.models import AnswerCount, SeckillVoucher, Voucher

pytestmark = pytest.mark.django_db


def page_url(sale: SeckillVoucher) -> str:
    return reverse("admin:sale-report", args=[sale.pk])


def csv_url(sale: SeckillVoucher) -> str:
    return reverse("admin:sale-report-csv", args=[sale.pk])


def over(sale: SeckillVoucher) -> SeckillVoucher:
    """Make a sale end a minute ago."""
    sale.ends_at = timezone.now() - dt.timedelta(minutes=1)
    sale.begins_at = sale.ends_at - dt.timedelta(hours=2)
    sale.save()
    return sale


def with_answers(sale: SeckillVoucher, *, first_s: int, seconds: int, count: int) -> None:
    """Store one accepted and two sold-out answers for each of these times."""
    begins = sale.begins_at.replace(second=0, microsecond=0)
    AnswerCount.objects.bulk_create(
        AnswerCount(
            seckill_voucher=sale, at=begins + dt.timedelta(seconds=first_s + number * seconds),
            answer=answer, count=times, seconds=seconds,
        )
        for number in range(count)
        for answer, times in (("accepted", 1), ("sold_out", 2))
    )  # fmt: skip


def rows_of(response: Any) -> list[list[str]]:
    """Return the rows of the CSV file as a spreadsheet reads them."""
    assert response["Content-Type"] == "text/csv; charset=utf-8"
    text = response.getvalue().decode("utf-8-sig")
    return list(csv.reader(io.StringIO(text, newline="")))


def figures_of(response: Any) -> dict[tuple[str, str], str]:
    """Return the figures of the CSV by section and name."""
    rows = rows_of(response)
    assert rows[0] == ["Section", "Figure", "Value"]
    return {(section, name): value for section, name, value in rows[1 : rows.index([])]}


def chart_data(page: str) -> dict[str, Any]:
    match = re.search(r'<script id="charts" type="application/json">(.*?)</script>', page)
    assert match
    return dict(json.loads(match[1]))


def shown(page: str, label: str) -> str:
    """Return the figure beside a label on the page."""
    match = re.search(rf"<th scope=\"row\">{re.escape(label)}</th>\s*<td>(.*?)</td>", page)
    assert match, label
    return match[1]


# --- Permissions ---------------------------------------------------------------------------------


@pytest.mark.parametrize("url", slow_after(1, [page_url, csv_url]), ids=["page", "csv"])
def test_report_is_not_cached(url: Callable[[SeckillVoucher], str], looker: Client) -> None:
    assert "no-store" in looker.get(url(make_sale()))["Cache-Control"]


@pytest.mark.parametrize("name", ["sale-report", "sale-report-csv", "sale-report-room"])
def test_report_on_missing_sale_returns_404(name: str, exporter: Client) -> None:
    assert exporter.get(reverse(f"admin:{name}", args=[4_711])).status_code == 404


# --- The page ------------------------------------------------------------------------------------


def test_report_page_of_ended_sale_is_complete(looker: Client) -> None:
    sale, (first, second, third) = over(make_sale(stock=2)), make_buyers(3)
    for buyer, status in [
        (first, OrderStatus.PAID), (second, OrderStatus.UNPAID), (third, OrderStatus.CANCELLED),
    ]:  # fmt: skip
        make_order(sale, buyer, status=status)
    SeckillVoucher.objects.filter(pk=sale.pk).update(sold=2)
    with_answers(sale, first_s=0, seconds=1, count=4)
    page = looker.get(page_url(sale)).text
    assert f"Report: {sale}" in page
    assert "so far" not in page
    expected = {
        "Vouchers offered": "2", "Sold": "2", "Requests": "12", "Accepted": "4", "Sold out": "8",
        "Most requests per second": "3", "Orders": "3", "Paid": "1", "Cancelled": "1",
        "Buyers": "3", "Net revenue": "¥80.00", "Share of orders paid": "33.3%", "Joined": "0",
    }  # fmt: skip
    assert {label: shown(page, label) for label in expected} == expected
    assert "No changes were made in the admin." in page


def test_report_on_running_sale_is_titled_so_far(looker: Client) -> None:
    sale = make_sale(stock=5)
    page = looker.get(page_url(sale)).text
    assert f"Report so far: {sale}" in page
    assert "The sale has not ended" in page
    assert (shown(page, "Left"), shown(page, "Queued")) == ("5", "0")
    assert "No order requests were recorded." in page


def test_report_without_redis_names_what_is_missing(
    looker: Client, lose_ledger: Callable[[], None]
) -> None:
    sale, (buyer,) = make_sale(), make_buyers(1)
    make_order(sale, buyer)
    lose_ledger()
    page = looker.get(page_url(sale)).text
    assert "Redis is not responding" in page
    assert shown(page, "Orders") == "1"
    names = {name for _, name in figures_of(looker.get(csv_url(sale)))}
    assert "Not known" in names


def test_title_is_escaped_in_the_report(looker: Client) -> None:
    sale = make_sale()
    Voucher.objects.update(title="</script><b>bold")
    page = looker.get(page_url(sale)).text
    assert "<b>bold" not in page


def test_report_page_is_translated(looker: Client) -> None:
    sale = over(make_sale())
    with_answers(sale, first_s=0, seconds=1, count=2)
    answer = looker.get(page_url(sale), headers={"Accept-Language": "zh-hans"})
    assert answer.status_code == 200
    assert '<html lang="zh-hans"' in answer.text


# --- Requests over time --------------------------------------------------------------------------


def test_start_is_charted_by_seconds_and_sale_by_minutes(looker: Client) -> None:
    sale = over(make_sale())
    with_answers(sale, first_s=0, seconds=1, count=3)
    with_answers(sale, first_s=1_200, seconds=60, count=1)
    near, whole = chart_data(looker.get(page_url(sale)).text)["parts"]
    begins = int(sale.begins_at.timestamp()) // 60 * 60
    assert near["times"] == [begins, begins + 1, begins + 2]
    assert [it["values"] for it in near["series"]] == [[3, 3, 3], [1, 1, 1], [2, 2, 2], [0, 0, 0]]
    assert whole["times"] == list(range(begins, begins + 1_201, 60))
    assert whole["series"][0]["values"] == [9, *[0] * 19, 3]
    assert (near["unit"], whole["unit"]) == ("per second", "per minute")
    assert "The peak was 9 requests in the 60 s starting at" in whole["summary"]


def test_short_sale_has_one_chart(looker: Client) -> None:
    sale = over(make_sale())
    with_answers(sale, first_s=0, seconds=1, count=3)
    assert len(chart_data(looker.get(page_url(sale)).text)["parts"]) == 1


def test_long_sale_is_shortened_on_the_page_only(
    looker: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "MAX_POINTS", 50)
    sale = over(make_sale())
    with_answers(sale, first_s=0, seconds=1, count=300)
    with_answers(sale, first_s=1_200, seconds=60, count=600)
    answer = looker.get(page_url(sale))
    parts = answer.context["requests"]
    assert [part.step for part in parts] == ["Each row is 5 seconds.", "Each row is 10 minutes."]
    assert all(len(part.rows) <= 100 for part in parts)
    assert sum(int(row[1]) for row in parts[1].rows) == 900 * 3
    assert all(len(part.chart["times"]) <= 50 for part in parts)
    rows = rows_of(looker.get(csv_url(sale)))
    head = rows.index(["From", "Seconds", "Requests", "Accepted", "Sold out"])
    times = rows[head + 1 : rows.index([], head)]
    assert len(times) == 900
    assert {tuple(row[1:]) for row in times} == {("1", "3", "1", "2"), ("60", "3", "1", "2")}


# --- CSV -----------------------------------------------------------------------------------------


def test_csv_matches_the_figures(looker: Client, in_shanghai: None) -> None:
    sale, buyers = over(make_sale(stock=2)), make_buyers(2)
    for buyer in buyers:
        make_order(sale, buyer, status=OrderStatus.PAID)
    SeckillVoucher.objects.filter(pk=sale.pk).update(sold=2)
    with_answers(sale, first_s=0, seconds=1, count=4)
    assert looker.get(csv_url(sale)).getvalue().startswith(b"\xef\xbb\xbf")
    figures = figures_of(looker.get(csv_url(sale)))
    assert figures["Report", "Voucher"] == sale.voucher.title
    assert figures["Report", "Times are in"] == "Asia/Shanghai (UTC+8)"
    expected = {
        ("Sale", "Sold"): "2", ("Requests", "Requests"): "12", ("Orders", "Paid"): "2",
        ("Money", "Net revenue (¥)"): "160.00", ("Money", "Share of orders paid (%)"): "100.0",
        ("Waiting list", "Joined"): "0",
    }  # fmt: skip
    assert expected.items() <= figures.items()
    local = timezone.localtime(sale.begins_at)
    assert figures["Sale", "Start"] == f"{local:%Y-%m-%d %H:%M:%S}"


@pytest.mark.usefixtures("one_day")
def test_report_file_is_named_by_sale_and_day(looker: Client) -> None:
    sale = make_sale()
    name = f"sale-{sale.pk}-report-{timezone.localtime():%Y-%m-%d}.csv"
    assert looker.get(csv_url(sale))["Content-Disposition"] == f'attachment; filename="{name}"'


def test_csv_change_with_line_break_stays_one_cell(looker: Client) -> None:
    sale = make_sale()
    boss = User.objects.create(username="=boss")
    LogEntry.objects.log_actions(
        boss.pk, [sale], CHANGE, change_message="Stock: 5 → 9,\nas agreed", single_object=True
    )
    *_, last = rows_of(looker.get(csv_url(sale)))
    assert last[1:] == ["during the sale", "'=boss", "Stock: 5 → 9,\nas agreed"]


# --- Queries -------------------------------------------------------------------------------------


def test_page_query_count_is_constant(looker: Client) -> None:
    small, large = over(make_sale(stock=1)), over(make_sale(stock=60))
    for sale, count in ((small, 1), (large, 60)):
        for buyer in make_buyers(count):
            make_order(sale, buyer, status=OrderStatus.PAID)
        with_answers(sale, first_s=0, seconds=1, count=count)
    taken = []
    for sale in (small, small, large):  # the first look fills the caches of Django itself
        with CaptureQueriesContext(connection) as queries:
            assert looker.get(page_url(sale)).status_code == 200
        taken.append(len(queries))
    assert taken[1] == taken[2]


# --- Waiting room --------------------------------------------------------------------------------


@pytest.fixture
def exporter(db: None) -> Client:
    """The client of a user who may also export orders."""
    return staff_with("view_seckillvoucher", "export_voucherorder", name="exporter")


def room_url(sale: SeckillVoucher) -> str:
    return reverse("admin:sale-report-room", args=[sale.pk])


def with_visit(sale: SeckillVoucher) -> SeckillVoucher:
    """Store one visit of ten seconds."""
    joined_at = sale.begins_at + dt.timedelta(minutes=1)
    let_in_at = joined_at + dt.timedelta(seconds=10)
    RoomVisit.objects.create(
        seckill_voucher=sale, user=make_buyer(), opened_ms=1, given=1,
        joined_at=joined_at, let_in_at=let_in_at,
    )  # fmt: skip
    return sale


def test_report_has_the_figures_of_the_waiting_room(looker: Client) -> None:
    figures = figures_of(looker.get(csv_url(with_visit(over(make_sale())))))

    assert figures["Waiting room", "Joined the line"] == "1"
    assert {name for part, name in figures if part == "Waiting room"} >= {"Let in", "Not let in"}


def test_report_without_visits_has_no_waiting_room(looker: Client) -> None:
    figures = figures_of(looker.get(csv_url(over(make_sale()))))

    assert "Waiting room" not in {part for part, _ in figures}


@pytest.mark.usefixtures("one_day")
def test_file_of_visits_names_the_buyers(exporter: Client) -> None:
    sale = with_visit(over(make_sale()))

    response = exporter.get(room_url(sale))

    content = response.getvalue().decode("utf-8-sig")
    visit = RoomVisit.objects.get()
    assert visit.user.username in content
    name = f"sale-{sale.pk}-waiting-room-{timezone.localtime():%Y-%m-%d}.csv"
    assert response["Content-Disposition"] == f'attachment; filename="{name}"'
    assert response["Cache-Control"].startswith("private, no-store")


@pytest.mark.parametrize(
    ("permissions", "status"),
    slow_after(
        2,
        [
            (("view_seckillvoucher", "export_voucherorder"), 200),
            (("view_seckillvoucher",), 403),
            (("export_voucherorder",), 403),
            ((), 403),
        ],
    ),
)
def test_file_of_visits_needs_both_permissions(permissions: tuple[str, ...], status: int) -> None:
    sale = with_visit(over(make_sale()))

    assert staff_with(*permissions).get(room_url(sale)).status_code == status
    assert Client().get(room_url(sale)).status_code == 302


def test_link_to_the_visits_is_for_who_may_follow_it(looker: Client, exporter: Client) -> None:
    sale, empty = with_visit(over(make_sale())), over(make_sale())

    assert room_url(sale) in exporter.get(page_url(sale)).text
    assert room_url(sale) not in looker.get(page_url(sale)).text
    assert room_url(empty) not in exporter.get(page_url(empty)).text
