"""One payment for each purchase: its units are paid together, and each is refunded alone."""

from __future__ import annotations

import datetime as dt
from functools import partial
from typing import Any

import pytest
from django.utils import timezone

from orders.lifecycle.cancellation import cancel_order, end_orders
from orders.lifecycle.redemption import NotRedeemable, redeem
from orders.lifecycle.transitions import SYSTEM, Actor, Change
from orders.models import (
    EventCode,
    MoneyDirection,
    OrderEvent,
    OrderStatus,
    Payment,
    PaymentStatus,
    SandboxTrade,
    SettlementDifference,
    VoucherOrder,
)
from orders.payments.confirmation import confirm_payments, note_return
from orders.payments.expiry import expire_being_paid
from orders.payments.extension import extend_time
from orders.payments.providers import ChargeRefused, ChargeState, Movement, PartlyRefunded
from orders.payments.refunds import Decision, decide, finish_refunds, refund_order
from orders.payments.service import LATE, WRONG_AMOUNT, code_to_scan, poll_payments, start_payment
from orders.payments.settlement import settle_day
from orders.payments.unused import refund_unused
from orders.receipts.payment_state import PaymentState
from orders.receipts.service import receipt_of
from seckill_site.failpoints import FailpointReached, armed
from tests.support.inspection import assert_conserved, live_ids
from tests.support.orders import PRICE_CENTS, at_once, both_at, make_sale, race
from tests.support.payments import (
    ADDRESSES,
    FakeProvider,
    buyer_of,
    expire_all,
    expire_pay_by,
    let_time_run_out,
    make_payment,
    make_unpaid_order,
    make_unpaid_purchase,
    notify_of_fake,
    status_of,
)
from tests.support.stand_ins.lives import everywhere, notify, opened, over_http, tell, tell_of_money
from tests.support.stand_ins.server import Fault, RefundMode, StandIn
from tests.support.stand_ins.stripe import StripeStandIn
from tests.support.stand_ins.wechat import WeChatStandIn
from vouchers.models import SeckillVoucher, Voucher

pytestmark = pytest.mark.django_db

STAFF = Actor.staff(None)
AN_HOUR = dt.timedelta(hours=1)
TOTAL = 3 * PRICE_CENTS
PART_CENTS = 3_000

at_stripe = pytest.mark.parametrize("at", [StripeStandIn], indirect=True)
at_wechat = pytest.mark.parametrize("at", [WeChatStandIn], indirect=True)
that_fail_later = pytest.mark.parametrize("at", [StripeStandIn, WeChatStandIn], indirect=True)


def three(**terms: Any) -> tuple[SeckillVoucher, list[VoucherOrder]]:
    """Return a sale and the unpaid orders of a purchase of three of it."""
    sale = make_sale(limit=6, **terms)
    return sale, make_unpaid_purchase(sale, 3)


def opened_charge(at: StandIn, order: VoucherOrder) -> Payment:
    """Send the buyer to the provider's page; return the payment that it knows."""
    share = opened(at, order)
    first = share.charge or share
    at.trades[first.reference].is_shared = True
    return first


def fake_charge(order: VoucherOrder) -> Payment:
    """Start a payment at the fake provider; return the share that it knows."""
    share = make_payment(order)
    return share.charge or share


def bought(at: StandIn) -> tuple[SeckillVoucher, list[VoucherOrder], list[Payment]]:
    """Return a sale, three orders of a purchase that is paid, and their payments."""
    sale, orders = three()
    first = opened_charge(at, orders[0])
    at.pay(first.reference)
    notify(at, first)
    for order in orders:
        order.refresh_from_db()
    return sale, orders, [order.payments.get() for order in orders]


def refund(order: VoucherOrder) -> None:
    refund_order(order_id=order.pk, by=STAFF, now=timezone.now())


def statuses(orders: list[VoucherOrder]) -> list[str]:
    return [status_of(it) for it in orders]


def of_payments(payments: list[Payment]) -> list[tuple[str, int]]:
    """Return the state of each payment, and what has gone back of it."""
    found = {it.pk: it for it in Payment.objects.filter(pk__in=[it.pk for it in payments])}
    return [(found[it.pk].status, found[it.pk].refunded_cents) for it in payments]


