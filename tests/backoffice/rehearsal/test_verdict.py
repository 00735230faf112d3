"""The verdict of a rehearsal finds each kind of error by name."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from django.db import connection
from django.db.models import F
from django.utils import timezone
from pytest_django.live_server_helper import LiveServer
from redis import Redis

from backoffice.rehearsal.buyers import AnswerLog, buyers_of
from backoffice.rehearsal.verdict import Verdict, _percentile
from orders.fulfilment.worker import fulfil_sale
from orders.models import OrderEvent, OrderStatus, Rehearsal, RehearsalPhase, VoucherOrder
from tests.support.orders import make_order, make_sale
from tests.support.rehearsals import (
    begun,
    everything_there,
    finish,
    shadow_of,
    step,
    steps_until,
)
from tests.support.tiers import slow_after
from vouchers.inventory.keys import LedgerKeys
from vouchers.models import SeckillVoucher

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def drained(live_server: LiveServer) -> Rehearsal:
    """A rehearsal whose orders are all written, before its verdict."""
    rehearsal = steps_until(begun(make_sale(), live_server.url), RehearsalPhase.DRAINING)
    fulfil_sale(sale_id=shadow_of(rehearsal).pk)
    return rehearsal


def judged(rehearsal: Rehearsal) -> Verdict:
    rehearsal = step(rehearsal)
    assert rehearsal.phase == RehearsalPhase.CLEARING
    return Verdict.of(rehearsal.verdict)


def first_order(shadow: SeckillVoucher) -> VoucherOrder:
    return VoucherOrder.objects.filter(seckill_voucher=shadow).earliest("pk")


def delete_order(shadow: SeckillVoucher, ledger: Redis) -> None:
    """Remove an order from both places, as if it had never been accepted."""
    order = first_order(shadow)
    OrderEvent.objects.filter(order=order).delete()
    order.delete()
    SeckillVoucher.objects.filter(pk=shadow.pk).update(sold=F("sold") - 1)
    ledger.hdel(LedgerKeys(shadow.pk).buyers, f"{order.user_id}:1")


def sell_one_too_many(shadow: SeckillVoucher, ledger: Redis) -> None:
    """Add a row above the stock, of a buyer who had none, as without the row lock."""
    winners = VoucherOrder.objects.filter(seckill_voucher=shadow).values("user")
    loser = buyers_of(shadow_id=shadow.pk).exclude(pk__in=winners)[0]
    with without_checks():
        order = make_order(shadow, loser)
        SeckillVoucher.objects.filter(pk=shadow.pk).update(sold=F("sold") + 1)
    ledger.hset(LedgerKeys(shadow.pk).buyers, f"{loser.pk}:1", order.pk)


def sell_two_to_one(shadow: SeckillVoucher, ledger: Redis) -> None:
    """Give one buyer the unit of another as well."""
    one, other = VoucherOrder.objects.filter(seckill_voucher=shadow).order_by("pk")[:2]
    VoucherOrder.objects.filter(pk=other.pk).update(user=one.user_id, unit=2)
    keys = LedgerKeys(shadow.pk)
    ledger.hdel(keys.buyers, f"{other.user_id}:1")
    ledger.hset(keys.buyers, f"{one.user_id}:2", other.pk)


def forget_a_buyer(shadow: SeckillVoucher, ledger: Redis) -> None:
    ledger.hdel(LedgerKeys(shadow.pk).buyers, f"{first_order(shadow).user_id}:1")


def refuse_an_order(shadow: SeckillVoucher, ledger: Redis) -> None:
    """Turn an accepted order into a refused row, whose unit nobody buys."""
    order = first_order(shadow)
    refused = VoucherOrder.objects.filter(pk=order.pk)
    refused.update(status=OrderStatus.REFUSED, live=None, reason="failed")
    SeckillVoucher.objects.filter(pk=shadow.pk).update(sold=F("sold") - 1)
    ledger.hdel(LedgerKeys(shadow.pk).buyers, f"{order.user_id}:1")


@contextmanager
def without_checks() -> Iterator[None]:
    """Switch off the constraints of the database."""
    with connection.cursor() as cursor:
        cursor.execute("SET SESSION check_constraint_checks = 0")
        try:
            yield
        finally:
            cursor.execute("SET SESSION check_constraint_checks = 1")


WRONGS = {
    "lost": (delete_order, {"lost": 1, "undersold": 1}),
    "oversold": (sell_one_too_many, {"oversold": 1}),
    "doubled": (sell_two_to_one, {"doubled": 1}),
    "difference": (forget_a_buyer, {"difference": 1}),
    "undersold": (refuse_an_order, {"undersold": 1}),
}


@pytest.mark.parametrize("wrong", slow_after(1, WRONGS))
def test_verdict_finds_errors_and_clears_up(drained: Rehearsal, ledger: Redis, wrong: str) -> None:
    tamper, expected = WRONGS[wrong]
    tamper(shadow_of(drained), ledger)
    verdict = judged(drained)
    names = ("oversold", "lost", "doubled", "undersold", "difference")
    found = {name: getattr(verdict, name) for name in names if getattr(verdict, name)}
    assert found == expected
    assert not verdict.is_right
    rehearsal = finish(Rehearsal.objects.get(pk=drained.pk))
    assert (rehearsal.phase, rehearsal.problem) == (RehearsalPhase.DONE, "")
    assert rehearsal.verdict["cleared"]
    assert not rehearsal.verdict["is_right"]


def test_clean_rehearsal_has_no_errors(drained: Rehearsal) -> None:
    verdict = judged(drained)
    assert verdict.is_right
    assert verdict.as_json()["is_right"]


def test_refused_order_is_not_lost(drained: Rehearsal, ledger: Redis) -> None:
    refuse_an_order(shadow_of(drained), ledger)
    verdict = judged(drained)
    assert (verdict.accepted, verdict.orders, verdict.refused, verdict.lost) == (5, 5, 1, 0)


def test_unknown_outcomes_do_not_count_as_undersold(drained: Rehearsal) -> None:
    """Five of twelve have a unit; the others got no answer, so nobody was refused."""
    shadow = shadow_of(drained)
    log = AnswerLog.of(drained.crowd)
    log.answers = {"accepted": 5, "unanswered": 13}
    SeckillVoucher.objects.filter(pk=shadow.pk).update(stock=12)
    Rehearsal.objects.filter(pk=drained.pk).update(crowd=log.as_json(), stock=12)
    drained.refresh_from_db()
    verdict = judged(drained)
    assert (verdict.unanswered, verdict.undersold) == (13, 0)


def test_drain_time_comes_from_the_rows(drained: Rehearsal) -> None:
    rows = VoucherOrder.objects.filter(seckill_voucher=drained.shadow_id)
    rows.update(created_at=timezone.now())
    rows.filter(pk=rows.earliest("pk").pk).update(
        created_at=dt.datetime.fromtimestamp(drained.crowd["started_ms"] / 1000 + 7.5, tz=dt.UTC)
    )
    verdict = judged(drained)
    assert verdict.drain_s == 7.5
    assert verdict.orders_per_s == 0.7


@pytest.mark.parametrize(
    ("took_ms", "expected"),
    [
        ({}, (None, None, None)),
        ({"3": 1}, (3, 3, 3)),
        ({"10": 50, "9": 49, "200": 1}, (10, 10, 200)),
        ({"1": 50, "2": 50}, (1, 2, 2)),
        ({"1": 990, "1000": 10}, (1, 1, 1000)),
    ],
)
def test_percentiles_of_response_times(
    took_ms: dict[str, int], expected: tuple[int | None, ...]
) -> None:
    log = AnswerLog(took_ms=took_ms)
    assert tuple(_percentile(log, percent) for percent in (50, 99, 100)) == expected


@pytest.mark.slow
def test_wrong_rehearsal_leaves_nothing(live_server: LiveServer, ledger: Redis) -> None:
    sale = make_sale()
    before = everything_there()
    rehearsal = steps_until(begun(sale, live_server.url), RehearsalPhase.DRAINING)
    shadow = shadow_of(rehearsal)
    fulfil_sale(sale_id=shadow.pk)
    sell_one_too_many(shadow, ledger)
    with without_checks():
        finish(rehearsal)
    assert everything_there() == before
