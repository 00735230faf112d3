"""R1 to R3: the ledger is lost, damaged or goes back; who mends, loads or edits it is killed."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.contrib.auth import get_user_model
from django.db import connection
from django.utils import timezone

from orders import tasks
from orders.fulfilment import attempts
from orders.fulfilment.reconcile import reconcile
from orders.fulfilment.worker import fulfil_sale
from orders.models import OrderStatus, VoucherOrder
from orders.placing.publishing import publish_fulfilment
from orders.placing.tokens import read_token
from orders.tasks import reconcile as reconcile_task
from seckill_site import failpoints
from seckill_site.celery import app
from seckill_site.redis.ledger_connection import ledger_connection
from tests.concurrency.sales import (
    Crowd,
    accepted_ids,
    crowd_of,
    live_orders,
    make_sale,
    sale_and_crowd,
)
from tests.faults.conftest import OwnRedis
from tests.faults.history import History, Report, get_receipt, receipt_of
from tests.fixtures.processes import on_both_ways
from tests.support.crowd import Answer
from tests.support.orders import make_buyer, make_order
from tests.support.patience import wait_for
from tests.support.sales import change_state, reserve
from tests.support.stack import ROOT, Shop, Stack
from vouchers.inventory.keys import LedgerKeys, LedgerUnavailable, NotLoaded
from vouchers.inventory.rebuild import load_sale
from vouchers.inventory.reservations import Release, SoldOut, pending_entries, release
from vouchers.inventory.sale_state import snapshot
from vouchers.models import SeckillVoucher

pytestmark = [pytest.mark.slow, pytest.mark.concurrency, pytest.mark.usefixtures("row_locks")]

LOSSES = ("sale", "buyers", "pending", "ended")


def assert_closed(answers: list[Answer]) -> None:
    """Everybody was told that nobody knows, and when to ask again."""
    for answer in answers:
        assert (answer.status, answer.body["code"]) == (503, "unavailable"), answer
        assert int(answer.headers["retry-after"]) >= 1


# --- R1: lost -------------------------------------------------------------------------------------


@pytest.fixture
def own_shop(stack: Stack, own_ledger: OwnRedis, server: str) -> Shop:
    """A shop whose ledger is a Redis of the test's own."""
    where: dict[str, Any] = {"REDIS_URL": own_ledger.url()}
    with stack.together():
        web = stack.web(workers=2, server=server, **where)
        return Shop(stack, web, stack.worker("--beat", **where))


def loaded(sale: SeckillVoucher) -> bool:
    try:
        snapshot(sale_id=sale.pk)
    except (NotLoaded, LedgerUnavailable):
        return False
    return True


def is_built_anew(sale: SeckillVoucher, *, since: int) -> bool:
    try:
        return snapshot(sale_id=sale.pk).epoch > since
    except (NotLoaded, LedgerUnavailable):
        return False


@on_both_ways
def test_r1_ledger_emptied_under_load_oversells_nothing(
    own_shop: Shop, own_ledger: OwnRedis, report: Report
) -> None:
    """More buyers than units, who ask again and again, also while there is no ledger."""
    history = History("R1", "ledger emptied under load")
    sale, tokens = sale_and_crowd(stock=150, count=600)
    crowd = Crowd(sale, tokens, own_shop.url)
    with own_ledger.client() as client:
        crowd.start()
        wait_for(lambda: client.hlen(LedgerKeys(sale.pk).buyers) > 50, what="50 buyers")
        with history.fault():
            client.flushall()
        crowd.join()
    for text, answer in zip(tokens, crowd.answers, strict=True):
        history.record(sale, text, answer)
    history.ask_again(sale, url=own_shop.url)
    history.settle(sale)
    outcome = history.check(sale, may_refuse=True)
    assert outcome.orders == 150
    report(outcome)


@pytest.mark.faults
def test_r1_purchases_survive_a_ledger_emptied_under_load(
    own_shop: Shop, own_ledger: OwnRedis, report: Report
) -> None:
    """A repeated press finds the purchase that was written, or makes a whole new one."""
    history = History("R1", "ledger emptied, three units each")
    sale = make_sale(stock=150, limit=3)
    tokens = crowd_of(sale, count=60)
    history.press(sale, tokens[:30])
    with history.fault(), own_ledger.client() as client:
        client.flushall()
    history.press(sale, tokens[30:])
    wait_for(lambda: loaded(sale), what="a ledger")
    history.press(sale, tokens, quantity=2)
    history.settle(sale)
    outcome = history.check(sale, may_refuse=True)
    assert outcome.orders <= 150
    report(outcome)