def given_back(at: StandIn, first: Payment) -> dict[str, int]:
    """Return what the provider has given back of a charge, by the number of the refund."""
    if at.name == "sandbox":
        return SandboxTrade.objects.get(reference=first.reference).refunds or {}
    return at.trades[first.reference].parts


# --- One charge, at every provider ----------------------------------------------------------------


@everywhere
def test_purchase_opens_one_charge_of_its_total(at: StandIn) -> None:
    _, orders = three()
    first = opened_charge(at, orders[1])
    assert [it.amount_cents for it in at.trades.values()] == [TOTAL]
    assert opened_charge(at, orders[2]) == first
    assert len(at.trades) == 1

    at.pay(first.reference)
    notify(at, first)
    notify(at, first, identity="again")
    assert statuses(orders) == ["paid"] * 3
    shares = Payment.objects.order_by("order_id")
    assert [(it.order_id, it.amount_cents, it.settles) for it in shares] == [
        (it.pk, PRICE_CENTS, True) for it in orders
    ]
    codes = VoucherOrder.objects.values_list("code", flat=True)
    assert len({it for it in codes if it}) == 3


@everywhere
def test_unit_is_refunded_alone_by_its_own_number(at: StandIn) -> None:
    sale, orders, shares = bought(at)
    refund(orders[1])
    assert statuses(orders) == ["paid", "refunded", "paid"]
    assert given_back(at, shares[0]) == {shares[1].reference: PRICE_CENTS}
    assert len(live_ids(sale)) == 2
    assert_conserved(sale)


@pytest.mark.slow
@everywhere
@pytest.mark.usefixtures("one_day")
def test_refunds_of_all_units_give_back_the_charge(at: StandIn) -> None:
    sale, orders, shares = bought(at)
    today = timezone.localdate()
    for done, order in enumerate(orders, start=1):
        refund(order)
        assert sum(given_back(at, shares[0]).values()) == done * PRICE_CENTS
        if at.name != "sandbox":
            assert settle_day(provider_name=at.name, day=today, now=timezone.now()) == 0
    assert given_back(at, shares[0]) == {it.reference: PRICE_CENTS for it in shares}
    assert statuses(orders) == ["refunded"] * 3
    assert settle_day(provider_name=at.name, day=today, now=timezone.now()) == 0
    assert_conserved(sale)


@pytest.mark.slow
@everywhere
def test_query_finds_a_charge_never_reported(at: StandIn) -> None:
    _, orders = three()
    first = opened_charge(at, orders[0])
    at.pay(first.reference)
    assert poll_payments(now=timezone.now() + AN_HOUR) == 1
    assert statuses(orders) == ["paid"] * 3


@everywhere
def test_share_of_an_ended_order_goes_back_alone(at: StandIn) -> None:
    sale, orders = three()
    first = opened_charge(at, orders[0])
    gone = Change(OrderStatus.CANCELLED, SYSTEM, timezone.now())  # as the release before did
    end_orders(gone, sale_id=sale.pk, order_ids=[orders[0].pk])
    at.pay(first.reference)
    notify(at, first)
    assert statuses(orders) == ["cancelled", "paid", "paid"]
    assert finish_refunds(now=timezone.now() + AN_HOUR) == 1
    first.refresh_from_db()
    assert (first.status, first.problem) == ("refunded", LATE)
    assert given_back(at, first) == {first.reference: PRICE_CENTS}
    assert_conserved(sale)


@everywhere
def test_wrong_amount_goes_back_in_one_refund(at: StandIn) -> None:
    sale, orders = three()
    first = opened_charge(at, orders[0])
    at.pay(first.reference, amount_cents=TOTAL - 100)
    notify(at, first)
    assert statuses(orders) == ["unpaid"] * 3
    first.refresh_from_db()
    assert (first.received_cents, first.problem) == (TOTAL - 100, WRONG_AMOUNT)
    assert OrderEvent.objects.filter(code=EventCode.WRONG_AMOUNT).count() == 1
    assert finish_refunds(now=timezone.now() + AN_HOUR) == 1
    assert given_back(at, first) == {first.reference: TOTAL - 100}
    assert sorted(Payment.objects.values_list("status", flat=True)) == [
        "closed", "closed", "refunded",
    ]  # fmt: skip

    again = opened_charge(at, orders[1])
    at.pay(again.reference)
    notify(at, again)
    assert statuses(orders) == ["paid"] * 3
    assert_conserved(sale)


