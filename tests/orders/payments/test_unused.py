"""Unused vouchers are refunded once, after their last day, and never beside a use."""

from __future__ import annotations

import datetime as dt
from functools import partial
from typing import Any

import pytest
from django.core import mail
from django.utils import timezone

from orders import tasks
from orders.lifecycle import redemption
from orders.lifecycle.notifications import tell_buyers
from orders.lifecycle.redemption import NotRedeemable, redeem
from orders.lifecycle.transitions import Actor, Change, change_order
from orders.lock_objects import lock_orders
from orders.models import OrderEvent, OrderStatus, Payment, PaymentStatus, VoucherOrder
from orders.payments import unused
from orders.payments.providers import MAX_SILENCES
from orders.payments.refunds import finish_refunds, refund_order
from orders.payments.unused import refund_unused
from seckill_site.clocks.steps import Clocks, ClocksUnsettled
from seckill_site.failpoints import FailpointReached, armed
from tests.support.inspection import assert_conserved, live_ids
from tests.support.notices import make_reader
from tests.support.orders import at_once, both_at, make_buyers, make_order, make_sale, race
from tests.support.passes import cut_after_one
from tests.support.payments import (
    FakeProvider,
    buyer_of,
    history,
    make_payment,
    make_unpaid_order,
    notify_of_fake,
    pay,
    payment_status,
    status_of,
    trade_state,
    use_and_undo,
)
from tests.support.tiers import slow_after
from vouchers.models import SaleStage, SeckillVoucher, Voucher

pytestmark = pytest.mark.django_db

STAFF = Actor.staff(None)
DAY = dt.timedelta(days=1)
LAST_DAY = dt.date(2030, 11, 11)
LAST_SECOND = dt.datetime(2030, 11, 11, 15, 59, 59, tzinfo=dt.UTC)
MIDNIGHT = LAST_SECOND + dt.timedelta(seconds=1)


@pytest.fixture(autouse=True)
def in_shanghai(settings: Any) -> None:
    settings.TIME_ZONE = "Asia/Shanghai"


def sale_until(last_day: dt.date | None = LAST_DAY, **fields: Any) -> SeckillVoucher:
    sale = make_sale(**fields)
    Voucher.objects.filter(pk=sale.voucher_id).update(valid_until=last_day)
    return sale


def paid_order(sale: SeckillVoucher | None = None) -> VoucherOrder:
    order = make_unpaid_order(sale or sale_until())
    pay(order)
    return order


def run(now: dt.datetime = MIDNIGHT) -> None:
    while refund_unused(clocks=both_at(now)):
        pass


# --- What is due ---------------------------------------------------------------------------------


def test_unused_voucher_is_refunded_once_after_its_last_day() -> None:
    sale = sale_until()
    order = paid_order(sale)
    payment = Payment.objects.get(order=order)

    run(LAST_SECOND)
    assert status_of(order) == "paid"
    run()
    assert (status_of(order), payment_status(payment)) == ("refunding", "refunding")
    assert live_ids(sale) == [order.pk]
    for _ in range(2):
        finish_refunds(now=MIDNIGHT)
        run()

    assert trade_state(payment) == "refunded"
    whole = ["unpaid by system", "paid by provider", "refunding by system", "refunded by system"]
    assert history(order) == whole
    event = OrderEvent.objects.get(order=order, after=OrderStatus.REFUNDING)
    assert event.code == "lapsed"
    assert_conserved(sale)


@pytest.mark.parametrize(
    "fields",
    [{"refund_unused": False}, {"refund_unused": None}, {"stage": SaleStage.REHEARSAL}],
    ids=str,
)
def test_sales_without_the_rule_keep_their_money(fields: dict[str, Any]) -> None:
    sale = sale_until()
    order = paid_order(sale)
    SeckillVoucher.objects.filter(pk=sale.pk).update(**fields)
    run()
    assert status_of(order) == "paid"


def test_voucher_without_a_last_day_is_never_due() -> None:
    order = paid_order(sale_until(None))
    run(MIDNIGHT + 3650 * DAY)
    assert status_of(order) == "paid"


@pytest.mark.parametrize("status", slow_after(1, sorted(set(OrderStatus) - {OrderStatus.PAID})))
def test_only_what_is_paid_and_unused_is_refunded(status: OrderStatus) -> None:
    reason = "sold_out" if status == OrderStatus.REFUSED else ""
    order = make_order(sale_until(), make_buyers(1)[0], status=status, reason=reason)
    run()
    assert status_of(order) == status
    assert not order.events.exists()


def test_free_voucher_has_nothing_to_refund() -> None:
    sale = sale_until()
    order = paid_order(sale)
    VoucherOrder.objects.update(price_cents=0)
    run()
    assert status_of(order) == "paid"


def test_use_that_is_undone_later_is_refunded() -> None:
    order = paid_order(sale_until(timezone.localdate()))
    use_and_undo(order)
    run(timezone.now() + DAY)
    assert status_of(order) == "refunding"


