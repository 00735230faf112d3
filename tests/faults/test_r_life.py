"""R3: orders end while workers and Redis die; each unit comes back once, to who waits first."""

from __future__ import annotations

import datetime as dt
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone

from orders.fulfilment.reconcile import reconcile
from orders.lifecycle.cancellation import cancel_order
from orders.lifecycle.transitions import SYSTEM
from orders.lifecycle.waiting_list import join
from orders.models import OrderEvent, OrderStatus, VoucherOrder, WaitingEntry
from seckill_site.redis.ledger_connection import ledger_connection
from tests.concurrency.sales import accepted_ids, crowd_of, make_sale, sale_and_crowd
from tests.faults.conftest import with_inside
from tests.faults.history import History, Report, check_conservation
from tests.support.patience import wait_for
from tests.support.stack import Stack, beat_every
from vouchers.inventory.keys import LedgerKeys
from vouchers.inventory.sale_state import snapshot, snapshots
from vouchers.models import SeckillVoucher

pytestmark = pytest.mark.concurrency

QUICK: dict[str, Any] = {
    "SECKILL_SWEEP_AGE_MS": "500",
    "SECKILL_SWEEP_PAUSE_MS": "1000",
    "SECKILL_KICK_MS": "1000",
    "SECKILL_LEASE_MS": "1000",
}
OFTEN = beat_every(expire=0.5, reconcile=2, restore_lines=2)
"""Seconds between what beat sends, by default 2 and 15."""

STOCK, CROWD = 20, 40
POINTS = ["end.before_commit", "end.committed", "end.released"]


def orders_of(sale: SeckillVoucher, status: OrderStatus) -> int:
    return VoucherOrder.objects.filter(seckill_voucher=sale, status=status).count()


def sold_out_sale(stack: Stack, web_url: str, history: History) -> tuple[SeckillVoucher, list[str]]:
    """Sell a sale out, and return it with the tokens of those who got nothing."""
    sale, tokens = sale_and_crowd(stock=STOCK, count=CROWD)
    answers = history.fire(sale, tokens, url=web_url)
    history.settle(sale)
    assert len(accepted_ids(answers)) == STOCK
    assert orders_of(sale, OrderStatus.UNPAID) == STOCK
    return sale, [
        token for token, answer in zip(tokens, answers, strict=True) if answer.status == 409
    ]


def let_time_pass(sale: SeckillVoucher) -> None:
    """Let the time to pay of every unpaid order be over."""
    unpaid = VoucherOrder.objects.filter(seckill_voucher=sale, status=OrderStatus.UNPAID)
    unpaid.update(pay_by=timezone.now() - dt.timedelta(seconds=1))


def now_ms() -> int:
    return int(timezone.now().timestamp() * 1000)


def finish(history: History, sale: SeckillVoucher, report: Report) -> None:
    """Hold the history against the invariants; orders may have ended, and their receipts say so."""
    history.recovered()
    report(history.check(sale, may_refuse=True, recovery_seconds=60))


def assert_is_whole(sale: SeckillVoucher, *, left: int) -> None:
    wait_for(lambda: snapshot(sale_id=sale.pk).remaining == left, what="units", seconds=60)
    wait_for(lambda: is_settled(sale), what="sum", seconds=60)
    check_conservation(sale)


def is_settled(sale: SeckillVoucher) -> bool:
    """Return whether the sum is right and the ledger knows of each row, as it does in the end."""
    found = reconcile(sale_id=sale.pk)
    return not found.difference and not found.pending


@pytest.mark.usefixtures("row_locks")
def test_r3_worker_killed_during_expiry_returns_units_once(
    stack: Stack, inside: Path, report: Report, subtests: pytest.Subtests
) -> None:
    with stack.together():
        web = stack.web(**QUICK)
        worker = stack.worker("--beat", concurrency=4, **OFTEN, **with_inside(inside), **QUICK)
    for point in POINTS:
        with subtests.test(point):
            history = History("R3", f"worker child killed at {point}")
            sale, _ = sold_out_sale(stack, web.url, history)
            (inside / "failpoint").write_text(point)
            let_time_pass(sale)
            worker.wait_until(lambda: not (inside / "failpoint").exists(), what="death")
            history.fault_is_over()

            wait_for(
                partial(lambda sale: orders_of(sale, OrderStatus.EXPIRED) == STOCK, sale),
                what="expiry",
                seconds=60,
            )
            assert_is_whole(sale, left=STOCK)
            finish(history, sale, report)
            expired = OrderEvent.objects.filter(order__seckill_voucher=sale, after="expired")
            assert expired.count() == STOCK