@over_http
def test_refunds_that_are_pending_end_one_by_one(at: StandIn) -> None:
    _, orders, shares = bought(at)
    at.refund_mode = RefundMode.PENDING
    refund(orders[0])
    refund(orders[2])
    assert statuses(orders) == ["refunding", "paid", "refunding"]
    at.finish_refund(shares[0].reference)
    assert finish_refunds(now=timezone.now() + AN_HOUR) == 2
    assert statuses(orders) == ["refunded", "paid", "refunded"]
    assert given_back(at, shares[0]) == {it.reference: PRICE_CENTS for it in (shares[0], shares[2])}


# --- What others do at the provider ---------------------------------------------------------------


@over_http
def test_price_of_a_unit_refunded_by_hand_ends_one(at: StandIn) -> None:
    sale, orders, shares = bought(at)
    redeem(code=orders[2].code or "", by=STAFF, now=timezone.now())
    at.refund_by_hand(shares[0].reference, PRICE_CENTS)
    tell_of_money(at, shares[0])
    finish_refunds(now=timezone.now() + AN_HOUR)
    assert statuses(orders) == ["paid", "refunded", "used"]
    assert at.refund_calls == 0
    assert_conserved(sale)


@over_http
def test_part_refunded_by_hand_waits_for_staff(at: StandIn) -> None:
    _, orders, shares = bought(at)
    at.refund_by_hand(shares[0].reference, PART_CENTS)
    tell_of_money(at, shares[0])
    assert of_payments(shares) == [("paid", 0), ("paid", 0), ("partly_refunded", PART_CENTS)]
    decide(Decision.REFUND_REST, payment_id=shares[2].pk, by=STAFF, now=timezone.now())
    refund(orders[0])
    assert statuses(orders) == ["refunded", "paid", "refunded"]
    assert given_back(at, shares[0]) == {
        shares[2].reference: PRICE_CENTS - PART_CENTS,
        shares[0].reference: PRICE_CENTS,
    }


@pytest.mark.slow
@over_http
def test_charge_refunded_whole_by_hand_ends_all(at: StandIn) -> None:
    _, orders, shares = bought(at)
    at.refund_by_hand(shares[0].reference, TOTAL)
    tell_of_money(at, shares[0])
    assert finish_refunds(now=timezone.now() + AN_HOUR) == 3
    assert statuses(orders) == ["refunded"] * 3
    assert at.refund_calls == 0


@pytest.mark.parametrize("at", [WeChatStandIn, StripeStandIn], indirect=True)
def test_word_of_our_own_refund_ends_no_other_unit(at: StandIn) -> None:
    """It comes before we have noted that the refund is done."""
    _, orders, shares = bought(at)
    refund(orders[1])
    Payment.objects.filter(pk=shares[1].pk).update(
        status=PaymentStatus.REFUNDING, refunded_cents=0, refunded_at=None, ask_at=timezone.now()
    )
    message = at.money_message(shares[0].reference, "ours")
    if at.name == "wechat":
        message["resource"]["plain"]["out_refund_no"] = shares[1].reference
        message["resource"]["plain"]["amount"]["refund"] = PRICE_CENTS
    tell(at, message)
    assert of_payments(shares) == [("paid", 0), ("refunding", 0), ("paid", 0)]
    assert finish_refunds(now=timezone.now() + AN_HOUR) == 1
    assert of_payments(shares) == [("paid", 0), ("refunded", PRICE_CENTS), ("paid", 0)]


