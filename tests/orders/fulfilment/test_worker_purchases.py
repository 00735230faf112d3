"""Purchases of several units: written in one transaction, wherever the worker cuts.

Note [Purchases] in ``worker.py``. The control takes an order id for its own purchase, as if each
unit stood alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.utils import timezone
from pytest_django import Settings
from redis import Redis

from locks import MultiLock
from orders.fulfilment import attempts, worker
from orders.fulfilment.batch import write_batch
from orders.fulfilment.reconcile import reconcile
from orders.fulfilment.retry import Retry, retry_order, retry_orders
from orders.fulfilment.sweep import sweep
from orders.fulfilment.unwritten import decide_unwritten
from orders.fulfilment.worker import fulfil_sale
from orders.models import CodeUse, InvitationCode, VoucherOrder
from seckill_site import failpoints
from seckill_site.redis.ledger_connection import ledger_connection
from tests.support.inspection import (
    assert_conserved,
    ledger_contents,
    live_ids,
    pending_ids,
    refusals_of,
    rows,
    tries_of,
)
from tests.support.orders import (
    ids,
    make_buyer,
    make_buyers,
    make_sale,
    pending,
    poison,
    reserved,
    reserved_purchase,
)
from tests.support.sales import change_state, reserve
from tests.support.tiers import slow_after
from vouchers.inventory import holdings
from vouchers.inventory.batch_journal import Decision, collect_suspects, record_batch
from vouchers.inventory.keys import LedgerKeys
from vouchers.inventory.purchases import purchase_of
from vouchers.inventory.rebuild import rebuild_sale
from vouchers.inventory.reservations import (
    PendingEntry,
    SoldOut,
    entries_set_aside,
)
from vouchers.models import SeckillVoucher

pytestmark = pytest.mark.django_db(transaction=True)

LIMIT = 4


@pytest.fixture
def sale() -> SeckillVoucher:
    return make_sale(stock=100, limit=LIMIT)


@pytest.fixture
def batches(monkeypatch: pytest.MonkeyPatch) -> list[list[int]]:
    """The order ids of each attempt at a batch."""
    written: list[list[int]] = []

    def spied(*, entries: Sequence[PendingEntry], **kwargs: Any) -> Any:
        written.append([it.order_id for it in entries])
        return write_batch(entries=entries, **kwargs)

    monkeypatch.setattr(attempts, "write_batch", spied)
    return written


def split(batches: Sequence[Sequence[int]]) -> bool:
    """Return whether units of a purchase were in different attempts with no attempt at them all."""
    found: dict[int, set[tuple[int, ...]]] = {}
    for batch in batches:
        for purchase in {purchase_of(it) for it in batch}:
            units = tuple(it for it in batch if purchase_of(it) == purchase)
            found.setdefault(purchase, set()).add(units)
    return any(len(parts) > 1 for parts in found.values())


def units_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The guard off: every unit is a purchase of its own to the worker."""
    monkeypatch.setattr(holdings, "purchase_of", lambda order_id: order_id)
    monkeypatch.setattr("orders.fulfilment.sale_pass.is_in_block", lambda order_id: False)


guarded = pytest.mark.parametrize("is_guarded", [True, False], ids=["whole", "control"])


# --- Cutting -------------------------------------------------------------------------------------


@guarded
@pytest.mark.parametrize("size", slow_after(1, [1, 2, 3, 4]))
def test_no_batch_cuts_a_purchase(
    sale: SeckillVoucher,
    batches: list[list[int]],
    settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
    size: int,
    is_guarded: bool,
) -> None:
    settings.SECKILL_BATCH_UNITS = size
    wanted = [it for buyer in make_buyers(4) for it in reserved_purchase(sale, buyer, 3)]
    if not is_guarded:
        units_alone(monkeypatch)

    assert fulfil_sale(sale_id=sale.pk) is False

    assert split(batches) is not (is_guarded or size == 3)
    assert live_ids(sale) == sorted(wanted)
    assert_conserved(sale)


@pytest.mark.slow
@guarded
def test_halving_keeps_purchases_whole(
    sale: SeckillVoucher,
    batches: list[list[int]],
    monkeypatch: pytest.MonkeyPatch,
    is_guarded: bool,
) -> None:
    good, bad, other = (reserved_purchase(sale, buyer, 3) for buyer in make_buyers(3))
    poison(monkeypatch, bad[1])
    if not is_guarded:
        units_alone(monkeypatch)

    fulfil_sale(sale_id=sale.pk)

    assert split(batches) is not is_guarded
    if is_guarded:
        assert live_ids(sale) == sorted(good + other)
        assert pending_ids(sale) == bad
        assert tries_of(sale) == {bad[0]: 1}
        assert_conserved(sale)


