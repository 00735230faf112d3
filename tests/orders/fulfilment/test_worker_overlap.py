"""A burst: ledger and database work at the same time (Note [Overlap] in ``worker.py``)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import pytest
from django.db import connection, connections
from pytest_django import Settings
from redis import Redis

from locks import MultiLock
from orders.fulfilment import attempts, sale_pass, worker
from orders.fulfilment.batch import BatchOutcome, write_batch
from orders.fulfilment.worker import fulfil_sale
from orders.placing.tokens import PurchaseToken
from tests.support.inspection import (
    assert_conserved,
    live_ids,
    pending_ids,
    refusals_of,
    tries_of,
)
from tests.support.orders import ids, make_buyers, make_sale, poison, reserved
from tests.support.tiers import slow_after
from vouchers.inventory.batch_journal import collect_suspects
from vouchers.inventory.keys import LedgerKeys, LedgerUnavailable
from vouchers.inventory.reservations import PendingEntry, confirm, pending_entries
from vouchers.models import SeckillVoucher

pytestmark = pytest.mark.django_db(transaction=True)

BATCH = 3


class Killed(BaseException):
    """The process is gone."""


@pytest.fixture(autouse=True)
def small_batches(settings: Settings) -> None:
    settings.SECKILL_BATCH_UNITS = BATCH


@pytest.fixture
def sale() -> SeckillVoucher:
    return make_sale(stock=100)


@pytest.fixture
def burst(sale: SeckillVoucher) -> list[PurchaseToken]:
    """Three full batches and a rest."""
    return reserved(sale, make_buyers(3 * BATCH + 1))


def held_user_locks(ledger: Redis) -> list[str]:
    """Return the locks, without what a released one leaves for a repeated release."""
    return [key for key in ledger.scan_iter("lock:*:user:*") if ":released:" not in key]


def numbers(tokens: Sequence[PurchaseToken], entries: Sequence[PendingEntry]) -> list[int]:
    """Return the places of these entries in the burst."""
    places = {token.order_id: place for place, token in enumerate(tokens)}
    return [places[entry.order_id] for entry in entries]


@pytest.fixture
def story(burst: list[PurchaseToken], monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What happens to the burst, in order; ``True`` means inside a transaction."""
    told: list[Any] = []

    def confirmed(*, entries: Sequence[PendingEntry], **kwargs: Any) -> None:
        told.append(("confirm", numbers(burst, entries), connection.in_atomic_block))
        confirm(entries=entries, **kwargs)

    def read(*, skip: int, count: int, **kwargs: Any) -> list[PendingEntry]:
        found = pending_entries(skip=skip, count=count, **kwargs)
        told.append(("read", numbers(burst, found), connection.in_atomic_block))
        return found

    monkeypatch.setattr(worker, "confirm", confirmed)
    monkeypatch.setattr(sale_pass, "pending_entries", read)
    return told


def test_ledger_works_while_the_database_inserts(
    sale: SeckillVoucher, burst: list[PurchaseToken], story: list[Any]
) -> None:
    fulfil_sale(sale_id=sale.pk)
    assert story == [
        ("read", [0, 1, 2], False),
        ("read", [3, 4, 5], True),
        ("confirm", [0, 1, 2], True),
        ("read", [6, 7, 8], True),
        ("confirm", [3, 4, 5], True),
        ("read", [9], True),  # not a full batch: it waits for more
        ("confirm", [6, 7, 8], False),
        ("read", [9], False),
        ("read", [9], False),
        ("confirm", [9], False),
        ("read", [], False),
    ]
    assert live_ids(sale) == ids(burst)
    assert pending_ids(sale) == []
    assert collect_suspects(sale_id=sale.pk) == {}
    assert_conserved(sale)


