"""What two tokens of a buyer could both pass: codes and first orders, decided on MariaDB."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import IntegrityError, connection
from django.db.models import Model
from django.utils import timezone

from orders.audience import rule_uses
from orders.fulfilment import batch
from orders.fulfilment.attempts import INTERRUPTIONS
from orders.fulfilment.batch import BatchOutcome
from orders.fulfilment.retry import RuleForbids, retry_order, retry_orders
from orders.fulfilment.worker import fulfil_sale
from orders.lifecycle.cancellation import cancel_order
from orders.lifecycle.transitions import Actor
from orders.models import CodeUse, FirstOrder, OrderStatus, RefusalReason, VoucherOrder
from tests.orders.audience.rules import give_code
from tests.orders.fulfilment.test_batch import (
    MeetingPoint,
    plain_read,
    two_writers,
    with_meeting,
    write,
)
from tests.support.inspection import live_ids, refusals_of
from tests.support.orders import (
    an_entry,
    another_session,
    at_once,
    id_minted,
    make_buyer,
    make_order,
    make_sale,
    race,
    reserved,
    written_orders,
)
from tests.support.patience import GENEROUS_S
from vouchers import chain
from vouchers.inventory.sale_state import snapshot
from vouchers.models import SeckillVoucher

pytestmark = pytest.mark.django_db


@contextmanager
def without_constraint(model: type[Model], name: str) -> Iterator[None]:
    """Take a table its unique key, and give it back."""
    (key,) = [it for it in model._meta.constraints if it.name == name]
    with connection.schema_editor() as editor:
        editor.remove_constraint(model, key)
    try:
        yield
    finally:
        model._default_manager.all().delete()
        with connection.schema_editor() as editor:
            editor.add_constraint(model, key)


def two_entries(sale: SeckillVoucher, buyer: User) -> list[Any]:
    return [an_entry(sale, buyer.pk, order_id=1_000 + unit, unit=unit) for unit in (1, 2)]


def cancel(order_id: int) -> None:
    order = VoucherOrder.objects.get(pk=order_id)
    cancel_order(order_id=order_id, by=Actor.buyer(order.user_id), now=timezone.now())


# --- Codes ---------------------------------------------------------------------------------------


def test_code_is_used_over_several_batches() -> None:
    sale, buyer = make_sale(limit=2, needs_code=True), make_buyer()
    give_code(sale, buyer)
    first, second = two_entries(sale, buyer)
    assert write(sale, [first]).done == [first]
    assert write(sale, [second]).done == []
    assert write(sale, [first, second]).done == [first], "a repeated batch reports the same"


def test_each_code_makes_an_order() -> None:
    sale, buyer = make_sale(limit=2, needs_code=True), make_buyer()
    for code in ("WELCOME1", "WELCOME2"):
        give_code(sale, buyer, code)
    entries = two_entries(sale, buyer)
    assert write(sale, entries).done == entries
    assert CodeUse.objects.count() == 2


def test_refused_order_uses_no_code() -> None:
    sale, buyer = make_sale(stock=0, needs_code=True), make_buyer()
    give_code(sale, buyer)
    write(sale, [an_entry(sale, buyer.pk, order_id=1_001)])
    assert refusals_of(sale) == {1_001: "sold_out"}
    assert not CodeUse.objects.exists()


def test_token_from_before_the_sale_took_codes_counts() -> None:
    sale, buyer = make_sale(needs_code=True), make_buyer()
    entry = an_entry(sale, buyer.pk, order_id=1_001)
    assert write(sale, [entry]).done == [entry]


def test_second_order_of_a_code_gives_its_unit_back() -> None:
    sale, buyer = make_sale(stock=2, limit=2, needs_code=True), make_buyer()
    give_code(sale, buyer)
    reserved(sale, [buyer, buyer])
    assert snapshot(sale_id=sale.pk).remaining == 0
    fulfil_sale(sale_id=sale.pk)
    assert live_ids(sale) == [CodeUse.objects.get().order_id]
    assert list(refusals_of(sale).values()) == ["code_used"]
    assert snapshot(sale_id=sale.pk).remaining == 1


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(("rebuy", "uses"), [(True, 0), (False, 1)])
def test_ended_order_returns_its_code_if_it_may_be_bought_again(rebuy: bool, uses: int) -> None:
    sale, buyer = make_sale(needs_code=True, rebuy=rebuy), make_buyer()
    give_code(sale, buyer)
    (token,) = written_orders(sale, [buyer])
    assert CodeUse.objects.count() == 1
    cancel(token.order_id)
    assert CodeUse.objects.count() == uses


@race
def test_without_row_lock_unique_key_refuses_second_use(monkeypatch: pytest.MonkeyPatch) -> None:
    outcomes, sale = two_orders_of_one_code(monkeypatch)
    (refused,) = (it for it in outcomes if not isinstance(it, BatchOutcome))
    assert isinstance(refused, IntegrityError)
    assert "code_used_once" in str(refused)
    assert len(live_ids(sale)) == 1


@race
def test_control_without_the_key_a_code_makes_two_orders(monkeypatch: pytest.MonkeyPatch) -> None:
    with without_constraint(CodeUse, "code_used_once"):
        outcomes, sale = two_orders_of_one_code(monkeypatch)
        assert all(isinstance(it, BatchOutcome) for it in outcomes)
    assert len(live_ids(sale)) == 2, "the control did not show the race"


def two_orders_of_one_code(monkeypatch: pytest.MonkeyPatch) -> tuple[list[Any], SeckillVoucher]:
    """Write two orders of a code at once, without the lock of the sale's row."""
    sale, buyer = make_sale(limit=2, needs_code=True), make_buyer()
    give_code(sale, buyer)
    meeting = MeetingPoint(patience_s=GENEROUS_S)
    monkeypatch.setattr(chain, "has_chain", lambda _: False)  # its numbers are a guard, too
    monkeypatch.setattr(batch, "lock_seckill_voucher", plain_read)
    monkeypatch.setattr(batch, "open_rule_uses", with_meeting(rule_uses.open_rule_uses, meeting))
    return two_writers(sale, [[it] for it in two_entries(sale, buyer)], meeting), sale


