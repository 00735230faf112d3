"""The settlement: every kind of difference is named, until neither side shows it."""

from __future__ import annotations

import datetime as dt
import io
import zoneinfo
from typing import Any

import pytest
from django.conf import settings as django_settings
from django.core.management import CommandError, call_command
from django.utils import timezone

from orders.lifecycle.transitions import Actor
from orders.models import (
    HandledNotification,
    MoneyDirection,
    Payment,
    SettlementDifference,
    SettlementRun,
)
from orders.payments.providers import Movement
from orders.payments.refunds import refund_order
from orders.payments.settlement import (
    DAYS_BACK,
    NOTIFICATIONS_KEPT,
    open_differences,
    settle_day,
    settle_due,
)
from tests.support.orders import PRICE_CENTS, make_sale
from tests.support.payments import FakeProvider, make_payment, make_unpaid_order, notify_of_fake

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("one_day")]

ZONE = zoneinfo.ZoneInfo(django_settings.SECKILL_SHOP_TIME_ZONE)
A_DAY = dt.timedelta(days=1)


@pytest.fixture(autouse=True)
def alone(fake: FakeProvider, settings: Any) -> None:
    settings.SECKILL_PAYMENT_PROVIDERS = settings.SECKILL_PAYMENT_PROVIDERS[:1]


def today() -> dt.date:
    return timezone.now().astimezone(ZONE).date()


def noon(day: dt.date) -> dt.datetime:
    return dt.datetime.combine(day, dt.time(12), ZONE)


def make_paid() -> Payment:
    payment = make_payment(make_unpaid_order(make_sale()))
    notify_of_fake(payment)
    payment.refresh_from_db()
    return payment


def line(payment: Payment, *, kind: str = "payment", **changes: Any) -> Movement:
    facts = {"amount_cents": payment.amount_cents, **changes}
    return Movement(MoneyDirection(kind), payment.reference, **facts)


def settle(day: dt.date | None = None) -> list[tuple[str, str, str]]:
    """Compare a day; return the open differences."""
    day = day or today()
    count = settle_day(provider_name="fake", day=day, now=timezone.now())
    found = SettlementDifference.objects.filter(resolved_at=None)
    assert count == found.filter(day=day).count()
    assert open_differences() == found.count()
    return sorted(found.values_list("direction", "reference", "kind"))


def test_payment_that_we_do_not_know_is_named(fake: FakeProvider) -> None:
    fake.movements = [Movement(MoneyDirection.PAYMENT, "theirs", 100, "USD")]
    assert settle() == [("payment", "theirs", "missing_here")]
    found = SettlementDifference.objects.get()
    assert (found.our_cents, found.their_cents, found.their_currency) == (None, 100, "USD")


def test_payment_that_is_open_here_is_named(fake: FakeProvider) -> None:
    payment = make_payment(make_unpaid_order(make_sale()))
    fake.movements = [line(payment)]
    assert settle() == [("payment", payment.reference, "missing_here")]


def test_payment_that_they_do_not_list_is_named(fake: FakeProvider) -> None:
    payment = make_paid()
    assert settle() == [("payment", payment.reference, "missing_there")]
    assert SettlementDifference.objects.get().payment == payment


@pytest.mark.parametrize("changes", [{"amount_cents": PRICE_CENTS - 1}, {"currency": "USD"}])
def test_other_amount_or_currency_is_named(fake: FakeProvider, changes: Any) -> None:
    payment = make_paid()
    fake.movements = [line(payment, **changes)]
    assert settle() == [("payment", payment.reference, "amount")]


def test_wrong_payment_agrees_with_what_was_received(fake: FakeProvider) -> None:
    payment = make_paid()
    Payment.objects.update(received_cents=5, received_currency="USD")
    fake.movements = [line(payment, amount_cents=5, currency="USD")]
    assert settle() == []


@pytest.mark.slow
def test_each_difference_of_refunds_is_named(fake: FakeProvider) -> None:
    kept, gone, other, less = (make_paid() for _ in range(4))
    for it in (gone, other, less):
        refund_order(order_id=it.order_id, by=Actor.staff(None), now=timezone.now())
    fake.movements = [
        *(line(it) for it in (kept, gone, other, less)),
        line(kept, kind="refund"),
        line(gone, kind="refund", amount_cents=3_000),
        line(gone, kind="refund", amount_cents=PRICE_CENTS - 3_000),
        line(less, kind="refund", amount_cents=1),
    ]
    assert settle() == sorted(
        [
            ("refund", other.reference, "missing_there"),
            ("refund", less.reference, "amount"),
        ]
    )
    kept.refresh_from_db()
    assert kept.status == "refunding", "somebody refunded it at the provider"


