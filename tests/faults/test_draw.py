"""DR: a draw through the faults that orders survive, from the first entry to the last winner.

No entry whose acceptance somebody was told may be absent from the list, and the winners are those
that follow from seed and list, whatever happened on the way.
"""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection, connections
from django.utils import timezone

from orders.draws import drawing
from orders.draws.drawing import close_list, take_due_steps
from orders.draws.publishing import record_text
from orders.draws.record import DrawRecord, verify
from orders.models import DrawEntry
from seckill_site import failpoints
from seckill_site.redis.ledger_connection import ledger_connection
from tests.concurrency.sales import crowd_of
from tests.faults.conftest import OwnRedis, with_inside
from tests.faults.history import History, Report
from tests.faults.test_k_back_half import QUICK
from tests.support.draws import draw_to_the_end, end, entered, entered_draw, listed, make_draw
from tests.support.inspection import live_ids
from tests.support.orders import at_once, ids, make_buyer, make_buyers
from tests.support.patience import wait_for
from tests.support.stack import Process, Shop, Stack, beat_every
from vouchers.inventory.keys import LedgerKeys
from vouchers.inventory.reservations import SaleEnded
from vouchers.models import Draw, SeckillVoucher

pytestmark = [pytest.mark.slow, pytest.mark.concurrency, pytest.mark.usefixtures("row_locks")]

OFTEN = beat_every(advance_draws=0.3)
ENTRIES, UNITS = 60, 20


def is_finished(sale: SeckillVoucher) -> bool:
    return Draw.objects.filter(seckill_voucher=sale, finished_at__isnull=False).exists()


def assert_drawn(sale: SeckillVoucher, accepted: set[int]) -> None:
    """Everybody who was accepted is in the list, and the first of the drawn order have orders."""
    wait_for(lambda: is_finished(sale), what="all winners' orders")
    record = DrawRecord.parse(record_text(sale_id=sale.pk))
    verify(record)
    assert accepted <= set(record.entry_ids), "accepted and absent"
    assert sorted(record.winners) == live_ids(sale)
    assert len(record.winners) == min(UNITS, len(record.entry_ids))


def finish(history: History, sale: SeckillVoucher, report: Report) -> None:
    assert_drawn(sale, history.accepted_ids(sale))
    history.settle(sale, seconds=60)
    report(history.check(sale, may_refuse=True, window=False, recovery_seconds=60))


# --- Processes die --------------------------------------------------------------------------------

WHILE_ENTERING = ("draw.before_store", "draw.stored")

POINTS = (
    *WHILE_ENTERING,
    "draw.entries_closed",
    "draw.before_close",
    "draw.closed",
    "draw.before_draw",
    "draw.drawn",
    "draw.given",
    "batch.before_commit",
    "batch.committed",
    "draw.before_finish",
    "draw.finished",
)


@pytest.fixture
def settings_of_workers(inside: Path) -> dict[str, Any]:
    return {**QUICK, **with_inside(inside)}


@pytest.fixture
def draw_shop(transactional_db: None, stack: Stack, settings_of_workers: dict[str, Any]) -> Shop:
    """A shop whose workers die where the test says."""
    with stack.together():
        web = stack.web(workers=1, threads=4, **QUICK)
        worker = stack.worker(concurrency=len(POINTS) + 2, **settings_of_workers)
        stack.beat(**OFTEN, **QUICK)
    return Shop(stack, web, worker)


@pytest.mark.timeout(400)
def test_dr_child_killed_at_any_point_loses_no_entry(
    draw_shop: Shop, inside: Path, report: Report, subtests: pytest.Subtests
) -> None:
    for point in POINTS:
        with subtests.test(point):
            history = History("DR", f"worker child killed at {point}")
            sale = make_draw(stock=UNITS)
            tokens = crowd_of(sale, count=ENTRIES)
            died = partial(
                draw_shop.worker.wait_until,
                lambda: not (inside / "failpoint").exists(),
                what=f"death at {point}",
            )
            if point in WHILE_ENTERING:
                (inside / "failpoint").write_text(point)
                history.fire(sale, tokens, url=draw_shop.url)
                died()  # first: closing stores what is left, and passes neither point
                end(sale)
            else:
                history.fire(sale, tokens, url=draw_shop.url)
                (inside / "failpoint").write_text(point)
                end(sale)
                died()
            history.fault_is_over()
            finish(history, sale, report)
            assert len(listed(sale)) == ENTRIES


