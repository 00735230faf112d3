"""The worker under faults: poison entries, deadlocks, held rows, killed connections, outages."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from django.db import (
    DataError,
    IntegrityError,
    InterfaceError,
    OperationalError,
    connection,
)
from pytest_django import Settings
from redis import Redis

from orders.fulfilment import batch, worker
from orders.fulfilment.batch import write_batch
from orders.fulfilment.worker import fulfill_sale, is_transient
from orders.models import VoucherOrder
from orders.placing.tokens import PurchaseToken
from orders.receipts.service import find_receipt
from tests.support.inspection import (
    assert_conserved,
    ended_of,
    live_ids,
    pending_ids,
    refusals_of,
    tries_of,
)
from tests.support.orders import (
    another_session,
    at_once,
    hold_row,
    ids,
    make_buyers,
    make_order,
    make_sale,
    reserved,
    tokens_for,
)
from tests.support.patience import wait_for
from vouchers.inventory.batch_journal import read_suspects
from vouchers.inventory.keys import LedgerKeys
from vouchers.inventory.reservations import PendingEntry
from vouchers.lock_objects import lock_seckill_voucher
from vouchers.models import SeckillVoucher

pytestmark = pytest.mark.django_db


def ids_of(entries: Sequence[PendingEntry]) -> list[int]:
    return [entry.order_id for entry in entries]


# --- Poison --------------------------------------------------------------------------------------


def poison(monkeypatch: pytest.MonkeyPatch, order_id: int) -> None:
    """Make this order's row raise when it is created live, like a bug."""
    make_row = batch._row

    def poisoned(sale: Any, entry: Any, known: Any, reason: Any) -> Any:
        if entry.order_id == order_id and reason is None:
            raise ZeroDivisionError("poison")
        return make_row(sale, entry, known, reason)

    monkeypatch.setattr(batch, "_row", poisoned)


def test_poison_entry_is_isolated_by_halving(monkeypatch: pytest.MonkeyPatch) -> None:
    sale = make_sale(stock=20)
    tokens = reserved(sale, make_buyers(10))
    bad = tokens.pop(6)
    poison(monkeypatch, bad.order_id)
    assert fulfill_sale(sale_id=sale.pk) is False
    assert live_ids(sale) == ids(tokens)
    assert pending_ids(sale) == [bad.order_id]
    assert tries_of(sale) == {bad.order_id: 1}
    assert_conserved(sale)


def test_poison_entry_is_set_aside_after_its_tries(
    monkeypatch: pytest.MonkeyPatch, settings: Settings
) -> None:
    settings.SECKILL_MAX_TRIES = 3
    sale = make_sale(stock=20)
    (bad,) = reserved(sale, make_buyers(1))
    poison(monkeypatch, bad.order_id)
    good: list[PurchaseToken] = []
    for tries in (1, 2, 3):
        good += reserved(sale, make_buyers(2))
        fulfill_sale(sale_id=sale.pk)
        assert tries_of(sale) == {bad.order_id: tries}
        assert live_ids(sale) == ids(good)
    fulfill_sale(sale_id=sale.pk)
    assert refusals_of(sale) == {bad.order_id: "failed"}
    assert ended_of(sale) == {bad.order_id: f"{bad.user_id}:failed"}
    assert pending_ids(sale) == []
    assert tries_of(sale) == {}
    assert_conserved(sale)


