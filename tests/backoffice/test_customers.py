"""Customers: found by name, contact and order, in a fixed number of statements."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable

import pytest
from allauth.account.models import EmailAddress
from django.contrib.auth.models import User
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from accounts.contacts import Contact
from accounts.deletion import anonymise
from accounts.models import Phone
from backoffice.customers import (
    MOST_ROWS,
    customers,
    find_customers,
    history_of,
    mask,
    newest_buyers,
)
from orders.models import DrawEntry, Notice, OrderStatus, RoomVisit, RuleRefusal, WaitingEntry
from tests.support.orders import make_buyer, make_buyers, make_order, make_sale
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
    assert (line.user.username, line.masked_contact, line.orders) == (f"deleted:{ann.pk}", "", 1)
    assert find_customers("ann") == []
    assert [it.pk for it in history_of(user_id=ann.pk).orders] == [order.pk]


def test_history_has_what_is_stored_about_one_customer(ann: User) -> None:
    sale, other, now = make_sale(), make_buyer(), timezone.now()
    for number, user in enumerate((ann, other)):
        make_order(sale, user, order_id=100 + number, status=OrderStatus.PAID)
        make_order(
            sale, user, order_id=200 + number, status=OrderStatus.REFUSED, reason="sold_out", unit=2
        )
        of = {"seckill_voucher": sale, "user": user}
        RuleRefusal.objects.create(**of, rule="code", refused_at=now)
        WaitingEntry.objects.create(**of, order_id=300 + number, joined_at=now)
        DrawEntry.objects.create(**of, order_id=400 + number, entered_at=now)
        RoomVisit.objects.create(**of, opened_ms=1, given=1, joined_at=now)
        Notice.objects.create(**of, kind="start", asked_at=now)
    found = history_of(user_id=ann.pk)
    assert [it.pk for it in found.orders] == [100]
    assert [it.pk for it in found.refused] == [200]
    for rows in (found.rules, found.waits, found.entries, found.visits, found.notices):
        assert [it.user_id for it in rows] == [ann.pk]


def test_history_has_the_latest_rows_only(ann: User, monkeypatch: pytest.MonkeyPatch) -> None:
    sale, now = make_sale(limit=20), timezone.now()
    for number in range(MOST_ROWS + 1):
        WaitingEntry.objects.create(
            seckill_voucher=sale, user=ann, order_id=number + 1, live=None,
            joined_at=now - dt.timedelta(hours=number),
        )  # fmt: skip
    waits = history_of(user_id=ann.pk).waits
    assert (len(waits), waits[0].order_id) == (MOST_ROWS, 1)


@pytest.mark.parametrize(
    ("call", "statements"),
    [
        (lambda ids: newest_buyers(), 2),
        (lambda ids: customers(ids), 6),
        (lambda ids: find_customers("bu"), 2),
        (lambda ids: find_customers("1"), 4),
        (lambda ids: history_of(user_id=ids[0]), 13),
    ],
    ids=["list", "lines", "name", "number", "one"],
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