@pytest.mark.faults
@pytest.mark.usefixtures("row_locks")
def test_r3_returned_units_reach_the_waiting_list_once(
    stack: Stack, inside: Path, report: Report
) -> None:
    with stack.together():
        web = stack.web(**QUICK)
        worker = stack.worker("--beat", concurrency=4, **OFTEN, **with_inside(inside), **QUICK)
    history = History("R3", "units go to those who wait")
    sale, losers = sold_out_sale(stack, web.url, history)
    waiting = [
        join(token_text=token, sale_id=sale.pk, user_id=user_of(token), now_ms=now_ms())
        for token in losers
    ]
    assert [it.place for it in waiting] == list(range(1, len(losers) + 1))
    (inside / "failpoint").write_text("end.committed")  # the units go back by reconciling
    let_time_pass(sale)
    worker.wait_until(lambda: not (inside / "failpoint").exists(), what="death")
    history.fault_is_over()

    wait_for(
        lambda: orders_of(sale, OrderStatus.UNPAID) == STOCK, what="orders of the line", seconds=60
    )
    assert orders_of(sale, OrderStatus.EXPIRED) == STOCK
    got = VoucherOrder.objects.filter(seckill_voucher=sale, status=OrderStatus.UNPAID)
    assert {order.pk for order in got} == {it.order_id for it in waiting}
    assert all(order.pay_by and order.pay_by > timezone.now() for order in got), (
        "each has its own time to pay"
    )
    assert_is_whole(sale, left=0)
    finish(history, sale, report)


@pytest.mark.faults
@pytest.mark.usefixtures("row_locks")
def test_r3_waiting_list_survives_loss_of_redis(stack: Stack, report: Report) -> None:
    with stack.together():
        web = stack.web(**QUICK)
        stack.worker("--beat", concurrency=2, **OFTEN, **QUICK)
    history = History("R3", "waiting list after FLUSHALL")
    sale, losers = sold_out_sale(stack, web.url, history)
    waiting = [
        join(token_text=token, sale_id=sale.pk, user_id=user_of(token), now_ms=now_ms())
        for token in losers[:5]
    ]
    ledger_connection().flushdb()
    history.fault_is_over()
    wait_for(lambda: not reconcile(sale_id=sale.pk).difference, what="rebuilding", seconds=60)
    wait_for(lambda: snapshot_or_none(sale) == 5, what="the line", seconds=60)

    first = VoucherOrder.objects.filter(seckill_voucher=sale, live=True).earliest("pk")
    cancel_order(order_id=first.pk, by=SYSTEM, now=timezone.now())
    wait_for(
        lambda: VoucherOrder.objects.filter(pk=waiting[0].order_id).exists(),
        what="the order of the first in line",
        seconds=60,
    )
    assert snapshot(sale_id=sale.pk).waiting == 4
    assert_is_whole(sale, left=0)
    finish(history, sale, report)
    wait_for(
        lambda: WaitingEntry.objects.filter(outcome="offered").count() == 1,
        what="note of the offer",
        seconds=60,
    )


@pytest.mark.faults
@pytest.mark.usefixtures("row_locks")
@pytest.mark.parametrize("point", ["end.committed", "end.released"])
def test_r3_returned_units_reach_those_who_wait_for_several(
    stack: Stack, inside: Path, report: Report, point: str
) -> None:
    """Every second one wants three or none; the others take what comes, up to three."""
    with stack.together():
        web = stack.web(**QUICK)
        worker = stack.worker("--beat", concurrency=4, **OFTEN, **with_inside(inside), **QUICK)
    history = History("R3", f"units go to those who wait for three, death at {point}")
    sale = make_sale(stock=STOCK, limit=4)
    history.fire(sale, crowd_of(sale, count=STOCK), url=web.url)
    history.settle(sale)
    for number, token in enumerate(crowd_of(sale, count=8)):
        join(
            token_text=token,
            sale_id=sale.pk,
            user_id=user_of(token),
            now_ms=now_ms(),
            quantity=3,
            all_or_none=number % 2 == 1,
        )
    (inside / "failpoint").write_text(point)
    let_time_pass(sale)
    worker.wait_until(lambda: not (inside / "failpoint").exists(), what="death")
    ledger_connection().delete(LedgerKeys(sale.pk).waiting)
    history.fault_is_over()

    wait_for(lambda: orders_of(sale, OrderStatus.EXPIRED) == STOCK, what="expiry", seconds=60)
    wait_for(lambda: is_settled(sale), what="release of what expired", seconds=60)
    wait_for(lambda: nobody_waits_for_free_units(sale), what="units of the line", seconds=60)
    left = snapshot(sale_id=sale.pk).remaining
    assert orders_of(sale, OrderStatus.UNPAID) == STOCK - left
    assert_is_whole(sale, left=left)
    finish(history, sale, report)


def nobody_waits_for_free_units(sale: SeckillVoucher) -> bool:
    """Return whether all is written, and who still waits wants more than is free."""
    found = snapshots(sale_ids=[sale.pk])[sale.pk]
    if not found or found.pending:
        return False
    for entry in sale.waiting_entries.all():
        own = VoucherOrder.objects.filter(seckill_voucher=sale, user=entry.user_id).count()
        assert own <= 3, "no more than was wanted"
        assert own in (0, 3) or not entry.all_or_none
        if own < 3 and found.remaining >= (3 if entry.all_or_none else 1):
            return False
    return True


def snapshot_or_none(sale: SeckillVoucher) -> int | None:
    found = snapshots(sale_ids=[sale.pk])[sale.pk]
    return found.waiting if found else None


def user_of(token_text: str) -> int:
    """Return whose purchase token this is."""
    return int(token_text.split("-")[1])
