"""After an hour of silence: what mends keeps its pace, and deadlines their precision.

Beat is quiet while the key of the last sign of life is missing.
"""

from __future__ import annotations

import datetime as dt

import pytest
from django.contrib.auth.models import User
from django.utils import timezone

from backoffice.job_engine import LEASE
from orders.models import OrderJob, OrderStatus, VoucherOrder
from seckill_site.broker.pace import AWAKE
from seckill_site.redis.ledger_connection import ledger_connection
from tests.concurrency.sales import make_sale
from tests.support.orders import make_buyers, reserved
from tests.support.patience import Stalls, wait_for
from tests.support.payments import make_unpaid_order
from tests.support.stack import Stack
from vouchers.inventory.keys import LedgerKeys, NotLoaded
from vouchers.inventory.sale_state import snapshot
from vouchers.models import SeckillVoucher

pytestmark = [pytest.mark.slow, pytest.mark.concurrency, pytest.mark.usefixtures("row_locks")]

MENDED_SECONDS = 15.0
LATE_SECONDS = 4.0
"""Beat's interval is 2 s, and 10 s while quiet."""


@pytest.fixture
def quiet(stack: Stack) -> Stack:
    """Beat and a worker, for which nothing has happened for a minute."""
    with stack.together():
        stack.worker()
        stack.beat()
    wait_for(lambda: ledger_connection().exists(AWAKE), what="beat, which starts awake")
    ledger_connection().delete(AWAKE)
    return stack


def is_loaded(sale: SeckillVoucher) -> bool:
    try:
        return snapshot(sale_id=sale.pk).epoch > 0
    except NotLoaded:
        return False


def test_wrong_key_is_mended_within_fifteen_seconds(quiet: Stack) -> None:
    key = LedgerKeys(make_sale(stock=10).pk).buyers
    ledger_connection().delete(key)
    ledger_connection().rpush(key, "a mistyped command")
    wait_for(lambda: ledger_connection().type(key) == "hash", what="hash", seconds=MENDED_SECONDS)


def test_emptied_redis_is_filled_within_fifteen_seconds(quiet: Stack) -> None:
    sale = make_sale(stock=10)
    make_unpaid_order(sale)
    ledger_connection().flushdb()
    wait_for(lambda: is_loaded(sale), what="ledger", seconds=MENDED_SECONDS)
    assert snapshot(sale_id=sale.pk).remaining == 9


def test_order_of_an_ended_worker_is_written_by_the_next_one(quiet: Stack) -> None:
    quiet.processes[0].kill()
    sale = make_sale(stock=10)
    (token,) = reserved(sale, make_buyers(1))
    ledger_connection().delete(LedgerKeys(sale.pk).kick)
    quiet.worker()
    orders = VoucherOrder.objects.filter(pk=token.order_id)
    wait_for(orders.exists, what="order", seconds=MENDED_SECONDS)


def test_bulk_job_of_an_ended_worker_is_resumed(quiet: Stack) -> None:
    order = make_unpaid_order(make_sale(stock=10))
    boss = User.objects.create(username="boss", is_staff=True)
    job = OrderJob.objects.create(kind="cancel", order_ids=[order.pk], total=1, actor=boss)
    OrderJob.objects.update(changed_at=timezone.now() - LEASE)
    done = OrderJob.objects.filter(pk=job.pk, status="done")
    wait_for(done.exists, what="job", seconds=MENDED_SECONDS)


def test_order_expires_as_punctually_as_ever(quiet: Stack) -> None:
    order = make_unpaid_order(make_sale(stock=10))
    order.events.update(notified_at=timezone.now(), webhooks_due=None)  # nothing else is due
    pay_by = order.created_at + dt.timedelta(seconds=25)
    VoucherOrder.objects.filter(pk=order.pk).update(pay_by=pay_by)
    expired, stalls = order.events.filter(after=OrderStatus.EXPIRED), Stalls()
    wait_for(expired.exists, what="expiry", seconds=60)
    late_s = (expired.get().at - pay_by).total_seconds()
    assert 0 <= late_s < LATE_SECONDS + stalls.seconds()