@pytest.mark.faults
def test_dr_worker_group_killed_and_restarted_during_the_draw(
    draw_shop: Shop, report: Report
) -> None:
    history = History("DR", "worker group killed 4 times")
    sale = make_draw(stock=UNITS)
    history.fire(sale, crowd_of(sale, count=ENTRIES), url=draw_shop.url)
    worker: Process = draw_shop.worker
    end(sale)
    for _ in range(4):
        time.sleep(0.5)
        worker.kill()
        worker = draw_shop.stack.worker(concurrency=2, **QUICK)
    history.fault_is_over()
    finish(history, sale, report)


# --- The ledger -----------------------------------------------------------------------------------


@pytest.fixture
def own_shop(transactional_db: None, stack: Stack, own_ledger: OwnRedis) -> Shop:
    """A shop whose ledger is a Redis of the test's own."""
    where: dict[str, Any] = {**QUICK, "REDIS_URL": own_ledger.url()}
    with stack.together():
        stack.beat(**OFTEN, **where)
        return Shop(stack, stack.web(**where), stack.worker(**where))


@pytest.mark.timeout(240)
def test_dr_ledger_killed_while_entries_are_taken(
    own_shop: Shop, own_ledger: OwnRedis, report: Report
) -> None:
    history = History("DR", "ledger killed and restarted while entries are taken")
    sale = make_draw(stock=UNITS)
    tokens = crowd_of(sale, count=ENTRIES)
    history.fire(sale, tokens[:30], url=own_shop.url)
    with history.fault():
        own_ledger.kill()
        history.fire(sale, tokens[30:40], url=own_shop.url)
        own_ledger.start()
    history.fire(sale, tokens[40:], url=own_shop.url)
    history.ask_again(sale, url=own_shop.url)
    end(sale)
    finish(history, sale, report)
    assert len(listed(sale)) == ENTRIES


@pytest.mark.timeout(240)
def test_dr_emptied_ledger_keeps_what_has_rows(
    own_shop: Shop, own_ledger: OwnRedis, report: Report
) -> None:
    history = History("DR", "ledger emptied while entries are taken")
    sale = make_draw(stock=UNITS)
    tokens = crowd_of(sale, count=ENTRIES)
    history.fire(sale, tokens[:40], url=own_shop.url)
    rows = DrawEntry.objects.filter(seckill_voucher=sale)
    wait_for(lambda: rows.count() == 40, what="rows of the first entries")
    with history.fault(), own_ledger.client() as client:
        client.flushall()
    history.fire(sale, tokens[40:], url=own_shop.url)
    history.ask_again(sale, url=own_shop.url)
    history.fire(sale, tokens, url=own_shop.url)  # pages send a token again whose entry was lost
    end(sale)
    finish(history, sale, report)
    assert len(listed(sale)) == ENTRIES


@pytest.mark.faults
@pytest.mark.timeout(240)
@pytest.mark.parametrize("point", ["draw.closed", "draw.drawn", "draw.given"])
def test_dr_ledger_emptied_in_the_middle_of_a_draw(
    own_shop: Shop, own_ledger: OwnRedis, report: Report, point: str
) -> None:
    history = History("DR", f"ledger emptied at {point}")
    sale = make_draw(stock=UNITS)
    history.fire(sale, crowd_of(sale, count=ENTRIES), url=own_shop.url)
    own_shop.worker.kill()
    end(sale)
    with failpoints.armed(f"{point}=raise"), pytest.raises(failpoints.FailpointReached):
        take_due_steps(sale_id=sale.pk)
    with history.fault(), own_ledger.client() as client:
        client.flushall()
    own_shop.stack.worker(**QUICK, REDIS_URL=own_ledger.url())
    finish(history, sale, report)
    assert len(listed(sale)) == ENTRIES


