"""R1: a switchover of the ledger that leaves all connections to the old primary open."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from redis.exceptions import ReadOnlyError, RedisError

from seckill_site.redis.ledger_connection import ledger_connection
from tests.concurrency.sales import crowd_of, make_sale
from tests.faults.conftest import OwnRedis, Switch, with_inside
from tests.faults.history import History, Report
from tests.support.patience import wait_for
from tests.support.stack import Stack, Web
from vouchers.inventory.keys import LedgerKeys, LedgerUnavailable
from vouchers.inventory.rebuild import current_run_id
from vouchers.inventory.sale_state import snapshot
from vouchers.models import SeckillVoucher

pytestmark = [pytest.mark.slow, pytest.mark.concurrency, pytest.mark.usefixtures("row_locks")]

BUYERS = 120
RECOVERY_SECONDS = 15.0


def in_thread(work: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=work)
    thread.start()
    return thread


# --- The connections of one process ---------------------------------------------------------------


def test_refused_write_leads_all_threads_to_the_new_primary(switch: Switch) -> None:
    client, switched, done = ledger_connection(), threading.Event(), list[object]()

    def write_before_and_after() -> None:
        client.set("key", "before")
        client.set("key", "again")  # on the thread's own connection
        switched.wait()
        client.set("key", "after")
        done.append(True)

    other = in_thread(write_before_and_after)
    client.set("mine", "1")
    wait_for(lambda: client.get("key") == "again", what="the other thread's connection")
    switch.swap_roles()
    switch.move_address()
    with pytest.raises(ReadOnlyError):
        client.set("mine", "2")
    switched.set()
    other.join()
    assert done, "the other thread's connection was closed as well"
    client.set("mine", "3")
    with switch.new.client() as new:
        assert (new.get("key"), new.get("mine")) == ("after", "3")


def test_new_connection_to_replica_is_refused(switch: Switch) -> None:
    switch.swap_roles()
    with pytest.raises(ReadOnlyError):
        ledger_connection().get("key")
    switch.move_address()
    wait_for(answers, what="the new primary, after the breaker's pause")


def answers() -> bool:
    try:
        return ledger_connection().get("key") is None
    except RedisError:
        return False


def test_run_id_is_not_taken_from_a_replica(switch: Switch) -> None:
    before = [current_run_id() for _ in range(2)]  # the second on the thread's own connection
    switch.swap_roles()
    switch.move_address()
    with pytest.raises(LedgerUnavailable):
        current_run_id()
    assert current_run_id() not in before


def test_connection_to_another_run_closes_those_to_the_one_before(switch: Switch) -> None:
    client = ledger_connection()
    mine = int(client.client_id())
    switch.swap_roles()
    switch.move_address()
    in_thread(lambda: client.connection_pool.make_connection().connect()).join()
    client.ping()
    with switch.old.client() as old:
        assert mine not in {int(it["id"]) for it in old.client_list()}


def test_doubt_in_a_script_of_redis_6_counts(switch: Switch) -> None:
    client = ledger_connection()
    mine = int(client.client_id())
    with pytest.raises(Exception, match="script"):
        client.eval(
            "return redis.error_reply('ERR Error running script (call to f): @user_script:1:"
            " -READONLY You can not write')",
            0,
        )
    assert client.client_id() != mine


# --- A crowd --------------------------------------------------------------------------------------


def start_shop(stack: Stack, switch: Switch, **inside: Any) -> Web:
    url = switch.address.url()
    with stack.together():
        web = stack.web(threads=8, REDIS_URL=url)
        stack.worker("--beat", REDIS_URL=url, **inside)
    return web


def buy_through_switchover(
    history: History, switch: Switch, web: Web, sale: SeckillVoucher
) -> None:
    tokens = crowd_of(sale, count=BUYERS)
    late = tokens[-20:]  # the others may all have bought by then
    with history.buying(sale, tokens[:-20], url=web.url):
        wait_for(lambda: len(history.accepted_ids(sale)) > 20, what="accepted buyers")
        with history.fault():
            switch.swap_roles()
            history.fire(sale, late, url=web.url)
            switch.move_address()


def test_r1_switchover_with_open_connections_stops_nobody(
    switch: Switch, stack: Stack, report: Report
) -> None:
    history = History("R1", "switchover that leaves connections open")
    web, sale = start_shop(stack, switch), make_sale(stock=BUYERS)
    buy_through_switchover(history, switch, web, sale)
    history.ask_again(sale, url=web.url)
    wait_for(lambda: is_built_by(switch.new, sale), what="a ledger of the new primary's run")
    history.settle(sale)
    outcome = history.check(sale, recovery_seconds=RECOVERY_SECONDS)
    assert outcome.orders == outcome.accepted == BUYERS
    report(outcome)


@pytest.mark.faults
def test_r1_trusting_workers_write_no_order_after_switchover(
    switch: Switch, stack: Stack, inside: Path
) -> None:
    """The control: these workers stay with the old primary, which refuses their locks."""
    (inside / "trusting").touch()
    history = History("R1", "control")
    web, sale = start_shop(stack, switch, **with_inside(inside)), make_sale(stock=BUYERS)
    buy_through_switchover(history, switch, web, sale)
    history.ask_again(sale, url=web.url)
    with pytest.raises(AssertionError, match="empty pending set"):
        history.settle(sale, seconds=RECOVERY_SECONDS)
    assert snapshot(sale_id=sale.pk).pending > 0


def is_built_by(server: OwnRedis, sale: SeckillVoucher) -> bool:
    with server.client() as client:
        run_id = client.info("server")["run_id"]
        return bool(client.hget(LedgerKeys(sale.pk).sale, "run_id") == run_id)
