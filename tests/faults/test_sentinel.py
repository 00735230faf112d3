"""S1: Redis Sentinel: machines die in the middle of a sale, and nobody moves an address.

Three machines have a sentinel, and a node of each service: the ledger, and cache and broker. The
promise holds for one machine at a time. ``SECKILL_LEDGER_REPLICAS=1`` is enough for two replicas,
because Sentinel promotes the one that has most.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, ClassVar

import pytest
from kombu import Connection
from pytest_django import Settings
from redis.exceptions import RedisError

from locks.lua_script import LuaScript, ScriptCall
from seckill_site.broker import transport
from seckill_site.front_door.ledger_node import close_ledger_nodes, ledger_node
from seckill_site.redis.address import address_of, kombu_address
from seckill_site.redis.ledger_connection import ledger_connection
from tests.concurrency.sales import TOLD_NOTHING, crowd_of, make_sale
from tests.faults.conftest import PATIENT_MS
from tests.faults.history import ACCEPTED, UNKNOWN, History, Report
from tests.faults.test_draw import ENTRIES, OFTEN, finish
from tests.faults.test_k_back_half import QUICK
from tests.faults.test_r_ledger import is_built_anew
from tests.faults.test_room_line import (
    LATER,
    NEW,
    STORED,
    Line,
    check_let_in,
    come_without_place,
    everybody_buys,
)
from tests.support.draws import end, listed, make_draw
from tests.support.patience import Stalls, wait_for
from tests.support.sentinels import Cluster
from tests.support.stack import Stack
from vouchers.inventory.sale_state import snapshot
from vouchers.models import SeckillVoucher

pytestmark = [pytest.mark.concurrency, pytest.mark.usefixtures("row_locks")]
cluster_tier = pytest.mark.cluster

BUYERS, STOCK, KILLS = 20_000, 19_500, 10
CUT_OFF_S = 0.8

NEXT_202_S = 1.5
"""The longest from the promotion to an accepted order."""

LAST_503_S = 10.0
"""The longest from a death to the last answer that tells nothing."""


@pytest.fixture
def make_cluster(tmp_path: Path) -> Iterator[Callable[..., Cluster]]:
    with ExitStack() as stack:
        yield lambda *names, **options: Cluster(tmp_path, stack, *names, **options)


@pytest.fixture
def use(settings: Settings) -> Callable[[str, str], None]:
    """Let this process, too, find the ledger or the cache at an address."""

    def use(alias: str, url: str) -> None:
        caches: dict[str, Any] = {name: dict(cache) for name, cache in settings.CACHES.items()}
        caches[alias]["LOCATION"] = address_of(url).location
        settings.CACHES = caches

    return use


# --- One process ----------------------------------------------------------------------------------


def test_threads_loop_and_broker_follow_the_promotion(
    make_cluster: Callable[..., Cluster], use: Callable[[str, str], None], tmp_path: Path
) -> None:
    """No process of the shop, so that this is quick: each way to a service, through one death."""
    cluster = make_cluster("ledger", down_after_ms=300, is_hasty=True)
    use("ledger", cluster.url("ledger"))
    transport.register()
    url, options = kombu_address(cluster.url("ledger", 2))
    (tmp_path / "read.lua").write_text("return redis.call('GET', KEYS[1])")
    read = ScriptCall(LuaScript(tmp_path / "read.lua"), ["key"], [], str)

    async def asked_by_loop() -> str:
        return await ledger_node().run(read)

    with asyncio.Runner() as loop, Connection(str(url), transport_options=options) as broker:

        def all_read(value: str) -> bool:
            channel: Any = broker.default_channel
            with suppress(RedisError):
                found = {ledger_connection().get("key"), loop.run(asked_by_loop())}
                return found == {value} and bool(channel.client.ping())
            return False

        ledger_connection().set("key", "kept")
        wait_for(lambda: all_read("kept"), what="the value for all")
        with cluster.death("ledger", comes_back=False):
            wait_for(lambda: all_read("kept"), what="the value from the new primary")
            ledger_connection().set("key", "written")
            wait_for(lambda: all_read("written"), what="a new value for all")
        loop.run(close_ledger_nodes())


# --- A crowd --------------------------------------------------------------------------------------


def settings_of(cluster: Cluster, **more: str) -> dict[str, Any]:
    """Return where the processes of the shop find Redis."""
    other = "other" if "other" in cluster.services else "ledger"
    return {
        "REDIS_URL": cluster.url("ledger"),
        "CACHE_URL": cluster.url(other, 1),
        "CELERY_BROKER_URL": cluster.url(other, 2),
        "SECKILL_LEDGER_REPLICAS": "1",
        "SECKILL_LEDGER_REPLICAS_MS": str(PATIENT_MS),
        **more,
    }


class Buyers:
    """Buyers who come at an even pace while machines die; who is told nothing asks again later."""

    PACE_S, AT_ONCE = 0.1, 10
    WANTS: ClassVar[dict[str, int]] = {"attempt": 2}  # so memory of "sold out" answers nobody

    def __init__(self, history: History, sale: SeckillVoucher, tokens: list[str]) -> None:
        self._history, self._sale, self._todo = history, sale, deque(tokens)
        self._is_over = threading.Event()

    @contextmanager
    def coming(self, *, url: str) -> Iterator[None]:
        """Let them come while the block runs, and the rest at its end."""
        thread = threading.Thread(target=self._buy, args=[url])
        thread.start()
        try:
            yield
        finally:
            self._is_over.set()
            thread.join()
        assert self._todo, "they were through before the last machine died"
        self._history.fire(self._sale, list(self._todo), url=url, connections=20, **self.WANTS)
        self._history.ask_again(self._sale, url=url, **self.WANTS)

    def _buy(self, url: str) -> None:
        while self._todo and not self._is_over.wait(self.PACE_S):
            tokens = [self._todo.popleft() for _ in range(min(self.AT_ONCE, len(self._todo)))]
            many = {"connections": self.AT_ONCE, **self.WANTS}
            answers = self._history.fire(self._sale, tokens, url=url, **many)
            told = zip(tokens, answers, strict=True)
            self._todo += [token for token, answer in told if answer.status in TOLD_NOTHING]


def watch_failover(cluster: Cluster, history: History, killed_at: float) -> tuple[float, float]:
    """Wait for an order after a death.

    Return the seconds from the promotion to it, and from the death to the last answer before it
    that told nothing.
    """
    stalls, switched_at = Stalls(), cluster.switched_at("ledger", killed_at)

    def accepted_after(at: float) -> list[float]:
        return [it.at for it in list(history.events) if it.told == ACCEPTED and it.at > at]

    wait_for(lambda: len(accepted_after(switched_at)) > 100, what="accepted buyers")
    since = [it for it in list(history.events) if it.at > killed_at]
    silence_s = max((it.at for it in since if it.told == UNKNOWN), default=killed_at) - killed_at
    return min(accepted_after(switched_at)) - switched_at - stalls.seconds(), silence_s


@cluster_tier
@pytest.mark.timeout(900)
def test_s1_ten_machines_die_in_a_sale(
    make_cluster: Callable[..., Cluster],
    use: Callable[[str, str], None],
    stack: Stack,
    report: Report,
) -> None:
    """In half of them the replicas are cut off before; in others the sentinel dies as well."""
    cluster = make_cluster("ledger", "other")
    use("ledger", cluster.url("ledger"))
    environ, history = settings_of(cluster), History("S1", "10 machines die in a sale")
    with stack.together():
        web, worker = stack.web(threads=8, **environ), stack.worker(**environ)
        beat = stack.beat(**environ)
    sale = make_sale(stock=STOCK, ends_in_s=1800)
    buyers = Buyers(history, sale, crowd_of(sale, count=BUYERS))
    nexts, lasts = [], []
    with buyers.coming(url=web.url):
        wait_for(lambda: len(history.accepted_ids(sale)) > 50, what="accepted buyers")
        for number in range(KILLS):
            names = ["ledger", "other"] if number == KILLS // 2 else ["ledger"]
            cut_off_s = CUT_OFF_S if number % 2 else 0
            with cluster.death(*names, cut_off_s=cut_off_s, with_sentinel=number % 4 == 0) as at:
                next_s, last_s = watch_failover(cluster, history, at)
                nexts.append(round(next_s, 2))
                lasts.append(round(last_s, 2))
    history.fault_is_over()
    history.settle(sale)
    history.what += f"; promotion to 202 {max(nexts)} s, death to last 503 {max(lasts)} s"
    outcome = history.check(sale)
    assert outcome.orders == outcome.accepted == STOCK
    assert max(nexts) <= NEXT_202_S, nexts
    assert max(lasts) <= LAST_503_S, lasts
    assert all(it.popen.poll() is None for it in (web, worker, beat))
    report(outcome)


@cluster_tier
@pytest.mark.parametrize("replicas", [1, 0], ids=["guarded", "control"])
def test_s1_machine_dies_after_its_replicas_were_cut_off(
    make_cluster: Callable[..., Cluster],
    use: Callable[[str, str], None],
    stack: Stack,
    report: Report,
    replicas: int,
) -> None:
    """Without the setting, orders that only the dead primary knew of are refused as lost."""
    cluster = make_cluster("ledger")
    use("ledger", cluster.url("ledger"))
    environ = settings_of(cluster, SECKILL_LEDGER_REPLICAS=str(replicas))
    history = History("S1", f"machine dies, {replicas} replicas waited for")
    web, sale = stack.web(threads=8, **environ), make_sale(stock=1_000)
    epoch = snapshot(sale_id=sale.pk).epoch
    buyers = Buyers(history, sale, crowd_of(sale, count=1_000))
    with buyers.coming(url=web.url):
        wait_for(lambda: len(history.accepted_ids(sale)) > 50, what="accepted buyers")
        with history.fault(), cluster.death("ledger", cut_off_s=CUT_OFF_S) as at:
            watch_failover(cluster, history, at)
    stack.worker("--beat", concurrency=1, **environ)  # no row saves what Redis forgets
    wait_for(lambda: is_built_anew(sale, since=epoch), what="a ledger of this run")
    history.settle(sale)
    outcome = history.check(sale, may_refuse=not replicas)
    assert outcome.accepted == 1_000
    assert (outcome.refused == 0) == bool(replicas), "only the control loses orders"
    if replicas:
        report(outcome)


# --- What else waits in the ledger ----------------------------------------------------------------


@cluster_tier
def test_s1_machine_dies_under_a_waiting_room(
    make_cluster: Callable[..., Cluster],
    use: Callable[[str, str], None],
    stack: Stack,
    report: Report,
) -> None:
    cluster = make_cluster("ledger")
    use("ledger", cluster.url("ledger"))
    environ = settings_of(cluster)
    with stack.together():
        web = stack.web(**environ)
        stack.worker("--beat", concurrency=1, **environ)
    line = Line(History("S1", "machine dies under a waiting room"))
    stored = line.join(STORED, url=web.url)
    line.enter(url=web.url)
    line.wait_for_rows()
    epoch = snapshot(sale_id=line.sale.pk).epoch
    later = line.join(LATER, url=web.url)
    with line.history.fault(), cluster.death("ledger", cut_off_s=CUT_OFF_S):
        pass

    def is_whole() -> bool:
        line.come_back(later, url=web.url)
        return is_built_anew(line.sale, since=epoch)

    wait_for(is_whole, what="a ledger of this run")
    line.come_back([*later, *stored], url=web.url)
    line.history.recovered()
    come_without_place(line, stored, web)
    line.join(2 * NEW, url=web.url)
    check_let_in(line)
    everybody_buys(line, web)
    outcome = line.history.check(line.sale)
    assert outcome.orders == len(line.visitors)
    report(outcome)


@cluster_tier
def test_s1_machine_dies_while_a_draw_takes_entries(
    make_cluster: Callable[..., Cluster],
    use: Callable[[str, str], None],
    stack: Stack,
    report: Report,
) -> None:
    cluster = make_cluster("ledger")
    use("ledger", cluster.url("ledger"))
    environ = settings_of(cluster, **QUICK)
    with stack.together():
        stack.beat(**OFTEN, **environ)
        web = stack.web(**environ)
        stack.worker(**environ)
    history, sale = History("S1", "machine dies while a draw takes entries"), make_draw(stock=20)
    tokens = crowd_of(sale, count=ENTRIES)
    with history.buying(sale, tokens, url=web.url):
        wait_for(lambda: len(history.accepted_ids(sale)) >= 10, what="entries")
        with history.fault(), cluster.death("ledger", cut_off_s=CUT_OFF_S):
            pass
    history.ask_again(sale, url=web.url)
    end(sale)
    finish(history, sale, report)
    assert len(listed(sale)) == ENTRIES