@pytest.mark.slow
@over_http
@pytest.mark.usefixtures("one_day")
def test_list_of_the_day_names_a_unit_refunded_by_hand(at: StandIn) -> None:
    _, orders, shares = bought(at)
    refund(orders[0])
    at.refund_by_hand(shares[0].reference, PRICE_CENTS)
    assert settle_day(provider_name=at.name, day=timezone.localdate(), now=timezone.now()) == 0
    assert of_payments(shares)[1:] == [("paid", 0), ("refunding", PRICE_CENTS)]


@at_stripe
def test_refund_finds_that_its_money_is_gone(at: StandIn) -> None:
    """Staff refunded the unit at Stripe, and Stripe's message is late."""
    _, orders, shares = bought(at)
    at.refund_by_hand(shares[0].reference, PRICE_CENTS)
    refund(orders[1])
    finish_refunds(now=timezone.now() + AN_HOUR)
    assert statuses(orders) == ["paid", "refunded", "paid"]
    assert at.refund_calls == 0


@at_stripe
def test_refund_of_one_unit_is_not_that_of_another(at: StandIn) -> None:
    """Both are under way, and only one has been made."""
    _, orders, shares = bought(at)
    refund(orders[1])
    going = {"status": PaymentStatus.REFUNDING, "refunded_cents": 0, "refunded_at": None}
    Payment.objects.filter(pk=shares[1].pk).update(**going, ask_at=timezone.now())
    refund(orders[2])
    finish_refunds(now=timezone.now() + AN_HOUR)
    finish_refunds(now=timezone.now() + 2 * AN_HOUR)
    assert statuses(orders) == ["paid", "refunded", "refunded"]
    assert given_back(at, shares[0]) == {it.reference: PRICE_CENTS for it in shares[1:]}


@at_stripe
def test_money_by_hand_is_the_refund_of_one_under_way(at: StandIn) -> None:
    """Two are under way, Stripe has made neither, and staff have refunded one there."""
    _, orders, shares = bought(at)
    for order in orders[:2]:
        at.faults.append(Fault.ERROR_500)
        refund(order)
    at.refund_by_hand(shares[0].reference, PRICE_CENTS)
    for hour in range(1, 4):
        finish_refunds(now=timezone.now() + hour * AN_HOUR)
    assert statuses(orders) == ["refunded", "refunded", "paid"]
    assert sum(given_back(at, shares[0]).values()) == PRICE_CENTS