# --- First orders --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        (OrderStatus.UNPAID, "not_first_order"),
        (OrderStatus.PAID, "not_first_order"),
        (OrderStatus.USED, "not_first_order"),
        (OrderStatus.CANCELLED, None),
        (OrderStatus.REFUNDED, None),
    ],
)
def test_order_is_the_first_if_no_other_is_held(status: OrderStatus, reason: str | None) -> None:
    sale, buyer = make_sale(first_order_only=True), make_buyer()
    make_order(make_sale(), buyer, status=status)
    write(sale, [an_entry(sale, buyer.pk, order_id=1_001)])
    assert refusals_of(sale) == ({1_001: reason} if reason else {})
    assert FirstOrder.objects.exists() == (reason is None)


def test_two_units_of_one_sale_are_not_both_first() -> None:
    sale, buyer = make_sale(limit=2, first_order_only=True), make_buyer()
    first, second = two_entries(sale, buyer)
    assert write(sale, [first, second]).done == [first]
    assert refusals_of(sale) == {second.order_id: "not_first_order"}


def test_refused_order_leaves_the_first_to_another() -> None:
    sale, buyer = make_sale(stock=0, first_order_only=True), make_buyer()
    write(sale, [an_entry(sale, buyer.pk, order_id=1_001)])
    assert not FirstOrder.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_after_an_ended_order_the_next_is_the_first() -> None:
    sale, buyer = make_sale(first_order_only=True, rebuy=False), make_buyer()
    (token,) = written_orders(sale, [buyer])
    cancel(token.order_id)
    other = make_sale(first_order_only=True)
    entry = an_entry(other, buyer.pk, order_id=2_001)
    assert write(other, [entry]).done == [entry]


def test_closed_account_is_refused_as_such() -> None:
    sale, buyer = make_sale(first_order_only=True), make_buyer()
    User.objects.filter(pk=buyer.pk).delete()
    write(sale, [an_entry(sale, buyer.pk, order_id=1_001)])
    assert refusals_of(sale) == {1_001: "inactive_buyer"}


