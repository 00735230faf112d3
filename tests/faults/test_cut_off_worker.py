"""D3: one of two workers is cut off from the database; the other writes everybody's orders."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.concurrency.sales import live_orders, sale_and_crowd
from tests.faults.history import History, Report
from tests.faults.test_d_database import database_proxy
from tests.support.patience import wait_for
from tests.support.proxy import FaultProxy
from tests.support.stack import Stack

pytestmark = [pytest.mark.slow, pytest.mark.concurrency, pytest.mark.usefixtures("row_locks")]

BUYERS = 120
WITHIN_S = 10.0
"""The longest that an order may take to become a row, with one worker cut off."""


def refuse(proxy: FaultProxy) -> None:
    proxy.refuse()
    proxy.cut()


@pytest.mark.parametrize("cut_off", [refuse, FaultProxy.stall], ids=["refuses", "is silent"])
def test_d3_other_worker_writes_all_orders(
    stack: Stack,
    report: Report,
    cut_off: Callable[[FaultProxy], None],
    request: pytest.FixtureRequest,
) -> None:
    sale, tokens = sale_and_crowd(stock=BUYERS, count=BUYERS)
    how = request.node.callspec.id
    history = History("D3", f"database {how} to one of two workers")
    with database_proxy() as (proxy, url):
        with stack.together():
            web = stack.web()
            stack.worker(DATABASE_URL=url)
            stack.worker("--beat")
        first, rest = tokens[:20], tokens[20:]
        history.fire(sale, first, url=web.url)
        history.settle(sale)
        cut_off(proxy)
        with history.buying(sale, rest, url=web.url):
            pass
        history.fault_is_over()
        history.settle(sale)
        assert len(live_orders(sale)) == BUYERS
        outcome = history.check(sale, recovery_seconds=WITHIN_S)
        assert outcome.orders == outcome.accepted == BUYERS
    report(outcome)


def test_d3_with_both_workers_cut_off_orders_wait(stack: Stack) -> None:
    """The control: the fault is one, because without the other worker nothing is written."""
    sale, tokens = sale_and_crowd(stock=5, count=5)
    history = History("D3", "both workers")
    with database_proxy() as (proxy, url):
        with stack.together():
            web = stack.web()
            worker = stack.worker(DATABASE_URL=url)
        refuse(proxy)
        history.fire(sale, tokens, url=web.url)
        worker.wait_for_log("CutOff")
        assert not live_orders(sale)
        stack.worker("--beat")
        wait_for(lambda: len(live_orders(sale)) == 5, what="orders of the other worker")
