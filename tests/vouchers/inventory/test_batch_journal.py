"""The batch journal on a real Redis."""

from contextlib import nullcontext
from typing import Any

import pytest

from seckill_site.redis.ledger_connection import BACKING_OFF, ledger_connection
from tests.support.patience import wait_for
from tests.support.sales import open_ledger, redis_now_ms, reserve_entry
from vouchers.inventory.batch_journal import (
    Decision,
    back_off,
    clear_batch,
    collect_suspects,
    count_failure,
    record_batch,
    set_aside,
)
from vouchers.inventory.keys import LedgerKeys, NotLoaded
from vouchers.inventory.reservations import (
    BACKOFF_MS,
    PendingEntry,
    acknowledge_kick,
    claim_due_sweeps,
    confirm,
    entries_set_aside,
    pending_entries,
)
from vouchers.inventory.sale_state import snapshot


def two_entries() -> list[PendingEntry]:
    open_ledger(1)
    return [reserve_entry(sale_id=1, order_id=500 + n, user_id=n) for n in (1, 2)]


def test_batch_numbers_rise() -> None:
    open_ledger(1)

    assert [record_batch(sale_id=1, entries=[]) for _ in range(3)] == [1, 2, 3]


@pytest.mark.parametrize("identity", [0, 7])
def test_batch_is_refused_by_the_ledger_of_another_sale(identity: int) -> None:
    """Redis went back to before the id was reused. Control: identity 0."""
    entries = two_entries()

    with pytest.raises(NotLoaded) if identity else nullcontext():
        record_batch(sale_id=1, entries=entries, identity=identity)

    assert bool(collect_suspects(sale_id=1)) == (not identity)


def test_recorded_batch_is_suspect_until_cleared_or_confirmed() -> None:
    entries = two_entries()

    record_batch(sale_id=1, entries=entries)
    assert {it: found.failures for it, found in collect_suspects(sale_id=1).items()} == {
        501: 0, 502: 0
    }  # fmt: skip
    confirm(sale_id=1, entries=entries)
    assert collect_suspects(sale_id=1) == {}

    record_batch(sale_id=1, entries=entries)
    clear_batch(sale_id=1)
    assert collect_suspects(sale_id=1) == {}


@pytest.mark.parametrize("late", [True, False])
def test_late_confirmation_keeps_the_record_of_the_next_batch(late: bool) -> None:
    """The worker may die with the next one. Control: without its number, the record is gone."""
    first, second = two_entries()
    number = record_batch(sale_id=1, entries=[first])
    record_batch(sale_id=1, entries=[second])

    confirm(sale_id=1, entries=[first], number=number if late else 0)

    assert pending_entries(sale_id=1, skip=0, count=2) == [second]
    assert set(collect_suspects(sale_id=1)) == ({502} if late else set())


def test_confirmation_of_the_last_batch_ends_its_record() -> None:
    entries = two_entries()
    number = record_batch(sale_id=1, entries=entries)

    confirm(sale_id=1, entries=entries, number=number)

    assert collect_suspects(sale_id=1) == {}


def test_confirmed_batch_ends_the_growth_of_the_backoff() -> None:
    entries = two_entries()
    assert [back_off(sale_id=1, error=ValueError()) for _ in range(3)] == [250, 500, 1_000]
    confirm(sale_id=1, entries=entries)
    assert back_off(sale_id=1, error=ValueError()) == 250


def test_suspects_of_a_dead_worker_are_remembered() -> None:
    record_batch(sale_id=1, entries=two_entries())
    collect_suspects(sale_id=1)
    record_batch(sale_id=1, entries=[])

    assert set(collect_suspects(sale_id=1)) == {501, 502}


def test_entries_whose_batches_did_not_end_twice_are_written_alone() -> None:
    entries = two_entries()
    record_batch(sale_id=1, entries=entries)
    assert [it.alone for it in collect_suspects(sale_id=1).values()] == [False, False]

    found = collect_suspects(sale_id=1, add=entries[:1])

    assert {it: suspect.alone for it, suspect in found.items()} == {501: True, 502: False}
    assert found[501].failures == 0
    record_batch(sale_id=1, entries=entries)
    assert [it.alone for it in collect_suspects(sale_id=1).values()] == [True, True]