def test_no_batch_is_confirmed_before_its_commit(
    sale: SeckillVoucher, burst: list[PurchaseToken], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[bool] = []

    def confirmed(*, entries: Sequence[PendingEntry], **kwargs: Any) -> None:
        with connections.create_connection("default").cursor() as cursor:  # sees commits alone
            wanted = ",".join(str(entry.order_id) for entry in entries)
            cursor.execute(f"SELECT COUNT(*) FROM orders_voucherorder WHERE id IN ({wanted})")
            seen.append(cursor.fetchone()[0] == len(entries))
            cursor.connection.close()
        confirm(entries=entries, **kwargs)

    monkeypatch.setattr(worker, "confirm", confirmed)
    fulfil_sale(sale_id=sale.pk)
    assert seen == [True] * 4


@pytest.mark.parametrize("when", ["before the inserts", "after the inserts"])
@pytest.mark.parametrize("batch_number", slow_after(1, [1, 2, 3]))
def test_worker_that_dies_in_a_burst_is_succeeded(
    sale: SeckillVoucher,
    burst: list[PurchaseToken],
    ledger: Redis,
    monkeypatch: pytest.MonkeyPatch,
    settings: Settings,
    when: str,
    batch_number: int,
) -> None:
    settings.SECKILL_WORK_MS = 3_000
    written: list[Sequence[PendingEntry]] = []

    def write(*, entries: Sequence[PendingEntry], **kwargs: Any) -> BatchOutcome:
        written.append(entries)
        if len(written) == batch_number and when == "before the inserts":
            die()
        if len(written) == batch_number:
            kwargs["lost"] = die  # it is asked just before the commit
        return write_batch(entries=entries, **kwargs)

    def die() -> bool:
        # A process that is gone confirms nothing at the end of its pass.
        patch.setattr(worker, "_end_unconfirmed", lambda walk: None)
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(attempts, "write_batch", write)
        with pytest.raises(Killed):
            fulfil_sale(sale_id=sale.pk)
    for key in held_user_locks(ledger):  # their leases end
        ledger.delete(key)
    assert set(collect_suspects(sale_id=sale.pk)) == {entry.order_id for entry in written[-1]}
    fulfil_sale(sale_id=sale.pk)
    assert live_ids(sale) == ids(burst)
    assert (pending_ids(sale), refusals_of(sale), tries_of(sale)) == ([], {}, {})
    assert_conserved(sale)


@pytest.mark.slow
def test_failing_batch_beside_an_unconfirmed_one_is_halved(
    sale: SeckillVoucher, burst: list[PurchaseToken], monkeypatch: pytest.MonkeyPatch
) -> None:
    bad = burst.pop(4)
    poison(monkeypatch, bad.order_id)
    fulfil_sale(sale_id=sale.pk)
    assert live_ids(sale) == ids(burst)
    assert pending_ids(sale) == [bad.order_id]
    assert tries_of(sale) == {bad.order_id: 1}
    assert_conserved(sale)


def test_refusal_is_reported_before_the_next_batch(
    sale: SeckillVoucher, burst: list[PurchaseToken], story: list[Any]
) -> None:
    """A unit that comes back is on sale at once, and a total that is too high is corrected."""
    make_inactive(burst[1].user_id)
    fulfil_sale(sale_id=sale.pk)
    assert ("confirm", [0, 2], False) in story
    assert refusals_of(sale) == {burst[1].order_id: "inactive_buyer"}
    assert pending_ids(sale) == []
    assert_conserved(sale)


def make_inactive(user_id: int) -> None:
    with connection.cursor() as cursor:
        cursor.execute("UPDATE auth_user SET is_active = 0 WHERE id = %s", [user_id])


@pytest.mark.parametrize("step", slow_after(1, ["confirm", "pending_entries", "_lock_free"]))
def test_lost_ledger_in_a_transaction_blames_no_entry(
    sale: SeckillVoucher,
    burst: list[PurchaseToken],
    monkeypatch: pytest.MonkeyPatch,
    step: str,
) -> None:
    module: Any = sale_pass if step == "pending_entries" else worker
    works = getattr(module, step)

    def fail(*args: Any, **kwargs: Any) -> Any:
        if connection.in_atomic_block:
            raise LedgerUnavailable("cut off")
        return works(*args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(module, step, fail)
        with pytest.raises(LedgerUnavailable):
            fulfil_sale(sale_id=sale.pk)
    assert (tries_of(sale), collect_suspects(sale_id=sale.pk)) == ({}, {})
    fulfil_sale(sale_id=sale.pk)
    assert live_ids(sale) == ids(burst)
    assert pending_ids(sale) == []
    assert_conserved(sale)


def test_task_out_of_time_lets_go_of_the_next_batch(
    sale: SeckillVoucher,
    burst: list[PurchaseToken],
    ledger: Redis,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looks = iter([False, False, True, True])
    monkeypatch.setattr(sale_pass.SalePass, "is_late", lambda walk: next(looks, False))
    monkeypatch.setattr(worker, "clear_kick", stop_after_the_pass)
    with suppress(Killed):
        fulfil_sale(sale_id=sale.pk)
    assert live_ids(sale) == ids(burst[: 2 * BATCH])
    assert pending_ids(sale) == ids(burst[2 * BATCH :])
    assert held_user_locks(ledger) == []


def stop_after_the_pass(**kwargs: Any) -> None:
    raise Killed


@pytest.mark.parametrize(
    "late", slow_after(1, [True, False]), ids=["in the last batch", "in the next batch"]
)
def test_busy_buyer_delays_only_the_own_entry(
    sale: SeckillVoucher,
    burst: list[PurchaseToken],
    ledger: Redis,
    elsewhere: Callable[..., Any],
    settings: Settings,
    late: bool,
) -> None:
    settings.SECKILL_WORK_MS = 300
    busy = burst[0 if late else BATCH + 1]
    theirs = MultiLock(ledger, [LedgerKeys(sale.pk).user_lock(busy.user_id)])
    elsewhere(theirs.acquire_all)
    assert fulfil_sale(sale_id=sale.pk) is True
    assert pending_ids(sale) == [busy.order_id]
    elsewhere(theirs.release)
    fulfil_sale(sale_id=sale.pk)
    assert live_ids(sale) == ids(burst)
    assert_conserved(sale)


def test_buyer_with_units_in_two_batches_keeps_the_lock(
    ledger: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The release for one batch must not end the lock that the next one needs."""
    sale, buyers = make_sale(stock=100, limit=3), make_buyers(BATCH)
    tokens = [token for _ in range(3) for token in reserved(sale, buyers)]
    held: list[int] = []

    def write(**kwargs: Any) -> BatchOutcome:
        outcome = write_batch(**kwargs)
        keys = [LedgerKeys(sale.pk).user_lock(buyer.pk) for buyer in buyers]
        held.append(ledger.exists(*keys))
        return outcome

    monkeypatch.setattr(attempts, "write_batch", write)
    fulfil_sale(sale_id=sale.pk)
    assert held == [BATCH] * 3
    assert live_ids(sale) == ids(tokens)
    assert held_user_locks(ledger) == []


def test_lost_lock_of_the_last_batch_ends_the_pass(
    sale: SeckillVoucher,
    burst: list[PurchaseToken],
    ledger: Redis,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    written: list[int] = []

    def write(**kwargs: Any) -> BatchOutcome:
        outcome = write_batch(**kwargs)
        written.append(len(kwargs["entries"]))
        if len(written) == 1:
            ledger.delete(LedgerKeys(sale.pk).user_lock(burst[0].user_id))
        return outcome

    monkeypatch.setattr(attempts, "write_batch", write)
    fulfil_sale(sale_id=sale.pk)
    assert written == [BATCH]
    assert live_ids(sale) == ids(burst[:BATCH])
    assert tries_of(sale) == {}
    fulfil_sale(sale_id=sale.pk)
    assert live_ids(sale) == ids(burst)
    assert pending_ids(sale) == []
    assert_conserved(sale)
