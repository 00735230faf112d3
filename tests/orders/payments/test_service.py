"""Payments: a provider's report pays an order once, whenever and however often it comes."""

from __future__ import annotations

import datetime as dt
import json
import threading
from collections.abc import Callable
from contextlib import ExitStack, nullcontext
from functools import partial
from typing import Any

import pytest
from celery.exceptions import SoftTimeLimitExceeded
from django.conf import settings as site
from django.core.cache import cache
from django.db import OperationalError, connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from backoffice.today.figures import read_trade
from orders.lifecycle.cancellation import Busy, cancel_order, user_lock
from orders.lifecycle.redemption import find_by_code
from orders.lifecycle.transitions import WrongState
from orders.models import (
    CODE_ALPHABET,
    CODE_LENGTH,
    ActorKind,
    OrderEvent,
    OrderStatus,
    Payment,
    VoucherOrder,
)
from orders.payments import expiry, providers
from orders.payments import service as paying
from orders.payments.expiry import ASK_AT_ONCE, GRACE, expire_orders
from orders.payments.providers import (
    MAX_SILENCES,
    BadNotification,
    ChargeState,
    OpenedCharge,
    ProviderUnavailable,
    TooManyCalls,
)
from orders.payments.refunds import finish_refunds
from orders.payments.service import (
    ASKED_AT_ONCE,
    poll_payments,
    start_payment,
)
from orders.receipts.service import find_receipt
from seckill_site.failpoints import FailpointReached, armed
from seckill_site.redis.ledger_connection import ledger_connection
from tests.fixtures.site import RedisGone
from tests.support.browsers import browser_of
from tests.support.inspection import (
    assert_conserved,
    assert_refused,
    buyers_of,
    live_ids,
    statements,
)
from tests.support.orders import (
    PRICE_CENTS,
    at_once,
    both_at,
    make_buyer,
    make_buyers,
    make_order,
    make_sale,
    race,
)
from tests.support.patience import GENEROUS_S
from tests.support.payments import (
    ADDRESSES,
    FakeProvider,
    buyer_of,
    choose_outcome,
    expire_all,
    expire_pay_by,
    history,
    make_payment,
    make_unpaid_order,
    notification_of,
    notify_of_fake,
    notify_shop,
    notify_url,
    order_with_payment,
    owner_of,
    pay,
    payment_status,
    receipt_url,
    sign_body,
    status_of,
    use_fake,
)
from tests.support.tiers import slow_after
from vouchers.inventory.keys import LedgerKeys, LedgerUnavailable
from vouchers.models import Voucher

pytestmark = pytest.mark.django_db

A_MINUTE = dt.timedelta(minutes=1)
ROUNDS = 20


def receipt_of(order: VoucherOrder) -> Any:
    assert order.user_id is not None
    return find_receipt(sale_id=order.seckill_voucher_id, order_id=order.pk, user_id=order.user_id)


def seconds_until_asked(payment: Payment, now: dt.datetime) -> float | None:
    payment.refresh_from_db()
    return None if payment.ask_at is None else (payment.ask_at - now).total_seconds()


# --- Beginning to pay ----------------------------------------------------------------------------


def test_charge_has_subject_amount_deadline_and_addresses(fake: FakeProvider) -> None:
    order = make_unpaid_order(make_sale())
    Voucher.objects.update(price_cents=1)  # too late for this order
    payment = make_payment(order)
    charge = fake.charges[payment.reference]
    assert (charge.amount_cents, charge.subject) == (
        PRICE_CENTS,
        order.seckill_voucher.voucher.title,
    )
    assert charge.pay_by == order.pay_by
    assert (charge.return_url, charge.notify_url) == (
        ADDRESSES["return_url"],
        ADDRESSES["notify_url"],
    )


def test_order_without_deadline_can_be_paid() -> None:
    order = make_order(make_sale(), make_buyer())
    assert order.pay_by is None
    choose_outcome(make_payment(order))


@pytest.mark.parametrize("status", slow_after(1, sorted(set(OrderStatus) - {OrderStatus.UNPAID})))
def test_only_unpaid_orders_can_be_paid(status: OrderStatus) -> None:
    reason = "sold_out" if status == OrderStatus.REFUSED else ""
    order = make_order(make_sale(), make_buyer(), status=status, reason=reason)
    with pytest.raises(WrongState) as refused:
        start_payment(order_id=order.pk, **ADDRESSES, now=timezone.now())
    assert refused.value.status == status
    assert not Payment.objects.exists()


