"""The worker under faults: poison entries, deadlocks, held rows, killed connections, outages."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from django.db import InterfaceError, OperationalError, connection
from pytest_django import Settings
from redis import Redis

from orders.fulfilment import attempts, batch, bulk_insert, worker
from orders.fulfilment.batch import write_batch
from orders.fulfilment.worker import CutOff, fulfil_sale
from orders.models import VoucherOrder
from orders.placing.tokens import PurchaseToken
from orders.receipts.service import find_receipt
from seckill_site.redis.ledger_connection import BACKING_OFF, ledger_connection
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
    poison,
    reserved,
    reserved_sale,
    tokens_for,
)
from tests.support.patience import wait_for
from vouchers.inventory.batch_journal import (
    Decision,
    set_aside,
)
from vouchers.inventory.keys import LedgerKeys
from vouchers.inventory.rebuild import rebuild_sale
from vouchers.inventory.reservations import BACKOFF_MS, PendingEntry, entries_set_aside
from vouchers.inventory.sale_state import snapshot
from vouchers.lock_objects import lock_seckill_voucher
from vouchers.models import SeckillVoucher

pytestmark = pytest.mark.django_db(transaction=True)


def ids_of(entries: Sequence[PendingEntry]) -> list[int]:
    return [entry.order_id for entry in entries]


# --- Poison --------------------------------------------------------------------------------------


def test_poison_entry_is_isolated_by_halving(monkeypatch: pytest.MonkeyPatch) -> None:
    sale, tokens = reserved_sale(make_buyers(10), stock=20)
    bad = tokens.pop(6)
    poison(monkeypatch, bad.order_id)
    assert fulfil_sale(sale_id=sale.pk) is True, "it is to be tried again in a second"
    assert live_ids(sale) == ids(tokens)
    assert pending_ids(sale) == [bad.order_id]
    assert tries_of(sale) == {bad.order_id: 1}
    assert_conserved(sale)


@pytest.mark.slow
def test_poison_entry_is_set_aside_after_its_tries(
    monkeypatch: pytest.MonkeyPatch, settings: Settings
) -> None:
    settings.SECKILL_MAX_TRIES = 3
    sale, (bad,) = reserved_sale(make_buyers(1), stock=50)
    poison(monkeypatch, bad.order_id)
    good: list[PurchaseToken] = []
    started = time.monotonic()
    while not refusals_of(sale):
        good += reserved(sale, make_buyers(2))
        fulfil_sale(sale_id=sale.pk)
        assert live_ids(sale) == ids(good), "the others waited for it"
    assert time.monotonic() - started >= 2, "only attempts a second apart count"
    assert refusals_of(sale) == {bad.order_id: "failed"}
    assert ended_of(sale) == {bad.order_id: f"{bad.user_id}:failed"}
    assert pending_ids(sale) == []
    assert tries_of(sale) == {}
    assert_conserved(sale)


@pytest.mark.slow
@pytest.mark.parametrize(("retry_s", "waits"), [(3_600, True), (0, False)])
def test_new_arrivals_trigger_no_further_attempts(
    retry_s: float,
    waits: bool,
    monkeypatch: pytest.MonkeyPatch,
    settings: Settings,
    caplog: pytest.LogCaptureFixture,
) -> None:
    settings.SECKILL_WORK_MS = 50 if waits else 5_000  # the first pass comes to the retries
    monkeypatch.setattr(worker, "RETRY_S", retry_s)
    sale, (bad,) = reserved_sale(make_buyers(1), stock=50)
    poison(monkeypatch, bad.order_id)
    fulfil_sale(sale_id=sale.pk)
    for _ in range(5):
        reserved(sale, make_buyers(1))
        fulfil_sale(sale_id=sale.pk)
    failures = caplog.text.count(f"order {bad.order_id} of sale {sale.pk} failed")
    assert (failures == 1) is waits


def impossible(sale: SeckillVoucher, ledger: Redis) -> PurchaseToken:
    """Make an entry pending that cannot even be refused: a constraint forbids its unit."""
    keys = LedgerKeys(sale.pk)
    (bad,) = tokens_for(sale, make_buyers(1))
    accepted_ms = ledger.time()[0] * 1_000 - 10
    ledger.hset(keys.buyers, f"{bad.user_id}:21", bad.order_id)
    ledger.zadd(keys.pending, {f"{bad.order_id}:{bad.user_id}:21": accepted_ms})
    return bad


def test_entry_without_possible_row_waits_for_staff(ledger: Redis, settings: Settings) -> None:
    settings.SECKILL_MAX_TRIES = 1
    sale = make_sale(stock=20)
    bad = impossible(sale, ledger)
    good = reserved(sale, make_buyers(2))
    assert fulfil_sale(sale_id=sale.pk) is False
    assert live_ids(sale) == ids(good)
    assert ended_of(sale) == {}
    assert pending_ids(sale) == [bad.order_id]
    for _ in range(2):
        assert snapshot(sale_id=sale.pk).set_aside == 1
        assert_conserved(sale)
        rebuild_sale(sale_id=sale.pk)
    assert fulfil_sale(sale_id=sale.pk) is False, "no worker takes it"


@pytest.mark.parametrize("decision", [Decision.RETRY, Decision.REFUSE])
def test_staff_decide_about_entry_without_row(
    decision: Decision, ledger: Redis, settings: Settings
) -> None:
    settings.SECKILL_MAX_TRIES = 1
    sale = make_sale(stock=20)
    bad = impossible(sale, ledger)
    fulfil_sale(sale_id=sale.pk)
    (entry,) = entries_set_aside(sale_id=sale.pk)
    assert set_aside(sale_id=sale.pk, entries=[entry], decision=decision)
    assert entries_set_aside(sale_id=sale.pk) == []
    fulfil_sale(sale_id=sale.pk)
    if decision is Decision.RETRY:
        assert entries_set_aside(sale_id=sale.pk) == [entry], "still impossible"
        return
    assert ended_of(sale) == {bad.order_id: f"{bad.user_id}:failed"}
    found = find_receipt(sale_id=sale.pk, order_id=bad.order_id, user_id=bad.user_id)
    assert (found.status, found.reason) == ("refused", "failed")
    assert pending_ids(sale) == []
    assert_conserved(sale)


@pytest.mark.slow
def test_killing_entry_delays_only_itself(
    monkeypatch: pytest.MonkeyPatch, settings: Settings
) -> None:
    """It kills its worker in its batch, among a few, and twice alone; the others go on."""
    settings.SECKILL_MAX_TRIES, settings.SECKILL_WORK_MS = 2, 3_000
    sale, tokens = reserved_sale(make_buyers(5), stock=20)
    bad = tokens[2]

    class Killed(BaseException):
        pass

    def killed(**kwargs: Any) -> Any:
        if kwargs.get("refuse_as") is None and bad.order_id in ids_of(kwargs["entries"]):
            raise Killed
        return write_batch(**kwargs)

    monkeypatch.setattr(attempts, "write_batch", killed)
    with pytest.raises(Killed):
        fulfil_sale(sale_id=sale.pk)
    assert live_ids(sale) == []
    for _ in range(3):
        tokens += reserved(sale, make_buyers(1))
        with pytest.raises(Killed):
            fulfil_sale(sale_id=sale.pk)
        assert ids(tokens[-1:])[0] in live_ids(sale)
    fulfil_sale(sale_id=sale.pk)
    assert set(live_ids(sale)) == set(ids(tokens)) - {bad.order_id}
    assert refusals_of(sale) == {bad.order_id: "failed"}
    assert_conserved(sale)


def test_entry_with_taken_id_waits_for_staff(settings: Settings) -> None:
    settings.SECKILL_MAX_TRIES = 1
    sale, (owner, *others) = make_sale(stock=20), make_buyers(6)
    tokens = reserved(sale, others)
    taken = tokens.pop(2)
    make_order(make_sale(), owner, order_id=taken.order_id)
    fulfil_sale(sale_id=sale.pk)
    assert live_ids(sale) == ids(tokens)
    assert VoucherOrder.objects.get(pk=taken.order_id).user_id == owner.pk
    assert [entry.order_id for entry in entries_set_aside(sale_id=sale.pk)] == [taken.order_id]
    assert_conserved(sale)


# --- Faults that pass ----------------------------------------------------------------------------


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


def wait_out_backoff(sale: SeckillVoucher) -> None:
    """Wait until workers may try the sale again, and assert that they had to."""
    client, key = ledger_connection(), LedgerKeys(sale.pk).backoff
    assert fulfil_sale(sale_id=sale.pk) is False
    assert 0 < client.pttl(key) <= BACKOFF_MS[1]
    wait_for(lambda: not client.exists(key), what="the end of the backoff")


@pytest.mark.slow
@pytest.mark.usefixtures("row_locks", "impatient")
def test_held_row_is_no_fault_of_an_entry() -> None:
    sale, (token,) = reserved_sale(make_buyers(1))
    with another_session() as holder:
        hold_row(holder, sale)
        for _ in range(3):
            assert fulfil_sale(sale_id=sale.pk) is False
            assert "1205" in ledger_connection().get(BACKING_OFF)
            wait_out_backoff(sale)
    assert pending_ids(sale) == [token.order_id]
    assert tries_of(sale) == {}
    fulfil_sale(sale_id=sale.pk)
    assert live_ids(sale) == [token.order_id]


def test_database_outage_refuses_nobody(settings: Settings) -> None:
    settings.SECKILL_MAX_TRIES = 1
    sale, (token,) = reserved_sale(make_buyers(1))
    with pytest.MonkeyPatch.context() as patch:
        options = {
            k: v for k, v in connection.settings_dict["OPTIONS"].items() if k != "unix_socket"
        }
        patch.setitem(connection.settings_dict, "HOST", "127.0.0.1")
        patch.setitem(connection.settings_dict, "PORT", "1")
        patch.setitem(connection.settings_dict, "OPTIONS", options)
        connection.close()
        for _ in range(3):
            with pytest.raises(CutOff):
                fulfil_sale(sale_id=sale.pk)
            assert not ledger_connection().exists(LedgerKeys(sale.pk).backoff), "others may work"
    fulfil_sale(sale_id=sale.pk)
    assert refusals_of(sale) == {}
    assert live_ids(sale) == [token.order_id]


@pytest.mark.slow
@pytest.mark.parametrize("number", [1114, 1317, 3024, 9999])
def test_error_of_any_number_is_the_databases_if_the_control_fails(
    number: int, monkeypatch: pytest.MonkeyPatch, settings: Settings
) -> None:
    settings.SECKILL_MAX_TRIES = 1
    sale, tokens = reserved_sale(make_buyers(5), stock=20)

    def failing(**kwargs: Any) -> Any:
        raise OperationalError(number, "…")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batch, "insert_orders", failing)
        for _ in range(3):
            fulfil_sale(sale_id=sale.pk)
            wait_out_backoff(sale)
    assert (tries_of(sale), refusals_of(sale), ended_of(sale)) == ({}, {}, {})
    fulfil_sale(sale_id=sale.pk)
    assert live_ids(sale) == ids(tokens)
    assert_conserved(sale)


def test_without_a_control_write_a_fault_refuses_buyers(
    monkeypatch: pytest.MonkeyPatch, settings: Settings
) -> None:
    """The control of the test above: here every failure counts against the entries."""
    settings.SECKILL_MAX_TRIES = 1
    sale, tokens = reserved_sale(make_buyers(5), stock=20)
    insert = bulk_insert.insert_orders

    def failing(*, orders: Any, **kwargs: Any) -> Any:
        if any(order.live for order in orders):
            raise OperationalError(1114, "the table is full")
        insert(orders=orders, **kwargs)

    monkeypatch.setattr(batch, "insert_orders", failing)
    monkeypatch.setattr(attempts, "write_control", lambda **kwargs: None)
    fulfil_sale(sale_id=sale.pk)
    assert refusals_of(sale) == dict.fromkeys(ids(tokens), "failed")


@pytest.mark.usefixtures("row_locks")
@pytest.mark.concurrency
def test_deadlock_is_retried(monkeypatch: pytest.MonkeyPatch) -> None:
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
        return fulfil_sale(sale_id=sale.pk)

    seen: list[int] = []

    def written(**kwargs: Any) -> Any:
        try:
            return write_batch(**kwargs)
        except OperationalError as error:
            seen.append(error.args[0])
            raise

    monkeypatch.setattr(batch, "lock_seckill_voucher", locked)
    monkeypatch.setattr(attempts, "write_batch", written)
    assert at_once(heavier, fulfil) == [None, False]
    assert seen == [1213]
    assert live_ids(sale) == [token.order_id]
    assert tries_of(sale) == {}


@pytest.mark.parametrize("at", ["before the begin", "after the lock", "before the commit"])
def test_killed_connection_is_reopened(at: str, monkeypatch: pytest.MonkeyPatch) -> None:
    sale, tokens = reserved_sale(make_buyers(3))
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
        monkeypatch.setattr(attempts, "write_batch", written)
    fulfil_sale(sale_id=sale.pk)
    assert killed
    assert live_ids(sale) == ids(tokens)
    assert tries_of(sale) == {}
    assert_conserved(sale)


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
    sale, tokens = reserved_sale(make_buyers(3))
    answers = [error]

    def written(**kwargs: Any) -> Any:
        verdict = write_batch(**kwargs)
        if answers:
            raise answers.pop()
        return verdict

    monkeypatch.setattr(attempts, "write_batch", written)
    fulfil_sale(sale_id=sale.pk)
    assert live_ids(sale) == ids(tokens)
    assert pending_ids(sale) == []
    assert_conserved(sale)


@pytest.mark.usefixtures("row_locks", "impatient")
def test_lost_lock_stops_retries_after_an_error(
    ledger: Redis, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.SECKILL_LEASE_MS = 300
    sale = make_sale()
    reserved(sale, make_buyers(2))
    tries: list[int] = []

    def written(**kwargs: Any) -> Any:
        tries.append(1)
        ledger.delete(LedgerKeys(sale.pk).sale_lock)
        wait_for(kwargs["lost"])
        return write_batch(**kwargs)

    monkeypatch.setattr(attempts, "write_batch", written)
    with another_session() as holder:
        hold_row(holder, sale)
        fulfil_sale(sale_id=sale.pk)
    assert tries == [1]