@pytest.mark.faults
def test_r1_order_lost_with_redis_is_refused_and_repeatable(
    stack: Stack, own_ledger: OwnRedis, report: Report
) -> None:
    history = History("R1", "accepted orders died with Redis")
    web = stack.web(REDIS_URL=own_ledger.url())
    sale, tokens = sale_and_crowd(stock=10, count=5)
    history.fire(sale, tokens, url=web.url)
    assert len(history.accepted_ids(sale)) == 5
    with history.fault(), own_ledger.client() as client:
        client.flushall()

    # The first of them finds no ledger and has it built.
    receipts = [get_receipt(sale, text, url=web.url) for text in tokens]
    assert [(it.status, it.body["status"], it.body["reason"]) for it in receipts] == [
        (200, "refused", "lost")
    ] * 5
    history.settle(sale)
    report(history.check(sale, may_refuse=True))

    # The token still names the order: who sends it again has it after all.
    assert accepted_ids(history.fire(sale, tokens[:2], url=web.url)) <= history.accepted_ids(sale)
    stack.worker(concurrency=1, REDIS_URL=own_ledger.url())
    history.fire(sale, crowd_of(sale, count=1), url=web.url)
    stack.beat(REDIS_URL=own_ledger.url())
    history.settle(sale)
    assert history.check(sale, may_refuse=True).orders == 3


def test_r1_sale_returns_503_while_ledger_is_rebuilt(stack: Stack, own_ledger: OwnRedis) -> None:
    where: dict[str, Any] = {"REDIS_URL": own_ledger.url()}
    with stack.together():
        builder, other = stack.web(FAILPOINT="load.prepared=stop", **where), stack.web(**where)
    sale = make_sale(stock=10)
    make_order(sale, make_buyer())  # of whom the build has to write
    first, *tokens = crowd_of(sale, count=6)
    with own_ledger.client() as client:
        client.flushall()
        crowd = Crowd(sale, [first], builder.url)
        crowd.start()
        wait_for(lambda: any(client.scan_iter("*:buyers:*")), what="a build")
        # Three seconds after its beginning another one might build.
        client.set(LedgerKeys(sale.pk).loading, "1", px=60_000)
    history = History("R1", "closed while it is built")
    assert_closed(history.fire(sale, tokens, url=other.url))
    builder.resume()
    crowd.join()
    wait_for(lambda: loaded(sale), what="a ledger")
    assert len(accepted_ids(history.fire(sale, tokens, url=other.url))) == 5


@pytest.mark.parametrize(
    "damage", ["lost", pytest.param("of a wrong type", marks=pytest.mark.faults)]
)
def test_r1_ledger_with_damaged_key_is_rebuilt_completely(
    shop: Shop, damage: str, report: Report
) -> None:
    histories = {name: History("R1", f"ledger's {name} {damage}") for name in LOSSES}
    sales = {name: damaged_sale(histories[name], name, damage, shop) for name in LOSSES}
    # Beat's turn would come within 15 s. A pool of Celery's may lead to a broker that is gone.
    with app.connection_for_write(settings.CELERY_BROKER_URL) as line:
        send: Any = reconcile_task.apply_async  # the stubs lack the argument
        send(connection=line)
    for name, sale in sales.items():
        history = histories[name]
        history.fire(sale, crowd_of(sale, count=20), url=shop.url)
        history.ask_again(sale, url=shop.url)
        history.settle(sale)
        wait_for(lambda sale=sale: not reconcile(sale_id=sale.pk).difference, what=name)  # type: ignore[misc]
        outcome = history.check(sale)
        assert outcome.orders == 12, name
        report(outcome)


def damaged_sale(history: History, name: str, damage: str, shop: Shop) -> SeckillVoucher:
    """Return a sale with orders, promises and an ended id, one key of whose ledger is damaged."""
    sale, (*tokens, closed) = sale_and_crowd(stock=12, count=6)
    history.fire(sale, tokens, url=shop.url)
    history.settle(sale)
    out = read_token(closed, sale_id=sale.pk, now_ms=0)
    get_user_model().objects.filter(pk=out.user_id).update(is_active=False)
    reserve(sale_id=sale.pk, order_id=out.order_id, user_id=out.user_id)
    fulfil_sale(sale_id=sale.pk)  # in vain if the worker still has the sale: then that does it
    history.settle(sale)
    history.fire(sale, crowd_of(sale, count=3), url=shop.url)
    client, key = ledger_connection(), getattr(LedgerKeys(sale.pk), name)
    client.delete(key)
    if damage != "lost":
        client.set(key, "no ledger")
    history.fault_is_over()
    return sale