def test_part_that_is_gone_belongs_to_the_refund_asked_for(
    fake: FakeProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A provider refuses it because of that, and names no numbers."""

    def refuse(refund: Any) -> bool:
        raise PartlyRefunded(PRICE_CENTS)

    _, orders = three()
    first = fake_charge(orders[0])
    notify_of_fake(first)
    monkeypatch.setattr(fake, "refund", refuse)
    refund(orders[1])
    finish_refunds(now=timezone.now() + AN_HOUR)
    assert statuses(orders) == ["paid", "refunded", "paid"]


@that_fail_later
def test_refund_that_fails_later_is_of_its_own_unit(at: StandIn) -> None:
    _, orders, shares = bought(at)
    refund(orders[0])
    refund(orders[1])
    at.fail_refund(shares[0].reference, shares[0].reference)
    tell_of_money(at, shares[0])
    assert of_payments(shares) == [("refund_failed", 0), ("refunded", PRICE_CENTS), ("paid", 0)]
    decide(Decision.REFUND_REST, payment_id=shares[0].pk, by=STAFF, now=timezone.now())
    assert given_back(at, shares[0]) == {
        shares[1].reference: PRICE_CENTS, f"{shares[0].reference}-1": PRICE_CENTS,
    }  # fmt: skip
    assert of_payments(shares)[0] == ("refunded", PRICE_CENTS)


@at_stripe
def test_dispute_blocks_the_codes_of_all_units(at: StandIn) -> None:
    _, orders, shares = bought(at)
    refund(orders[0])
    at.trades[shares[0].reference].dispute = "needs_response"
    tell_of_money(at, shares[0], identity="open")
    assert [it for it, _ in of_payments(shares)] == ["refunded", "disputed", "disputed"]
    for order in orders[1:]:
        with pytest.raises(NotRedeemable):
            redeem(code=order.code or "", by=STAFF, now=timezone.now())
    at.trades[shares[0].reference].dispute = "won"
    tell_of_money(at, shares[0], identity="won")
    assert [it for it, _ in of_payments(shares)] == ["refunded", "paid", "paid"]


# --- The charge is one, whichever unit is asked about ---------------------------------------------


def test_code_is_shown_at_every_unit(fake: FakeProvider, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fake, "code_apps", {"https://pay.example/": "an app"})
    _, orders = three()
    first = fake_charge(orders[2])
    for order in orders:
        found = code_to_scan(order_id=order.pk, now=timezone.now())
        assert found
        assert found.address.endswith(first.reference)


def test_return_to_one_unit_is_shown_at_all(fake: FakeProvider) -> None:
    _, orders = three()
    make_payment(orders[0])
    fake.asked.clear()
    note_return(order=orders[2], now=timezone.now())
    for order in orders:
        order.refresh_from_db()
        assert receipt_of(order).payment.state == PaymentState.CONFIRMING
    fake.away = True
    assert confirm_payments(order_id=orders[1].pk, now=timezone.now())
    assert [receipt_of(it).payment.state for it in reread(orders)] == [PaymentState.SILENT] * 3
    assert len(fake.asked) == 1
    assert Payment.objects.exclude(ask_at=None).count() == 1, "a charge is asked about once"


def reread(orders: list[VoucherOrder]) -> list[VoucherOrder]:
    return list(VoucherOrder.objects.filter(pk__in=[it.pk for it in orders]).order_by("pk"))


@pytest.mark.parametrize("is_paid", [False, True])
def test_charge_is_asked_about_once_before_all_expire(fake: FakeProvider, is_paid: bool) -> None:
    sale, orders = three()
    payment = fake_charge(orders[0])
    if is_paid:
        fake.says[payment.reference] = ChargeState.PAID
    for order in orders:
        now = expire_pay_by(order)
    assert expire_all(clocks=both_at(now)) == (0 if is_paid else 3)
    assert statuses(orders) == ["paid" if is_paid else "expired"] * 3
    assert fake.asked == [payment.reference]
    assert_conserved(sale)


@pytest.mark.parametrize("at_once", [1, 2])
def test_purchase_being_paid_expires_whole(
    fake: FakeProvider, monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    monkeypatch.setattr("orders.payments.expiry.ASK_AT_ONCE", at_once)
    monkeypatch.setattr("orders.payments.expiry.ORDERS_AT_ONCE", 2)
    sale, orders = three()
    make_payment(orders[0])
    other = make_unpaid_order(sale)
    make_payment(other)
    for order in [*orders, other]:
        now = expire_pay_by(order)
    ended = list[int]()
    monkeypatch.setattr(
        "orders.payments.expiry.end_orders",
        lambda *_, order_ids, **__: ended.append(len(order_ids)),
    )
    expire_being_paid(clocks=both_at(now))
    assert 3 in ended or 4 in ended


def test_silent_provider_holds_all_units(fake: FakeProvider) -> None:
    _, orders = three()
    make_payment(orders[0])
    fake.away = True
    for order in orders:
        now = expire_pay_by(order)
    assert expire_all(clocks=both_at(now)) == 0
    late = now + dt.timedelta(minutes=3)
    assert expire_all(clocks=both_at(late)) == 3
    assert statuses(orders) == ["expired"] * 3


def test_refused_charge_gets_new_references(
    fake: FakeProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(charge: Any) -> Any:
        raise ChargeRefused("by the test")

    _, orders = three()
    with monkeypatch.context() as refusing:
        refusing.setattr(fake, "create", refuse)
        with pytest.raises(ChargeRefused):
            make_payment(orders[0])
    refused = list(Payment.objects.values_list("reference", "status"))
    assert [it for _, it in refused] == ["refused"] * 3
    make_payment(orders[1])
    first, *further = Payment.objects.order_by("pk")
    assert [it.reference for it in further] == [f"{first.reference}_2", f"{first.reference}_3"]
    assert {it.status for it in (first, *further)} == {"open"}
    assert first.reference not in {it for it, _ in refused}
    assert [it.ask_at is not None for it in (first, *further)] == [True, False, False]


def test_time_is_extended_for_all_units(fake: FakeProvider) -> None:
    _, orders = three()
    make_payment(orders[0])
    for order in orders:
        let_time_run_out(order)
    extend_time(order_id=orders[1].pk, by=buyer_of(orders[1]), now=timezone.now())
    assert len({(it.pay_by, it.extended_at) for it in reread(orders)}) == 1
    assert all(it.extended_at for it in reread(orders))
    assert OrderEvent.objects.filter(code=EventCode.EXTENDED).count() == 3
    make_payment(orders[2])
    assert [it.amount_cents for it in fake.charges.values()] == [TOTAL, TOTAL]


def test_extension_takes_no_time_from_a_retried_unit() -> None:
    _, orders = three()
    let_time_run_out(orders[0])
    let_time_run_out(orders[1], dt.timedelta(hours=1))
    let_time_run_out(orders[2], -dt.timedelta(minutes=1))
    before = reread(orders)
    extend_time(order_id=orders[0].pk, by=buyer_of(orders[0]), now=timezone.now())
    after = reread(orders)
    assert after[0].extended_at
    assert after[1].pay_by == before[1].pay_by
    assert (after[2].pay_by, after[2].extended_at) == (before[2].pay_by, None)


def test_free_purchase_is_paid_at_once(fake: FakeProvider) -> None:
    sale = make_sale(limit=6)
    Voucher.objects.update(price_cents=0)
    orders = make_unpaid_purchase(sale, 3)
    start_payment(order_id=orders[1].pk, **ADDRESSES, now=timezone.now())
    assert statuses(orders) == ["paid"] * 3
    assert fake.charges == {}
    refund(orders[0])
    assert statuses(orders) == ["refunded", "paid", "paid"]


def test_unit_that_comes_later_is_paid_by_a_new_charge(fake: FakeProvider) -> None:
    """Staff made a unit live again that had been set aside."""
    _, orders = three()
    last = VoucherOrder.objects.filter(pk=orders[2].pk)
    last.update(status=OrderStatus.REFUSED, live=None, reason="set_aside")
    first = fake_charge(orders[0])
    last.update(status=OrderStatus.UNPAID, live=True, reason="")
    second = fake_charge(orders[0])
    assert [it.amount_cents for it in fake.charges.values()] == [2 * PRICE_CENTS, TOTAL]
    for charge in (first, second):
        notify_of_fake(charge)
    assert statuses(orders) == ["paid"] * 3
    finish_refunds(now=timezone.now() + AN_HOUR)
    assert sum(fake.gone[second.reference].values()) == 2 * PRICE_CENTS
    assert first.reference not in fake.gone


# --- A purchase of one ----------------------------------------------------------------------------


def test_order_alone_is_paid_as_ever(fake: FakeProvider) -> None:
    single = make_unpaid_order(make_sale())
    (of_block,) = make_unpaid_purchase(make_sale(limit=6), 1)
    for order in (single, of_block):
        payment = make_payment(order)
        assert (payment.charge, payment.total_cents) == (None, None)
        notify_of_fake(payment)
        refund(order)
        assert fake.gone[payment.reference] == {payment.reference: PRICE_CENTS}


def test_payment_of_one_unit_costs_no_statement(
    fake: FakeProvider, django_assert_num_queries: Any
) -> None:
    single = make_unpaid_order(make_sale())
    (of_block,) = make_unpaid_purchase(make_sale(limit=6), 1)
    for order in (single, of_block):
        with django_assert_num_queries(5):
            start_payment(order_id=order.pk, **ADDRESSES, now=timezone.now())


# --- What goes by order ---------------------------------------------------------------------------


@pytest.mark.parametrize("point", ["settle.before_commit", "settle.committed"])
def test_crash_pays_all_units_or_none(fake: FakeProvider, point: str) -> None:
    sale, orders = three()
    first = fake_charge(orders[0])
    with armed(f"{point}=raise"), pytest.raises(FailpointReached):
        notify_of_fake(first)
    assert set(statuses(orders)) == {"unpaid" if point == "settle.before_commit" else "paid"}
    notify_of_fake(first)
    assert statuses(orders) == ["paid"] * 3
    assert_conserved(sale)


def test_unused_units_are_refunded_by_themselves(fake: FakeProvider) -> None:
    sale = make_sale(limit=6, refund_unused=True)
    Voucher.objects.update(valid_until=timezone.localdate() - dt.timedelta(days=1))
    orders = make_unpaid_purchase(sale, 3)
    first = fake_charge(orders[0])
    notify_of_fake(first)
    VoucherOrder.objects.filter(pk=orders[1].pk).update(status=OrderStatus.USED)
    refund_unused(clocks=both_at(timezone.now()))
    finish_refunds(now=timezone.now() + AN_HOUR)
    assert statuses(orders) == ["refunded", "used", "refunded"]
    numbers = [first.reference, f"{first.reference}_3"]
    assert fake.gone[first.reference] == dict.fromkeys(numbers, PRICE_CENTS)


# --- Races ----------------------------------------------------------------------------------------


@race
def test_clicks_at_two_units_open_one_charge(fake: FakeProvider) -> None:
    for _ in range(3):
        _, orders = three()
        fake.charges.clear()
        start = partial(start_payment, **ADDRESSES, now=timezone.now())
        urls = at_once(*(partial(start, order_id=it.pk) for it in orders[:2]))
        assert urls[0] == urls[1]
        assert [it.amount_cents for it in fake.charges.values()] == [TOTAL]


@race
def test_cancellation_and_payment_at_once_lose_nothing(fake: FakeProvider) -> None:
    for _ in range(3):
        sale, orders = three()
        first = fake_charge(orders[0])
        at_once(
            partial(cancel_order, order_id=orders[1].pk, by=STAFF, now=timezone.now()),
            partial(notify_of_fake, first),
        )
        notify_of_fake(first)
        finish_refunds(now=timezone.now() + AN_HOUR)
        kept = 3 * (status_of(orders[0]) == "paid")
        assert len(set(statuses(orders))) == 1
        gone = sum(fake.gone.get(first.reference, {}).values())
        assert gone + kept * PRICE_CENTS == TOTAL
        assert_conserved(sale)


# --- Settlement -----------------------------------------------------------------------------------


def listed(first: Payment, kind: MoneyDirection, cents: int) -> Movement:
    return Movement(kind, first.reference, cents)


@pytest.mark.slow
@pytest.mark.usefixtures("one_day")
def test_refund_of_a_unit_that_is_not_listed_is_named(fake: FakeProvider, settings: Any) -> None:
    settings.SECKILL_PAYMENT_PROVIDERS = settings.SECKILL_PAYMENT_PROVIDERS[:1]
    _, orders = three()
    first = fake_charge(orders[0])
    notify_of_fake(first)
    for order in orders[:2]:
        refund(order)
    paid = listed(first, MoneyDirection.PAYMENT, TOTAL)
    back = listed(first, MoneyDirection.REFUND, PRICE_CENTS)
    day, now = timezone.localdate(), timezone.now()

    def settle(*movements: Movement, on: dt.date = day) -> list[tuple[str, str, int | None]]:
        fake.movements = list(movements)
        settle_day(provider_name="fake", day=on, now=now)
        found = SettlementDifference.objects.filter(resolved_at=None)
        return list(found.values_list("direction", "kind", "our_cents"))

    assert settle(paid, back, back) == []
    assert settle(paid, back) == [("refund", "amount", 2 * PRICE_CENTS)]
    assert settle(paid) == [("refund", "missing_there", 2 * PRICE_CENTS)]
    before = day - dt.timedelta(days=1)
    assert settle(back, on=before) == [("refund", "missing_there", 2 * PRICE_CENTS)]
    assert settle(back, back, on=before) == []
    assert settle(listed(first, MoneyDirection.PAYMENT, PRICE_CENTS)) == [
        ("payment", "amount", TOTAL)
    ]
