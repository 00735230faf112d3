"""R1: a failover to a replica that is behind, with and without SECKILL_LEDGER_REPLICAS."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack, suppress
from typing import Any

import pytest
from django.test import Client
from pytest_django import Settings

from seckill_site import health
from seckill_site.checks.services import check_ledger_replicas
from tests.concurrency.sales import crowd_of, make_sale, sale_and_crowd
from tests.faults.conftest import PATIENT_MS, Pair, is_in_step, replica_of
from tests.faults.history import History, Report
from tests.fixtures.vouchers import DropGuard
from tests.support.patience import wait_for
from tests.support.proxy import HOST, FaultProxy
from tests.support.sales import reserve
from tests.support.stack import Stack, Web
from vouchers.inventory import reservations
from vouchers.inventory.keys import LedgerKeys, LedgerUnavailable, NotLoaded
from vouchers.inventory.sale_state import snapshot
from vouchers.models import SeckillVoucher

pytestmark = [pytest.mark.slow, pytest.mark.concurrency, pytest.mark.usefixtures("row_locks")]

BUYERS = 150


# --- The same token on a new connection -----------------------------------------------------------


@pytest.fixture
def one_replica(settings: Settings) -> None:
    """Let this process wait for one replica."""
    settings.SECKILL_LEDGER_REPLICAS = 1
    settings.SECKILL_LEDGER_REPLICAS_MS = PATIENT_MS


def order(sale: SeckillVoucher, token: str) -> Any:
    return Client().post(f"/vouchers/{sale.pk}/orders/", {"token": token})


@pytest.mark.usefixtures("impatient_redis")
def test_lost_answer_is_repeated_only_once_replicated(
    pair: Pair, one_replica: None, use_ledger: Callable[[str], None]
) -> None:
    sale, (first, token) = sale_and_crowd(stock=10, count=2)
    with FaultProxy((HOST, pair.primary.port)) as to_ledger:
        use_ledger(to_ledger.url())
        wait_for(lambda: order(sale, first).status_code == 202, what="a replica in step")

        pair.line.stall()
        to_ledger.drop_replies(1, matching=b"EVALSHA")
        assert order(sale, token).status_code == 503  # nobody knows what has happened
        again = order(sale, token)
        assert (again.status_code, again["Retry-After"]) == (503, "1")
        assert snapshot(sale_id=sale.pk).taken == 2

        pair.line.heal()
        wait_for(lambda: order(sale, token).status_code == 202, what="a replica in step")
        assert order(sale, token).json()["order_id"] == token.partition("-")[0]
        assert snapshot(sale_id=sale.pk).taken == 2
        use_ledger(pair.primary.url())


def replicated_hsets(pair: Pair) -> int:
    """Count the HSETs that have reached the replica, once it has all writes."""
    with pair.primary.client() as primary, pair.replica.client() as replica:
        wait_for(lambda: is_in_step(primary), what="a replica in step")
        return int(replica.info("commandstats")["cmdstat_hset"]["calls"])


@pytest.mark.parametrize("guarded", [True, False], ids=["guarded", "control"])
def test_repeated_reservation_is_replicated_again(
    pair: Pair,
    one_replica: None,
    guarded: bool,
    drop_guard: DropGuard,
) -> None:
    """Without a write, Redis from 7.2 on finds nothing to wait for on a new connection.

    Older versions, as in these tests, take any command for a write: the answers are the same.
    """
    if not guarded:
        drop_guard(reservations, "_RESERVE", "ARGV[7] == '1' and", "false and")
    sale = make_sale(stock=10)
    reserve_until_copied(sale)
    before = replicated_hsets(pair)
    sent = sum(reserve_until_copied(sale) for _ in range(3))
    assert replicated_hsets(pair) - before == (sent if guarded else 0)


def reserve_until_copied(sale: SeckillVoucher) -> int:
    """Reserve until the replica has said in time that it has it; return how often that took."""
    tries = 0

    def is_copied() -> bool:
        nonlocal tries
        tries += 1
        with suppress(LedgerUnavailable):
            reserve(sale_id=sale.pk, order_id=501, user_id=7)
            return True
        return False

    wait_for(is_copied, what="a replica in step")
    return tries


def test_reservation_without_the_setting_waits_for_nobody(pair: Pair) -> None:
    """The control of the 503: the reservation is accepted, and only the primary knows of it."""
    sale, (token,) = sale_and_crowd(stock=10, count=1)
    pair.line.stall()
    assert order(sale, token).status_code == 202
    with pair.replica.client() as replica:
        assert token.partition("-")[0] not in replica.hvals(LedgerKeys(sale.pk).buyers)


def test_connected_replica_is_ready_until_it_falls_silent(pair: Pair, one_replica: None) -> None:
    assert list(check_ledger_replicas()) == []

    def is_ready() -> bool:
        with suppress(RuntimeError):  # on a busy machine one acknowledgement may take longer
            health._ask_ledger()
            return True
        return False

    wait_for(is_ready, what="a replica that acknowledges")
    pair.line.stall()
    with pytest.raises(RuntimeError, match="0 of 1 replicas"):
        health._ask_ledger()


# --- A crowd --------------------------------------------------------------------------------------


def shop_of(stack: Stack, pair: Pair, *, replicas: int) -> Web:
    """Start a web server that waits for replicas; worker and beat come when a test says so."""
    return stack.web(
        threads=8,
        REDIS_URL=pair.primary.url(),
        SECKILL_LEDGER_REPLICAS=str(replicas),
        SECKILL_LEDGER_REPLICAS_MS=str(PATIENT_MS),
    )


@pytest.mark.faults
def test_r1_cut_off_replica_stops_acceptance_and_keeps_units(
    pair: Pair, stack: Stack, report: Report
) -> None:
    history = History("R1", "replica cut off during a sale")
    web = shop_of(stack, pair, replicas=1)
    stack.worker("--beat", concurrency=1, REDIS_URL=pair.primary.url())
    sale, tokens = sale_and_crowd(stock=50, count=40)
    accepted = history.fire(sale, tokens[:20], url=web.url)
    with history.fault():
        pair.line.stall()
        refused = history.fire(sale, tokens[20:], url=web.url)
        assert snapshot(sale_id=sale.pk).taken == 40
        pair.line.heal()
    assert {answer.status for answer in accepted} == {202}
    assert {(it.status, it.headers["retry-after"]) for it in refused} == {(503, "1")}
    history.ask_again(sale, url=web.url)
    history.settle(sale)
    outcome = history.check(sale)
    assert (outcome.orders, outcome.accepted) == (40, 40)
    report(outcome)


@pytest.mark.faults
@pytest.mark.parametrize("replicas", [1, 0], ids=["guarded", "control"])
def test_r1_failover_to_replica_behind_loses_nothing_accepted(
    pair: Pair,
    stack: Stack,
    report: Report,
    tmp_path_factory: pytest.TempPathFactory,
    replicas: int,
) -> None:
    """Without the setting, the orders that only the primary knew of are refused as lost."""
    history = History("R1", f"failover to a replica behind, {replicas} waited for")
    web = shop_of(stack, pair, replicas=replicas)
    sale = make_sale(stock=BUYERS)
    with ExitStack() as new:
        with history.buying(sale, crowd_of(sale, count=BUYERS), url=web.url):
            wait_for(lambda: len(history.accepted_ids(sale)) > 20, what="accepted buyers")
            with history.fault():
                pair.line.stall()
                before = len(history.events)
                wait_for(lambda: len(history.events) > before + 20, what="buyers without a replica")
                pair.fail_over()
                new.enter_context(replica_of(pair.primary, tmp_path_factory))
        stack.worker("--beat", concurrency=1, REDIS_URL=pair.primary.url())
        wait_for(lambda: is_built_anew(sale), what="a ledger of this run of Redis")
        history.ask_again(sale, url=web.url)
        history.settle(sale)
        outcome = history.check(sale, may_refuse=not replicas)
    assert outcome.accepted == BUYERS
    assert (outcome.refused == 0) == bool(replicas), "only the control loses orders"
    if replicas:
        report(outcome)


def is_built_anew(sale: SeckillVoucher) -> bool:
    try:
        return snapshot(sale_id=sale.pk).epoch > 1
    except (NotLoaded, LedgerUnavailable):
        return False
