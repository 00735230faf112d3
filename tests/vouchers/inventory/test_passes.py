"""Passes of periodic tasks: their time, their turns and their lock."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from unittest.mock import Mock

import pytest
from redis import Redis

from tests.support.passes import cut_after_one, without_lock
from tests.support.patience import wait_for
from vouchers.inventory import passes
from vouchers.inventory.passes import Passes


@pytest.fixture
def task() -> Passes:
    return Passes("test")


def test_pass_with_time_leaves_nothing(task: Passes) -> None:
    work = Mock(return_value=None)
    assert not task.work([1, 2, 3], work)
    assert [call.args for call in work.call_args_list] == [(1,), (2,), (3,)]


def test_pass_that_is_over_begins_nothing_more(
    task: Passes, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = iter([0.0, 0.05, 0.1, 0.15])
    monkeypatch.setattr(passes, "PASS_S", 0.1)
    monkeypatch.setattr(passes, "monotonic", lambda: next(now))
    work = Mock(return_value=None)
    assert task.work([1, 2, 3], work)
    assert work.call_count == 2


def test_item_with_more_to_do_is_left(task: Passes) -> None:
    assert task.work([1, 2], lambda number: number == 1)


def test_cut_passes_serve_every_key_in_turn(task: Passes, monkeypatch: pytest.MonkeyPatch) -> None:
    cut_after_one(monkeypatch)
    work = Mock(return_value=None)
    rounds = [[3, 1, 2], [1, 2, 3], [1, 2, 4], [1, 2, 4], [1, 2, 4]]
    left = [task.work(task.in_turn(keys), work) for keys in rounds]
    assert [call.args[0] for call in work.call_args_list] == [1, 2, 4, 1, 2]
    assert left == [True, True, False, True, True]


def test_round_ends_although_its_keys_stay(task: Passes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a task that always finds something would publish itself for ever."""
    cut_after_one(monkeypatch)
    passes_of_a_round = 0
    while task.work(task.in_turn([1, 2, 3]), lambda _: None):
        passes_of_a_round += 1
    assert passes_of_a_round == 2


def test_key_with_more_to_do_is_served_until_it_is_done(
    task: Passes, monkeypatch: pytest.MonkeyPatch
) -> None:
    cut_after_one(monkeypatch)
    work = Mock(side_effect=[True, True, False])
    while task.work(task.in_turn([7]), work):
        pass
    assert work.call_count == 3


def test_busy_lock_costs_no_key_its_turn(task: Passes, ledger: Redis) -> None:
    work = Mock(return_value=None)
    ledger.set("lock:test", "another process")
    assert not task.work(task.in_turn([1, 2]), work)
    ledger.delete("lock:test")
    task.work(task.in_turn([1, 2]), work)
    assert [call.args[0] for call in work.call_args_list] == [1, 2]


def test_key_that_fails_is_not_first_again(task: Passes, monkeypatch: pytest.MonkeyPatch) -> None:
    cut_after_one(monkeypatch)
    work = Mock(side_effect=[ZeroDivisionError, None])
    with pytest.raises(ZeroDivisionError):
        task.work(task.in_turn([1, 2]), work)
    task.work(task.in_turn([1, 2]), work)
    assert [call.args[0] for call in work.call_args_list] == [1, 2]


def test_pass_without_work_takes_no_lock(task: Passes, ledger_trips: list[int]) -> None:
    ledger_trips.clear()
    assert not task.work([], Mock())
    assert ledger_trips == []


def test_pass_without_ledger_does_nothing(
    task: Passes, lose_ledger: Callable[[], None], caplog: pytest.LogCaptureFixture
) -> None:
    lose_ledger()
    work = Mock()
    assert not task.work([1], work)
    assert work.call_count == 0
    assert "the task test goes on later" in caplog.text


@pytest.mark.parametrize("guarded", [True, False], ids=["lock", "control"])
def test_two_passes_at_once_do_not_both_work(
    task: Passes, monkeypatch: pytest.MonkeyPatch, ledger: Redis, guarded: bool
) -> None:
    if not guarded:
        without_lock(monkeypatch)
    both = threading.Barrier(2)
    second_is_over = threading.Event()

    def work(number: int) -> None:
        if guarded:
            assert second_is_over.wait(20)
        else:
            both.wait(20)  # the control: both are at it

    def second() -> bool:
        try:
            return task.work([3, 4], work)
        finally:
            second_is_over.set()

    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(task.work, [1, 2], work)
        wait_for(lambda: ledger.exists("lock:test") or not guarded, what="the lock")
        assert not pool.submit(second).result(20)
        assert not first.result(20)
    assert not ledger.exists("lock:test")