def test_failing_purchase_is_refused_whole(
    sale: SeckillVoucher, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.SECKILL_MAX_TRIES = 1
    bad = reserved_purchase(sale, make_buyer(), 3)
    good = reserved(sale, make_buyers(2))
    poison(monkeypatch, bad[2])

    assert fulfil_sale(sale_id=sale.pk) is False

    assert refusals_of(sale) == dict.fromkeys(bad, "failed")
    assert live_ids(sale) == ids(good)
    assert tries_of(sale) == {}
    assert_conserved(sale)


def test_locked_buyer_delays_the_whole_purchase(
    sale: SeckillVoucher,
    batches: list[list[int]],
    ledger: Redis,
    settings: Settings,
    elsewhere: Callable[..., Any],
) -> None:
    settings.SECKILL_WORK_MS = 150
    buyer, other = make_buyers(2)
    busy, free = reserved_purchase(sale, buyer, 3), reserved_purchase(sale, other, 2)
    theirs = MultiLock(ledger, [LedgerKeys(sale.pk).user_lock(buyer.pk)])
    elsewhere(theirs.acquire_all)
    fulfil_sale(sale_id=sale.pk)
    assert (live_ids(sale), pending_ids(sale)) == (free, busy)

    elsewhere(theirs.release)
    fulfil_sale(sale_id=sale.pk)

    assert batches == [free, busy]


# --- Suspects ------------------------------------------------------------------------------------


class Killed(BaseException):
    """The process is gone."""


def test_killing_purchase_is_written_alone_and_counted_once(
    sale: SeckillVoucher, batches: list[list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """After three deaths it is known, by its first unit: in a batch, among a few, and alone."""
    bad, good = (reserved_purchase(sale, buyer, 3) for buyer in make_buyers(2))

    def killed(**kwargs: Any) -> Any:
        if bad[1] in [it.order_id for it in kwargs["entries"]]:
            batches.append([it.order_id for it in kwargs["entries"]])
            raise Killed
        return write_batch(**kwargs)

    monkeypatch.setattr(attempts, "write_batch", killed)
    monkeypatch.setattr(worker, "RETRY_S", 0)
    for _ in range(3):
        with suppress(Killed):
            fulfil_sale(sale_id=sale.pk)
        free_locks()

    assert batches == [bad + good, bad + good, bad]
    assert collect_suspects(sale_id=sale.pk)[purchase_of(bad[2])].alone
    assert tries_of(sale) == {bad[0]: 1}


def free_locks() -> None:
    """Let the locks of a dead worker expire."""
    client = ledger_connection()
    for key in client.scan_iter("lock:*"):
        client.delete(key)


def test_dead_workers_batch_names_one_entry_of_a_purchase(sale: SeckillVoucher) -> None:
    first, second = (reserved_purchase(sale, buyer, 3) for buyer in make_buyers(2))
    record_batch(sale_id=sale.pk, entries=pending(sale))

    assert set(collect_suspects(sale_id=sale.pk)) == {first[0], second[0]}


# --- All or none ---------------------------------------------------------------------------------


def offer_too_much(sale: SeckillVoucher) -> None:
    """Give the ledger more units than the row has, as an edit may that was not copied yet."""
    change_state(sale.pk, total=100)


@pytest.mark.parametrize(("all_or_none", "live"), [(False, 2), (True, 0)])
def test_last_units_are_refused_one_by_one_or_all(all_or_none: bool, live: int) -> None:
    sale = make_sale(stock=2, limit=LIMIT)
    offer_too_much(sale)
    units = reserved_purchase(sale, make_buyer(), 3, all_or_none=all_or_none)

    fulfil_sale(sale_id=sale.pk)

    assert live_ids(sale) == units[:live]
    assert refusals_of(sale) == dict.fromkeys(units[live:], "sold_out")
    assert_conserved(sale)


def test_purchase_refused_whole_leaves_its_units_to_the_next(sale: SeckillVoucher) -> None:
    sale = make_sale(stock=3, limit=LIMIT)
    offer_too_much(sale)
    first, second, third = (
        reserved_purchase(sale, buyer, quantity, all_or_none=True)
        for buyer, quantity in zip(make_buyers(3), (2, 2, 1), strict=True)
    )

    fulfil_sale(sale_id=sale.pk)

    assert live_ids(sale) == sorted(first + third)
    assert refusals_of(sale) == dict.fromkeys(second, "sold_out")


@pytest.mark.parametrize(("all_or_none", "live"), [(False, 2), (True, 0)])
def test_purchase_takes_as_many_codes_as_were_entered(all_or_none: bool, live: int) -> None:
    sale = make_sale(stock=9, limit=LIMIT, needs_code=True)
    buyer = make_buyer()
    for code in ("WELCOME1", "WELCOME2"):
        InvitationCode.objects.create(seckill_voucher=sale, code=code, user=buyer)
    units = reserved_purchase(sale, buyer, 3, all_or_none=all_or_none)

    fulfil_sale(sale_id=sale.pk)

    assert live_ids(sale) == units[:live]
    assert refusals_of(sale) == dict.fromkeys(units[live:], "code_used")
    assert CodeUse.objects.count() == live


@pytest.mark.parametrize(("all_or_none", "live"), [(False, 1), (True, 0)])
def test_first_order_sale_gives_one_unit(all_or_none: bool, live: int) -> None:
    sale = make_sale(stock=9, limit=LIMIT, first_order_only=True)
    units = reserved_purchase(sale, make_buyer(), 2, all_or_none=all_or_none)

    fulfil_sale(sale_id=sale.pk)

    assert live_ids(sale) == units[:live]
    assert refusals_of(sale) == dict.fromkeys(units[live:], "not_first_order")
    assert_conserved(sale)


def test_closed_account_is_refused_every_unit(sale: SeckillVoucher) -> None:
    buyer = make_buyer()
    units = reserved_purchase(sale, buyer, 3, all_or_none=True)
    User.objects.filter(pk=buyer.pk).update(is_active=False)

    fulfil_sale(sale_id=sale.pk)

    assert refusals_of(sale) == dict.fromkeys(units, "inactive_buyer")


# --- Crashes -------------------------------------------------------------------------------------


@pytest.mark.parametrize("all_or_none", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "point",
    slow_after(1, ["fulfill.begun", "batch.before_commit", "batch.committed", "fulfill.released"]),
)
def test_crash_leaves_a_purchase_whole(
    point: str, all_or_none: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The row has two units for the three, so there is something to release, too."""
    sale = make_sale(stock=2, limit=LIMIT)
    offer_too_much(sale)
    units = reserved_purchase(sale, make_buyer(), 3, all_or_none=all_or_none)

    def die(name: str) -> None:
        if name == point:
            raise Killed

    with monkeypatch.context() as patch, suppress(Killed):
        patch.setattr(failpoints._Points, "listener", staticmethod(die))
        fulfil_sale(sale_id=sale.pk)
    assert VoucherOrder.objects.count() in (0, 3), "all rows or none"

    free_locks()
    fulfil_sale(sale_id=sale.pk)

    live = [] if all_or_none else units[:2]
    assert (live_ids(sale), sorted(refusals_of(sale))) == (live, units[len(live) :])
    assert pending_ids(sale) == []
    assert_conserved(sale)


# --- Set aside -----------------------------------------------------------------------------------


@pytest.fixture
def impossible(
    sale: SeckillVoucher, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> list[int]:
    """A purchase that not even a refused row can hold, set aside."""
    settings.SECKILL_MAX_TRIES = 1
    units = reserved_purchase(sale, make_buyer(), 3)
    with monkeypatch.context() as patch:
        poison(patch, units[1], even_refused=True)
        fulfil_sale(sale_id=sale.pk)
    return units


def aside(sale: SeckillVoucher) -> list[int]:
    return [it.order_id for it in entries_set_aside(sale_id=sale.pk)]


@pytest.mark.parametrize("decision", [Decision.RETRY, Decision.REFUSE])
def test_staff_decide_about_a_whole_purchase(
    sale: SeckillVoucher,
    impossible: list[int],
    batches: list[list[int]],
    decision: Decision,
) -> None:
    assert aside(sale) == impossible
    others = ids(reserved(sale, make_buyers(1)))

    assert decide_unwritten(sale_id=sale.pk, decision=decision) == impossible
    assert aside(sale) == []
    fulfil_sale(sale_id=sale.pk)

    assert not split(batches)
    if decision is Decision.RETRY:
        assert live_ids(sale) == impossible + others
    else:
        assert refusals_of(sale) == dict.fromkeys(impossible, "failed")
    assert tries_of(sale) == {}
    assert_conserved(sale)


def test_purchase_put_back_meanwhile_cuts_no_other(
    sale: SeckillVoucher,
    impossible: list[int],
    batches: list[list[int]],
    monkeypatch: pytest.MonkeyPatch,
    settings: Settings,
) -> None:
    """It is older than what is put off, so the next page begins inside what is known."""
    settings.SECKILL_BATCH_UNITS = 2
    buyer, other = make_buyers(2)
    known = reserved_purchase(sale, buyer, 2)
    reserved_purchase(sale, other, 4)
    free: Callable[..., Any] = worker._lock_free

    def put_back(walk: Any, entries: Sequence[PendingEntry]) -> Any:
        if [it.order_id for it in entries] == known:
            decide_unwritten(sale_id=sale.pk, decision=Decision.RETRY)
            walk.put_off_entries(entries, seconds=0.05)
            entries = []
        return free(walk, entries)

    monkeypatch.setattr(worker, "_lock_free", put_back)
    fulfil_sale(sale_id=sale.pk)

    assert not split(batches)


# --- Retry, reconcile, rebuild -------------------------------------------------------------------


def refuse_as_failed(sale: SeckillVoucher, monkeypatch: pytest.MonkeyPatch, bad: int) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("django.conf.settings.SECKILL_MAX_TRIES", 1)
        poison(patch, bad)
        fulfil_sale(sale_id=sale.pk)


@pytest.mark.parametrize(("all_or_none", "live"), [(False, 1), (True, 3)])
def test_retry_takes_all_of_a_purchase_that_wants_all(
    sale: SeckillVoucher, monkeypatch: pytest.MonkeyPatch, all_or_none: bool, live: int
) -> None:
    units = reserved_purchase(sale, make_buyer(), 3, all_or_none=all_or_none)
    refuse_as_failed(sale, monkeypatch, units[1])

    retry_order(order_id=units[0], now=timezone.now())

    assert live_ids(sale) == units[:live]
    assert_conserved(sale)


def test_retry_of_all_counts_each_order_of_a_list_once(
    sale: SeckillVoucher, monkeypatch: pytest.MonkeyPatch
) -> None:
    units = reserved_purchase(sale, make_buyer(), 3, all_or_none=True)
    refuse_as_failed(sale, monkeypatch, units[1])

    assert list(retry_orders(order_ids=units)) == [Retry(it) for it in units]


@pytest.mark.parametrize("short_of", ["rows", "ledger"])
def test_retry_of_all_with_too_few_units_changes_nothing(
    monkeypatch: pytest.MonkeyPatch, short_of: str
) -> None:
    sale = make_sale(stock=3, limit=LIMIT)
    units = reserved_purchase(sale, make_buyer(), 3, all_or_none=True)
    refuse_as_failed(sale, monkeypatch, units[1])
    reserved(sale, make_buyers(1))
    if short_of == "rows":
        fulfil_sale(sale_id=sale.pk)
    before = ledger_contents(), rows()

    with pytest.raises(SoldOut):
        retry_order(order_id=units[0], now=timezone.now())

    assert (ledger_contents(), rows()) == before


def test_stray_purchase_goes_back_to_pending_together(sale: SeckillVoucher, ledger: Redis) -> None:
    units = reserved_purchase(sale, make_buyer(), 3)
    other = ids(reserved(sale, make_buyers(1)))
    keys = LedgerKeys(sale.pk)
    ledger.zremrangebyrank(keys.pending, 0, 2)

    reconcile(sale_id=sale.pk, repair=True)

    assert pending_ids(sale) == other + units
    assert len({it.accepted_at_ms for it in pending(sale) if it.order_id in units}) == 1
    assert fulfil_sale(sale_id=sale.pk) is False
    assert_conserved(sale)


def test_rebuilt_purchase_has_one_time(sale: SeckillVoucher, ledger: Redis) -> None:
    units = reserved_purchase(sale, make_buyer(), 3)
    (accepted_ms,) = {it.accepted_at_ms for it in pending(sale)}
    ledger.zremrangebyrank(LedgerKeys(sale.pk).pending, 0, 1)

    rebuild_sale(sale_id=sale.pk)

    assert [it.order_id for it in pending(sale)] == units
    assert {it.accepted_at_ms for it in pending(sale)} == {accepted_ms}


def test_token_of_a_lost_ledger_answers_for_its_written_purchase(
    sale: SeckillVoucher, ledger: Redis
) -> None:
    buyer = make_buyer()
    units = reserved_purchase(sale, buyer, 3)
    fulfil_sale(sale_id=sale.pk)
    ledger.delete(*LedgerKeys(sale.pk).contents)
    rebuild_sale(sale_id=sale.pk)

    again = reserve(sale_id=sale.pk, order_id=units[0], user_id=buyer.pk, quantity=4)

    assert again.order_id == units[0]
    assert live_ids(sale) == units
    assert_conserved(sale)


def test_sweep_sends_a_task_for_an_overdue_purchase(sale: SeckillVoucher, ledger: Redis) -> None:
    reserved_purchase(sale, make_buyer(), 3)
    ledger.delete(LedgerKeys(sale.pk).kick)

    assert sweep(now=timezone.now(), at_once=True) == [sale.pk]
