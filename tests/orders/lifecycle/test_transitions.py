"""Changes of an order's state: which are allowed, their one statement, and their history."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable
from functools import partial
from itertools import product
from pathlib import Path

import pytest
from django.conf import settings
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext

from orders.lifecycle.transitions import (
    PROVIDER,
    SYSTEM,
    Actor,
    Change,
    WrongState,
    change_order,
    change_orders,
    note,
)
from orders.models import (
    LIVE_STATUSES,
    SOURCES,
    UNDOES,
    ActorKind,
    EventCode,
    OrderEvent,
    OrderStatus,
    VoucherOrder,
)
from tests.support.inspection import rows, statements
from tests.support.orders import at_once, make_buyer, make_buyers, make_order, make_sale

pytestmark = [pytest.mark.django_db, pytest.mark.quick]

AT = dt.datetime(2026, 11, 11, 12, 0, 0, 123456, tzinfo=dt.UTC)

PAIRS = list(product(OrderStatus, SOURCES))
ALLOWED = [(source, to) for source, to in PAIRS if SOURCES[to] == source]
PAID = Change(OrderStatus.PAID, SYSTEM, AT)
REFUSED = [(source, to) for source, to in PAIRS if SOURCES[to] != source]


def an_order(status: OrderStatus) -> VoucherOrder:
    reason = "failed" if status == OrderStatus.REFUSED else ""
    return make_order(make_sale(loaded=False), make_buyer(), status=status, reason=reason)


def orders_in(status: OrderStatus, count: int) -> list[int]:
    sale = make_sale(loaded=False)
    return [make_order(sale, buyer, status=status).pk for buyer in make_buyers(count)]


def sale_of(order_id: int) -> int:
    """Return the sale of an order, or 1 if there is no such order."""
    found = VoucherOrder.objects.filter(pk=order_id).values_list("seckill_voucher_id", flat=True)
    return found.first() or 1


def change(order_id: int, to: OrderStatus, *, by: Actor = SYSTEM, why: str = "") -> None:
    fields = {"reason": ""} if to == OrderStatus.UNPAID else {}
    with transaction.atomic():
        change_order(
            Change(to, by, AT, why), sale_id=sale_of(order_id), order_id=order_id, **fields
        )


# --- Each change ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("source", "to"), ALLOWED)
def test_allowed_change_sets_status_and_live(source: OrderStatus, to: OrderStatus) -> None:
    order = an_order(source)
    change(order.pk, to)
    order.refresh_from_db()
    assert (order.status, order.live) == (to, True if to in LIVE_STATUSES else None)


@pytest.mark.parametrize(("source", "to"), REFUSED)
def test_other_changes_are_refused(source: OrderStatus, to: OrderStatus) -> None:
    order = an_order(source)
    before = rows()
    with pytest.raises(WrongState) as refused:
        change(order.pk, to)
    assert refused.value.status == source
    assert rows() == before


@pytest.mark.parametrize(("source", "to"), PAIRS)
def test_only_a_use_is_undone(source: OrderStatus, to: OrderStatus) -> None:
    order = an_order(source)
    before = rows()
    undone = Change(to, SYSTEM, AT, is_undo=True)
    if UNDOES.get(to) == source:
        with transaction.atomic():
            change_order(undone, sale_id=order.seckill_voucher_id, order_id=order.pk)
        assert list(order.events.values_list("before", "after")) == [("used", "paid")]
    else:
        with pytest.raises((WrongState, KeyError)), transaction.atomic():
            change_order(undone, sale_id=order.seckill_voucher_id, order_id=order.pk)
        assert rows() == before


def test_every_state_but_refused_has_a_source() -> None:
    assert {*SOURCES, OrderStatus.REFUSED} == set(OrderStatus)
    assert len(ALLOWED) == len(SOURCES)


def test_change_of_missing_order_raises() -> None:
    with pytest.raises(VoucherOrder.DoesNotExist):
        change(404, OrderStatus.PAID)
    assert not OrderEvent.objects.exists()


@pytest.mark.servers
def test_fields_are_set_with_the_state() -> None:
    order = an_order(OrderStatus.UNPAID)
    with CaptureQueriesContext(connection) as queries, transaction.atomic():
        change_order(
            Change(OrderStatus.PAID, PROVIDER, AT),
            sale_id=order.seckill_voucher_id,
            order_id=order.pk,
            code="C" * 16,
        )
    order.refresh_from_db()
    assert (order.status, order.code) == ("paid", "C" * 16)
    assert statements(queries.captured_queries) == [
        "UPDATE orders_voucherorder",
        "INSERT orders_orderevent",
    ]


# --- Conditional ---------------------------------------------------------------------------------


def test_update_statement_has_the_condition() -> None:
    order = an_order(OrderStatus.UNPAID)
    with CaptureQueriesContext(connection) as queries:
        change(order.pk, OrderStatus.PAID)
    (update,) = (it["sql"] for it in queries if it["sql"].startswith("UPDATE"))
    assert re.search(r"WHERE .*.status. = 'unpaid'", update)


@pytest.mark.servers
@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("row_locks")
def test_concurrent_changes_succeed_once() -> None:
    ends = (OrderStatus.PAID, OrderStatus.CANCELLED, OrderStatus.EXPIRED)
    for _ in range(10):
        order = an_order(OrderStatus.UNPAID)
        outcomes = at_once(*[partial(change, order.pk, to) for to in ends])
        (winner,) = (to for to, what in zip(ends, outcomes, strict=True) if what is None)
        assert sorted(it.status for it in outcomes if it) == [winner, winner]
        order.refresh_from_db()
        assert order.status == winner
        assert [event.after for event in order.events.all()] == [winner]


# --- The history ---------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["buyer", "staff", "provider", "system"])
def test_change_leaves_event_with_actor_time_and_reason(kind: str) -> None:
    order, user = an_order(OrderStatus.UNPAID), make_buyer()
    by = {
        "buyer": Actor.buyer(user.pk),
        "staff": Actor.staff(user.pk),
        "provider": PROVIDER,
        "system": SYSTEM,
    }[kind]
    change(order.pk, OrderStatus.CANCELLED, by=by, why="the buyer called")
    (event,) = order.events.all()
    assert (event.before, event.after, event.at) == ("unpaid", "cancelled", AT)
    assert (event.actor_kind, event.actor_id) == (ActorKind(kind), by.user_id)
    assert (event.reason, event.notified_at) == ("the buyer called", None)


def test_event_of_the_system_has_a_code_with_values() -> None:
    order = an_order(OrderStatus.CANCELLED)
    late = Change(
        OrderStatus.CANCELLED, PROVIDER, AT, code=EventCode.LATE_PAYMENT, values={"payment": "P1"}
    )
    note(late, order_ids=[order.pk], before="cancelled")
    event = order.events.get()
    assert (event.code, event.values, event.reason) == ("late_payment", {"payment": "P1"}, "")


def test_history_is_in_order() -> None:
    order = an_order(OrderStatus.UNPAID)
    for to in (OrderStatus.PAID, OrderStatus.REFUNDING, OrderStatus.REFUNDED):
        change(order.pk, to)
    steps = list(order.events.values_list("before", "after"))
    assert steps == [("unpaid", "paid"), ("paid", "refunding"), ("refunding", "refunded")]


def test_long_reason_is_cut() -> None:
    order = an_order(OrderStatus.UNPAID)
    change(order.pk, OrderStatus.PAID, why="é" * 500)
    assert order.events.get().reason == "é" * 200


def test_rolled_back_change_leaves_no_event() -> None:
    order = an_order(OrderStatus.UNPAID)
    before = rows()
    with transaction.atomic():
        change_order(PAID, sale_id=order.seckill_voucher_id, order_id=order.pk)
        transaction.set_rollback(True)
    assert rows() == before


def test_history_survives_its_deleted_actor() -> None:
    order, staff = an_order(OrderStatus.UNPAID), make_buyer()
    change(order.pk, OrderStatus.CANCELLED, by=Actor.staff(staff.pk))
    staff.delete()
    event = order.events.get()
    assert (event.actor_kind, event.actor_id) == ("staff", None)


# --- Many at once --------------------------------------------------------------------------------


def test_many_orders_change_in_two_statements() -> None:
    ids = orders_in(OrderStatus.UNPAID, 5)
    sale_id = sale_of(ids[0])
    with CaptureQueriesContext(connection) as queries, transaction.atomic():
        expired = Change(OrderStatus.EXPIRED, SYSTEM, AT, "too late")
        changed = change_orders(expired, sale_id=sale_id, order_ids=ids)
    assert changed == 5
    assert len(statements(queries.captured_queries)) == 2
    events = OrderEvent.objects.filter(before="unpaid", after="expired", at=AT, reason="too late")
    assert sorted(events.values_list("order", flat=True)) == ids


def test_partial_change_writes_no_history() -> None:
    """The caller gets the count and rolls back: the history must not name unchanged orders."""
    ids = orders_in(OrderStatus.UNPAID, 3)
    change(ids[1], OrderStatus.PAID)
    OrderEvent.objects.all().delete()
    with transaction.atomic():
        expired = Change(OrderStatus.EXPIRED, SYSTEM, AT)
        changed = change_orders(expired, sale_id=sale_of(ids[0]), order_ids=ids)
        transaction.set_rollback(True)
    assert changed == 2
    assert not OrderEvent.objects.exists()
    assert set(VoucherOrder.objects.values_list("status", flat=True)) == {"unpaid", "paid"}


def test_empty_change_does_nothing() -> None:
    with transaction.atomic():
        assert change_orders(PAID, sale_id=1, order_ids=[]) == 0


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("how", ["one", "many"])
def test_change_needs_a_transaction(how: str) -> None:
    order = an_order(OrderStatus.UNPAID)
    before = rows()
    calls: dict[str, Callable[[], object]] = {
        "one": partial(change_order, PAID, sale_id=1, order_id=order.pk),
        "many": partial(change_orders, PAID, sale_id=1, order_ids=[order.pk]),
    }
    with pytest.raises(AssertionError, match="a change and its history belong together"):
        calls[how]()
    assert rows() == before


def test_note_adds_an_event_to_each_order() -> None:
    ids = orders_in(OrderStatus.UNPAID, 2)
    note(Change(OrderStatus.UNPAID, SYSTEM, AT), order_ids=ids, before="")
    found = OrderEvent.objects.values_list("order", "before", "after")
    assert sorted(found) == [(order_id, "", "unpaid") for order_id in ids]


# --- The diagram ---------------------------------------------------------------------------------


def arrows() -> set[tuple[str, str]]:
    """Return the arrows of the state diagram in ``docs/orders.md``."""
    page = (Path(settings.BASE_DIR) / "docs" / "orders.md").read_text(encoding="utf-8")
    (diagram,) = re.findall(r"```mermaid\nstateDiagram-v2\n(.*?)```", page, re.DOTALL)
    found = re.findall(r"^ *(\[\*\]|\w+) --> (\[\*\]|\w+)(?: *:.*)?$", diagram, re.MULTILINE)
    assert len(found) == diagram.count("-->"), "an arrow that cannot be read"
    return set(found)


def test_docs_diagram_equals_the_state_machine() -> None:
    changes = {(before, after) for before, after in arrows() if "[*]" not in (before, after)}
    ways = [*SOURCES.items(), *UNDOES.items()]
    assert changes == {(source.value, to.value) for to, source in ways}


def test_docs_diagram_has_first_and_last_states() -> None:
    begins = {after for before, after in arrows() if before == "[*]"}
    ends = {before for before, after in arrows() if after == "[*]"}
    # A refused order is over too, unless staff tries it again.
    assert begins == {"unpaid", "refused"}
    assert ends == {str(it) for it in OrderStatus if it not in SOURCES.values()} | {"refused"}