def test_entry_without_possible_row_ends_in_the_ledger(ledger: Redis, settings: Settings) -> None:
    """The entry cannot even be refused: a database constraint forbids its unit."""
    settings.SECKILL_MAX_TRIES = 1
    sale = make_sale(stock=20)
    keys = LedgerKeys(sale.pk)
    (bad,) = tokens_for(sale, make_buyers(1))
    accepted_ms = ledger.time()[0] * 1_000 - 10
    ledger.hset(keys.buyers, f"{bad.user_id}:21", bad.order_id)
    ledger.zadd(keys.pending, {f"{bad.order_id}:{bad.user_id}:21": accepted_ms})
    for _ in range(3):
        good = reserved(sale, make_buyers(2))
        fulfill_sale(sale_id=sale.pk)
        assert set(ids(good)) <= set(live_ids(sale))
    assert ended_of(sale) == {bad.order_id: f"{bad.user_id}:failed"}
    found = find_receipt(sale_id=sale.pk, order_id=bad.order_id, user_id=bad.user_id)
    assert (found.status, found.reason) == ("refused", "failed")
    assert pending_ids(sale) == []
    assert_conserved(sale)


def test_attempt_of_killed_process_is_counted(
    monkeypatch: pytest.MonkeyPatch, settings: Settings
) -> None:
    settings.SECKILL_MAX_TRIES = 2
    sale = make_sale()
    (bad,) = reserved(sale, make_buyers(1))

    class Killed(BaseException):
        pass

    def killed(**kwargs: Any) -> Any:
        if kwargs.get("refuse_as") is None:
            raise Killed
        return write_batch(**kwargs)

    monkeypatch.setattr(worker, "write_batch", killed)
    for tries in ({}, {bad.order_id: 1}, {bad.order_id: 2}):  # the first time it may be another's
        with pytest.raises(Killed):
            fulfill_sale(sale_id=sale.pk)
        assert tries_of(sale) == tries
        assert read_suspects(sale_id=sale.pk) == {bad.order_id}
    fulfill_sale(sale_id=sale.pk)
    assert read_suspects(sale_id=sale.pk) == set()
    assert refusals_of(sale) == {bad.order_id: "failed"}
    assert_conserved(sale)


def test_killing_entry_delays_only_itself(
    monkeypatch: pytest.MonkeyPatch, settings: Settings
) -> None:
    """All other entries are written by the next worker without waiting for it."""
    settings.SECKILL_MAX_TRIES = 2
    sale = make_sale(stock=20)
    tokens = reserved(sale, make_buyers(5))
    bad = tokens[2]

    class Killed(BaseException):
        pass

    def killed(**kwargs: Any) -> Any:
        if kwargs.get("refuse_as") is None and bad.order_id in ids_of(kwargs["entries"]):
            raise Killed
        return write_batch(**kwargs)

    monkeypatch.setattr(worker, "write_batch", killed)
    with pytest.raises(Killed):
        fulfill_sale(sale_id=sale.pk)
    assert live_ids(sale) == []
    for _ in range(2):
        tokens += reserved(sale, make_buyers(1))
        with pytest.raises(Killed):
            fulfill_sale(sale_id=sale.pk)
        assert ids(tokens[-1:])[0] in live_ids(sale)
    fulfill_sale(sale_id=sale.pk)
    assert set(live_ids(sale)) == set(ids(tokens)) - {bad.order_id}
    assert refusals_of(sale) == {bad.order_id: "failed"}
    assert_conserved(sale)


def test_entry_with_taken_id_ends_in_the_ledger(
    settings: Settings,
) -> None:
    settings.SECKILL_MAX_TRIES = 2
    sale, (owner, *others) = make_sale(stock=20), make_buyers(6)
    tokens = reserved(sale, others)
    taken = tokens.pop(2)
    make_order(make_sale(), owner, order_id=taken.order_id)
    fulfill_sale(sale_id=sale.pk)
    assert live_ids(sale) == ids(tokens)
    assert tries_of(sale) == {taken.order_id: 1}
    for _ in range(2):
        fulfill_sale(sale_id=sale.pk)
    assert VoucherOrder.objects.get(pk=taken.order_id).user_id == owner.pk
    assert pending_ids(sale) == [], "it is tried for ever"
    assert_conserved(sale)


