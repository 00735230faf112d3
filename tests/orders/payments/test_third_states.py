"""What others do at the provider: refunds by hand, disputes, refunds that fail after all."""

from __future__ import annotations

import datetime as dt
import zoneinfo
from functools import partial
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from orders.lifecycle.redemption import NotRedeemable, Redeemable, find_by_code, redeem
from orders.lifecycle.transitions import Actor
from orders.models import OrderEvent, Payment, SettlementDifference, VoucherOrder
from orders.payments.providers import Movement
from orders.payments.refunds import (
    PROBLEMS,
    REFUSED,
    Decision,
    NothingToDecide,
    decide,
    finish_refunds,
    refund_order,
)
from orders.payments.settlement import settle_day, settle_due
from seckill_site.failpoints import FailpointReached, armed
from tests.support.inspection import assert_conserved, live_ids
from tests.support.orders import PRICE_CENTS, at_once, make_sale, race
from tests.support.payments import (
    FakeProvider,
    make_unpaid_order,
    notify_url,
    payment_status,
    status_of,
)
from tests.support.stand_ins.alipay import CHINA, AlipayStandIn
from tests.support.stand_ins.lives import (
    over_http,
    paid,
    refunded_everywhere,
    tell,
    tell_of_money,
)
from tests.support.stand_ins.server import Fault, RefundMode, StandIn
from tests.support.stand_ins.stripe import StripeStandIn
from tests.support.stand_ins.wechat import WeChatStandIn
from vouchers.models import SeckillVoucher

pytestmark = pytest.mark.django_db

STAFF = Actor.staff(None)
AN_HOUR = dt.timedelta(hours=1)
PART_CENTS = 3_000

at_stripe = pytest.mark.parametrize("at", [StripeStandIn], indirect=True)
that_fail_later = pytest.mark.parametrize("at", [StripeStandIn, WeChatStandIn], indirect=True)
with_bills = pytest.mark.parametrize("at", [AlipayStandIn, WeChatStandIn], indirect=True)


def bought(at: StandIn) -> tuple[SeckillVoucher, VoucherOrder, Payment]:
    sale = make_sale(stock=1)
    order = make_unpaid_order(sale)
    payment = paid(at, order)
    order.refresh_from_db()
    return sale, order, payment


def refund(order: VoucherOrder) -> None:
    refund_order(order_id=order.pk, by=STAFF, now=timezone.now())


def choose(decision: Decision, payment: Payment) -> None:
    decide(decision, payment_id=payment.pk, by=STAFF, now=timezone.now(), why="by phone")


def use(order: VoucherOrder) -> Redeemable:
    return redeem(code=order.code or "", by=STAFF, now=timezone.now()).redeemable


def settle(at: StandIn) -> int:
    day = timezone.localdate(timezone=CHINA)
    return settle_day(provider_name=at.name, day=day, now=timezone.now())


# --- A part, refunded by hand ---------------------------------------------------------------------


@over_http
def test_rest_of_a_partly_refunded_payment_goes_back(at: StandIn) -> None:
    sale, order, payment = bought(at)
    at.refund_by_hand(payment.reference, PART_CENTS)
    tell_of_money(at, payment)
    payment.refresh_from_db()
    assert (status_of(order), payment.status) == ("paid", "partly_refunded")
    assert payment.refunded_cents == PART_CENTS

    refund(order)
    assert finish_refunds(now=timezone.now() + AN_HOUR) == 0
    assert (status_of(order), payment_status(payment)) == ("refunding", "partly_refunded")
    assert live_ids(sale) == [order.pk]
    choose(Decision.REFUND_REST, payment)
    assert refunded_everywhere(at, payment)
    assert at.trades[payment.reference].refunded_cents == PRICE_CENTS - PART_CENTS
    assert (payment.refunded_cents, payment.problem) == (PRICE_CENTS, "")
    assert status_of(order) == "refunded"
    assert_conserved(sale)


