"""A restored database: what its mark stops, and the report and the repair of ``after_restore``."""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.cache import cache
from django.core.management import CommandError, call_command
from django.utils import timezone

from orders import after_restore as restoring
from orders import tasks
from orders.after_restore import Outcome, after_restore
from orders.fulfilment.reconcile import reconcile
from orders.fulfilment.worker import fulfil_sale
from orders.lifecycle.cancellation import Busy, cancel_order
from orders.lifecycle.transitions import SYSTEM
from orders.models import MoneyDirection, OrderEvent, OrderStatus, Payment, VoucherOrder
from orders.payments import service
from orders.payments.providers import Movement
from orders.payments.service import REFERENCE_LENGTH, order_in
from seckill_site import installation
from seckill_site.installation import RestoredDatabase, own_identity
from seckill_site.models import Installation
from seckill_site.redis.ledger_connection import ledger_connection
from tests.support.inspection import assert_conserved, everything, ledger_contents, live_ids, rows
from tests.support.orders import (
    PRICE_CENTS,
    id_minted,
    ids,
    make_buyers,
    make_sale,
    reserved,
    reserved_purchase,
    written_orders,
)
from tests.support.payments import FakeProvider, make_payment, order_with_payment, status_of
from vouchers.inventory.holdings import Holding, add_buyers
from vouchers.inventory.keys import LedgerKeys, NotLoaded
from vouchers.inventory.rebuild import rebuild_sale
from vouchers.inventory.sale_state import snapshots
from vouchers.models import SeckillVoucher

pytestmark = pytest.mark.django_db(transaction=True)


@contextmanager
def losing() -> Iterator[None]:
    """Lose what the block writes to the database, as a restore does, and mark the database."""
    own_identity()
    columns = ("sold", "epoch", "fence", "batch")
    sales = {it.pk: {name: getattr(it, name) for name in columns} for it in all_sales()}
    orders = {it.pk: it for it in VoucherOrder.objects.all()}
    users = set(User.objects.values_list("pk", flat=True))
    point = timezone.now()
    yield
    OrderEvent.objects.filter(at__gte=point).delete()
    Payment.objects.filter(created_at__gte=point).delete()
    VoucherOrder.objects.exclude(pk__in=orders).delete()
    for order in orders.values():
        order.save()
    for sale_id, values in sales.items():
        all_sales().filter(pk=sale_id).update(**values)
    User.objects.exclude(pk__in=users).delete()
    Installation.objects.update(restored_at=timezone.now(), restored_point=point)


def all_sales() -> Any:
    return SeckillVoucher.objects.all()


def mark() -> None:
    """Mark the database, which has lost nothing."""
    with losing():
        pass


def repair() -> restoring.Report:
    return after_restore(repair=True, now=timezone.now())


# --- The mark -------------------------------------------------------------------------------------


def cancel(sale: SeckillVoucher) -> None:
    order = VoucherOrder.objects.filter(seckill_voucher=sale).latest("pk")
    cancel_order(order_id=order.pk, by=SYSTEM, now=timezone.now())


def run(task: Any, **arguments: Any) -> None:
    task.apply(kwargs=arguments, throw=True)


STOPPED: dict[str, Callable[[SeckillVoucher], object]] = {
    "order": lambda sale: reserved(sale, make_buyers(1)),
    "fulfil": lambda sale: run(tasks.fulfil_sale, sale_id=sale.pk),
    "repair": lambda sale: reconcile(sale_id=sale.pk, repair=True),
    "reconcile": lambda sale: run(tasks.reconcile),
    "cancel": cancel,
    "expire": lambda sale: run(tasks.expire),
}
"""What changes a sale, which the mark stops."""