# --- Faults that pass ----------------------------------------------------------------------------


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[Callable[[], None]]:
    """Functions to call in the pauses before each new attempt, instead of sleeping."""
    todo: list[Callable[[], None]] = []

    def sleep(seconds: float) -> None:
        assert 0 < seconds <= 1
        if todo:
            todo.pop(0)()

    clock = SimpleNamespace(monotonic=time.monotonic, sleep=sleep)
    monkeypatch.setattr(worker, "time", clock)
    return todo


@pytest.fixture
def impatient(transactional_db: None) -> Iterator[None]:
    """A session that waits for no row: error 1205 comes at once instead of after 3 s."""
    options = connection.settings_dict["OPTIONS"]
    patient = options["init_command"]
    options["init_command"] = patient.replace("lock_wait_timeout = 3", "lock_wait_timeout = 0")
    assert options["init_command"] != patient
    connection.close()
    yield
    options["init_command"] = patient
    connection.close()


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("row_locks", "impatient")
def test_lock_wait_timeout_is_retried(
    pauses: list[Callable[[], None]],
) -> None:
    sale = make_sale()
    tokens = reserved(sale, make_buyers(2))
    with another_session() as holder:
        hold_row(holder, sale)
        pauses += [lambda: None, holder.rollback]
        fulfill_sale(sale_id=sale.pk)
    assert pauses == []
    assert live_ids(sale) == ids(tokens)
    assert tries_of(sale) == {}


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("row_locks", "impatient", "pauses")
def test_row_held_for_long_is_left_to_the_sweep() -> None:
    sale = make_sale()
    (token,) = reserved(sale, make_buyers(1))
    with another_session() as holder:
        hold_row(holder, sale)
        with pytest.raises(OperationalError) as caught:
            fulfill_sale(sale_id=sale.pk)
    assert caught.value.args[0] == 1205
    assert pending_ids(sale) == [token.order_id]
    assert tries_of(sale) == {}, "a lock error says nothing about the entry"


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("pauses")
def test_database_outage_refuses_nobody(settings: Settings) -> None:
    settings.SECKILL_MAX_TRIES = 2
    sale = make_sale()
    (token,) = reserved(sale, make_buyers(1))
    with pytest.MonkeyPatch.context() as patch:
        options = {
            k: v for k, v in connection.settings_dict["OPTIONS"].items() if k != "unix_socket"
        }
        patch.setitem(connection.settings_dict, "HOST", "127.0.0.1")
        patch.setitem(connection.settings_dict, "PORT", "1")
        patch.setitem(connection.settings_dict, "OPTIONS", options)
        connection.close()
        for _ in range(4):
            with pytest.raises(OperationalError):
                fulfill_sale(sale_id=sale.pk)
    fulfill_sale(sale_id=sale.pk)
    assert refusals_of(sale) == {}
    assert live_ids(sale) == [token.order_id]


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("row_locks")
@pytest.mark.concurrency
def test_deadlock_is_retried(
    pauses: list[Callable[[], None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another session holds the buyer and wants the sale, which fulfilment has locked."""
    sale, buyers = make_sale(), make_buyers(50)
    (token,) = reserved(sale, buyers[:1])
    holds_buyers, has_sale, done = threading.Event(), threading.Event(), threading.Event()

    def heavier() -> None:
        with another_session() as session:
            with session.cursor() as cursor:
                # So many rows that the database gives up the other one.
                cursor.execute(
                    "UPDATE auth_user SET last_name = 'x' WHERE id BETWEEN %s AND %s",
                    [buyers[0].pk, buyers[-1].pk],
                )
                holds_buyers.set()
                assert has_sale.wait(10)
            hold_row(session, sale)
            session.commit()
        done.set()

    def locked(*, sale_id: int) -> SeckillVoucher:
        row = lock_seckill_voucher(sale_id=sale_id)
        has_sale.set()
        return row

    def fulfil() -> bool:
        assert holds_buyers.wait(10)
        return fulfill_sale(sale_id=sale.pk)

    seen: list[int] = []

    def written(**kwargs: Any) -> Any:
        try:
            return write_batch(**kwargs)
        except OperationalError as error:
            seen.append(error.args[0])
            raise

    monkeypatch.setattr(batch, "lock_seckill_voucher", locked)
    monkeypatch.setattr(worker, "write_batch", written)
    pauses.append(lambda: wait_for(done.is_set))
    assert at_once(heavier, fulfil) == [None, False]
    assert seen == [1213]
    assert live_ids(sale) == [token.order_id]
    assert tries_of(sale) == {}


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("pauses")
@pytest.mark.parametrize("at", ["before the begin", "after the lock", "before the commit"])
def test_killed_connection_is_reopened(at: str, monkeypatch: pytest.MonkeyPatch) -> None:
    sale = make_sale()
    tokens = reserved(sale, make_buyers(3))
    killed: list[int] = []

    def kill_once() -> bool:
        if not killed:
            with another_session() as session, session.cursor() as cursor:
                killed.append(connection.connection.thread_id())
                cursor.execute(f"KILL {killed[0]}")
        return False

    def locked(*, sale_id: int) -> SeckillVoucher:
        row = lock_seckill_voucher(sale_id=sale_id)
        kill_once()
        return row

    def written(**kwargs: Any) -> Any:
        still_ours = kwargs.pop("lost")
        return write_batch(lost=lambda: kill_once() or still_ours(), **kwargs)

    if at == "before the begin":
        kill_once()
    elif at == "after the lock":
        monkeypatch.setattr(batch, "lock_seckill_voucher", locked)
    else:
        monkeypatch.setattr(worker, "write_batch", written)
    fulfill_sale(sale_id=sale.pk)
    assert killed
    assert live_ids(sale) == ids(tokens)
    assert tries_of(sale) == {}
    assert_conserved(sale)


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("pauses")
@pytest.mark.parametrize(
    "error",
    [
        OperationalError(2013, "Lost connection to server during query"),
        OperationalError(2006, "Server has gone away"),
        InterfaceError(0, ""),  # what mysqlclient says of a connection that it has closed
    ],
    ids=["2013", "2006", "closed"],
)
def test_commit_with_lost_answer_is_found_done(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    sale = make_sale()
    tokens = reserved(sale, make_buyers(3))
    answers = [error]

    def written(**kwargs: Any) -> Any:
        verdict = write_batch(**kwargs)
        if answers:
            raise answers.pop()
        return verdict

    monkeypatch.setattr(worker, "write_batch", written)
    fulfill_sale(sale_id=sale.pk)
    assert live_ids(sale) == ids(tokens)
    assert pending_ids(sale) == []
    assert_conserved(sale)


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("row_locks", "impatient")
def test_lost_lock_stops_retries_after_an_error(
    ledger: Redis, settings: Settings, pauses: list[Callable[[], None]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    settings.SECKILL_LEASE_MS = 300
    sale = make_sale()
    reserved(sale, make_buyers(2))
    tries: list[int] = []

    def written(**kwargs: Any) -> Any:
        tries.append(1)
        ledger.delete(LedgerKeys(sale.pk).sale_lock)
        wait_for(kwargs["lost"])
        return write_batch(**kwargs)

    monkeypatch.setattr(worker, "write_batch", written)
    with another_session() as holder:
        hold_row(holder, sale)
        with pytest.raises(OperationalError):
            fulfill_sale(sale_id=sale.pk)
    assert tries == [1]


@pytest.mark.parametrize("number", [1020, 1040, 1205, 1213, 1290, 1836, 1927, 2002, 2006, 2013])
def test_connection_lock_and_read_only_errors_are_transient(number: int) -> None:
    assert is_transient(OperationalError(number, "…"))


@pytest.mark.parametrize(
    "error",
    [OperationalError(1364, "…"), IntegrityError(1062, "…"), DataError(1264, "…"), ValueError()],
)
def test_errors_caused_by_an_entry_are_not_transient(error: Exception) -> None:
    assert not is_transient(error)
