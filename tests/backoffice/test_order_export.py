"""The export: the chosen orders, safe for spreadsheets, in bounded statements."""

from __future__ import annotations

import csv
import datetime as dt
import io
import itertools
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from django.db import OperationalError, connection
from django.db.models import QuerySet
from django.test.utils import CaptureQueriesContext
from django.utils import timezone, translation

from backoffice import order_export
from backoffice.order_export import export_orders
from orders.fulfilment.worker import fulfil_sale
from orders.lifecycle.transitions import SYSTEM, Change, note
from orders.models import SOURCES, OrderStatus, Payment, VoucherOrder
from seckill_site.web.csv_files import csv_parts
from tests.support.orders import (
    id_minted,
    make_buyer,
    make_buyers,
    make_order,
    make_sale,
    reserved_purchase,
)
from tests.support.payments import (
    choose_outcome,
    make_payment,
    make_unpaid_order,
    make_unpaid_purchase,
    notify_shop,
    pay,
    use_and_undo,
)
from tests.support.tiers import slow_after
from vouchers.models import Merchant, SeckillVoucher, Voucher

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("in_shanghai", "english")]

NOW = dt.datetime(2026, 12, 1, 4, 0, 0, tzinfo=dt.UTC)
HEADINGS = [
    "order id", "sale id", "voucher", "buyer", "voucher number", "status", "reason",
    "price in yuan", "accepted at (Asia/Shanghai, UTC+8)", "written at (Asia/Shanghai, UTC+8)",
    "paid at (Asia/Shanghai, UTC+8)", "used at (Asia/Shanghai, UTC+8)",
    "voucher code", "payment reference", "merchant", "purchase",
]  # fmt: skip


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shrink chunk and window, so that a few orders are many."""
    monkeypatch.setattr(order_export, "CHUNK", 3)
    monkeypatch.setattr(order_export, "WINDOW", 5)


def exported(orders: QuerySet[VoucherOrder] | None = None, *, codes: bool = True) -> list[Any]:
    """Return the rows below the headings, parsed."""
    found = VoucherOrder.objects.all() if orders is None else orders
    text = "".join(csv_parts(*export_orders(orders=found, codes=codes, now=NOW)))
    assert text.startswith("\ufeff")
    headings, *rows = csv.reader(io.StringIO(text[1:], newline=""), strict=True)
    assert headings == HEADINGS
    return rows


def ids_in(rows: list[Any]) -> list[int]:
    return [int(row[0]) for row in rows]


def only(**fields: Any) -> dict[str, str]:
    """Return the only row of the export by heading."""
    (row,) = exported(**fields)
    return dict(zip((it.partition(" (")[0] for it in HEADINGS), row, strict=True))


def make_orders(sale: SeckillVoucher, count: int) -> None:
    buyers = make_buyers(count)
    VoucherOrder.objects.bulk_create(
        VoucherOrder(
            id=id_minted(seconds_ago=60), user=buyer, seckill_voucher=sale, unit=1,
            status=OrderStatus.UNPAID, price_cents=8_000, accepted_at=NOW,
        )
        for buyer in buyers
    )  # fmt: skip


# --- Cells ----------------------------------------------------------------------------------------


def test_exported_order_includes_its_outcome() -> None:
    sale = make_sale(loaded=False)
    order = make_order(sale, make_buyer(), status=OrderStatus.USED)
    VoucherOrder.objects.update(accepted_at=NOW, created_at=NOW, code="0123456789ABCDEF")
    Voucher.objects.update(merchant=Merchant.objects.create(name="Old Street"))
    paid_at, used_at = (NOW + dt.timedelta(minutes=minutes) for minutes in (5, 90))
    for to, at in ((OrderStatus.PAID, paid_at), (OrderStatus.USED, used_at)):
        note(Change(to, SYSTEM, at), order_ids=[order.pk], before=SOURCES[to])
    for reference, settles in (("a" * 32, False), ("1" * 32, True)):
        Payment.objects.create(
            order=order, reference=reference, provider="sandbox", amount_cents=1, settles=settles
        )

    assert order.user
    assert only() == {
        "order id": f"\t{order.pk}",
        "sale id": str(sale.pk),
        "voucher": sale.voucher.title,
        "buyer": order.user.username,
        "voucher number": "1",
        "status": "used",
        "reason": "",
        "price in yuan": "80.00",
        "accepted at": "2026-12-01 12:00:00",
        "written at": "2026-12-01 12:00:00",
        "paid at": "2026-12-01 12:05:00",
        "used at": "2026-12-01 13:30:00",
        "voucher code": "0123-4567-89AB-CDEF",
        "payment reference": "\t" + "1" * 32,
        "merchant": "Old Street",
        "purchase": f"\t{order.pk}",
    }


def test_units_of_a_purchase_are_rows_with_its_id() -> None:
    sale = make_sale(limit=3)
    first, *_ = reserved_purchase(sale, make_buyer(), 3, all_or_none=True)
    fulfil_sale(sale_id=sale.pk)
    rows = exported()
    assert ids_in(rows) == [first, first + 33, first + 34]
    assert {row[-1] for row in rows} == {f"\t{first}"}


def test_units_paid_together_have_one_reference_and_their_own_prices() -> None:
    orders = make_unpaid_purchase(make_sale(limit=4), 3)
    share = make_payment(orders[1])
    assert share.charge
    choose_outcome(share.charge)
    notify_shop(share.charge)
    rows = [dict(zip(HEADINGS, it, strict=True)) for it in exported()]
    assert {it["payment reference"] for it in rows} == {f"\t{share.charge.reference}"}
    assert [it["price in yuan"] for it in rows] == ["80.00"] * 3


def test_undone_use_moves_no_payment_and_has_no_time() -> None:
    order = make_unpaid_order(make_sale())
    pay(order)
    before = only()
    use_and_undo(order)
    assert only() == before
    assert before["paid at"]


def test_refused_order_without_buyer_has_its_reason() -> None:
    make_order(make_sale(loaded=False), None, status=OrderStatus.REFUSED, reason="sold_out")
    row = only()
    assert (row["buyer"], row["status"], row["reason"]) == ("", "refused", "no vouchers were left")
    assert (row["paid at"], row["voucher code"], row["payment reference"]) == ("", "", "")


@pytest.mark.parametrize(
    ("cents", "yuan"), [(0, "0.00"), (1, "0.01"), (29, "0.29"), (100_000_000, "1000000.00")]
)
def test_money_has_two_decimals(cents: int, yuan: str) -> None:
    make_order(make_sale(loaded=False), make_buyer())
    VoucherOrder.objects.update(price_cents=cents)
    assert only()["price in yuan"] == yuan


@pytest.mark.parametrize("order_id", [2**53 + 1, 1205689618834327, 2**63 - 1])
def test_order_id_keeps_all_digits_as_text(order_id: int) -> None:
    make_order(make_sale(loaded=False), make_buyer(), order_id=order_id)
    assert only()["order id"] == f"\t{order_id}"


def test_typed_cells_stay_text() -> None:
    sale = make_sale(loaded=False)
    Voucher.objects.update(title="12-1")
    make_order(sale, User.objects.create(username="@buyer"))
    row = only()
    assert (row["voucher"], row["buyer"]) == ("\t12-1", "'@buyer")


def test_export_uses_the_readers_language() -> None:
    make_order(make_sale(loaded=False), make_buyer())
    with translation.override("zh-hans"):
        export = export_orders(orders=VoucherOrder.objects.all(), codes=True, now=NOW)
    text = "".join(csv_parts(*export))  # sent later, when nobody's language is set
    assert "受理时间" in text
    assert "未支付" in text or "待支付" in text or "待付款" in text


def test_heading_names_both_offsets_with_daylight_saving() -> None:
    with timezone.override("Europe/Berlin"):
        export = export_orders(orders=VoucherOrder.objects.all(), codes=True, now=NOW)
    assert "accepted at (Europe/Berlin, UTC+1/UTC+2)" in export.headings


# --- Selection ------------------------------------------------------------------------------------


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("count", slow_after(4, [0, 1, 2, 3, 4, 5, 6, 7, 10, 11, 31]))
def test_each_order_is_exported_once_oldest_first(count: int) -> None:
    make_orders(make_sale(loaded=False), count)
    every = VoucherOrder.objects.order_by("pk").values_list("pk", flat=True)
    assert ids_in(exported()) == list(every)


@pytest.mark.usefixtures("small")
def test_export_writes_only_the_selected_orders() -> None:
    wanted, other = make_sale(loaded=False), make_sale(loaded=False)
    for sale, count in ((other, 13), (wanted, 1), (other, 12), (wanted, 7), (other, 1)):
        make_orders(sale, count)
    orders = VoucherOrder.objects.filter(seckill_voucher=wanted)
    assert ids_in(exported(orders)) == sorted(orders.values_list("pk", flat=True))


@pytest.mark.usefixtures("small")
def test_orders_written_during_export_cause_no_gaps_or_repeats() -> None:
    sale = make_sale(loaded=False)
    make_orders(sale, 20)
    before = sorted(VoucherOrder.objects.values_list("pk", flat=True))
    ids = []
    between = itertools.cycle([before[0] - 1, before[10] + 1, before[-1] + 1_000])
    _, chunks = export_orders(orders=VoucherOrder.objects.all(), codes=True, now=NOW)
    for number, rows in enumerate(chunks):
        ids += ids_in(list(rows))
        # One behind the walk, one before it, one after its end.
        make_order(sale, make_buyer(), order_id=next(between) + number * 1_000_000)
    assert ids == sorted(set(ids))
    assert set(before) <= set(ids)
    assert max(ids) == before[-1]


# --- In bounded statements ------------------------------------------------------------------------


def statements(orders: QuerySet[VoucherOrder]) -> int:
    with CaptureQueriesContext(connection) as captured:
        list(csv_parts(*export_orders(orders=orders, codes=True, now=NOW)))
    return len(captured)


@pytest.mark.slow
def test_statements_grow_by_chunks_only() -> None:
    sale = make_sale(loaded=False)
    make_orders(sale, 50)
    # The newest id, the ids; and for each chunk orders, sales, history and payments.
    assert statements(VoucherOrder.objects.all()) == 2 + 4
    make_orders(sale, 2_450)
    assert statements(VoucherOrder.objects.all()) == 2 + 4 * 2


@pytest.mark.usefixtures("small")
def test_export_reads_ids_window_by_window_outside_transactions() -> None:
    make_orders(make_sale(loaded=False), 30)
    with CaptureQueriesContext(connection) as captured:
        exported()
    windows = [it["sql"] for it in captured if "LIMIT" in it["sql"]]
    assert len(windows) == 7
    assert all("`id` > " in sql and "LIMIT 5" in sql for sql in windows)
    assert not any("BEGIN" in it["sql"] or "SAVEPOINT" in it["sql"] for it in captured)


@pytest.mark.usefixtures("small")
def test_headings_stream_first_and_reading_stops_on_disconnect() -> None:
    make_orders(make_sale(loaded=False), 30)
    export = export_orders(orders=VoucherOrder.objects.all(), codes=True, now=NOW)
    parts = csv_parts(*export)
    with CaptureQueriesContext(connection) as captured:
        assert "order id" in next(parts)
        assert len(captured) == 0
        next(parts)
        read = len(captured)
        parts.close()  # type: ignore[attr-defined]
        assert list(parts) == []
        assert len(captured) == read


# --- The command ----------------------------------------------------------------------------------


def commanded(*arguments: str) -> list[list[str]]:
    out = io.StringIO()
    call_command("export_orders", *arguments, stdout=out, stderr=io.StringIO())
    text = out.getvalue()
    assert text.startswith("\ufeff")
    return list(csv.reader(io.StringIO(text[1:], newline="")))[1:]


def test_export_command_filters_by_sale_and_time() -> None:
    first, second = make_sale(loaded=False), make_sale(loaded=False)
    old, new = make_order(first, make_buyer()), make_order(second, make_buyer())
    VoucherOrder.objects.filter(pk=old.pk).update(accepted_at=NOW - dt.timedelta(seconds=1))
    VoucherOrder.objects.filter(pk=new.pk).update(accepted_at=NOW, code="0123456789ABCDEF")

    assert ids_in(commanded()) == sorted([old.pk, new.pk])
    assert ids_in(commanded("--sale", str(first.pk))) == [old.pk]
    assert ids_in(commanded("--since", "2026-12-01T12:00")) == [new.pk]
    assert ids_in(commanded("--since", "2026-12-01T04:00:00Z")) == [new.pk]
    assert commanded("--sale", str(second.pk))[0][12] == "****-****-****-CDEF"
    assert commanded("--sale", str(second.pk), "--codes")[0][12] == "0123-4567-89AB-CDEF"


def test_export_command_always_uses_english() -> None:
    make_order(make_sale(loaded=False), make_buyer())
    with translation.override("zh-hans"):
        assert commanded()[0][5] == "unpaid"


@pytest.mark.parametrize("since", ["yesterday", "2026-13-01T00:00", ""])
def test_export_command_refuses_a_bad_time(since: str) -> None:
    with pytest.raises(CommandError, match="--since"):
        commanded("--since", since)


def test_export_command_reports_an_incomplete_file(monkeypatch: pytest.MonkeyPatch) -> None:
    make_order(make_sale(loaded=False), make_buyer())

    def away(order_ids: object) -> None:
        raise OperationalError(2013, "lost connection")

    monkeypatch.setattr(order_export, "_moments", away)
    with pytest.raises(CommandError, match="the file ends here"):
        commanded()