@pytest.mark.parametrize("is_marked", [True, pytest.param(False, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "name",
    [pytest.param(it, marks=() if it == "order" else pytest.mark.slow) for it in STOPPED],
)
def test_mark_stops_what_changes_a_sale(name: str, is_marked: bool) -> None:
    """The control: without the mark each of them goes on."""
    sale = make_sale(stock=5)
    written_orders(sale, make_buyers(1))
    long_ago = timezone.now() - dt.timedelta(days=2)
    times = {"created_at": long_ago, "accepted_at": long_ago, "pay_by": long_ago}
    VoucherOrder.objects.update(**times)
    reserved(sale, make_buyers(1))
    add_buyers(sale_id=sale.pk, holdings=[Holding(id_minted(seconds_ago=5), 99, 1)])
    if is_marked:
        mark()
    run(tasks.sweep)
    before = facts()
    try:
        STOPPED[name](sale)
    except (NotLoaded, RestoredDatabase):
        assert is_marked
    assert (facts() == before) is is_marked


def facts() -> tuple[Any, ...]:
    return rows(), {key: it for key, it in ledger_contents().items() if "{" in key}


@pytest.mark.parametrize("is_marked", [True, False])
def test_beat_closes_the_ledgers_of_a_marked_database(is_marked: bool) -> None:
    sale = make_sale()
    if is_marked:
        mark()
    run(tasks.watch_ledger)
    assert (snapshots(sale_ids=[sale.pk])[sale.pk] is None) is is_marked


# --- The report and the repair --------------------------------------------------------------------


def test_orders_of_the_lost_time_are_named_and_written_again() -> None:
    sale = make_sale(stock=5)
    before = written_orders(sale, make_buyers(1))
    kept, late = make_buyers(2), "signed-up-after"
    with losing():
        written = written_orders(sale, kept)
        gone = User.objects.create(username=late)
        lost = reserved(sale, [gone])
    cache.set("session", "of a user", 60)
    run(tasks.watch_ledger)
    was = everything()

    foreseen = after_restore(repair=False, now=timezone.now())
    assert everything() == was
    outcomes = dict.fromkeys(ids(written), Outcome.WRITTEN) | {ids(lost)[0]: Outcome.LOST}
    assert {pk: it.outcome for pk, it in foreseen.orders.items()} == outcomes

    report = repair()
    assert {pk: it.outcome for pk, it in report.orders.items()} == outcomes
    assert sorted(live_ids(sale)) == sorted(ids([*before, *written]))
    assert_conserved(sale)
    assert cache.get("session") is None
    assert User.objects.create(username="new").pk == gone.pk + 1_000_000
    reserved(sale, make_buyers(1))  # it is open
    assert {pk: it.outcome for pk, it in repair().orders.items()} == outcomes


@pytest.mark.slow
def test_interrupted_repair_is_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    sale = make_sale()
    buyers = make_buyers(2)
    with losing():
        written = written_orders(sale, buyers)

    def fail(*, sale_id: int) -> bool:
        fulfil_sale(sale_id=sale_id)
        raise RuntimeError("by the test")

    monkeypatch.setattr(restoring, "fulfil_sale", fail)
    with pytest.raises(RuntimeError):
        repair()
    assert mark_is_there()
    monkeypatch.undo()
    assert {it.outcome for it in repair().orders.values()} == {Outcome.WRITTEN}
    assert not mark_is_there()
    assert sorted(live_ids(sale)) == sorted(ids(written))


@pytest.mark.slow
def test_sale_that_nobody_holds_a_unit_of_is_compared_too() -> None:
    """Its ``buyers`` is gone once it is closed."""
    sale = make_sale()
    buyers = make_buyers(1)
    with losing():
        ended = ids(written_orders(sale, buyers))[0]
        cancel(sale)
    report = repair()
    assert report.orders[ended].outcome == Outcome.LOST
    epoch = sale.epoch
    sale.refresh_from_db()
    assert sale.epoch > epoch + restoring.EPOCHS_AHEAD


@pytest.mark.slow
def test_ledger_that_came_back_in_the_lost_time_is_written_again() -> None:
    """Its row says that it was removed."""
    sale = make_sale()
    buyers = make_buyers(1)
    with losing():
        written = ids(written_orders(sale, buyers))
    all_sales().update(ledger_removed_at=timezone.now())
    assert repair().orders[written[0]].outcome == Outcome.WRITTEN
    assert live_ids(sale) == written


@pytest.mark.slow
@pytest.mark.parametrize("waits", [True, False])
def test_repair_waits_for_the_end_of_a_backoff(
    waits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control: without that, the orders are written later, and the next run says so."""
    sale = make_sale()
    buyers, backoff = make_buyers(1), LedgerKeys(sale.pk).backoff
    with losing():
        order_id = ids(written_orders(sale, buyers))[0]
    ledger_connection().set(backoff, 1)
    monkeypatch.setattr(restoring, "PAUSES", 2 if waits else 1)
    monkeypatch.setattr(time, "sleep", lambda _: waits and ledger_connection().delete(backoff))
    order = repair().orders[order_id]
    assert (order.outcome == Outcome.WRITTEN) is waits
    ledger_connection().delete(backoff)
    fulfil_sale(sale_id=sale.pk)
    assert repair().orders[order_id].outcome == Outcome.WRITTEN


def mark_is_there() -> bool:
    return bool(installation.mark().exists())


@pytest.mark.parametrize("ends_again", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_order_that_had_ended_ends_again(ends_again: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The control: without that, the buyer who got the unit since is refused."""
    sale = make_sale(stock=1)
    first = written_orders(sale, make_buyers(1))
    second = make_buyers(1)
    with losing():
        cancel(sale)
        taken = written_orders(sale, second)
    if not ends_again:
        monkeypatch.setattr(restoring, "end_orders", lambda *_, **__: None)
    report = repair()
    outcome = Outcome.WRITTEN if ends_again else Outcome.LOST
    assert report.orders[ids(taken)[0]].outcome == outcome
    assert live_ids(sale) == ids(taken if ends_again else first)
    assert_conserved(sale)


@pytest.mark.slow
def test_row_learns_an_epoch_that_it_has_forgotten() -> None:
    """Otherwise a worker that sleeps since then would not be refused."""
    sale = make_sale()
    with losing():
        written_orders(sale, make_buyers(1))
        rebuild_sale(sale_id=sale.pk)
        written_orders(sale, make_buyers(1))
        sale.refresh_from_db()
        forgotten = sale.epoch
    repair()
    sale.refresh_from_db()
    assert sale.epoch > forgotten


def test_database_without_a_mark_is_left_alone() -> None:
    own_identity()
    with pytest.raises(CommandError, match="no mark"):
        call_command("after_restore", repair=True)


# --- Payments -------------------------------------------------------------------------------------


def paid(reference: str, cents: int = PRICE_CENTS) -> Movement:
    return Movement(MoneyDirection.PAYMENT, reference, cents)


def test_reference_begins_with_the_order_id(fake: FakeProvider) -> None:
    """Of the length and the characters that every provider takes."""
    order, payment = order_with_payment()
    assert len(payment.reference) == REFERENCE_LENGTH
    assert payment.reference.isalnum()
    assert payment.reference.isascii()
    assert order_in(payment.reference) == order.pk
    assert order_in("0123456789abcdef0123456789abcdef") is None


@pytest.mark.parametrize("quantity", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_payment_in_a_list_alone_pays_its_orders(quantity: int, fake: FakeProvider) -> None:
    sale = make_sale(stock=5, limit=2)
    buyer = make_buyers(1)[0]
    with losing():
        order_ids = reserved_purchase(sale, buyer, quantity)
        fulfil_sale(sale_id=sale.pk)
        payment = make_payment(VoucherOrder.objects.get(pk=order_ids[0]))
    fake.movements = [paid(payment.reference, PRICE_CENTS * quantity)]
    foreseen = after_restore(repair=False, now=timezone.now())
    assert foreseen.payments == {order_ids[0]: "paid"}
    assert {it.outcome for it in foreseen.orders.values()} == {Outcome.WRITTEN}
    fake.movements = []  # the list is not there yet
    report = repair()
    assert not report.payments
    unknown_until = report.unknown[0][-1]
    for order in VoucherOrder.objects.all():
        assert order.status == OrderStatus.UNPAID
        assert order.pay_by
        assert order.pay_by > unknown_until

    fake.movements = [paid(payment.reference, PRICE_CENTS * quantity)]
    later = after_restore(repair=True, now=unknown_until)
    assert later.payments == {order_ids[0]: "paid"}
    assert not later.unknown
    assert {status_of(it) for it in VoucherOrder.objects.all()} == {OrderStatus.PAID}
    assert after_restore(repair=True, now=unknown_until).payments == {}


@pytest.mark.slow
def test_payment_that_was_written_but_not_settled_is_settled_later(
    fake: FakeProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    sale = make_sale()
    buyers = make_buyers(1)
    with losing():
        order_id = ids(written_orders(sale, buyers))[0]
        payment = make_payment(VoucherOrder.objects.get(pk=order_id))
    fake.movements = [paid(payment.reference)]

    def fail(*_: Any, **__: Any) -> None:
        raise Busy("by the test")

    monkeypatch.setattr(service, "take_statement", fail)
    with pytest.raises(CommandError, match="by the test"):
        call_command("after_restore", repair=True)
    monkeypatch.undo()
    assert repair().payments == {order_id: "paid"}
    assert {it.status for it in VoucherOrder.objects.all()} == {OrderStatus.PAID}


@pytest.mark.slow
def test_payment_without_a_row_is_for_a_human(fake: FakeProvider) -> None:
    sale = make_sale()
    buyers = make_buyers(1)
    with losing():
        order_id = ids(written_orders(sale, buyers))[0]
        payment = make_payment(VoucherOrder.objects.get(pk=order_id))
        ledger_connection().flushdb()
    fake.movements = [paid(payment.reference)]
    report = repair()
    assert report.orders[order_id].outcome == Outcome.PAID
    assert payment.reference in report.orders[order_id].detail


@pytest.mark.slow
def test_list_that_is_away_is_not_known(fake: FakeProvider, capsys: Any) -> None:
    mark()
    fake.away = True
    call_command("after_restore")
    assert "payments by fake on" in (text := capsys.readouterr().out)
    assert "not known until" in text


@pytest.mark.slow
def test_lists_of_the_days_until_the_repair_are_read(fake: FakeProvider) -> None:
    """A buyer pays at the provider while the shop is marked."""
    mark()
    long_ago = timezone.now() - dt.timedelta(days=2)
    Installation.objects.update(restored_at=long_ago, restored_point=long_ago)
    days = [timezone.localtime(long_ago).date() + dt.timedelta(days=n) for n in range(3)]
    report = repair()
    assert [day for _, day, _ in report.unknown][-1] == days[-1]
