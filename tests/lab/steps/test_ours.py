"""Ours: the shop itself, opened, pressed and written for a race, and nothing of it left behind."""

from __future__ import annotations

import datetime as dt

import pytest
from django.contrib.auth import get_user_model
from django.test import Client
from django.utils import timezone

from backoffice.job_engine import LEASE
from backoffice.rehearsal.service import orphans
from lab.steps import STEPS, ours
from lab.steps.step import Answer
from orders.models import VoucherOrder
from seckill_site.failpoints import FailpointReached, armed
from seckill_site.redis.ledger_connection import ledger_connection
from tests.lab.steps.meeting import write_all
from vouchers.catalogue.live_changes import pause_sale
from vouchers.inventory.keys import LedgerKeys, LedgerUnavailable
from vouchers.inventory.reservations import SalePaused, pending_entries
from vouchers.inventory.sale_state import snapshot
from vouchers.models import SeckillVoucher, Voucher

pytestmark = pytest.mark.django_db(transaction=True)

STEP = STEPS["ours"]


def opened(stock: int = 5) -> tuple[int, int]:
    """Open a sale; return it and a buyer."""
    return STEP.open(stock), STEP.buyers(1)[0]


def keys_of(sale_id: int) -> list[str]:
    return list(ledger_connection().keys(f"*{{{sale_id}}}*"))


def test_two_tabs_have_two_tokens_and_get_one_unit() -> None:
    sale_id, buyer = opened()
    tabs = [ours.tokens_for(sale_id, [buyer])[0].sign() for _ in range(2)]
    assert len(set(tabs)) == 2
    told = [ours.buy(sale_id=sale_id, user_id=buyer, token=tab) for tab in tabs]
    assert told == [Answer.QUEUED, Answer.ALREADY_ORDERED]
    write_all(STEP, sale_id, until=1)
    assert STEP.rows(sale_id) == [buyer]


def test_unanswered_press_is_repeated_with_its_token() -> None:
    sale_id, buyer = opened()
    token = ours.tokens_for(sale_id, [buyer])[0].sign()
    with armed("place.reserved=raise"), pytest.raises(FailpointReached):
        ours.buy(sale_id=sale_id, user_id=buyer, token=token)
    assert ours.buy(sale_id=sale_id, user_id=buyer, token=token) is Answer.QUEUED


def test_unavailable_redis_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    sale_id, buyer = opened()
    token = ours.tokens_for(sale_id, [buyer])[0].sign()

    def unavailable(_: object) -> None:
        raise LedgerUnavailable

    monkeypatch.setattr("orders.placing.service.send", unavailable)
    with pytest.raises(LedgerUnavailable):
        ours.buy(sale_id=sale_id, user_id=buyer, token=token)


def test_unexpected_refusal_is_raised() -> None:
    sale_id, buyer = opened()
    pause_sale(sale_id=sale_id)
    with pytest.raises(SalePaused):
        ours.buy(sale_id=sale_id, user_id=buyer)


def test_press_during_backlog_is_busy() -> None:
    sale_id = STEP.open(5)
    first, second = STEP.buyers(2)
    ours.buy(sale_id=sale_id, user_id=first)
    long_ago = 1_000.0
    (entry,) = pending_entries(sale_id=sale_id, skip=0, count=1)
    ledger_connection().zadd(LedgerKeys(sale_id).pending, {entry.member: long_ago})
    assert ours.buy(sale_id=sale_id, user_id=second) is Answer.BUSY


def test_cancelled_orders_do_not_count() -> None:
    sale_id, buyer = opened()
    ours.buy(sale_id=sale_id, user_id=buyer)
    write_all(STEP, sale_id, until=1)
    VoucherOrder.objects.update(live=None, status="cancelled")
    assert STEP.rows(sale_id) == []


def test_sale_is_hidden_and_kept_while_it_runs() -> None:
    sale_id = STEP.open(5)
    assert ours.TITLE not in Client().get("/").content.decode()
    later = timezone.now() + 10 * LEASE
    assert orphans(now=later) == []
    assert orphans(now=timezone.now() + ours.WINDOW + dt.timedelta(minutes=1)) == [sale_id]


def test_buyers_cannot_sign_in_and_race_again() -> None:
    first = STEP.buyers(3)
    assert STEP.buyers(5)[:3] == first
    users = get_user_model().objects.filter(pk__in=first)
    assert not any(user.has_usable_password() for user in users)


def test_clearing_removes_one_sale_with_orders_and_keys() -> None:
    sale_id, kept_id = STEP.open(5), STEP.open(5)
    for buyer in STEP.buyers(2):
        for it in (sale_id, kept_id):
            ours.buy(sale_id=it, user_id=buyer)
    write_all(STEP, sale_id, until=2)
    write_all(STEP, kept_id, until=2)
    STEP.clear(sale_id)
    assert list(SeckillVoucher.objects.values_list("pk", flat=True)) == [kept_id]
    assert Voucher.objects.count() == 1
    assert VoucherOrder.objects.count() == 2
    assert keys_of(sale_id) == []
    assert snapshot(sale_id=kept_id).taken == 2


def test_clearing_removes_unwritten_orders_and_is_idempotent() -> None:
    sale_id, buyer = opened()
    ours.buy(sale_id=sale_id, user_id=buyer)
    for _ in range(2):
        STEP.clear(sale_id)
    assert not SeckillVoucher.objects.exists()
    assert keys_of(sale_id) == []


def test_clearing_times_out_while_a_worker_is_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    sale_id, _ = opened()
    monkeypatch.setattr(ours, "CLEAR_S", 0.0)
    monkeypatch.setattr(ours, "clear_shadow", lambda **_: False)
    with pytest.raises(TimeoutError, match=str(sale_id)):
        STEP.clear(sale_id)
