"""The worker: every accepted reservation becomes one row, whatever fails on the way."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import pytest
from django.conf import settings as django_settings
from django.contrib.auth.models import User
from django.db import connection
from django.test.utils import CaptureQueriesContext
from pytest_django import Settings
from redis import Redis

from locks import MultiLock, RedisLock
from orders.fulfilment import attempts, sale_pass, worker
from orders.fulfilment.batch import BatchOutcome, write_batch
from orders.fulfilment.worker import fulfil_sale
from orders.models import VoucherOrder
from orders.placing.tokens import PurchaseToken
from tests.support.inspection import (
    assert_conserved,
    buyers_of,
    ended_of,
    fulfilled,
    live_ids,
    pending_ids,
    redis_commands,
    refusals_of,
    rows,
    statements,
    tries_of,
)
from tests.support.orders import (
    at_once,
    ids,
    make_buyer,
    make_buyers,
    make_order,
    make_sale,
    race,
    reserved,
    reserved_sale,
    token_for,
)
from tests.support.patience import wait_for
from tests.support.sales import change_state, lose_state, reserve
from tests.support.tiers import slow_after
from vouchers.inventory import rebuild, reservations
from vouchers.inventory.keys import LedgerKeys, LedgerUnavailable
from vouchers.inventory.rebuild import FENCE_BITS, load_sale
from vouchers.inventory.reservations import (
    PendingEntry,
    Reservation,
    clear_kick,
    pending_entries,
)
from vouchers.inventory.sale_state import snapshot
from vouchers.models import SeckillVoucher

pytestmark = pytest.mark.django_db


def reserve_for(sale: SeckillVoucher, buyer: User) -> Reservation:
    token = token_for(sale, buyer)
    return reserve(sale_id=sale.pk, order_id=token.order_id, user_id=buyer.pk)


def offer_too_much(ledger: Redis, sale: SeckillVoucher, total: int) -> None:
    """Give the ledger more units than the row has."""
    change_state(sale.pk, total=total)


# --- From pending to rows ------------------------------------------------------------------------


def test_pending_entries_become_rows(ledger: Redis) -> None:
    sale, unpaid = make_sale(stock=5), fulfilled("unpaid")
    tokens = reserved(sale, make_buyers(3))
    assert fulfil_sale(sale_id=sale.pk) is False
    assert live_ids(sale) == ids(tokens)
    assert pending_ids(sale) == []
    assert fulfilled("unpaid") == unpaid + 3
    assert_conserved(sale)
    assert snapshot(sale_id=sale.pk).remaining == 2
    assert not ledger.exists(LedgerKeys(sale.pk).kick)


def test_burst_is_written_in_batches(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    settings.SECKILL_BATCH_UNITS = 10
    sale, tokens = reserved_sale(make_buyers(25), stock=25)
    sizes = []

    def spied(**kwargs: Any) -> Any:
        sizes.append(len(kwargs["entries"]))
        return write_batch(**kwargs)

    monkeypatch.setattr(attempts, "write_batch", spied)
    fulfil_sale(sale_id=sale.pk)
    assert sizes == [10, 10, 5]
    assert live_ids(sale) == ids(tokens)


def test_two_hundred_entries_take_as_many_statements_as_one() -> None:
    def costs_for(size: int) -> tuple[list[str], int]:
        sale = make_sale(stock=size)
        reserved(sale, make_buyers(size))
        with CaptureQueriesContext(connection) as captured, redis_commands() as commands:
            fulfil_sale(sale_id=sale.pk)
        assert len(live_ids(sale)) == size
        return statements(captured.captured_queries), len(commands.ledger)

    costs = [costs_for(size) for size in (1, 200)]
    assert costs[0] == costs[1]
    assert len(costs[0][0]) == 10


def test_all_locks_are_released(ledger: Redis) -> None:
    sale = make_sale()
    reserved(sale, make_buyers(3))
    fulfil_sale(sale_id=sale.pk)
    left = {key: ledger.ttl(key) for key in ledger.scan_iter("lock:*")}
    assert left.pop(LedgerKeys(sale.pk).fence) == -1
    # What a released lock leaves, for a repeated release, goes by itself.
    assert all(0 < seconds <= 5 for seconds in left.values()), left
    assert all(":released:" in key for key in left), left


# --- Refusals ------------------------------------------------------------------------------------


def test_sold_out_by_database_corrects_the_ledger(ledger: Redis) -> None:
    sale, refused = make_sale(stock=2), fulfilled("refused")
    offer_too_much(ledger, sale, 5)
    tokens = reserved(sale, make_buyers(4))
    fulfil_sale(sale_id=sale.pk)
    assert live_ids(sale) == ids(tokens[:2])
    assert refusals_of(sale) == {token.order_id: "sold_out" for token in tokens[2:]}
    assert ended_of(sale) == {t.order_id: f"{t.user_id}:sold_out" for t in tokens[2:]}
    assert fulfilled("refused") == refused + 2
    assert snapshot(sale_id=sale.pk).terms.total == 2
    assert snapshot(sale_id=sale.pk).remaining == 0
    assert_conserved(sale)


def _order_unknown_to_the_ledger(sale: SeckillVoucher, buyer: User) -> VoucherOrder:
    order = make_order(sale, buyer)
    SeckillVoucher.objects.filter(pk=sale.pk).update(sold=sale.sold + 1)
    return order


def test_closed_account_returns_the_unit() -> None:
    sale, (buyer, other) = make_sale(stock=2), make_buyers(2)
    token, good = reserved(sale, [buyer, other])
    User.objects.filter(pk=buyer.pk).update(is_active=False)
    fulfil_sale(sale_id=sale.pk)
    assert refusals_of(sale) == {token.order_id: "inactive_buyer"}
    assert ended_of(sale) == {token.order_id: f"{token.user_id}:inactive_buyer"}
    assert live_ids(sale) == [good.order_id]
    assert snapshot(sale_id=sale.pk).remaining == 1
    assert_conserved(sale)


# --- Again and again -----------------------------------------------------------------------------


def test_repeated_task_changes_nothing(ledger: Redis) -> None:
    sale = make_sale(stock=2)
    offer_too_much(ledger, sale, 3)
    reserved(sale, make_buyers(3))
    fulfil_sale(sale_id=sale.pk)
    before = _without_fence(rows()), buyers_of(sale), ended_of(sale)
    for _ in range(4):
        fulfil_sale(sale_id=sale.pk)
    assert (_without_fence(rows()), buyers_of(sale), ended_of(sale)) == before
    assert_conserved(sale)


def _without_fence(found: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    names = [it.name for it in SeckillVoucher._meta.concrete_fields if it.name != "batch"]
    return [row[: names.index("fence")] if len(row) == len(names) else row for row in found]


class Crash(BaseException):
    """The process is gone."""


@contextmanager
def crash_at(monkeypatch: pytest.MonkeyPatch, name: str) -> Iterator[None]:
    """Let this function kill the worker. The next pass can wait for an entry that was alone."""
    # By default a pass ends a few milliseconds after the entry is due, which a stall exceeds.
    monkeypatch.setattr(django_settings, "SECKILL_WORK_MS", 3_000)

    def crash(**kwargs: Any) -> None:
        raise Crash

    with monkeypatch.context() as patch:
        patch.setattr(worker, name, crash)
        with pytest.raises(Crash):
            yield


@pytest.mark.parametrize("at", slow_after(1, ["confirm", "release"]))
def test_crash_before_confirm_is_finished_by_next_pass(
    at: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sale, buyers = make_sale(), make_buyers(3)
    tokens = reserved(sale, buyers)
    User.objects.filter(pk=buyers[2].pk).update(is_active=False)
    with crash_at(monkeypatch, at):
        fulfil_sale(sale_id=sale.pk)
    assert live_ids(sale) == ids(tokens[:2])
    assert set(pending_ids(sale)) >= {tokens[0].order_id}
    before = _without_fence(rows())
    fulfil_sale(sale_id=sale.pk)
    assert _without_fence(rows()) == before
    assert pending_ids(sale) == []
    assert_conserved(sale)


# --- Locks and fences ----------------------------------------------------------------------------


def test_second_worker_of_a_sale_stops(ledger: Redis, elsewhere: Callable[..., Any]) -> None:
    sale, tokens = reserved_sale(make_buyers(2))
    theirs = RedisLock(ledger, LedgerKeys(sale.pk).sale_lock)
    elsewhere(theirs.acquire)
    assert fulfil_sale(sale_id=sale.pk) is False
    assert live_ids(sale) == []
    elsewhere(theirs.release)
    fulfil_sale(sale_id=sale.pk)
    assert live_ids(sale) == ids(tokens)


def test_holder_looks_again_after_releasing_the_lock(monkeypatch: pytest.MonkeyPatch) -> None:
    """A task that found the lock taken has ended, so no other task would write its entry."""
    sale, (early, late) = make_sale(), make_buyers(2)
    reserved(sale, [early])
    walk = worker._locked_pass
    late_tokens: list[PurchaseToken] = []

    def walked(**kwargs: Any) -> Any:
        result = walk(**kwargs)
        if not late_tokens:
            late_tokens.extend(reserved(sale, [late]))
        return result

    monkeypatch.setattr(worker, "_locked_pass", walked)
    assert fulfil_sale(sale_id=sale.pk) is False
    assert late_tokens[0].order_id in live_ids(sale)


def test_busy_user_lock_delays_only_its_entry(
    ledger: Redis, settings: Settings, elsewhere: Callable[..., Any]
) -> None:
    settings.SECKILL_BATCH_UNITS, settings.SECKILL_WORK_MS = 2, 300
    sale, buyers = make_sale(), make_buyers(5)
    tokens = reserved(sale, buyers)
    busy = [LedgerKeys(sale.pk).user_lock(buyers[n].pk) for n in (0, 3)]
    theirs = MultiLock(ledger, busy)
    elsewhere(theirs.acquire_all)
    assert fulfil_sale(sale_id=sale.pk) is True, "the next task tries them again"
    assert pending_ids(sale) == [tokens[0].order_id, tokens[3].order_id]
    assert live_ids(sale) == [tokens[n].order_id for n in (1, 2, 4)]
    assert tries_of(sale) == {}
    elsewhere(theirs.release)
    assert fulfil_sale(sale_id=sale.pk) is False
    assert live_ids(sale) == ids(tokens)


@pytest.mark.parametrize("size", [1, 2])
def test_stale_fence_raises_counter_for_the_next_pass(size: int) -> None:
    sale, tokens = reserved_sale(make_buyers(size))
    ahead = sale.fence + 1_000
    SeckillVoucher.objects.filter(pk=sale.pk).update(fence=ahead)
    before = rows()
    assert fulfil_sale(sale_id=sale.pk) is True, "a fresh task with a newer token goes on at once"
    assert rows() == before
    assert pending_ids(sale) == ids(tokens)
    assert tries_of(sale) == {}
    fulfil_sale(sale_id=sale.pk)
    assert live_ids(sale) == ids(tokens)
    sale.refresh_from_db()
    assert sale.fence > ahead


def test_stale_fence_makes_raised_epochs_unusable(ledger: Redis) -> None:
    """Such a build would not know the batch of a worker with a token of the same epoch."""
    sale, tokens = reserved_sale(make_buyers(2))
    raised = rebuild._raise_epoch(sale_id=sale.pk)  # by a process that stands still after it
    assert fulfil_sale(sale_id=sale.pk) is True
    fulfil_sale(sale_id=sale.pk)
    assert live_ids(sale) == ids(tokens)
    lose_state(sale.pk)
    assert not rebuild._build_ledger(sale_id=sale.pk, epoch=raised)
    load_sale(sale_id=sale.pk)
    assert_conserved(sale)


def test_stale_fence_without_ledger_waits_for_a_load(
    ledger: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    sale, tokens = reserved_sale(make_buyers(2))
    SeckillVoucher.objects.filter(pk=sale.pk).update(fence=sale.fence + 1_000)

    def lost(**kwargs: Any) -> BatchOutcome:
        monkeypatch.setattr(attempts, "write_batch", write_batch)
        lose_state(sale.pk)
        return write_batch(**kwargs)

    monkeypatch.setattr(attempts, "write_batch", lost)
    assert fulfil_sale(sale_id=sale.pk) is True
    fulfil_sale(sale_id=sale.pk)
    assert live_ids(sale) == ids(tokens)


def test_lost_fencing_counter_recovers(ledger: Redis) -> None:
    sale = make_sale()
    for _ in range(3):
        reserved(sale, [make_buyer()])
        fulfil_sale(sale_id=sale.pk)
    ledger.delete(LedgerKeys(sale.pk).fence)
    (token,) = reserved(sale, [make_buyer()])
    fulfil_sale(sale_id=sale.pk)
    fulfil_sale(sale_id=sale.pk)
    assert token.order_id in live_ids(sale)


def test_worker_of_older_ledger_is_fenced(ledger: Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    sale, tokens = reserved_sale(make_buyers(2))
    before = VoucherOrder.objects.count()

    def rebuilt_meanwhile(**kwargs: Any) -> Any:
        lose_state(sale.pk)
        load_sale(sale_id=sale.pk)
        return write_batch(**kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(attempts, "write_batch", rebuilt_meanwhile)
        assert fulfil_sale(sale_id=sale.pk) is True
    assert VoucherOrder.objects.count() == before
    fulfil_sale(sale_id=sale.pk)
    assert live_ids(sale) == ids(tokens)
    sale.refresh_from_db()
    assert sale.fence >> FENCE_BITS == sale.epoch == 2
    assert_conserved(sale)


@pytest.mark.parametrize(
    ("left_ms", "goes_on"),
    [pytest.param(100, True, id="not renewed"), pytest.param(5_000, False, id="renewed")],
)
def test_only_lock_of_a_dead_worker_is_outwaited(
    ledger: Redis, settings: Settings, left_ms: int, goes_on: bool
) -> None:
    settings.SECKILL_LEASE_MS = 6_000
    sale, tokens = reserved_sale(make_buyers(2))
    ledger.delete(LedgerKeys(sale.pk).kick)
    ledger.set(LedgerKeys(sale.pk).sale_lock, "a-dead-worker  1", px=left_ms)

    assert fulfil_sale(sale_id=sale.pk) is goes_on, "the next task"

    assert bool(ledger.exists(LedgerKeys(sale.pk).sale_lock)) is not goes_on
    fulfil_sale(sale_id=sale.pk)
    assert live_ids(sale) == (ids(tokens) if goes_on else [])


@pytest.mark.parametrize("size", slow_after(1, [1, 2]))
def test_lost_lock_writes_nothing_and_next_worker_writes(
    ledger: Redis, settings: Settings, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.SECKILL_LEASE_MS = 300
    sale, tokens = reserved_sale(make_buyers(size))

    def lost_meanwhile(**kwargs: Any) -> Any:
        ledger.delete(LedgerKeys(sale.pk).sale_lock)
        wait_for(kwargs["lost"])  # the watchdog is told at its next renewal
        return write_batch(**kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(attempts, "write_batch", lost_meanwhile)
        assert fulfil_sale(sale_id=sale.pk) is False
    assert live_ids(sale) == []
    assert pending_ids(sale) == ids(tokens)
    assert tries_of(sale) == {}, "a lost lock says nothing about the entry"
    settings.SECKILL_LEASE_MS = 6_000  # else a stalled machine would lose this lock too
    fulfil_sale(sale_id=sale.pk)
    assert live_ids(sale) == ids(tokens)


# --- A ledger that is not whole ------------------------------------------------------------------


@pytest.mark.parametrize("key", ["sale", "buyers"])
def test_ledger_with_lost_key_is_rebuilt_and_fulfilled(ledger: Redis, key: str) -> None:
    sale, tokens = reserved_sale(make_buyers(3))
    ledger.delete(getattr(LedgerKeys(sale.pk), key))
    fulfil_sale(sale_id=sale.pk)
    assert live_ids(sale) == ids(tokens)
    assert_conserved(sale)


def test_without_redis_ledger_is_unavailable(lose_ledger: Callable[[], None]) -> None:
    sale = make_sale()
    reserved(sale, [make_buyer()])
    lose_ledger()
    with pytest.raises(LedgerUnavailable):
        fulfil_sale(sale_id=sale.pk)


# --- Handing on ----------------------------------------------------------------------------------


def set_clock(monkeypatch: pytest.MonkeyPatch, clock: object) -> None:
    for module in (worker, sale_pass):
        monkeypatch.setattr(module, "time", clock)


class SteppingClock:
    """A clock that advances by a second with each reading."""

    def __init__(self) -> None:
        self._now = 0.0

    def monotonic(self) -> float:
        self._now += 1
        return self._now


def test_task_out_of_time_asks_for_another(
    ledger: Redis, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.SECKILL_BATCH_UNITS, settings.SECKILL_WORK_MS = 1, 3_000
    sale, tokens = reserved_sale(make_buyers(5))
    set_clock(monkeypatch, SteppingClock())
    assert fulfil_sale(sale_id=sale.pk) is True
    assert live_ids(sale) == ids(tokens[:2])
    assert ledger.exists(LedgerKeys(sale.pk).kick), "the fresh task is the one that is on its way"
    assert not ledger.exists(LedgerKeys(sale.pk).sale_lock)


def test_queued_task_prevents_another(
    ledger: Redis, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.SECKILL_BATCH_UNITS, settings.SECKILL_WORK_MS = 1, 3_000
    sale = make_sale()
    reserved(sale, make_buyers(5))
    set_clock(monkeypatch, SteppingClock())
    walk = worker._locked_pass

    def walked(**kwargs: Any) -> Any:
        result = walk(**kwargs)
        ledger.delete(LedgerKeys(sale.pk).kick)  # its time is over
        assert reserve_for(sale, make_buyer()).kick_due, "a message is on its way"
        return result

    monkeypatch.setattr(worker, "_locked_pass", walked)
    assert fulfil_sale(sale_id=sale.pk) is False


def test_task_beside_a_working_one_keeps_the_kick(
    ledger: Redis, elsewhere: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reservations, "ACKNOWLEDGED_KICK_MS", 30_000)
    sale = make_sale()
    reserved(sale, [make_buyer()])
    elsewhere(RedisLock(ledger, LedgerKeys(sale.pk).sale_lock).acquire)
    assert fulfil_sale(sale_id=sale.pk) is False
    assert 0 < ledger.pttl(LedgerKeys(sale.pk).kick) <= 30_000
    assert not reserve_for(sale, make_buyer()).kick_due


def test_entry_before_the_last_look_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reservations, "ACKNOWLEDGED_KICK_MS", 60_000)
    sale = make_sale()
    late = iter([make_buyer()])
    reserved(sale, [make_buyer()])
    end_kick = clear_kick

    def end_late(**kwargs: Any) -> None:
        for buyer in late:
            assert not reserve_for(sale, buyer).kick_due, "of the one that is sent already"
        end_kick(**kwargs)

    monkeypatch.setattr(worker, "clear_kick", end_late)
    fulfil_sale(sale_id=sale.pk)
    assert pending_ids(sale) == []


def test_entry_after_the_last_look_sends_a_task(monkeypatch: pytest.MonkeyPatch) -> None:
    sale = make_sale()
    reserved(sale, [make_buyer()])
    looks = pending_entries
    due = []

    def look(*, count: int, **kwargs: Any) -> Any:
        found = looks(count=count, **kwargs)
        if count == 1:
            due.append(reserve_for(sale, make_buyer()).kick_due)
        return found

    monkeypatch.setattr(worker, "pending_entries", look)
    fulfil_sale(sale_id=sale.pk)
    assert due == [True]


# --- Small batches -------------------------------------------------------------------------------


class RestingClock:
    """A clock that advances only in ``sleep``, which calls a function."""

    def __init__(self, on_sleep: Callable[[], object]) -> None:
        self.now, self._on_sleep = 0.0, on_sleep

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self._on_sleep()


@pytest.fixture
def burst(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[int]]:
    """Fulfil a sale where this many entries arrive in each step of gathering.

    Returns the sizes of the batches.
    """

    def of(*coming: int) -> list[int]:
        sale, sizes, steps = make_sale(stock=1_000), list[int](), iter(coming)
        reserved(sale, [make_buyer()])

        def write(*, entries: Sequence[PendingEntry], **kwargs: Any) -> BatchOutcome:
            sizes.append(len(entries))
            if len(sizes) == 1:
                reserved(sale, [make_buyer()])
            return write_batch(entries=entries, **kwargs)

        monkeypatch.setattr(attempts, "write_batch", write)
        clock = RestingClock(lambda: reserved(sale, make_buyers(next(steps, 0))))
        set_clock(monkeypatch, clock)
        fulfil_sale(sale_id=sale.pk)
        assert pending_ids(sale) == []
        return sizes

    return of


def test_small_batch_waits_while_entries_arrive(burst: Callable[..., list[int]]) -> None:
    assert burst(3, 2, 0) == [1, 6]
    assert burst(0, 3) == [1, 1]


def test_gathering_stops_after_a_tenth_of_a_second(burst: Callable[..., list[int]]) -> None:
    assert burst(*[1] * 8) == [1, 6]


def test_gathering_stops_at_a_full_batch(
    burst: Callable[..., list[int]], settings: Settings
) -> None:
    settings.SECKILL_BATCH_UNITS = 4
    assert burst(2, 5) == [1, 4, 4]


@pytest.mark.parametrize(("orders", "most"), [(1, 500), (4, 2)])
def test_single_order_and_full_batch_do_not_wait(
    orders: int, most: int, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.SECKILL_BATCH_UNITS = most
    sale, clock = make_sale(), RestingClock(lambda: None)
    reserved(sale, make_buyers(orders))
    set_clock(monkeypatch, clock)
    fulfil_sale(sale_id=sale.pk)
    assert pending_ids(sale) == []
    assert clock.now == 0


# --- Guards of their own -------------------------------------------------------------------------


class NoLock:
    """A lock that excludes nobody; its fencing token never rises."""

    lost = False
    fencing_token = 1 << 60

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass

    def __enter__(self) -> NoLock:
        return self

    def __exit__(self, *error: object) -> None:
        pass


class NoMultiLock(NoLock):
    def __init__(self, client: Redis, names: list[str], **kwargs: Any) -> None:
        self._names = set(names)

    @contextmanager
    def holding_free(self) -> Iterator[set[str]]:
        yield self._names


@race
def test_without_redis_locks_four_workers_sell_exactly_the_stock(
    ledger: Redis, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control without the row lock is in ``test_batch.py``."""
    settings.SECKILL_BATCH_UNITS = 7
    sale, unlucky = make_sale(stock=30), make_buyer()
    held = _order_unknown_to_the_ledger(sale, unlucky)
    offer_too_much(ledger, sale, 60)
    tokens = reserved(sale, [*make_buyers(45), unlucky])
    monkeypatch.setattr(rebuild, "RedisLock", NoLock)
    monkeypatch.setattr(worker, "MultiLock", NoMultiLock)
    start = threading.Barrier(4)

    def work() -> bool:
        start.wait(10)
        return fulfil_sale(sale_id=sale.pk)

    at_once(*[work] * 4)
    while fulfil_sale(sale_id=sale.pk):  # whom another worker overtook, hands on
        pass
    assert len(live_ids(sale)) == 30
    assert held.pk in live_ids(sale)
    assert set(live_ids(sale)) | set(refusals_of(sale)) == {*ids(tokens), held.pk}
    users = VoucherOrder.objects.filter(live=True).values_list("user_id", flat=True)
    assert len(set(users)) == 30
    assert pending_ids(sale) == []
    assert_conserved(sale)


@race
def test_two_workers_write_two_sales_but_never_one(monkeypatch: pytest.MonkeyPatch) -> None:
    writing, met, patience_s = set[int](), list[bool](), [20.0]

    def write_and_look(**options: Any) -> BatchOutcome:
        me = threading.get_ident()
        writing.add(me)
        try:
            met.append(another_writes())
            return write_batch(**options)
        finally:
            writing.remove(me)

    def another_writes() -> bool:
        with suppress(AssertionError):
            wait_for(lambda: len(writing) > 1 or True in met, seconds=patience_s[-1])
            return True
        return False

    monkeypatch.setattr(attempts, "write_batch", write_and_look)
    first, second = make_sale(), make_sale()
    for sale in (first, second):
        reserved(sale, make_buyers(3))
    works = [lambda it=it: fulfil_sale(sale_id=it.pk) for it in (first, second)]
    assert at_once(*works) == [False, False]
    assert met == [True, True]
    assert len(live_ids(first)) == len(live_ids(second)) == 3

    met.clear()
    patience_s.append(1)
    reserved(first, make_buyers(3))
    assert at_once(works[0], works[0]) == [False, False]
    assert met == [False]
    assert len(live_ids(first)) == 6