def test_entry_recorded_alone_by_a_dead_worker_has_failed() -> None:
    record_batch(sale_id=1, entries=two_entries()[:1])

    assert collect_suspects(sale_id=1)[501].failures == 1
    assert collect_suspects(sale_id=1)[501].failures == 1, "counted once"


def test_failures_count_if_a_second_apart() -> None:
    def fail_again() -> bool:
        return count_failure(sale_id=1, order_id=501) == 2

    assert [count_failure(sale_id=1, order_id=501) for _ in range(3)] == [1, 1, 1]
    wait_for(fail_again, what="a second failure")

    added = [PendingEntry(501, 1, 1, 0), PendingEntry(502, 2, 1, 0)]
    found = collect_suspects(sale_id=1, add=added)

    assert (found[501].failures, found[502].failures) == (2, 0)
    assert found[501].last_ms_ago < 1_000 < found[502].last_ms_ago


def test_failure_from_the_future_is_long_ago(ledger: Any) -> None:
    """The clock of Redis went back; the entry would otherwise wait as long again."""
    ledger.hset(LedgerKeys(1).tries, "501", f"2 {redis_now_ms() + 60_000}")

    found = collect_suspects(sale_id=1)[501]

    assert (found.failures, found.last_ms_ago > 60_000) == (2, True)


def test_entry_set_aside_stays_pending_out_of_reach() -> None:
    first, second = two_entries()
    count_failure(sale_id=1, order_id=501)

    assert set_aside(sale_id=1, entries=[first])
    assert not set_aside(sale_id=1, entries=[first]), "it is aside already"

    assert pending_entries(sale_id=1, skip=0, count=9) == [second]
    assert entries_set_aside(sale_id=1) == [first]
    found = snapshot(sale_id=1)
    assert (found.taken, found.pending, found.set_aside) == (2, 2, 1)
    assert found.oldest_pending_ms == second.accepted_at_ms
    assert collect_suspects(sale_id=1) == {}


@pytest.mark.parametrize("decision", [Decision.RETRY, Decision.REFUSE])
def test_decision_takes_an_entry_back(decision: Decision) -> None:
    first, second = two_entries()
    assert not set_aside(sale_id=1, entries=[first], decision=decision), "it is not aside"
    set_aside(sale_id=1, entries=[first])

    assert set_aside(sale_id=1, entries=[first], decision=decision)

    assert pending_entries(sale_id=1, skip=0, count=9) == [first, second]
    assert [it.to_refuse for it in collect_suspects(sale_id=1).values()] == [True] * (
        decision is Decision.REFUSE
    )


def test_missing_entry_is_not_set_aside() -> None:
    two_entries()
    assert not set_aside(sale_id=1, entries=[PendingEntry(503, 3, 1, 0)])
    assert pending_entries(sale_id=1, skip=0, count=9) == two_entries()


def test_backoff_doubles_up_to_its_maximum() -> None:
    pauses = [back_off(sale_id=1, error=ValueError("full")) for _ in range(30)]

    assert pauses[:3] == [BACKOFF_MS[0], 2 * BACKOFF_MS[0], 4 * BACKOFF_MS[0]]
    assert pauses[-1] == BACKOFF_MS[1]
    assert ledger_connection().get(BACKING_OFF) == "sale 1: full"


def test_no_worker_and_no_sweep_tries_a_sale_during_its_backoff() -> None:
    entry, _ = two_entries()
    keys = LedgerKeys(1)
    ledger_connection().zadd(keys.pending, {entry.member: entry.accepted_at_ms - 10**6})
    back_off(sale_id=1, error=ValueError("full"))

    assert not acknowledge_kick(sale_id=1)
    assert claim_due_sweeps(sale_ids=[1]) == []
    wait_for(lambda: acknowledge_kick(sale_id=1), what="the end of the backoff")
    ledger_connection().delete(keys.kick)
    assert claim_due_sweeps(sale_ids=[1]) == [1]
    ledger_connection().delete(keys.kick)
    assert claim_due_sweeps(sale_ids=[1]) == [1], "the backoff takes the place of the pause"