def test_disputed_payment_is_refunded_once_it_is_won() -> None:
    order = paid_order()
    payments = Payment.objects.filter(order=order)
    payments.update(status=PaymentStatus.DISPUTED)
    run()
    assert status_of(order) == "paid"
    payments.update(status=PaymentStatus.PAID)
    run()
    assert status_of(order) == "refunding"


def test_buyer_reads_why_the_money_comes_back() -> None:
    sale, buyer = sale_until(), make_reader()
    order = make_unpaid_order(sale, [buyer])
    pay(order)
    tell_buyers(now=timezone.now())
    mail.outbox.clear()
    run()
    tell_buyers(now=timezone.now())
    [message] = mail.outbox
    assert "Refund: ¥80.00" in message.body
    assert "Reason: The voucher was not used by its last day." in message.body


# --- Passes --------------------------------------------------------------------------------------


def test_many_go_back_in_several_transactions(monkeypatch: pytest.MonkeyPatch) -> None:
    cut_after_one(monkeypatch)
    monkeypatch.setattr(unused, "REFUNDS_AT_ONCE", 2)
    sale = sale_until()
    make_unpaid_order(sale, make_buyers(5))
    VoucherOrder.objects.update(status=OrderStatus.PAID)

    counts = []
    for more in (True, True, False):
        assert refund_unused(clocks=both_at(MIDNIGHT)) is more
        counts.append(VoucherOrder.objects.filter(status=OrderStatus.REFUNDING).count())

    assert counts == [2, 4, 5]
    assert_conserved(sale)


def test_last_day_that_is_moved_stops_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    cut_after_one(monkeypatch)
    monkeypatch.setattr(unused, "REFUNDS_AT_ONCE", 1)
    make_unpaid_order(sale_until(), make_buyers(2))
    VoucherOrder.objects.update(status=OrderStatus.PAID)
    assert refund_unused(clocks=both_at(MIDNIGHT))
    Voucher.objects.update(valid_until=LAST_DAY + DAY)
    run()
    statuses = VoucherOrder.objects.order_by("pk").values_list("status", flat=True)
    assert list(statuses) == ["refunding", "paid"]