def test_overdue_order_cannot_start_a_payment() -> None:
    order = make_unpaid_order(make_sale())
    expire_pay_by(order)
    with pytest.raises(WrongState) as refused:
        make_payment(order)
    assert refused.value.status == "expired"


def test_payment_of_missing_order_raises() -> None:
    with pytest.raises(VoucherOrder.DoesNotExist):
        start_payment(order_id=404, **ADDRESSES, now=timezone.now())


def test_free_order_is_paid_at_once() -> None:
    sale = make_sale()
    Voucher.objects.update(price_cents=0)
    order = make_unpaid_order(sale)
    assert (
        start_payment(order_id=order.pk, **ADDRESSES, now=timezone.now()) == ADDRESSES["return_url"]
    )
    order.refresh_from_db()
    assert (order.status, len(order.code or "")) == ("paid", CODE_LENGTH)
    (payment,) = Payment.objects.all()
    assert (payment.provider, payment.status, payment.settles) == ("", "paid", True)
    with pytest.raises(WrongState):
        start_payment(order_id=order.pk, **ADDRESSES, now=timezone.now())
    assert_conserved(sale)


def test_charge_closed_during_creation_is_unavailable(
    fake: FakeProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A closed payment is never asked about again, so the buyer gets a new one."""
    order = make_unpaid_order(make_sale())
    create = fake.create

    def asked_meanwhile(charge: Any) -> OpenedCharge:
        fake.says.clear()
        assert poll_payments(now=timezone.now() + A_MINUTE) == 1
        return create(charge)

    with monkeypatch.context() as patch:
        patch.setattr(fake, "create", asked_meanwhile)
        with pytest.raises(ProviderUnavailable):
            make_payment(order)
    assert make_payment(order).status == "open"
    assert Payment.objects.count() == 2


def test_locked_order_is_busy(
    monkeypatch: pytest.MonkeyPatch, elsewhere: Callable[..., Any]
) -> None:
    monkeypatch.setattr("orders.lifecycle.cancellation.USER_LOCK_WAIT_MS", 50)
    order = make_unpaid_order(make_sale())
    held = user_lock(sale_id=order.seckill_voucher_id, user_id=order.user_id or 0)
    elsewhere(held.__enter__)
    with pytest.raises(Busy):
        make_payment(order)
    elsewhere(held.__exit__, None, None, None)
    make_payment(order)


@race
@pytest.mark.parametrize("price_cents", [PRICE_CENTS, 0])
def test_concurrent_clicks_make_one_payment(price_cents: int) -> None:
    sale = make_sale()
    Voucher.objects.update(price_cents=price_cents)
    order = make_unpaid_order(sale)
    answers = at_once(
        *[lambda: start_payment(order_id=order.pk, **ADDRESSES, now=timezone.now())] * 6
    )
    (payment,) = Payment.objects.all()
    urls = {it for it in answers if isinstance(it, str)}
    assert urls == {payment.pay_url or ADDRESSES["return_url"]}
    # Who comes after a free order was paid hears that it is.
    # Who finds enough threads waiting for the provider is told to try again.
    assert {type(it) for it in answers} <= {str, TooManyCalls if price_cents else WrongState}
    assert payment.status == ("open" if price_cents else "paid")


def test_charge_found_open_a_moment_ago_is_not_asked_about(fake: FakeProvider) -> None:
    order, payment = order_with_payment()

    def click(after_s: float) -> str:
        now = payment.created_at + dt.timedelta(seconds=after_s)
        return start_payment(order_id=order.pk, **ADDRESSES, now=now)

    asked = []
    for after_s in (5, 15, 20, 24, 26):
        assert click(after_s) == payment.pay_url
        asked.append(len(fake.asked))
    assert asked == [0, 1, 1, 1, 2]


def test_pay_that_finds_too_many_calls_is_told_to_try_again(fake: FakeProvider) -> None:
    order, payment = order_with_payment()
    Payment.objects.update(created_at=payment.created_at - A_MINUTE)
    browser = browser_of(owner_of(order))
    url = f"{receipt_url(order)}pay/"
    with ExitStack() as others:
        for _ in range(site.SECKILL_DJANGO_THREADS // 2):
            others.enter_context(providers._calls.places)
        refused = browser.post(url)
        assert_refused(refused, 503, "unavailable")
        assert refused["Retry-After"] == "1"
        assert fake.asked == []
    payment.refresh_from_db()
    assert payment.silent_since is None
    assert browser.post(url).status_code == 200
    assert len(fake.asked) == 1


# --- The word that it is paid ---------------------------------------------------------------------


def test_notification_makes_order_paid_with_code() -> None:
    sale = make_sale()
    order = make_unpaid_order(sale)
    assert order.code is None
    payment = make_payment(order)
    choose_outcome(payment)
    assert status_of(order) == "unpaid"
    before = timezone.now()
    assert notify_shop(payment) == "success"

    order.refresh_from_db()
    payment.refresh_from_db()
    assert (order.status, order.live) == ("paid", True)
    code = VoucherOrder.objects.get(pk=order.pk).code or ""
    assert len(code) == CODE_LENGTH
    assert set(code) <= set(CODE_ALPHABET)
    assert (payment.status, payment.settles, payment.ask_at) == ("paid", True, None)
    assert payment.provider_reference
    event = OrderEvent.objects.filter(order=order).latest("pk")
    assert (event.before, event.after) == ("unpaid", "paid")
    assert (event.actor_kind, event.actor_id) == (ActorKind.PROVIDER, None)
    assert before <= event.at <= timezone.now()
    assert_conserved(sale)


def test_order_is_locked_before_its_payments() -> None:
    payment = make_payment(make_unpaid_order(make_sale()))
    choose_outcome(payment)
    with CaptureQueriesContext(connection) as queries:
        notify_shop(payment)
    written = [
        it for it in statements(queries.captured_queries) if "FOR UPDATE" in it or "UPD" in it
    ]
    assert written == [
        "SELECT orders_voucherorder FOR UPDATE",
        "UPDATE orders_payment",
        "UPDATE orders_voucherorder",
        "UPDATE orders_payment",
    ]


@pytest.mark.slow
def test_codes_are_unique() -> None:
    sale = make_sale(stock=20)
    first = make_unpaid_order(sale, make_buyers(20))
    orders = VoucherOrder.objects.filter(seckill_voucher=sale)
    assert first in orders
    for order in orders:
        pay(order)
    assert len({order.code for order in orders.all()}) == 20
    assert len(CODE_ALPHABET) == 32


@pytest.mark.parametrize("status", ["paid", "used"])
def test_later_reports_change_nothing(status: str) -> None:
    order = make_unpaid_order(make_sale())
    payment = pay(order)
    VoucherOrder.objects.filter(pk=order.pk).update(status=status)
    for state in ("paid", "open", "closed"):
        notify_shop(payment, state=state)
    assert (status_of(order), payment_status(payment)) == (status, "paid")


# --- The word that comes too late -----------------------------------------------------------------


def cancelled(order: VoucherOrder) -> None:
    cancel_order(order_id=order.pk, by=buyer_of(order), now=timezone.now())


def expired(order: VoucherOrder) -> None:
    """Expire an order whose provider says that it is not paid yet."""
    assert expire_all(clocks=both_at(expire_pay_by(order))) == 1


@pytest.mark.parametrize("end", [cancelled, expired])
def test_late_payment_is_refunded_and_shown(
    end: Callable[[VoucherOrder], None], fake: FakeProvider, client: Client
) -> None:
    sale = make_sale(stock=1)
    order = make_unpaid_order(sale)
    payment = make_payment(order)
    end(order)
    ended = status_of(order)
    assert notify_of_fake(payment) == "OK"
    payment.refresh_from_db()
    assert (status_of(order), payment.status, payment.settles) == (ended, "refunding", False)
    assert payment.problem
    assert receipt_of(order).late_payment == "refunding"

    assert finish_refunds(now=timezone.now()) == 1
    assert notify_of_fake(payment) == "OK"  # once more, later still
    assert (status_of(order), payment_status(payment)) == (ended, "refunded")
    assert fake.refunds == [payment.reference]
    assert receipt_of(order).late_payment == "refunded"
    client.force_login(owner_of(order))
    assert client.get(receipt_url(order)).json()["late_payment"] == "refunded"
    assert history(order)[1:] == [
        f"{ended} by {'buyer' if end is cancelled else 'system'}",
        f"{ended} by provider",  # the word to the buyer that the money goes back
    ]
    assert (live_ids(sale), buyers_of(sale)) == ([], {})
    assert_conserved(sale)


def test_second_payment_tells_programs_and_counters_nothing_new(fake: FakeProvider) -> None:
    order, payment = order_with_payment()
    notify_of_fake(payment)
    second = Payment.objects.create(
        order=order, reference="second", provider="fake", amount_cents=payment.amount_cents
    )
    before = read_trade(now=timezone.now())
    OrderEvent.objects.update(webhooks_due=None)

    notify_of_fake(second)

    assert payment_status(second) == "refunding"
    assert not OrderEvent.objects.filter(webhooks_due=True).exists()
    cache.clear()
    assert read_trade(now=timezone.now()) == before
    order.refresh_from_db()
    found = find_by_code(code=order.code or "").last_event
    assert found
    assert (found.before, found.after) == (OrderStatus.UNPAID, OrderStatus.PAID)


def test_receipt_without_late_payment_mentions_none() -> None:
    order = make_unpaid_order(make_sale())
    make_payment(order)
    assert receipt_of(order).late_payment == ""
    cancelled(order)
    assert receipt_of(order).late_payment == ""


def test_order_waits_for_each_of_its_providers(
    fake: FakeProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However few are asked at once: a payment at a provider that is away may be paid."""
    monkeypatch.setattr(expiry, "ASK_AT_ONCE", 1)
    order, payment = order_with_payment()
    Payment.objects.create(
        order=order, reference="away", provider="away", amount_cents=payment.amount_cents,
        silent_since=timezone.now(),
    )  # fmt: skip
    assert expire_all(clocks=both_at(expire_pay_by(order))) == 0
    assert status_of(order) == "unpaid"


# --- The word that cannot be ---------------------------------------------------------------------


def test_payment_of_nothing_is_refused() -> None:
    order, payment = order_with_payment()
    choose_outcome(payment)
    with pytest.raises(BadNotification):
        notify_shop(payment, amount_cents=0)
    assert (status_of(order), payment_status(payment)) == ("unpaid", "open")


def test_provider_cannot_report_for_another(settings: Any) -> None:
    order, payment = order_with_payment()
    use_fake(settings)
    with pytest.raises(BadNotification):
        notify_of_fake(payment)
    assert status_of(order) == "unpaid"


# --- Over HTTP -----------------------------------------------------------------------------------


def post(client: Client, headers: dict[str, str], body: bytes, provider: str = "sandbox") -> Any:
    return client.post(notify_url(provider), body, content_type="application/json", headers=headers)


def test_notification_needs_no_session_and_no_csrf_token() -> None:
    order, payment = order_with_payment()
    choose_outcome(payment)
    response = post(Client(enforce_csrf_checks=True), *notification_of(payment))
    assert (response.status_code, response.content) == (200, b"success")
    assert not response.cookies
    assert status_of(order) == "paid"


def test_notification_without_redis_returns_503_until_repeated(
    client: Client, redis_gone: RedisGone
) -> None:
    order, payment = order_with_payment()
    choose_outcome(payment)
    with redis_gone():
        assert_refused(post(client, *notification_of(payment)), 503, "unavailable")
    assert (status_of(order), payment_status(payment)) == ("unpaid", "open")
    assert post(client, *notification_of(payment)).content == b"success"
    assert status_of(order) == "paid"


def test_notification_without_database_returns_503(
    client: Client, lose_database: Callable[[], None]
) -> None:
    client.raise_request_exception = False
    body = json.dumps(
        {"reference": "a1b2", "state": "paid", "amount_cents": 1, "trade": "1"}
    ).encode()
    lose_database()
    assert_refused(post(client, *sign_body(body)), 503, "unavailable")


# --- A word that never comes ----------------------------------------------------------------------


def test_query_pauses_double_up_to_ten_minutes(fake: FakeProvider) -> None:
    payment = make_payment(make_unpaid_order(make_sale()))
    pauses_s = []
    now = timezone.now() + dt.timedelta(seconds=15)
    for _ in range(8):
        assert poll_payments(now=now) == 1
        pauses_s.append(seconds_until_asked(payment, now))
        assert poll_payments(now=now) == 0
        assert payment.ask_at is not None
        now = payment.ask_at
    assert pauses_s == [15, 30, 60, 120, 240, 480, 600, 600]
    assert (payment.asked, payment.status) == (8, "open")


@pytest.mark.parametrize("away", [False, True])
def test_queries_stop_a_day_after_the_deadline(fake: FakeProvider, away: bool) -> None:
    order, payment = order_with_payment()
    fake.away = away
    assert order.pay_by
    almost = order.pay_by + dt.timedelta(hours=23, minutes=59)
    assert poll_payments(now=almost) == 1
    assert seconds_until_asked(payment, almost) == 30 / 2
    later = almost + dt.timedelta(minutes=2)
    assert poll_payments(now=later) == 1
    if away:
        assert seconds_until_asked(payment, later) == 30, "nobody knows yet"
        assert poll_payments(now=later + dt.timedelta(days=7)) == 1
    else:
        assert seconds_until_asked(payment, later) is None
        assert poll_payments(now=later + dt.timedelta(days=7)) == 0
    assert payment.status == "open"


def test_queries_continue_for_a_long_deadline(fake: FakeProvider) -> None:
    order = make_unpaid_order(make_sale(pay_within_s=7 * 24 * 3600))
    payment = make_payment(order)
    poll_payments(now=timezone.now() + dt.timedelta(days=3))
    fake.says[payment.reference] = ChargeState.PAID
    poll_payments(now=timezone.now() + dt.timedelta(days=4))
    assert status_of(order) == "paid"


def test_any_error_of_a_provider_is_silence(
    fake: FakeProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad, good = make_unpaid_order(make_sale()), make_unpaid_order(make_sale())
    make_payment(bad)
    expire_pay_by(bad)
    expire_pay_by(good)

    def html(reference: str, **named: str) -> Any:
        raise ValueError("<html>")

    monkeypatch.setattr(fake, "query", html)
    assert expire_all(clocks=both_at(timezone.now())) == 1
    assert (status_of(bad), status_of(good)) == ("unpaid", "expired")


@pytest.mark.slow
def test_unapplied_answer_is_not_silence(fake: FakeProvider) -> None:
    """The provider reports paid while the buyer's lock is held for longer than the grace."""
    order, payment = order_with_payment()
    fake.says[payment.reference] = ChargeState.PAID
    now = expire_pay_by(order)
    key = LedgerKeys(order.seckill_voucher_id).user_lock(order.user_id or 0)
    ledger_connection().set(key, "somebody", px=60_000)
    for minutes in (0, 5, 10):
        assert expire_all(clocks=both_at(now + dt.timedelta(minutes=minutes))) == 0
    ledger_connection().delete(key)
    assert expire_all(clocks=both_at(now + dt.timedelta(minutes=11))) == 0
    assert status_of(order) == "paid"


def test_notification_after_queries_stopped_counts(fake: FakeProvider) -> None:
    order, payment = order_with_payment()
    Payment.objects.update(ask_at=None)
    notify_of_fake(payment)
    assert status_of(order) == "paid"


def test_silent_payment_does_not_stop_the_others(fake: FakeProvider) -> None:
    sale = make_sale(stock=3)
    make_unpaid_order(sale, make_buyers(3))
    first, second, third = (make_payment(order) for order in VoucherOrder.objects.order_by("pk"))
    Payment.objects.filter(pk=first.pk).update(provider="gone", ask_at=timezone.now())
    Payment.objects.filter(pk=second.pk).update(amount_cents=1)
    for payment in (second, third):
        fake.says[payment.reference] = ChargeState.PAID
    assert poll_payments(now=timezone.now() + A_MINUTE) == 3
    assert [payment_status(it) for it in (first, second, third)] == ["open", "refunding", "paid"]


def test_query_walk_is_limited(fake: FakeProvider) -> None:
    order = make_unpaid_order(make_sale())
    Payment.objects.bulk_create(
        Payment(
            order=order,
            reference=f"many-{number}",
            provider="fake",
            amount_cents=1,
            ask_at=timezone.now(),
        )
        for number in range(ASKED_AT_ONCE + 5)
    )
    assert poll_payments(now=timezone.now()) == ASKED_AT_ONCE
    assert poll_payments(now=timezone.now()) == 5
    assert len(set(fake.asked)) == ASKED_AT_ONCE + 5


def test_payment_unknown_to_provider_is_closed(fake: FakeProvider) -> None:
    order, payment = order_with_payment()
    fake.says.clear()
    poll_payments(now=timezone.now() + A_MINUTE)
    assert payment_status(payment) == "closed"
    assert make_payment(order).pk != payment.pk


def test_expiry_without_asking_leaves_orders_being_paid(fake: FakeProvider) -> None:
    idle, paying_now = make_unpaid_order(make_sale()), make_unpaid_order(make_sale())
    make_payment(paying_now)
    VoucherOrder.objects.update(pay_by=timezone.now())
    assert not expire_orders(clocks=both_at(timezone.now()))
    assert (status_of(idle), status_of(paying_now), fake.asked) == ("expired", "unpaid", [])
    assert expire_all(clocks=both_at(timezone.now())) == 1


# --- Choosing a provider --------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["form", "json"])
def test_buyer_chooses_among_the_providers(client: Client, fake: FakeProvider, kind: str) -> None:
    order = make_unpaid_order(make_sale())
    client.force_login(owner_of(order))
    options: dict[str, Any] = {"content_type": "application/json"} if kind == "json" else {}
    for chosen, expected in (({}, "fake"), ({"provider": "sandbox"}, "sandbox")):
        answer = client.post(f"{receipt_url(order)}pay/", chosen, **options)
        assert answer.status_code == 200
        payment = Payment.objects.latest("pk")
        assert (payment.provider, answer.json()["pay_url"]) == (expected, payment.pay_url)


@pytest.mark.parametrize("name", ["nobody", "x" * 1_000])
def test_unknown_choice_of_provider_returns_400(client: Client, name: str) -> None:
    order = make_unpaid_order(make_sale())
    client.force_login(owner_of(order))
    assert_refused(client.post(f"{receipt_url(order)}pay/", {"provider": name}), 400, "invalid")
    assert not Payment.objects.exists()


def test_receipt_offers_a_choice_only_among_several(client: Client, settings: Any) -> None:
    order = make_unpaid_order(make_sale())
    client.force_login(owner_of(order))
    html = {"Accept": "text/html"}
    assert 'name="provider"' not in client.get(receipt_url(order), headers=html).text
    use_fake(settings)
    shown = client.get(receipt_url(order), headers=html).text
    assert shown.count('name="provider"') == 2
    assert 'value="fake" checked' in " ".join(shown.split())


# --- Expiring while the provider is away ----------------------------------------------------------


def test_order_expires_after_grace_of_silence(fake: FakeProvider) -> None:
    order, payment = order_with_payment()
    fake.away = True
    now = expire_pay_by(order)
    assert expire_all(clocks=both_at(now)) == 0
    assert expire_all(clocks=both_at(now + GRACE - dt.timedelta(seconds=2))) == 0
    assert status_of(order) == "unpaid"
    assert expire_all(clocks=both_at(now + GRACE)) == 1
    fake.away = False
    fake.says[payment.reference] = ChargeState.PAID
    poll_payments(now=now + dt.timedelta(hours=1))
    assert (status_of(order), payment_status(payment)) == ("expired", "refunding")


@pytest.mark.slow
def test_silent_provider_delays_only_its_own_orders(fake: FakeProvider) -> None:
    """Each query may cost a timeout: a silent provider is not asked again in this call."""
    sale = make_sale(stock=30)
    make_unpaid_order(sale, make_buyers(30))
    orders = list(VoucherOrder.objects.order_by("pk"))
    for order in orders[:25]:
        make_payment(order)
    VoucherOrder.objects.update(pay_by=timezone.now())
    fake.away, now = True, timezone.now()
    assert expire_all(clocks=both_at(now)) == 5
    assert len(fake.asked) == MAX_SILENCES
    assert len(live_ids(sale)) == 25
    for seconds in range(1, 9):  # those that were not asked for come first
        assert expire_all(clocks=both_at(now + dt.timedelta(seconds=seconds))) == 0
    assert len(set(fake.asked)) == 25
    assert expire_all(clocks=both_at(now + GRACE + dt.timedelta(seconds=8))) == 25
    assert_conserved(sale)


def test_after_our_outage_provider_is_asked_before_expiry(fake: FakeProvider) -> None:
    """Workers were down for longer than the grace; the provider fails a few times, then works."""
    sale = make_sale(stock=6)
    make_unpaid_order(sale, make_buyers(6))
    for order in VoucherOrder.objects.all():
        payment = make_payment(order)
        fake.says[payment.reference] = ChargeState.PAID
    VoucherOrder.objects.update(pay_by=timezone.now() - dt.timedelta(minutes=5))
    fake.away = True
    assert expire_all(clocks=both_at(timezone.now())) == 0
    fake.away = False
    assert expire_all(clocks=both_at(timezone.now())) == 0
    assert set(VoucherOrder.objects.values_list("status", flat=True)) == {"paid"}


@pytest.mark.slow
def test_answers_count_if_time_runs_out(
    fake: FakeProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a slow provider the task ends before it has asked about all; the next one continues."""
    count = 2 * ASK_AT_ONCE + 5
    sale = make_sale(stock=count)
    make_unpaid_order(sale, make_buyers(count))
    for order in VoucherOrder.objects.all():
        make_payment(order)
    VoucherOrder.objects.update(pay_by=timezone.now())
    query = fake.query

    def out_of_time(reference: str, **named: str) -> Any:
        if len(fake.asked) == ASK_AT_ONCE + 1:
            raise SoftTimeLimitExceeded
        return query(reference)

    monkeypatch.setattr(fake, "query", out_of_time)
    with pytest.raises(SoftTimeLimitExceeded):
        expire_all(clocks=both_at(timezone.now()))
    assert len(live_ids(sale)) == count - ASK_AT_ONCE
    monkeypatch.setattr(fake, "query", query)
    assert expire_all(clocks=both_at(timezone.now())) == count - ASK_AT_ONCE
    assert_conserved(sale)


# --- Whoever dies --------------------------------------------------------------------------------


@pytest.mark.parametrize("end", [None, cancelled])
@pytest.mark.parametrize("point", slow_after(1, ["settle.before_commit", "settle.committed"]))
def test_repeated_notification_recovers_from_a_crash(
    point: str, end: Callable[[VoucherOrder], None] | None, fake: FakeProvider
) -> None:
    sale = make_sale()
    order = make_unpaid_order(sale)
    payment = make_payment(order)
    if end:
        end(order)
    before = status_of(order)
    after, money = (before, "refunding") if end else ("paid", "paid")
    with armed(f"{point}=raise"), pytest.raises(FailpointReached):
        notify_of_fake(payment)
    if point == "settle.before_commit":
        assert (status_of(order), payment_status(payment)) == (before, "open")
    else:
        assert (status_of(order), payment_status(payment)) == (after, money)
    assert notify_of_fake(payment) == "OK"
    assert (status_of(order), payment_status(payment)) == (after, money)
    assert len(history(order)) == (3 if end else 2)
    assert_conserved(sale)


# --- Races ---------------------------------------------------------------------------------------


def again_where_it_failed(answer: Any, call: Callable[[], Any]) -> Any:
    """Repeat a notification that was not accepted, like a provider."""
    refused = isinstance(answer, Busy | LedgerUnavailable | OperationalError)
    return call() if refused else answer


def assert_one_won(order: VoucherOrder, payment: Payment, ended: str, fake: FakeProvider) -> str:
    """Assert that either the payment or the end succeeded, and that no money or unit is lost."""
    finish_refunds(now=timezone.now() + A_MINUTE)
    outcome = status_of(order), payment_status(payment)
    assert outcome in {("paid", "paid"), (ended, "refunded")}
    gone_back = [payment.reference] if outcome[0] == ended else []
    assert [it for it in fake.refunds if it == payment.reference] == gone_back
    assert len(history(order)) == 2 + len(gone_back), "one change, and the word of what goes back"
    assert_conserved(order.seckill_voucher)
    assert len(live_ids(order.seckill_voucher)) == (outcome[0] == "paid")
    return outcome[0]


def pay_and_cancel_at_once() -> tuple[VoucherOrder, Payment, Any]:
    """Return an order, its payment, and what came of cancelling the order as it was paid."""
    order, payment = order_with_payment(stock=1)
    told, refused = at_once(partial(notify_of_fake, payment), partial(cancelled, order))
    assert again_where_it_failed(told, partial(notify_of_fake, payment)) == "OK"
    return order, payment, refused


@race
def test_concurrent_notifications_pay_once(fake: FakeProvider) -> None:
    sale = make_sale()
    order = make_unpaid_order(sale)
    payment = make_payment(order)
    fake.says[payment.reference] = ChargeState.PAID
    later = timezone.now() + A_MINUTE
    answers = at_once(
        *[lambda: notify_of_fake(payment)] * 4, *[lambda: poll_payments(now=later)] * 2
    )
    assert answers[:4] == ["OK"] * 4
    assert (status_of(order), payment_status(payment)) == ("paid", "paid")
    assert history(order) == ["unpaid by system", "paid by provider"]
    assert_conserved(sale)


@pytest.mark.slow
@race
@pytest.mark.parametrize("when", ["at once", "after the last question"])
def test_payment_racing_expiry_succeeds_once(fake: FakeProvider, when: str) -> None:
    for _ in range(ROUNDS):
        order, payment = order_with_payment(stock=1)
        now = expire_pay_by(order)
        asked = threading.Event()

        def tell_it(payment: Payment = payment, asked: threading.Event = asked) -> str:
            if when != "at once":
                assert asked.wait(timeout=GENEROUS_S)
            return notify_of_fake(payment)

        fake.when_asked = asked.set
        told, _expired = at_once(tell_it, partial(expire_all, clocks=both_at(now)))
        assert again_where_it_failed(told, tell_it) == "OK"
        expire_all(clocks=both_at(now))
        assert_one_won(order, payment, "expired", fake)


@pytest.mark.slow
@race
def test_payment_racing_cancel_succeeds_once(fake: FakeProvider) -> None:
    for _ in range(ROUNDS):
        order, payment, refused = pay_and_cancel_at_once()
        won_by = assert_one_won(order, payment, "cancelled", fake)
        assert isinstance(refused, WrongState) == (won_by == "paid")


@race
def test_concurrent_cancels_return_the_unit_once() -> None:
    sale = make_sale(stock=3)
    order = make_unpaid_order(sale)
    answers = at_once(*[lambda: cancelled(order)] * 4)
    assert sorted(type(it).__name__ for it in answers) == ["NoneType", *["WrongState"] * 3]
    assert history(order)[1:] == ["cancelled by buyer"]
    sale.refresh_from_db()
    assert (sale.sold, buyers_of(sale)) == (0, {})
    assert_conserved(sale)


@pytest.mark.slow
@race
def test_concurrent_expiry_returns_units_once(fake: FakeProvider) -> None:
    count = 600
    sale = make_sale(stock=count)
    make_unpaid_order(sale, make_buyers(count))
    for order in VoucherOrder.objects.order_by("pk")[:30]:
        make_payment(order)
    VoucherOrder.objects.update(pay_by=timezone.now())
    now = timezone.now()
    at_once(*[lambda: expire_all(clocks=both_at(now))] * 2)
    expire_all(clocks=both_at(now))
    sale.refresh_from_db()
    assert (sale.sold, live_ids(sale), buyers_of(sale)) == (0, [], {})
    ends = OrderEvent.objects.filter(after="expired").values_list("order", flat=True)
    assert len(ends) == len(set(ends)) == count
    assert_conserved(sale)


# --- Controls: what the guards are for ------------------------------------------------------------


@pytest.mark.slow
@race
def test_without_user_lock_row_lets_one_change_win(
    fake: FakeProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lock in Redis only avoids collisions: the database decides."""
    monkeypatch.setattr(paying, "user_lock", lambda **names: nullcontext())
    monkeypatch.setattr("orders.lifecycle.cancellation.user_lock", lambda **names: nullcontext())
    for _ in range(ROUNDS):
        order, payment, _refused = pay_and_cancel_at_once()
        if status_of(order) == "unpaid":
            cancelled(order)
        assert_one_won(order, payment, "cancelled", fake)
