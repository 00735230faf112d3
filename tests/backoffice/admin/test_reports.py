"""The report across sales in the admin: period, grouping, drill-down, CSV, permission."""

from __future__ import annotations

import csv
import datetime as dt
import io
import re

import pytest
from django.test import Client
from django.utils import timezone

from backoffice.report import across_texts
from orders.models import OrderEvent, OrderStatus
from tests.support.orders import make_buyer, make_order, make_sale
from tests.support.tiers import slow_after
from vouchers.models import Merchant, SeckillVoucher, Voucher

pytestmark = pytest.mark.django_db

PAGE, FILE = "/admin/reports/", "/admin/reports/csv/"


@pytest.fixture
def sale(db: None) -> SeckillVoucher:
    """A sale of today with one paid order, of a voucher with a merchant."""
    sale = make_sale()
    merchant = Merchant.objects.create(name="=Old town")
    Voucher.objects.filter(pk=sale.voucher_id).update(title="Noodles", merchant=merchant)
    order = make_order(sale, make_buyer(), status=OrderStatus.PAID)
    OrderEvent.objects.create(
        order=order, before="unpaid", after="paid", at=timezone.now(), actor_kind="provider"
    )
    return sale


def shown(client: Client, **query: str | int) -> str:
    response = client.get(PAGE, query)
    assert response.status_code == 200
    return response.content.decode()


def rows(client: Client, language: str = "en", **query: str | int) -> list[list[str]]:
    response = client.get(FILE, query, headers={"Accept-Language": language})
    assert response["Content-Type"] == "text/csv; charset=utf-8"
    text = response.getvalue().decode()
    assert text.startswith("\ufeff")
    return list(csv.reader(io.StringIO(text[1:])))


@pytest.mark.usefixtures("one_day")
def test_first_view_is_the_last_thirty_days_by_day(looker: Client, sale: SeckillVoucher) -> None:
    page = shown(looker)
    assert timezone.localdate().isoformat() in page
    assert "¥80.00" in page
    assert "The best day was" in page


@pytest.mark.parametrize(
    ("by", "name"), slow_after(1, [("voucher", "Noodles"), ("merchant", "=Old town")])
)
def test_rows_lead_to_their_days(looker: Client, sale: SeckillVoucher, by: str, name: str) -> None:
    page = shown(looker, by=by)
    assert name in page
    key = sale.voucher_id if by == "voucher" else Merchant.objects.get(name=name).pk
    assert f"by=day&amp;{by}={key}" in page
    assert "¥80.00" in shown(looker, by="day", **{by: key})


def test_day_leads_to_its_sales_and_they_to_their_reports(
    looker: Client, sale: SeckillVoucher
) -> None:
    assert "by=sale" in shown(looker)
    page = shown(looker, by="sale")
    assert "Noodles · " in page
    assert f'href="/admin/vouchers/seckillvoucher/{sale.pk}/report/"' in page


def test_total_stands_beside_that_of_the_period_before(
    looker: Client, sale: SeckillVoucher
) -> None:
    today = timezone.localdate()
    order = make_order(sale, make_buyer(), status=OrderStatus.REFUNDED)
    week_ago = timezone.now() - dt.timedelta(days=7)
    for was, becomes in (("unpaid", "paid"), ("paid", "refunding")):
        OrderEvent.objects.create(
            order=order, before=was, after=becomes, at=week_ago, actor_kind="system"
        )
    week = {"since": str(today - dt.timedelta(days=6)), "until": str(today)}

    *_, total, before = rows(looker, **week)

    first, last = (today - dt.timedelta(days=it) for it in (13, 7))
    assert before[0] == f"Period before: {first} to {last}"
    assert (total[8:11], before[8:11]) == (["80.00", "0.00", "80.00"], ["80.00", "80.00", "0.00"])
    page = re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", shown(looker, **week)))
    assert f"Period before: {first} to {last}" in page


def test_bars_have_an_axis_and_days(looker: Client, sale: SeckillVoucher) -> None:
    page = shown(looker)
    assert re.findall(r"<li>(¥[^<]*)</li>", page) == ["¥100", "¥50", "¥0"]
    today = timezone.localdate()
    first = today - dt.timedelta(days=29)
    assert f"<span>{first}</span>" in page
    assert f"<span>{today}</span>" in page


@pytest.mark.parametrize(
    ("cents", "top"), [(1, 1), (3, 5), (8_000, 10_000), (10_001, 20_000), (600_000, 1_000_000)]
)
def test_axis_ends_at_a_round_amount(cents: int, top: int) -> None:
    assert across_texts._round_up(cents) == top


def test_merchant_without_sales_has_nothing(looker: Client, sale: SeckillVoucher) -> None:
    other = Merchant.objects.create(name="Other")
    assert "Nothing happened in this period." in shown(looker, merchant=other.pk)


def test_file_has_figures_and_total_in_the_readers_language(
    looker: Client, sale: SeckillVoucher
) -> None:
    heads, row, total, _before = rows(looker, by="merchant")
    assert heads[:4] == ["Merchant", "Sales started", "Sold out", "Fastest sell-out (s)"]
    assert row[0] == "'=Old town", "a spreadsheet would evaluate it"
    assert (row[8], total[0], total[8]) == ("80.00", "Total", "80.00")
    assert rows(looker, "zh-hans", by="merchant")[0][0] == "商家"


@pytest.mark.parametrize(
    "query",
    slow_after(
        1,
        [
            {"since": "2026-11-12", "until": "2026-11-11"},
            {"since": "2020-01-01", "until": "2026-01-01"},
            {"since": "0001-01-01"},
            {"until": "9999-12-31"},
            {"since": "yesterday"},
            {"by": "buyer"},
            {"voucher": "999"},
            {"voucher": "x"},
        ],
    ),
)
@pytest.mark.parametrize("url", [PAGE, FILE])
def test_impossible_question_shows_the_form_again(
    looker: Client, url: str, query: dict[str, str]
) -> None:
    response = looker.get(url, query)
    assert response.status_code == 400
    assert "errorlist" in response.content.decode()


@pytest.mark.usefixtures("one_day")
def test_longest_period_is_a_year(looker: Client) -> None:
    until = timezone.localdate()
    assert looker.get(PAGE, {"since": str(until - dt.timedelta(days=365))}).status_code == 200
    assert looker.get(PAGE, {"since": str(until - dt.timedelta(days=366))}).status_code == 400
