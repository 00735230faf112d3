"""Customers: found by name, contact and order, in a fixed number of statements."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable

import pytest
from allauth.account.models import EmailAddress
from django.contrib.auth.models import User
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone, translation

from accounts.contacts import Contact
from accounts.deletion import anonymise
from accounts.models import Phone
from backoffice.customers import (
    MOST_ROWS,
    customers,
    find_customers,
    find_orders,
    history_of,
    mask,
    newest_buyers,
)
from orders.draws.entries import store_entries
from orders.fulfilment.worker import fulfil_sale
from orders.models import (
    DrawEntry,
    Notice,
    OrderRefusal,
    OrderStatus,
    Payment,
    RoomVisit,
    RuleRefusal,
    VoucherOrder,
    WaitingEntry,
)
from tests.support.draws import draw_to_the_end, end, entered_draw
from tests.support.orders import make_buyer, make_buyers, make_order, make_sale, reserved
from tests.support.payments import make_payment as start
from tests.support.payments import make_unpaid_purchase
from tests.support.tiers import slow_after
from vouchers.inventory.keys import LedgerUnavailable
from vouchers.models import SaleStage

pytestmark = pytest.mark.django_db


def named(name: str, *, email: str = "", phone: str = "") -> User:
    user = User.objects.create(username=name)
    if email:
        EmailAddress.objects.create(user=user, email=email, verified=True, primary=True)
    if phone:
        Phone.objects.create(user=user, number=phone)
    return user


@pytest.fixture
def ann(db: None) -> User:
    return named("Ann", email="ann.lee@example.com", phone="+8613812345678")


@pytest.mark.parametrize(
    "text", ["ann", " Ann ", "ann.lee@", "ANN.LEE@example.com", "+86 138-1234", "+8613812345678"]
)
def test_account_is_found_by_the_start_of_name_or_contact(ann: User, text: str) -> None:
    named("Ben", email="ben@example.com", phone="+8613900000000")
    assert find_customers(text) == [ann.pk]


def test_account_is_found_by_its_order(ann: User) -> None:
    order = make_order(make_sale(), ann)
    assert find_customers(str(order.pk)) == [ann.pk]
    assert find_customers(str(order.pk + 1)) == []


@pytest.mark.parametrize("text", ["", "   ", "%", "²", "9" * 30, "'", "\\"])
def test_odd_search_finds_nobody(ann: User, text: str) -> None:
    assert find_customers(text) == []


@pytest.mark.parametrize(
    ("contact", "shown"),
    [
        (Contact(), ""),
        (Contact(email="ann.lee@example.com"), "a***@example.com"),
        (Contact(phone="+8613812345678"), "+86138****5678"),
        (Contact(email="a@b.c", phone="+8613812345678"), "a***@b.c · +86138****5678"),
    ],
)
def test_contact_is_masked(contact: Contact, shown: str) -> None:
    assert mask(contact) == shown


def test_line_counts_orders_paid_and_refunded(ann: User) -> None:
    sale = make_sale()
    for unit, status in enumerate(
        [
            OrderStatus.UNPAID, OrderStatus.PAID, OrderStatus.USED, OrderStatus.REFUNDING,
            OrderStatus.REFUNDED, OrderStatus.CANCELLED,
        ], start=1
    ):  # fmt: skip
        last = make_order(sale, ann, status=status, unit=unit)
    rehearsal = make_sale(stage=SaleStage.REHEARSAL, loaded=False)
    make_order(rehearsal, ann)
    (line,) = customers([ann.pk])
    assert (line.orders, line.paid, line.refunded) == (6, 4, 2)
    assert line.last_order_at == last.accepted_at


def test_newest_buyers_leave_out_rehearsals_and_nameless_rows(ann: User) -> None:
    sale = make_sale()
    older, newer = make_buyers(2)
    for buyer in (newer, older):
        make_order(sale, buyer, unit=1)
        make_order(sale, buyer, unit=2)
    make_order(make_sale(stage=SaleStage.REHEARSAL, loaded=False), ann)
    make_order(sale, None, status=OrderStatus.REFUSED, reason="inactive_buyer")
    assert newest_buyers() == [newer.pk, older.pk]
    assert newest_buyers(before=newer.pk) == [older.pk]


def test_deleted_account_keeps_its_orders_without_a_name(ann: User) -> None:
    order = make_order(make_sale(), ann, status=OrderStatus.PAID)
    anonymise(ann)
    (line,) = customers([ann.pk])
    assert (line.username, line.contact, line.orders) == (f"deleted:{ann.pk}", "", 1)
    assert find_customers("ann") == []
    assert [it.pk for it in history_of(user_id=ann.pk, now=timezone.now()).orders] == [order.pk]


def test_history_has_what_is_stored_about_one_customer(ann: User) -> None:
    sale, other, now = make_sale(), make_buyer(), timezone.now()
    for number, user in enumerate((ann, other)):
        make_order(sale, user, order_id=100 + number, status=OrderStatus.PAID)
        make_order(
            sale, user, order_id=200 + number, status=OrderStatus.REFUSED, reason="sold_out", unit=2
        )
        of = {"seckill_voucher": sale, "user": user}
        RuleRefusal.objects.create(**of, rule="code", refused_at=now)
        OrderRefusal.objects.create(**of, reason="sold_out", refused_at=now)
        WaitingEntry.objects.create(**of, order_id=300 + number, joined_at=now)
        DrawEntry.objects.create(**of, order_id=400 + number, entered_at=now)
        RoomVisit.objects.create(**of, opened_ms=1, given=1, joined_at=now)
        Notice.objects.create(**of, kind="start", asked_at=now)
    found = history_of(user_id=ann.pk, now=now)
    assert [it.pk for it in found.orders] == [100]
    assert [it.pk for it in found.refused] == [200]
    for rows in (found.rules, found.waits, found.visits, found.notices):
        assert [it.user_id for it in rows] == [ann.pk]
    for pairs in (found.requests, found.entries):
        assert [it.user_id for it, _ in pairs] == [ann.pk]


def test_entries_say_won_lost_and_waiting() -> None:
    buyers = make_buyers(3)
    sale, _ = entered_draw(buyers, stock=1, draw_wait_s=3_600)
    end(sale)
    draw_to_the_end(sale)
    first = WaitingEntry.objects.order_by("joined_at").first()
    assert first
    WaitingEntry.objects.filter(pk=first.pk).update(live=None, outcome="over")

    def standing(buyer: User) -> str:
        [(_, label)] = history_of(user_id=buyer.pk, now=timezone.now()).entries
        with translation.override("en"):
            return str(label)

    winner = VoucherOrder.objects.get(seckill_voucher=sale).user_id
    expected: dict[int | None, str] = {it.pk: "on the waiting list" for it in buyers}
    expected |= {winner: "won", first.user_id: "not drawn"}
    assert {it.pk: standing(it) for it in buyers} == expected


def test_withdrawn_entry_says_so(ann: User) -> None:
    sale, _ = entered_draw([])
    DrawEntry.objects.create(
        seckill_voucher=sale, user=ann, order_id=1, entered_at=timezone.now(),
        live=None, outcome="withdrawn",
    )  # fmt: skip
    with translation.override("en"):
        [(_, label)] = history_of(user_id=ann.pk, now=timezone.now()).entries
        assert label == "withdrawn"


def test_history_has_what_no_row_has_yet(ann: User) -> None:
    sale, (other,) = make_sale(), make_buyers(1)
    queued, _ = reserved(sale, [ann, other])
    draw, (entry,) = entered_draw([ann])
    unwritten = history_of(user_id=ann.pk, now=timezone.now()).unwritten
    assert unwritten
    assert set(unwritten) == {(sale, queued.order_id, 1), (draw, entry.order_id, None)}


def test_written_orders_and_entries_are_not_shown_twice(ann: User) -> None:
    sale, draw = make_sale(), entered_draw([ann])[0]
    reserved(sale, [ann])
    fulfil_sale(sale_id=sale.pk)
    store_entries(sale_id=draw.pk)
    assert history_of(user_id=ann.pk, now=timezone.now()).unwritten == []


def test_without_redis_what_is_unwritten_is_unknown(
    ann: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(**_: object) -> None:
        raise LedgerUnavailable("away")

    monkeypatch.setattr("backoffice.customers.read_holdings", fail)
    assert history_of(user_id=ann.pk, now=timezone.now()).unwritten is None


# --- Orders ---------------------------------------------------------------------------------------


def make_payment(order: VoucherOrder) -> None:
    named = {"reference": "pay-4711", "provider_reference": "2026112722001"}
    Payment.objects.create(order=order, provider="sandbox", amount_cents=800, **named)


@pytest.mark.parametrize(
    "text",
    slow_after(1, [
        "Ann", " ann ", "ANN.LEE@example.com", "+86 138-1234-5678", "13812345678", "pay-4711",
        "2026112722001",
    ]),
)  # fmt: skip
def test_order_is_found_by_a_whole_value(ann: User, text: str) -> None:
    sale, other = make_sale(), named("Anna", email="ann.lee@example.com.au", phone="+8613812345679")
    order = make_order(sale, ann)
    make_order(sale, other)
    make_payment(order)
    found = VoucherOrder.objects.filter(pk__in=find_orders(text, by_contact=True))
    assert [it.pk for it in found] == [order.pk]


def test_payment_number_finds_all_orders_that_it_paid(ann: User) -> None:
    orders = make_unpaid_purchase(make_sale(limit=4), 3, buyer=ann)
    share = start(orders[2])
    assert share.charge
    found = VoucherOrder.objects.filter(
        pk__in=find_orders(share.charge.reference, by_contact=False)
    )
    assert {it.pk for it in found} == {it.pk for it in orders}


@pytest.mark.parametrize(
    "text", slow_after(1, ["An", "ann.lee@example", "138123456", "pay-471", "202611"])
)
def test_part_of_a_value_finds_no_order(ann: User, text: str) -> None:
    order = make_order(make_sale(), ann)
    make_payment(order)
    assert not VoucherOrder.objects.filter(pk__in=find_orders(text, by_contact=True))


@pytest.mark.parametrize("text", ["ann.lee@example.com", "13812345678"])
def test_contacts_find_orders_only_for_those_who_may(ann: User, text: str) -> None:
    make_order(make_sale(), ann)
    assert not VoucherOrder.objects.filter(pk__in=find_orders(text, by_contact=False))


def test_every_search_has_an_index(ann: User) -> None:
    """In each statement, and each large table."""
    make_order(make_sale(), ann)
    with CaptureQueriesContext(connection) as asked:
        for text in ("ann.lee@example.com", "13812345678", "4711", "nothing at all"):
            list(VoucherOrder.objects.filter(pk__in=find_orders(text, by_contact=True))[:50])
            find_customers(text)
    for query in asked:
        assert "LIKE '%" not in query["sql"]
        with connection.cursor() as cursor:
            cursor.execute(f"EXPLAIN {query['sql']}".replace("%", "%%"))
            names = [it[0] for it in cursor.description]
            plans = [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
        for plan in plans:
            is_small = plan["table"] is None or plan["table"].startswith("vouchers_")
            assert is_small or plan["possible_keys"], query["sql"]


def test_history_has_the_latest_rows_only(ann: User, monkeypatch: pytest.MonkeyPatch) -> None:
    sale, now = make_sale(limit=20), timezone.now()
    for number in range(MOST_ROWS + 1):
        WaitingEntry.objects.create(
            seckill_voucher=sale, user=ann, order_id=number + 1, live=None,
            joined_at=now - dt.timedelta(hours=number),
        )  # fmt: skip
    waits = history_of(user_id=ann.pk, now=now).waits
    assert (len(waits), waits[0].order_id) == (MOST_ROWS, 1)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("call", "statements"),
    [
        (lambda ids: newest_buyers(), 2),
        (lambda ids: customers(ids), 6),
        (lambda ids: find_customers("bu"), 3),
        (lambda ids: find_customers("1"), 4),
        (lambda ids: find_orders("1", by_contact=True), 6),
        (lambda ids: history_of(user_id=ids[0], now=timezone.now()), 16),
    ],
    ids=["list", "lines", "name", "number", "order", "one"],
)
def test_cost_does_not_grow(call: Callable[[list[int]], object], statements: int) -> None:
    sale = make_sale()

    def cost(ids: list[int]) -> int:
        with CaptureQueriesContext(connection) as asked:
            call(ids)
        return len(asked)

    few = [buyer.pk for buyer in make_buyers(1)]
    assert cost(few) <= statements
    many = few + [buyer.pk for buyer in make_buyers(20)]
    for pk in many:
        make_order(sale, User.objects.get(pk=pk), status=OrderStatus.PAID)
    assert cost(many) <= statements