@race
def test_of_two_first_orders_at_once_one_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    outcomes, sales = two_first_orders(monkeypatch, patience_s=0.5)
    assert sorted(len(it.done) for it in outcomes) == [0, 1]
    assert sum(len(live_ids(it)) for it in sales) == 1
    assert [reason for it in sales for reason in refusals_of(it).values()] == ["not_first_order"]


@race
def test_control_without_the_key_both_orders_are_first(monkeypatch: pytest.MonkeyPatch) -> None:
    with without_constraint(FirstOrder, "first_order_once_per_buyer"):
        _, sales = two_first_orders(monkeypatch, patience_s=GENEROUS_S)
    assert sum(len(live_ids(it)) for it in sales) == 2, "the control did not show the race"


@pytest.mark.slow
@race
def test_first_order_written_for_too_long_elsewhere_interrupts_the_pass() -> None:
    sale, buyer = make_sale(first_order_only=True), make_buyer()
    table = FirstOrder._meta.db_table
    with another_session() as other, other.cursor() as cursor:
        cursor.execute(
            f"INSERT INTO {table} (user_id, order_id) VALUES (%s, %s)",
            [buyer.pk, id_minted(seconds_ago=2)],
        )
        with pytest.raises(rule_uses.FirstOrderBusy):
            write(sale, [an_entry(sale, buyer.pk, order_id=id_minted(seconds_ago=1))])
    assert rule_uses.FirstOrderBusy in INTERRUPTIONS


def two_first_orders(
    monkeypatch: pytest.MonkeyPatch, *, patience_s: float
) -> tuple[Sequence[Any], list[SeckillVoucher]]:
    """Write a buyer's orders in two sales; both take the first before either commits."""
    sales, buyer = [make_sale(first_order_only=True) for _ in range(2)], make_buyer()
    meeting = MeetingPoint(patience_s=patience_s)
    monkeypatch.setattr(rule_uses, "_take_first", with_meeting(rule_uses._take_first, meeting))

    def writer(sale: SeckillVoucher, order_id: int) -> Callable[[], BatchOutcome]:
        def run() -> BatchOutcome:
            try:
                return write(sale, [an_entry(sale, buyer.pk, order_id=order_id)])
            finally:
                meeting.leave()

        return run

    # Ids that no earlier test has deleted: InnoDB would lock the gap around those.
    return at_once(*(writer(it, id_minted(seconds_ago=1)) for it in sales)), sales


# --- Retries -------------------------------------------------------------------------------------


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    ("rule", "reason"),
    [("needs_code", RefusalReason.CODE_USED), ("first_order_only", RefusalReason.NOT_FIRST_ORDER)],
)
def test_retry_of_an_order_that_a_rule_forbids_is_refused(rule: str, reason: RefusalReason) -> None:
    sale, buyer = make_sale(limit=2, **{rule: True}), make_buyer()
    give_code(sale, buyer)
    write(sale, [an_entry(sale, buyer.pk, order_id=1_001)])
    aside = make_order(sale, buyer, status=OrderStatus.REFUSED, reason="failed", unit=2)
    (outcome,) = retry_orders(order_ids=[aside.pk])
    assert isinstance(outcome.refusal, RuleForbids)
    assert outcome.reason == str(reason.label)
    aside.refresh_from_db()
    assert aside.status == OrderStatus.REFUSED


@pytest.mark.django_db(transaction=True)
def test_retried_order_uses_the_code() -> None:
    sale, buyer = make_sale(needs_code=True), make_buyer()
    give_code(sale, buyer)
    aside = make_order(sale, buyer, status=OrderStatus.REFUSED, reason="failed")
    retry_order(order_id=aside.pk, now=timezone.now())
    assert CodeUse.objects.get().order_id == aside.pk


# --- Costs ---------------------------------------------------------------------------------------


def test_sale_without_rules_asks_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    sale, buyer = make_sale(), make_buyer()
    monkeypatch.setattr(rule_uses, "_unused_codes", None)
    monkeypatch.setattr(rule_uses, "_take_first", None)
    entry = an_entry(sale, buyer.pk, order_id=1_001)
    assert write(sale, [entry]).done == [entry]