@over_http
@pytest.mark.usefixtures("one_day")
def test_list_of_the_day_ends_a_stuck_refund(at: StandIn) -> None:
    """The provider did not notify; the refund of all was refused."""
    sale, order, payment = bought(at)
    at.refund_by_hand(payment.reference, PART_CENTS)
    refund(order)
    finish_refunds(now=timezone.now() + AN_HOUR)
    assert settle(at) == 0
    assert (status_of(order), payment_status(payment)) == ("refunding", "partly_refunded")
    choose(Decision.COUNT_AS_REFUNDED, payment)
    payment.refresh_from_db()
    assert (status_of(order), payment.status) == ("refunded", "refunded")
    assert payment.refunded_cents == PART_CENTS, "no money moved"
    assert at.trades[payment.reference].refunded_cents == 0
    assert settle(at) == 0
    assert_conserved(sale)


@over_http
def test_voucher_of_a_partly_refunded_payment_is_valid(at: StandIn) -> None:
    _, order, payment = bought(at)
    at.refund_by_hand(payment.reference, PART_CENTS)
    tell_of_money(at, payment)
    use(order)
    choose(Decision.REFUND_REST, payment)
    assert refunded_everywhere(at, payment)
    assert status_of(order) == "used"


@over_http
def test_repeated_word_of_a_part_does_not_stop_the_rest(at: StandIn) -> None:
    _, _, payment = bought(at)
    at.refund_by_hand(payment.reference, PART_CENTS)
    tell_of_money(at, payment)
    Payment.objects.update(status="refunding", problem="")
    tell_of_money(at, payment, identity="again")
    assert payment_status(payment) == "refunding"


@pytest.mark.parametrize("at", [WeChatStandIn], indirect=True)
def test_word_of_our_own_refund_is_no_part_by_hand(at: StandIn) -> None:
    _, order, payment = bought(at)
    at.refund_by_hand(payment.reference, PART_CENTS)
    tell_of_money(at, payment)
    refund(order)
    at.refund_mode = RefundMode.PENDING
    choose(Decision.REFUND_REST, payment)
    at.finish_refund(payment.reference)
    message = at.money_message(payment.reference, "ours")
    plain = message["resource"]["plain"]
    plain["out_refund_no"] = payment.reference
    plain["amount"]["refund"] = PRICE_CENTS - PART_CENTS
    tell(at, message)
    assert payment_status(payment) == "refunding"
    assert finish_refunds(now=timezone.now() + AN_HOUR) == 1
    assert refunded_everywhere(at, payment)


@over_http
def test_payment_refunded_whole_by_hand_ends_its_order(at: StandIn) -> None:
    sale, order, payment = bought(at)
    at.refund_by_hand(payment.reference, PRICE_CENTS)
    tell_of_money(at, payment)
    assert finish_refunds(now=timezone.now() + AN_HOUR) == 1
    assert refunded_everywhere(at, payment)
    assert at.refund_calls == 0
    assert status_of(order) == "refunded"
    with pytest.raises(NotRedeemable):
        use(order)
    assert_conserved(sale)


@pytest.mark.parametrize("at", [StripeStandIn], indirect=True)
def test_refund_finds_a_part_that_is_gone(at: StandIn) -> None:
    _, order, payment = bought(at)
    at.refund_by_hand(payment.reference, PART_CENTS)
    refund(order)
    payment.refresh_from_db()
    assert payment.status == "partly_refunded"
    assert payment.problem == PROBLEMS["partly_refunded"]
    assert (payment.refunded_cents, at.refund_calls) == (PART_CENTS, 0)


@pytest.mark.parametrize("point", ["refund.closing", "refund.closed"])
@at_stripe
def test_counting_as_refunded_survives_a_crash(at: StandIn, point: str) -> None:
    _, order, payment = bought(at)
    at.refund_by_hand(payment.reference, PART_CENTS)
    tell_of_money(at, payment)
    with armed(f"{point}=raise"), pytest.raises(FailpointReached):
        choose(Decision.COUNT_AS_REFUNDED, payment)
    assert finish_refunds(now=timezone.now() + AN_HOUR) == 0
    assert at.refund_calls == 0
    if point == "refund.closing":
        assert (status_of(order), payment_status(payment)) == ("paid", "partly_refunded")
        choose(Decision.COUNT_AS_REFUNDED, payment)
    assert (status_of(order), payment_status(payment)) == ("refunded", "refunded")