# --- R1: lost while it is being removed -----------------------------------------------------------

POINTS = ("remove.compared", "remove.unlinked")
REMOVE = "from orders.tasks import remove_ledgers as it; it()"


def sale_long_over() -> SeckillVoucher:
    """Return a sale that was over ten days ago, with five paid orders."""
    sale = make_sale(stock=10)
    buyers_of_sale(sale, count=5)
    fulfil_sale(sale_id=sale.pk)
    VoucherOrder.objects.filter(seckill_voucher=sale).update(status=OrderStatus.PAID)
    ends_at = timezone.now() - timedelta(days=10)
    window = {"begins_at": ends_at - timedelta(hours=1), "ends_at": ends_at}
    SeckillVoucher.objects.filter(pk=sale.pk).update(**window)
    load_sale(sale_id=sale.pk)
    return sale


def assert_removed_in_the_end(sale: SeckillVoucher) -> None:
    """Let beat go on: the ledger leaves Redis, the row says so, and it can come back whole."""

    def is_removed() -> bool:
        try:
            tasks.watch_ledger()
            tasks.remove_ledgers()
        except LedgerUnavailable:  # beat sends the next ones
            return False
        sale.refresh_from_db()
        return sale.ledger_removed_at is not None

    wait_for(is_removed, what="a removed ledger")
    keys = LedgerKeys(sale.pk)
    assert not ledger_connection().exists(keys.sale, *keys.contents, keys.fence)
    assert reconcile(sale_id=sale.pk).difference == 0
    load_sale(sale_id=sale.pk, bring_back=True)
    assert (snapshot(sale_id=sale.pk).taken, reconcile(sale_id=sale.pk).difference) == (5, 0)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("point", POINTS)
def test_r1_ledger_killed_in_a_removal_loses_no_order(own_ledger: OwnRedis, point: str) -> None:
    sale = sale_long_over()

    def kill(reached: str) -> None:
        if reached == point:
            own_ledger.kill()

    failpoints.tell(kill)
    try:
        tasks.remove_ledgers()
    finally:
        failpoints.tell(lambda _: None)
    own_ledger.start()
    assert_removed_in_the_end(sale)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("point", POINTS)
def test_r1_worker_killed_in_a_removal_loses_no_order(point: str) -> None:
    sale = sale_long_over()
    assert in_a_process(REMOVE, failpoint=point).wait(60) == -signal.SIGKILL
    assert_removed_in_the_end(sale)


@pytest.mark.django_db(transaction=True)
def test_r1_removed_ledger_goes_again_when_redis_went_back(
    own_ledger: OwnRedis, tmp_path: Path
) -> None:
    sale = sale_long_over()
    with went_back(own_ledger, tmp_path / "old"):
        tasks.remove_ledgers()
        sale.refresh_from_db()
        assert sale.ledger_removed_at
    assert loaded(sale)
    assert_removed_in_the_end(sale)


# --- R1: gone back --------------------------------------------------------------------------------


@contextmanager
def went_back(redis: OwnRedis, copy: Path) -> Iterator[None]:
    """What the block does is forgotten by Redis: afterwards it starts with what it had before."""
    shutil.copytree(redis.directory, copy)
    yield
    redis.kill()
    shutil.rmtree(redis.directory)
    shutil.copytree(copy, redis.directory)
    redis.start()


@pytest.mark.faults
def test_r1_watch_rebuilds_a_ledger_with_older_data(
    own_shop: Shop, own_ledger: OwnRedis, tmp_path: Path, report: Report
) -> None:
    history = History("R1", "ledger went back: watch")
    sale, tokens = sale_and_crowd(stock=60, count=120)
    history.fire(sale, tokens[:10], url=own_shop.url)
    with history.fault(), went_back(own_ledger, tmp_path / "old"):
        history.fire(sale, tokens[10:60], url=own_shop.url)
        history.settle(sale)
        assert snapshot(sale_id=sale.pk).remaining == 0
        epoch = snapshot(sale_id=sale.pk).epoch
    wait_for(lambda: is_built_anew(sale, since=epoch), what="a ledger of this run of Redis")
    refused = history.fire(sale, tokens[60:], url=own_shop.url)
    assert {answer.body["code"] for answer in refused} <= {"sold_out", "unavailable"}
    history.ask_again(sale, url=own_shop.url)
    history.settle(sale)
    outcome = history.check(sale)
    assert outcome.orders == 60
    report(outcome)