# --- The database ---------------------------------------------------------------------------------


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("point", ["draw.entries_closed", "draw.before_close", "draw.before_draw"])
def test_dr_connection_killed_in_the_transaction_is_repeated(point: str) -> None:
    sale, tokens = entered_draw(make_buyers(ENTRIES), stock=UNITS)
    end(sale)

    def kill(name: str) -> None:
        if name == point:
            failpoints.tell(lambda name: None)
            with connection.cursor() as cursor:
                cursor.execute("SELECT CONNECTION_ID()")
                [number] = cursor.fetchone()
            killer = connections.create_connection("default")
            try:
                with killer.cursor() as cursor:
                    cursor.execute(f"KILL {number}")
            finally:
                killer.close()

    with failpoints.armed("none"):
        failpoints.tell(kill)
        drawing.advance_draws()
    connection.close()
    draw_to_the_end(sale)
    assert_drawn(sale, set(ids(tokens)))


# --- Two at once, and entries that race the close -------------------------------------------------


@pytest.mark.django_db(transaction=True)
def test_dr_four_workers_draw_at_once_without_their_lock() -> None:
    sale, tokens = entered_draw(make_buyers(ENTRIES), stock=UNITS)
    end(sale)
    found: set[tuple[object, ...]] = set()

    def work() -> None:
        for _ in range(3):
            take_due_steps(sale_id=sale.pk)
            fields = ("digest", "cutoff", "units", "entries", "closed_at", "drawn_at")
            found.update(Draw.objects.filter(seckill_voucher=sale).values_list(*fields))

    assert at_once(*[work] * 4) == [None] * 4
    assert len(found) == 1
    draw_to_the_end(sale)
    assert_drawn(sale, set(ids(tokens)))


def begun_draw(buyer: User) -> tuple[SeckillVoucher, set[int]]:
    """Return a draw that ends within a second, which the buyer has entered, and that entry."""
    while True:
        sale = make_draw(stock=UNITS, ends_in_s=1)
        with suppress(SaleEnded):  # the machine stood still
            return sale, set(ids(entered(sale, [buyer])))


@pytest.mark.django_db(transaction=True)
def test_dr_entry_that_races_the_close_is_listed_or_refused() -> None:
    buyers, refused = make_buyers(3_000), list[int]()
    sale, accepted = begun_draw(buyers.pop())
    closed = threading.Event()

    def enter_all() -> None:
        for number, buyer in enumerate(buyers):
            if number == len(buyers) - 500:  # a quick machine has all the others before the end
                time.sleep(max((sale.ends_at - timezone.now()).total_seconds() - 0.05, 0.0))
            try:
                accepted.update(ids(entered(sale, [buyer])))
            except SaleEnded:
                refused.append(buyer.pk)
                if closed.is_set():
                    return

    def close() -> None:
        try:
            wait_for(lambda: close_list(sale_id=sale.pk), what="a closed list")
        finally:
            closed.set()

    assert at_once(enter_all, close) == [None, None]
    assert accepted
    assert refused
    assert accepted == set(listed(sale))


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("guarded", [True, False], ids=["guarded", "control"])
def test_dr_no_entry_is_accepted_between_reading_and_closing(
    guarded: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock goes back while the list is read: only the mark in Redis refuses."""
    sale, late = make_draw(stock=UNITS), make_buyer()
    entered(sale, make_buyers(3))
    end(sale)
    told: list[object] = []

    def enter_late(name: str) -> None:
        if name == "draw.before_close":
            key = LedgerKeys(sale.pk).buyers
            state = ledger_connection().hget(key, "state").split(" ")
            state[3] = "9999999999999"  # as if the clock had gone back before the end
            ledger_connection().hset(key, "state", " ".join(state))
            try:
                told.extend(ids(entered(sale, [late])))
            except SaleEnded as error:
                told.append(error)

    if not guarded:
        monkeypatch.setattr(drawing, "close_entries", lambda *, sale: True)
    with failpoints.armed("none"):
        failpoints.tell(enter_late)
        close_list(sale_id=sale.pk)
    accepted = {it for it in told if isinstance(it, int)}
    assert len(told) == 1
    assert (accepted <= set(listed(sale))) is guarded