def test_order_that_fails_stops_no_other_sale(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = paid_order(), paid_order()

    def fail(*, sale_id: int, **options: Any) -> Any:
        if sale_id == first.seckill_voucher_id:
            raise VoucherOrder.DoesNotExist
        return lock_orders(sale_id=sale_id, **options)

    monkeypatch.setattr(unused, "lock_orders", fail)
    run()
    assert (status_of(first), status_of(second)) == ("paid", "refunding")


def test_crash_before_the_commit_changes_nothing() -> None:
    order = paid_order()
    payment = Payment.objects.get(order=order)
    with armed("unused.before_commit=raise"), pytest.raises(FailpointReached):
        run()
    assert (status_of(order), payment_status(payment)) == ("paid", "paid")
    run()
    assert history(order)[2:] == ["refunding by system"]


@pytest.mark.parametrize("clocks", [Clocks(MIDNIGHT, LAST_SECOND), Clocks(LAST_SECOND, MIDNIGHT)])
def test_one_clock_alone_ends_no_voucher(clocks: Clocks) -> None:
    order = paid_order()
    assert not refund_unused(clocks=clocks)
    assert status_of(order) == "paid"


def test_task_waits_while_clocks_are_unsettled(monkeypatch: pytest.MonkeyPatch) -> None:
    order = paid_order(sale_until(timezone.localdate() - DAY))

    def unsettled() -> Clocks:
        raise ClocksUnsettled("by the test")

    with monkeypatch.context() as patch:
        patch.setattr(tasks, "settled_clocks", unsettled)
        tasks.refund_unused()
    assert status_of(order) == "paid"
    tasks.refund_unused()
    assert status_of(order) == "refunding"


# --- Against a use, and against the buyer's own refund --------------------------------------------


guards = pytest.mark.parametrize("guarded", [True, False], ids=["guarded", "control"])


def ends_of(order: VoucherOrder) -> tuple[str, str]:
    return status_of(order), Payment.objects.get(order=order).status


@race
@guards
def test_refund_that_was_too_late_leaves_a_used_voucher(
    monkeypatch: pytest.MonkeyPatch, *, guarded: bool
) -> None:
    """The pass has found the order paid, and the counter redeems it before its change."""
    order = paid_order()
    order.refresh_from_db()
    if not guarded:
        monkeypatch.setattr(unused, "lock_orders", lambda **_: [order])

    def use(point: str) -> None:
        if point == "unused.found":
            by = partial(redeem, code=order.code or "", by=STAFF, now=LAST_SECOND)
            [used] = at_once(by)
            assert not isinstance(used, Exception)

    monkeypatch.setattr(unused, "failpoint", use)
    run()

    # The control has handed out what it refunds.
    assert ends_of(order) == ("used", "paid" if guarded else "refunding")


@race
@guards
def test_use_that_was_too_late_leaves_a_refund(
    monkeypatch: pytest.MonkeyPatch, *, guarded: bool
) -> None:
    """The counter has found the voucher valid at 23:59:59, and the pass is first to change it."""
    order = paid_order()
    order.refresh_from_db()

    def change_after_the_pass(change: Change, **about: Any) -> None:
        assert at_once(run) == [None]
        if guarded:
            return change_order(change, **about)
        VoucherOrder.objects.filter(pk=order.pk).update(status=change.to)
        return None

    monkeypatch.setattr(redemption, "change_order", change_after_the_pass)
    [used] = at_once(partial(redeem, code=order.code or "", by=STAFF, now=LAST_SECOND))

    assert isinstance(used, NotRedeemable) is guarded
    assert ends_of(order) == ("refunding" if guarded else "used", "refunding")


@race
def test_passes_at_once_refund_once() -> None:
    order = paid_order()
    assert at_once(*[run] * 4) == [None] * 4
    assert history(order)[2:] == ["refunding by system"]


@race
def test_buyers_own_refund_beside_the_pass_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    order = paid_order()

    def refund_first(point: str) -> None:
        if point == "unused.found":
            own = partial(refund_order, order_id=order.pk, by=buyer_of(order), now=MIDNIGHT)
            assert at_once(own) == [None]

    monkeypatch.setattr(unused, "failpoint", refund_first)
    run()
    assert history(order)[2:] == ["refunding by buyer", "refunded by system"]
    assert trade_state(Payment.objects.get(order=order)) == "refunded"


# --- The providers' pace --------------------------------------------------------------------------


def lapsed_at(provider: str, count: int) -> None:
    """Make orders whose refunds wait for a provider."""
    sale = sale_until(stock=count)
    make_unpaid_order(sale, make_buyers(count))
    for order in VoucherOrder.objects.filter(seckill_voucher=sale):
        Payment.objects.create(
            order=order, reference=f"{provider}-{order.pk}", provider=provider, settles=True,
            amount_cents=order.price_cents, status=PaymentStatus.PAID,
        )  # fmt: skip
    VoucherOrder.objects.filter(seckill_voucher=sale).update(status=OrderStatus.PAID)
    run()


def test_silent_provider_holds_up_no_other(
    fake: FakeProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orders.payments.refunds.REFUNDS_AT_ONCE", 5)
    lapsed_at("gone", 8)
    order = make_unpaid_order(sale_until())
    notify_of_fake(make_payment(order))
    run()
    assert finish_refunds(now=MIDNIGHT) == 1
    assert status_of(order) == "refunded"
    assert Payment.objects.filter(provider="gone", asked=1).count() == MAX_SILENCES


def test_providers_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is slow may use up the time of a walk."""
    asked: list[str] = []

    def ask(payment: Payment, **_: Any) -> bool:
        asked.append(payment.provider)
        return False

    monkeypatch.setattr("orders.payments.refunds.finish_refund", ask)
    for provider in ("slow", "fast"):
        lapsed_at(provider, 2)
    finish_refunds(now=MIDNIGHT)
    assert asked in (["slow", "fast"] * 2, ["fast", "slow"] * 2)


def test_provider_that_works_on_refunds_is_not_silent(
    fake: FakeProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fake, "refund", lambda refund: False)
    lapsed_at("fake", MAX_SILENCES + 2)
    assert finish_refunds(now=MIDNIGHT) == 0
    assert Payment.objects.filter(asked=1).count() == MAX_SILENCES + 2


def test_orders_without_money_are_found_behind_a_long_list(
    fake: FakeProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orders.payments.refunds.REFUNDS_AT_ONCE", 2)
    lapsed_at("gone", 2)

    def without_money() -> VoucherOrder:
        order = make_unpaid_order(make_sale())
        VoucherOrder.objects.filter(pk=order.pk).update(status=OrderStatus.REFUNDING)
        return order

    first = without_money()
    finish_refunds(now=MIDNIGHT)
    second = without_money()
    finish_refunds(now=MIDNIGHT + DAY)
    assert (status_of(first), status_of(second)) == ("refunded", "refunding"), "once a minute"
    Payment.objects.filter(provider="gone")[0].delete()
    finish_refunds(now=MIDNIGHT + 2 * DAY)
    assert status_of(second) == "refunded"


def test_long_list_keeps_the_shop_awake(monkeypatch: pytest.MonkeyPatch) -> None:
    signs: list[str] = []
    monkeypatch.setattr(tasks, "note_life", lambda: signs.append("life"))
    tasks.finish_refunds()
    assert signs == []
    order = paid_order(sale_until(timezone.localdate() - DAY))
    run(timezone.now())
    tasks.finish_refunds()
    assert (status_of(order), signs) == ("refunded", ["life"])