@pytest.mark.faults
def test_r1_order_forgotten_by_older_ledger_is_refused_as_lost(
    stack: Stack, own_ledger: OwnRedis, tmp_path: Path, report: Report
) -> None:
    history = History("R1", "accepted orders forgotten by a ledger that went back")
    where: dict[str, Any] = {"REDIS_URL": own_ledger.url()}
    web = stack.web(**where)
    sale, tokens = sale_and_crowd(stock=10, count=5)
    with history.fault(), went_back(own_ledger, tmp_path / "old"):
        history.fire(sale, tokens, url=web.url)
    stack.worker("--beat", concurrency=1, **where)
    wait_for(lambda: is_built_anew(sale, since=1), what="a ledger of this run of Redis")
    for text in tokens:
        said = get_receipt(sale, text, url=web.url)
        history.note(said)
        assert (said.status, said.body["status"], said.body["reason"]) == (200, "refused", "lost")
    history.settle(sale)
    outcome = history.check(sale, may_refuse=True)
    assert (outcome.orders, outcome.refused) == (0, 5)
    report(outcome)


def swept(sale: SeckillVoucher) -> bool:
    """Send what waits again, as the sweep of beat would; say whether nothing waits any more."""
    publish_fulfilment(sale_id=sale.pk)
    time.sleep(0.2)
    return loaded(sale) and snapshot(sale_id=sale.pk).pending == 0


@pytest.mark.parametrize("forgotten", [1, pytest.param(2, marks=pytest.mark.faults)])
def test_r1_batch_number_reveals_older_ledger_without_watch(
    stack: Stack, own_ledger: OwnRedis, tmp_path: Path, report: Report, forgotten: int
) -> None:
    """No beat, so no watch: until the batch, only the database's guards hold."""
    history = History("R1", f"ledger went back by {forgotten}: batch number")
    where: dict[str, Any] = {"REDIS_URL": own_ledger.url()}
    web = stack.web(**where)
    sale, tokens = sale_and_crowd(stock=10, count=30)
    with history.fault(), went_back(own_ledger, tmp_path / "old"):
        for batch in range(forgotten):
            history.fire(sale, tokens[batch:10:forgotten], url=web.url)
            fulfil_sale(sale_id=sale.pk)
    wait_for(lambda: loaded(sale), what="the old ledger")
    history.fire(sale, tokens[10:15], url=web.url)  # the first ones meet broken connections
    history.ask_again(sale, url=web.url)
    assert len(history.accepted_ids(sale)) == 15, "the old ledger has units left"
    worker = stack.worker(
        concurrency=1, **where
    )  # not earlier: it finds out with the first of them
    wait_for(
        lambda: swept(sale) and "its ledger is older than its row" in worker.text(),
        what="a batch that finds it",
    )
    history.settle(sale)
    answers = history.fire(sale, tokens[15:], url=web.url)
    assert {answer.body["code"] for answer in answers} == {"sold_out"}
    outcome = history.check(sale, may_refuse=True)
    assert (outcome.orders, outcome.refused) == (10, 5)
    report(outcome)


