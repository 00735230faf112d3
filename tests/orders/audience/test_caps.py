"""The cap on cancellations per hour; that on unpaid orders: ``test_eligibility.py``."""

from __future__ import annotations

import datetime as dt

import pytest
from django.contrib.auth.models import User
from django.db import DatabaseError
from django.utils import timezone
from pytest_django import Settings

from orders.audience import caps
from orders.audience.verdicts import NotEligible, Verdict
from orders.lifecycle.cancellation import cancel_order
from orders.lifecycle.transitions import SYSTEM, Actor
from orders.models import OrderEvent, OrderStatus, VoucherOrder
from tests.support.browsers import browser_of
from tests.support.orders import make_order, make_sale
from tests.support.payments import make_unpaid_order

pytestmark = pytest.mark.django_db

HOUR = dt.timedelta(hours=1)


@pytest.fixture
def order(buyer: User) -> VoucherOrder:
    """An unpaid order of the buyer."""
    return make_unpaid_order(make_sale(), [buyer])


def cancelled(buyer: User, count: int, *, ago: dt.timedelta, by: str = "buyer") -> None:
    """Let a buyer have cancelled so many orders."""
    for _ in range(count):
        order = make_order(make_sale(loaded=False), buyer, status=OrderStatus.CANCELLED)
        OrderEvent.objects.create(
            order=order,
            before=OrderStatus.UNPAID,
            after=OrderStatus.CANCELLED,
            at=timezone.now() - ago,
            actor_kind=by,
            actor=buyer if by == "buyer" else None,
        )


def cancel(order: VoucherOrder, by: Actor | None = None) -> None:
    actor = by or Actor.buyer(order.user_id)
    cancel_order(order_id=order.pk, by=actor, now=timezone.now())


def test_cancellations_within_the_hour_are_capped(buyer: User, order: VoucherOrder) -> None:
    cancelled(buyer, 10, ago=HOUR / 2)
    with pytest.raises(NotEligible) as refused:
        cancel(order)
    assert refused.value.verdict == Verdict("cancellations", 10)
    order.refresh_from_db()
    assert (order.status, order.live) == (OrderStatus.UNPAID, True)


def test_buyer_below_the_cancellation_cap_may_cancel(buyer: User, order: VoucherOrder) -> None:
    cancelled(buyer, 9, ago=HOUR / 2)
    cancelled(buyer, 5, ago=HOUR)
    cancelled(buyer, 5, ago=HOUR / 2, by="system")
    cancel(order)
    order.refresh_from_db()
    assert order.status == OrderStatus.CANCELLED


def test_staff_and_the_system_are_not_capped(buyer: User, order: VoucherOrder) -> None:
    cancelled(buyer, 10, ago=HOUR / 2)
    cancel(order, SYSTEM)
    order.refresh_from_db()
    assert order.status == OrderStatus.CANCELLED


def test_without_a_cap_a_buyer_cancels_at_will(
    buyer: User, order: VoucherOrder, settings: Settings
) -> None:
    settings.SECKILL_CANCELLATIONS_PER_HOUR = 0
    cancelled(buyer, 10, ago=HOUR / 2)
    cancel(order)


def test_refusal_over_http_names_the_rule(buyer: User, order: VoucherOrder) -> None:
    cancelled(buyer, 10, ago=HOUR / 2)
    client = browser_of(buyer, headers={"Accept-Language": "en"})
    path = f"/vouchers/{order.seckill_voucher_id}/orders/{order.pk}/"
    answer = client.post(f"{path}cancel/")
    assert (answer.status_code, answer.json()) == (
        403,
        {
            "code": "not_eligible",
            "message": "You have cancelled too many orders within an hour. This one ends by itself "
            "if you do not pay for it.",
            "rule": "cancellations",
        },
    )
    page = client.post(f"{path}cancel/", headers={"Accept": "text/html"}).content.decode()
    assert f'<a class="button" href="{path}">Back to your order</a>' in page
    assert client.get(path).json()["status"] == "unpaid"
    assert client.post(f"{path}pay/").status_code == 200


def test_capped_accounts_stay_known_while_the_database_is_away(
    buyer: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(5):
        make_order(make_sale(loaded=False), buyer)
    caps.refresh_capped_accounts()
    assert buyer.pk in caps.capped_accounts.value

    def fail() -> dict[int, object]:
        raise DatabaseError("away")

    monkeypatch.setattr(caps, "_read_capped", fail)
    caps.refresh_capped_accounts()
    assert buyer.pk in caps.capped_accounts.value
    assert not caps.capped_accounts.claim()