def test_difference_is_resolved_when_both_agree(fake: FakeProvider) -> None:
    payment = make_paid()
    assert len(settle()) == 1
    assert len(settle()) == 1
    first = SettlementDifference.objects.get()
    fake.movements = [line(payment)]
    assert settle() == []
    first.refresh_from_db()
    assert first.resolved_at is not None


def test_payment_around_midnight_is_no_difference(fake: FakeProvider) -> None:
    payment = make_paid()
    fake.movements = [line(payment)]
    assert settle(today() - A_DAY) == [], "listed the day before we noted it"
    fake.movements = []
    assert settle() == []


def test_next_days_list_resolves_a_difference(fake: FakeProvider) -> None:
    payment = make_paid()
    Payment.objects.update(paid_at=noon(today() - A_DAY))
    assert len(settle(today() - A_DAY)) == 1
    fake.movements = [line(payment)]
    assert settle() == []


# --- Once a day -----------------------------------------------------------------------------------


def test_each_day_is_compared_once(fake: FakeProvider, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = list[dt.date]()

    def list_movements(day: dt.date) -> list[Movement]:
        asked.append(day)
        return []

    monkeypatch.setattr(fake, "list_movements", list_movements)
    day = dt.date(2026, 11, 12)
    settle_due(now=noon(day))
    settle_due(now=noon(day))
    assert asked == [day - A_DAY * back for back in range(1, DAYS_BACK + 1)]
    settle_due(now=noon(day + A_DAY) - dt.timedelta(hours=3))
    assert len(asked) == DAYS_BACK, "the list of the day before comes at half past ten"
    settle_due(now=noon(day + A_DAY))
    assert asked[DAYS_BACK:] == [day]


def test_missing_list_is_asked_for_again(fake: FakeProvider) -> None:
    fake.away = True
    day = dt.date(2026, 11, 12)
    settle_due(now=noon(day))
    assert not SettlementRun.objects.exists()
    fake.away = False
    settle_due(now=noon(day))
    assert SettlementRun.objects.count() == DAYS_BACK


def test_old_notifications_are_forgotten(fake: FakeProvider) -> None:
    for name in ("old", "new"):
        HandledNotification.objects.create(provider="fake", notification_id=name)
    old = HandledNotification.objects.filter(notification_id="old")
    old.update(handled_at=timezone.now() - NOTIFICATIONS_KEPT - A_DAY)
    settle_due(now=timezone.now())
    assert [it.notification_id for it in HandledNotification.objects.all()] == ["new"]


# --- On demand ------------------------------------------------------------------------------------


def run(*arguments: str) -> str:
    out = io.StringIO()
    call_command("settle_payments", *arguments, stdout=out)
    return out.getvalue()


def test_command_names_differences_and_fails(fake: FakeProvider) -> None:
    payment = make_paid()
    with pytest.raises(CommandError, match="1 open differences") as failed:
        run("--day", today().isoformat())
    assert failed.value.returncode == 1
    fake.movements = [line(payment)]
    out = run("--day", today().isoformat(), "--provider", "fake")
    assert out == f"fake {today()}: no open differences\n"


def test_command_writes_each_amount_in_its_currency(fake: FakeProvider) -> None:
    payment = make_paid()
    Payment.objects.update(received_cents=12_000, received_currency="JPY")
    fake.movements = [line(payment, amount_cents=12_345, currency="USD")]
    out = io.StringIO()
    with pytest.raises(CommandError):
        call_command("settle_payments", "--day", today().isoformat(), stdout=out)
    assert "amount, ours 12,000 JPY, theirs 123.45 USD" in out.getvalue()


def test_command_refuses_an_unknown_provider(fake: FakeProvider) -> None:
    with pytest.raises(CommandError, match="the providers are: fake") as failed:
        run("--provider", "nobody")
    assert failed.value.returncode == 2


def test_command_says_that_a_list_is_missing(fake: FakeProvider) -> None:
    fake.away = True
    with pytest.raises(CommandError, match="has no list") as failed:
        run()
    assert failed.value.returncode == 2