@at_stripe
def test_decided_payment_cannot_be_decided_again(at: StandIn) -> None:
    _, order, payment = bought(at)
    with pytest.raises(NothingToDecide):
        choose(Decision.COUNT_AS_REFUNDED, payment)
    assert (status_of(order), payment_status(payment)) == ("paid", "paid")


@race
@at_stripe
def test_of_two_decisions_at_once_one_counts(at: StandIn) -> None:
    for _ in range(3):
        _, order, payment = bought(at)
        dispute(at, payment)
        at.trades[payment.reference].dispute, before = "", at.refund_calls
        counted, refunded = at_once(*(partial(choose, it, payment) for it in reversed(Decision)))
        assert isinstance(counted, NothingToDecide) != isinstance(refunded, NothingToDecide)
        assert at.refund_calls - before == isinstance(counted, NothingToDecide)
        assert (status_of(order), payment_status(payment)) == ("refunded", "refunded")


@over_http
def test_refund_that_is_refused_for_good_can_be_counted(at: StandIn) -> None:
    sale, order, payment = bought(at)
    at.refund_mode = RefundMode.REFUSED
    with armed("refund.committed=raise"), pytest.raises(FailpointReached):
        refund(order)
    with pytest.raises(NothingToDecide):
        choose(Decision.COUNT_AS_REFUNDED, payment)
    finish_refunds(now=timezone.now() + AN_HOUR)
    payment.refresh_from_db()
    assert (payment.status, payment.problem) == ("refunding", REFUSED)
    with pytest.raises(NothingToDecide):
        choose(Decision.REFUND_REST, payment)
    choose(Decision.COUNT_AS_REFUNDED, payment)
    payment.refresh_from_db()
    assert (payment.status, payment.problem, payment.refunded_cents) == ("refunded", "", 0)
    assert (status_of(order), live_ids(sale)) == ("refunded", [])
    assert_conserved(sale)


# --- Refunds that fail after all ------------------------------------------------------------------


def fail_part(at: StandIn, payment: Payment) -> None:
    """Let a part refunded by hand fail, and notify the shop."""
    at.trades[payment.reference].by_hand_cents = 0
    message = at.money_message(payment.reference, "failed part")
    tell(at, message | {"type": "refund.failed"})


@at_stripe
def test_part_that_did_not_arrive_is_refunded_with_the_rest(at: StandIn) -> None:
    _, order, payment = bought(at)
    at.refund_by_hand(payment.reference, PART_CENTS)
    tell_of_money(at, payment)
    fail_part(at, payment)
    payment.refresh_from_db()
    assert (payment.status, payment.refunded_cents, payment.problem) == ("paid", 0, "")
    refund(order)
    assert refunded_everywhere(at, payment)


@at_stripe
def test_part_that_did_not_arrive_undoes_no_decision(at: StandIn) -> None:
    _, order, payment = bought(at)
    at.refund_by_hand(payment.reference, PART_CENTS)
    tell_of_money(at, payment)
    use(order)
    at.faults.append(Fault.ERROR_500)
    choose(Decision.REFUND_REST, payment)
    fail_part(at, payment)
    assert payment_status(payment) == "refunding"
    assert finish_refunds(now=timezone.now() + AN_HOUR) == 1
    assert refunded_everywhere(at, payment)
    assert at.trades[payment.reference].refunded_cents == PRICE_CENTS
    assert status_of(order) == "used"


@at_stripe
def test_rest_that_is_not_all_is_a_problem(at: StandIn) -> None:
    """The event of the part that failed was lost."""
    _, _, payment = bought(at)
    at.refund_by_hand(payment.reference, PART_CENTS)
    tell_of_money(at, payment)
    at.trades[payment.reference].fields["by_hand"] = "failed"
    choose(Decision.REFUND_REST, payment)
    payment.refresh_from_db()
    assert (payment.status, payment.problem) == ("refunding", REFUSED)
    at.trades[payment.reference].fields["by_hand"] = "succeeded"  # by hand, once more
    assert finish_refunds(now=timezone.now() + AN_HOUR) == 1
    assert refunded_everywhere(at, payment)


