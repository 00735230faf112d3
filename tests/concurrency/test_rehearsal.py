"""Rehearsals on the running shop: real processes, their exit status, and nothing left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from django.utils import timezone

from backoffice.rehearsal.buyers import buyers_of
from backoffice.rehearsal.service import publish_rehearsal, start_rehearsal
from orders.models import OrderEvent, OrderStatus, Rehearsal, RehearsalPhase, VoucherOrder
from orders.models.jobs import OVER
from seckill_site.redis.ledger_connection import ledger_connection
from tests.concurrency.sales import make_sale
from tests.support.patience import wait_for
from tests.support.rehearsals import everything_there
from tests.support.stack import ROOT, Shop, Stack, state_of
from vouchers.inventory.keys import LedgerKeys
from vouchers.models import SeckillVoucher

pytestmark = [pytest.mark.slow, pytest.mark.concurrency, pytest.mark.usefixtures("row_locks")]


@pytest.fixture(scope="module")
def db(kept_databases: None) -> None:
    """The module's database, without a transaction around each test."""


BUYERS, STOCK = 300, 20
SECONDS = 240


@pytest.fixture(scope="module")
def module_shop(module_stack: Stack) -> Shop:
    """One worker process, which must run rehearsals beside orders."""
    with module_stack.together():
        web, worker = module_stack.web(), module_stack.worker("--beat", concurrency=1)
    return Shop(module_stack, web, worker)


def command(stack: Stack, *arguments: str, **environ: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "manage.py", "rehearse", *arguments],
        cwd=ROOT,
        env={**stack._environ, **environ},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def rehearse(shop: Shop, sale: SeckillVoucher, **environ: str) -> subprocess.Popen[str]:
    arguments = ["--buyers", str(BUYERS), "--stock", str(STOCK), "--url", shop.url, "--json"]
    return command(shop.stack, str(sale.pk), *arguments, **environ)


@contextmanager
def stopped(process: subprocess.Popen[str]) -> Iterator[None]:
    """Wait until a process has stopped at its failpoint; let it go on after the block."""
    wait_for(lambda: state_of(process.pid) == "T", what="stop", seconds=SECONDS)
    try:
        yield
    finally:
        os.kill(process.pid, signal.SIGCONT)


def test_command_rehearses_a_sale_and_leaves_nothing(shared_shop: Shop) -> None:
    sale = make_sale(stock=500, begins_in_s=3_600, ends_in_s=7_200)
    before = everything_there()

    process = rehearse(shared_shop, sale)
    out, error = process.communicate(timeout=SECONDS)

    assert process.returncode == 0, error
    verdict = json.loads(out)
    assert verdict["is_right"]
    assert verdict["cleared"]
    assert verdict["requests"] == 330
    assert verdict["accepted"] == verdict["orders"] == STOCK
    assert verdict["answers"]["sold_out"] > 0
    assert everything_there() == before
    assert Rehearsal.objects.get(seckill_voucher=sale).phase == RehearsalPhase.DONE


def lose_one_order(shadow: SeckillVoucher) -> None:
    """Nobody knows an accepted order any more, neither database nor ledger."""
    order = VoucherOrder.objects.filter(seckill_voucher=shadow).earliest("pk")
    ledger_connection().hdel(LedgerKeys(shadow.pk).buyers, f"{order.user_id}:1")
    OrderEvent.objects.filter(order=order).delete()
    order.delete()


def sell_one_too_many(shadow: SeckillVoucher) -> None:
    """One who was told that all is sold out has an order all the same."""
    losers = buyers_of(shadow_id=shadow.pk).exclude(voucher_orders__seckill_voucher=shadow)
    VoucherOrder.objects.create(
        id=1,
        user=losers[0],
        seckill_voucher=shadow,
        unit=1,
        status=OrderStatus.UNPAID,
        price_cents=1,
        accepted_at=timezone.now(),
    )


@pytest.mark.parametrize(
    ("wrong", "tamper"), [("lost", lose_one_order), ("oversold", sell_one_too_many)]
)
def test_control_lost_order_or_oversale_fails_the_rehearsal(
    shared_shop: Shop, wrong: str, tamper: Callable[[SeckillVoucher], None]
) -> None:
    sale = make_sale(stock=STOCK, begins_in_s=3_600, ends_in_s=7_200)
    before = everything_there()

    process = rehearse(shared_shop, sale, FAILPOINT="rehearse.drained=stop")
    with stopped(process):
        shadow_id = Rehearsal.objects.get(seckill_voucher=sale).shadow_id
        assert shadow_id is not None
        tamper(SeckillVoucher.objects.get(pk=shadow_id))
    out, error = process.communicate(timeout=SECONDS)

    assert process.returncode == 1, error
    verdict = json.loads(out)
    assert verdict[wrong] == 1
    assert not verdict["is_right"]
    assert verdict["cleared"]
    assert everything_there() == before


def test_single_worker_child_runs_rehearsal_and_its_orders(shared_shop: Shop) -> None:
    """As from the admin: the steps are tasks among the others, and none keeps the worker."""
    sale = make_sale(stock=500)
    before = everything_there()
    rehearsal = start_rehearsal(
        sale_id=sale.pk,
        buyers=BUYERS,
        stock=200,
        duplicates=20,
        connections=50,
        url=shared_shop.url,
    )
    publish_rehearsal(rehearsal_id=rehearsal.pk, turn=rehearsal.turn)

    found = Rehearsal.objects.filter(pk=rehearsal.pk)
    wait_for(lambda: found.filter(phase__in=OVER).exists(), what="end", seconds=SECONDS)

    rehearsal = found.get()
    assert (rehearsal.phase, rehearsal.problem) == (RehearsalPhase.DONE, "")
    assert rehearsal.verdict["is_right"]
    assert rehearsal.verdict["orders"] == 200
    assert rehearsal.verdict["interruptions"] == 0
    assert everything_there() == before


def test_interrupted_command_clears_up(shared_shop: Shop) -> None:
    sale = make_sale(stock=500)
    before = everything_there()
    process = rehearse(shared_shop, sale, FAILPOINT="rehearse.fired=stop")
    with stopped(process):
        process.send_signal(signal.SIGINT)
    out, error = process.communicate(timeout=SECONDS)
    assert (process.returncode, out) == (130, "")
    assert error.splitlines()[-1] == "CommandError: cancelled, and cleared up"
    assert everything_there() == before