@pytest.mark.django_db(transaction=True)
def test_r1_control_unguarded_older_ledger_stays_on_sale(
    own_ledger: OwnRedis, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What gets through: each new buyer is accepted and then refused; nothing is oversold."""
    sale = make_sale(stock=2)
    tokens = [read_token(text, sale_id=sale.pk, now_ms=0) for text in crowd_of(sale, count=8)]

    def reserve_all(some: list[Any]) -> None:
        for token in some:
            reserve(sale_id=sale.pk, order_id=token.order_id, user_id=token.user_id)

    with went_back(own_ledger, tmp_path / "old"):
        reserve_all(tokens[:2])
        fulfil_sale(sale_id=sale.pk)
    with monkeypatch.context() as off:
        off.setattr(attempts, "record_batch", unguarded_number)
        for first in (2, 4):
            reserve_all(tokens[first : first + 2])
            fulfil_sale(sale_id=sale.pk)
    refused = VoucherOrder.objects.filter(seckill_voucher=sale, reason="sold_out").count()
    assert (len(live_orders(sale)), refused) == (2, 4)

    # The guard back on: one batch in vain, and then the truth.
    reserve_all(tokens[6:7])
    fulfil_sale(sale_id=sale.pk)
    fulfil_sale(sale_id=sale.pk)
    with pytest.raises(SoldOut):
        reserve_all(tokens[7:])


def unguarded_number(*, sale_id: int, **_: object) -> int:
    """A number that the row takes for a new one, whatever the ledger knows."""
    return SeckillVoucher.objects.values_list("batch", flat=True).get(pk=sale_id) + 1


# --- R2: reconciling ------------------------------------------------------------------------------


@pytest.mark.faults
def test_r2_reconcile_under_load_gives_no_false_alarm(
    stack: Stack, report: Report, caplog: pytest.LogCaptureFixture
) -> None:
    history = History("R2", "reconciled under load")
    with stack.together():
        web, _ = stack.web(workers=2), stack.worker("--beat", SECKILL_BATCH_UNITS="5")
    sale, tokens = sale_and_crowd(stock=300, count=400)
    crowd = Crowd(sale, tokens, web.url)
    crowd.start()
    seen, in_flight = [], 0
    while crowd.is_alive() or snapshot(sale_id=sale.pk).pending:
        compared = reconcile(sale_id=sale.pk, repair=True)
        seen.append(compared.difference)
        in_flight += compared.pending > 0
    crowd.join()
    for text, answer in zip(tokens, crowd.answers, strict=True):
        history.record(sale, text, answer)
    assert in_flight, "it has seen nothing on its way"
    assert not any(seen)
    assert "repairing" not in caplog.text
    outcome = history.check(sale)
    assert outcome.orders == 300
    report(outcome)


RECONCILE = (
    "from orders.fulfilment.reconcile import reconcile; reconcile(sale_id={sale_id}, repair=True)"
)


def in_a_process(code: str, *, failpoint: str = "") -> subprocess.Popen[bytes]:
    """Start a process of the shop that does this, on the test's database."""
    database = os.environ["DATABASE_URL"].partition("?")
    url = database[0].rpartition("/")[0] + f"/{connection.settings_dict['NAME']}"
    environ = {**os.environ, "DATABASE_URL": "".join([url, *database[1:]]), "FAILPOINT": failpoint}
    environ["DJANGO_SETTINGS_MODULE"] = "seckill_site.settings"
    program = f"import django; django.setup(); {code}"
    return subprocess.Popen([sys.executable, "-c", program], cwd=ROOT, env=environ)


def broken_sale() -> SeckillVoucher:
    """Return a sale with every difference at once, of buyers, promises, figures and ``sold``."""
    sale = make_sale(stock=30)
    orders = buyers_of_sale(sale, count=6)
    fulfil_sale(sale_id=sale.pk)
    waiting = buyers_of_sale(sale, count=4)
    client, keys = ledger_connection(), LedgerKeys(sale.pk)
    client.hdel(keys.buyers, f"{orders[0].user_id}:1", f"{orders[1].user_id}:1")  # missing
    client.hdel(keys.buyers, f"{waiting[0].user_id}:1")  # promised only
    client.zrem(keys.pending, f"{waiting[1].order_id}:{waiting[1].user_id}:1")  # stray
    change_state(keys.sale_id, total=35)
    SeckillVoucher.objects.filter(pk=sale.pk).update(sold=1)
    return sale


def buyers_of_sale(sale: SeckillVoucher, *, count: int) -> list[Any]:
    tokens = [read_token(text, sale_id=sale.pk, now_ms=0) for text in crowd_of(sale, count=count)]
    for token in tokens:
        reserve(sale_id=sale.pk, order_id=token.order_id, user_id=token.user_id)
    return tokens


@pytest.mark.faults
@pytest.mark.django_db(transaction=True)
def test_r2_reconcile_killed_and_rerun_mends_everything() -> None:
    points = ("compared", "loaded", "made_pending", "added")
    sales = {f"reconcile.{point}": broken_sale() for point in points}
    running = {
        point: in_a_process(RECONCILE.format(sale_id=sale.pk), failpoint=point)
        for point, sale in sales.items()
    }
    assert {p.wait(60) for p in running.values()} == {-signal.SIGKILL}
    for point, sale in sales.items():
        assert reconcile(sale_id=sale.pk).difference, f"{point}: nothing was left to mend"
        assert_mended(sale, orders=10, why=point)


def assert_mended(sale: SeckillVoucher, *, orders: int, why: str) -> None:
    """Run it again: no difference, everybody has the order that was promised, none too many."""
    assert reconcile(sale_id=sale.pk, repair=True).difference == 0, why
    fulfil_sale(sale_id=sale.pk)
    compared = reconcile(sale_id=sale.pk)
    assert (compared.difference, compared.pending) == (0, 0), why
    assert compared.live_orders == compared.sold == compared.buyers == orders, why


@pytest.mark.faults
@pytest.mark.django_db(transaction=True)
def test_r2_simultaneous_reconciles_mend_everything_once() -> None:
    sale = broken_sale()
    both = [in_a_process(RECONCILE.format(sale_id=sale.pk)) for _ in range(2)]
    assert [process.wait(60) for process in both] == [0, 0]
    assert_mended(sale, orders=10, why="two at once")


# --- R3: release, load, edit ----------------------------------------------------------------------


@pytest.mark.django_db(transaction=True)
def test_r3_late_release_is_undone_and_sells_once() -> None:
    """The row lock and reconcile have the last word."""
    sale = make_sale(stock=1)
    (token,) = buyers_of_sale(sale, count=1)
    (entry,) = pending_entries(sale_id=sale.pk, skip=0, count=1)
    fulfil_sale(sale_id=sale.pk)
    release(sale_id=sale.pk, releases=[Release(entry, "failed")])
    (late,) = buyers_of_sale(sale, count=1)  # the unit seems free
    fulfil_sale(sale_id=sale.pk)
    assert [order.pk for order in live_orders(sale)] == [token.order_id]
    assert receipt_of(late).reason == "sold_out"  # type: ignore[union-attr]
    assert_mended(sale, orders=1, why="released")
    with pytest.raises(SoldOut):
        buyers_of_sale(sale, count=1)


REBUILD = "from vouchers.inventory.rebuild import rebuild_sale; rebuild_sale(sale_id={sale_id})"
EDIT = (
    "from tests.support.sales import change_stock; change_stock(sale_id={sale_id}, stock={stock})"
)


@pytest.mark.django_db(transaction=True)
def test_r3_killed_load_leaves_sale_closed_or_whole() -> None:
    points = ("load.closed", "load.epoch_raised", "load.prepared", "load.installed")
    sales = {point: half_sold_sale() for point in points}
    running = {
        point: in_a_process(REBUILD.format(sale_id=sale.pk), failpoint=point)
        for point, sale in sales.items()
    }
    assert {p.wait(60) for p in running.values()} == {-signal.SIGKILL}
    for point, sale in sales.items():
        assert loaded(sale) == (point == "load.installed"), point
        assert_mended(sale, orders=8, why=point)
        buyers_of_sale(sale, count=2)
        with pytest.raises(SoldOut):
            buyers_of_sale(sale, count=1)


def half_sold_sale() -> SeckillVoucher:
    """Return a sale of ten units, five of them ordered and three promised."""
    sale = make_sale(stock=10)
    buyers_of_sale(sale, count=5)
    fulfil_sale(sale_id=sale.pk)
    buyers_of_sale(sale, count=3)
    return sale


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    ("point", "stock", "meant"),
    [("edit.narrowed", 9, 10), ("edit.committed", 12, 12)],
    ids=["narrowed", "widened"],
)
def test_r3_killed_edit_errs_on_the_safe_side(point: str, stock: int, meant: int) -> None:
    sale = half_sold_sale()
    edit = in_a_process(EDIT.format(sale_id=sale.pk, stock=stock), failpoint=point)
    assert edit.wait(60) == -signal.SIGKILL
    sale.refresh_from_db()
    assert sale.stock == meant
    careful = min(stock, 10)
    assert snapshot(sale_id=sale.pk).terms.total == careful < meant
    buyers_of_sale(sale, count=careful - 8)
    with pytest.raises(SoldOut):
        buyers_of_sale(sale, count=1)
    assert reconcile(sale_id=sale.pk, repair=True).difference == 0
    buyers_of_sale(sale, count=meant - careful)
    assert_mended(sale, orders=meant, why=point)