@that_fail_later
def test_refund_that_failed_later_is_made_anew(at: StandIn) -> None:
    sale, order, payment = bought(at)
    refund(order)
    assert (status_of(order), payment_status(payment)) == ("refunded", "refunded")
    at.fail_refund(payment.reference)
    tell_of_money(at, payment)
    payment.refresh_from_db()
    assert (status_of(order), payment.status, payment.refunded_cents) == (
        "refunded", "refund_failed", 0,
    )  # fmt: skip
    choose(Decision.REFUND_REST, payment)
    assert refunded_everywhere(at, payment)
    assert payment.refund_number == f"{payment.reference}-1"
    assert (status_of(order), live_ids(sale)) == ("refunded", [])
    assert_conserved(sale)


@that_fail_later
def test_refund_made_anew_waits_for_the_provider(at: StandIn) -> None:
    _, order, payment = bought(at)
    refund(order)
    at.fail_refund(payment.reference)
    tell_of_money(at, payment)
    at.trades[payment.reference].refund_state = ""
    at.refund_mode = RefundMode.PENDING
    choose(Decision.REFUND_REST, payment)
    at.trades[payment.reference].dispute = "won"  # whatever Stripe tells meanwhile
    if at.name == "stripe":
        tell_of_money(at, payment, identity="again")
    assert payment_status(payment) == "refunding"
    at.finish_refund(payment.reference)
    assert finish_refunds(now=timezone.now() + AN_HOUR) == 1
    assert refunded_everywhere(at, payment)


@that_fail_later
@pytest.mark.usefixtures("one_day")
def test_failed_refund_stays_known_after_the_list(at: StandIn) -> None:
    """A list may have the refund that failed later."""
    _, order, payment = bought(at)
    refund(order)
    at.fail_refund(payment.reference)
    tell_of_money(at, payment)
    trade = at.trades[payment.reference]
    trade.refund_state, trade.refunded_cents = "done", trade.amount_cents
    trade.parts[payment.reference] = trade.lost.pop(payment.reference)
    settle(at)
    assert payment_status(payment) == "refund_failed"
    choose(Decision.COUNT_AS_REFUNDED, payment)
    assert (status_of(order), payment_status(payment)) == ("refunded", "refunded")


@at_stripe
def test_failed_refund_stays_known_after_a_dispute(at: StandIn) -> None:
    _, order, payment = bought(at)
    refund(order)
    at.fail_refund(payment.reference)
    tell_of_money(at, payment)
    at.trades[payment.reference].refund_state = ""
    dispute(at, payment)
    assert payment_status(payment) == "disputed"
    dispute(at, payment, "won")
    payment.refresh_from_db()
    assert (payment.status, payment.refunded_cents) == ("refund_failed", 0)
    assert payment.problem == PROBLEMS["refund_failed"]


# --- Disputes -------------------------------------------------------------------------------------


def dispute(at: StandIn, payment: Payment, status: str = "needs_response") -> None:
    at.trades[payment.reference].dispute = status
    tell_of_money(at, payment, identity=f"{status} {payment.pk}")


@at_stripe
def test_dispute_blocks_the_code_until_it_is_won(at: StandIn) -> None:
    _, order, payment = bought(at)
    dispute(at, payment)
    assert payment_status(payment) == "disputed"
    with pytest.raises(NotRedeemable) as refused:
        use(order)
    assert refused.value.redeemable.is_disputed
    assert not find_by_code(code=order.code or "").may_be_used
    assert status_of(order) == "paid"
    dispute(at, payment, "won")
    payment.refresh_from_db()
    assert (payment.status, payment.problem) == ("paid", "")
    assert use(order).order.status == "used"


@at_stripe
def test_lost_dispute_counts_as_refunded(at: StandIn) -> None:
    sale, order, payment = bought(at)
    dispute(at, payment)
    choose(Decision.COUNT_AS_REFUNDED, payment)
    dispute(at, payment, "lost")
    assert (status_of(order), payment_status(payment)) == ("refunded", "refunded")
    assert_conserved(sale)


@at_stripe
def test_dispute_of_a_refunding_order_waits_for_staff(at: StandIn) -> None:
    sale, order, payment = bought(at)
    dispute(at, payment)
    refund(order)
    assert finish_refunds(now=timezone.now() + AN_HOUR) == 0
    assert (status_of(order), live_ids(sale)) == ("refunding", [order.pk])
    dispute(at, payment, "won")
    finish_refunds(now=timezone.now() + AN_HOUR)
    assert refunded_everywhere(at, payment)
    assert status_of(order) == "refunded"


@at_stripe
def test_dispute_noted_while_a_code_is_used_blocks_it(
    at: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The counter has read the order, and the dispute comes before it writes."""
    _, order, payment = bought(at)

    def is_past(*_: Any) -> bool:
        dispute(at, payment)
        return False

    monkeypatch.setattr(Redeemable, "is_past", is_past)
    with pytest.raises(NotRedeemable):
        use(order)
    assert status_of(order) == "paid"


@race
@at_stripe
def test_dispute_and_use_at_once_meet_at_the_order(at: StandIn) -> None:
    for _ in range(3):
        _, order, payment = bought(at)
        used, _ = at_once(partial(use, order), partial(dispute, at, payment))
        assert payment_status(payment) == "disputed"
        assert status_of(order) == ("paid" if isinstance(used, NotRedeemable) else "used")


@at_stripe
def test_dispute_is_noted_when_stripe_answers_again(at: StandIn, client: Client) -> None:
    _, _, payment = bought(at)
    at.trades[payment.reference].dispute = "needs_response"
    message = at.money_message(payment.reference, "dispute")
    headers, body = at.signed(message, at_s=timezone.now().timestamp())
    at.faults.append(Fault.ERROR_500)
    for status, state in ((503, "paid"), (200, "disputed")):
        answer = client.post(notify_url(at.name), body, "application/json", headers=headers)
        assert (answer.status_code, payment_status(payment)) == (status, state)


@at_stripe
def test_event_about_money_of_others_is_acknowledged(at: StandIn) -> None:
    _, _, payment = bought(at)
    at.refund_by_hand(payment.reference, PART_CENTS)
    message = at.money_message(payment.reference, "other")
    message["data"]["object"]["payment_intent"] = None
    tell(at, message)
    assert payment_status(payment) == "paid"
    assert OrderEvent.objects.count() == 2


# --- Bills in another time zone -------------------------------------------------------------------


@with_bills
def test_days_of_a_bill_are_days_in_china(at: StandIn, settings: Any) -> None:
    settings.SECKILL_SHOP_TIME_ZONE = "America/New_York"
    bought(at)
    in_china = dt.datetime(2026, 11, 12, 1, tzinfo=CHINA)  # noon of the day before in New York
    Payment.objects.update(paid_at=in_china)
    trades, at.trades = at.trades, {}
    yesterday, now = dt.date(2026, 11, 11), timezone.now()
    assert settle_day(provider_name=at.name, day=yesterday, now=now) == 0
    at.trades = trades
    assert settle_day(provider_name=at.name, day=in_china.date(), now=now) == 0
    assert not SettlementDifference.objects.exists()


def test_bill_is_fetched_when_the_day_is_over_there(
    fake: FakeProvider, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.SECKILL_PAYMENT_PROVIDERS = settings.SECKILL_PAYMENT_PROVIDERS[:1]
    asked = list[dt.date]()
    fake.zone = zoneinfo.ZoneInfo("America/New_York")

    def list_movements(day: dt.date) -> list[Movement]:
        asked.append(day)
        return []

    monkeypatch.setattr(fake, "list_movements", list_movements)
    settle_due(now=dt.datetime(2026, 11, 12, 15, 29, tzinfo=dt.UTC))
    assert asked[0] == dt.date(2026, 11, 10)
    settle_due(now=dt.datetime(2026, 11, 12, 15, 30, tzinfo=dt.UTC))
    assert asked[-1] == dt.date(2026, 11, 11)
