"""Steps of the clocks: what is taken waits for both, and for a minute after one was set."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest
from django.utils import timezone

from seckill_site.clocks import steps
from seckill_site.clocks.ledger import HOLD_S, learn_ledger_time, ledger_now_ms, steady_ledger_ms
from seckill_site.clocks.machine import epoch_ms
from seckill_site.clocks.steps import (
    READINGS,
    STEPPED,
    Clocks,
    ClocksUnsettled,
    earlier_of_both,
    settled_clocks,
)
from seckill_site.redis.ledger_connection import ledger_connection

START = dt.datetime(2026, 11, 11, 8, tzinfo=dt.UTC)
HOUR_S = 3_600.0


class Machine:
    """A machine with clocks that a test sets; times are in seconds after ``START``."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.passed = self.database = self.ledger = 0.0
        self.reads_take = 0.0
        self._patch = monkeypatch
        monkeypatch.setattr(steps, "monotonic", self._monotonic)
        monkeypatch.setattr(steps, "database_now", lambda: self._at(self.database))
        monkeypatch.setattr(steps, "in_ms", lambda _: epoch_ms(self._at(self.ledger)))
        self.switch_to("one")

    def switch_to(self, name: str) -> None:
        self._patch.setattr(steps, "_machine", lambda: name)

    def wait(self, seconds: float) -> None:
        self.passed += seconds

    def read(self) -> Clocks:
        self.wait(1.0)
        return settled_clocks()

    def is_settled(self) -> bool:
        try:
            self.read()
        except ClocksUnsettled:
            return False
        return True

    def _monotonic(self) -> float:
        self.passed += self.reads_take
        return 1_000 + self.passed

    def _at(self, ahead_s: float) -> dt.datetime:
        return START + dt.timedelta(seconds=self.passed + ahead_s)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(monkeypatch)


def test_both_clocks_are_read(machine: Machine) -> None:
    machine.database, machine.ledger = HOUR_S, -HOUR_S
    clocks = machine.read()
    assert clocks.database - clocks.ledger == dt.timedelta(hours=2)
    assert clocks.earlier == clocks.ledger
    assert clocks.anew_since is None


@pytest.mark.django_db
def test_real_clocks_are_close() -> None:
    clocks = settled_clocks()
    assert abs(clocks.database - clocks.ledger) < dt.timedelta(seconds=10)
    settled_clocks()


def test_lasting_difference_holds_nothing_back(machine: Machine) -> None:
    machine.database = -HOUR_S
    assert machine.is_settled()
    assert machine.is_settled()


@pytest.mark.parametrize("clock", ["database", "ledger"])
@pytest.mark.parametrize("step_s", [HOUR_S, -HOUR_S, 2.5, -2.5])
def test_nothing_is_taken_for_a_minute_after_a_step(
    machine: Machine, clock: str, step_s: float
) -> None:
    machine.read()
    setattr(machine, clock, step_s)
    assert not machine.is_settled()
    machine.wait(57)
    assert not machine.is_settled()
    machine.wait(2)
    assert machine.read().anew_since is None


def test_small_corrections_are_no_steps(machine: Machine) -> None:
    machine.read()
    for _ in range(5):
        machine.database += 1.9
        machine.ledger -= 1.9
        assert machine.is_settled()


def test_step_and_its_correction_both_hold(machine: Machine) -> None:
    machine.read()
    machine.database = HOUR_S
    assert not machine.is_settled()
    machine.wait(12)
    machine.database = 0
    assert not machine.is_settled()
    machine.wait(57)
    assert not machine.is_settled()
    machine.wait(2)
    assert machine.is_settled()


@pytest.mark.parametrize("apart_s", [None, 0, 90, 1_800])
def test_both_set_gives_full_time_anew(machine: Machine, apart_s: float | None) -> None:
    """``apart_s``: a reading fell between the two, which came so long after one another."""
    machine.read()
    machine.ledger = HOUR_S
    if apart_s is not None:
        assert not machine.is_settled()
        machine.wait(apart_s)
    machine.database = HOUR_S
    assert not machine.is_settled()
    set_at = START + dt.timedelta(seconds=machine.passed + HOUR_S)
    machine.wait(61)
    assert machine.read().anew_since == set_at


def test_time_that_counts_anew_is_never_in_the_future(machine: Machine) -> None:
    machine.read()
    machine.database = machine.ledger = 24 * HOUR_S
    assert not machine.is_settled()
    machine.wait(70)
    machine.ledger = 0
    assert not machine.is_settled()
    machine.wait(2 * HOUR_S)
    machine.database = 0
    assert not machine.is_settled()
    machine.wait(70)
    clocks = machine.read()
    assert clocks.anew_since
    assert clocks.anew_since < clocks.database


def test_slow_drift_is_no_step(machine: Machine) -> None:
    machine.read()
    machine.wait(12 * HOUR_S)
    machine.database = machine.ledger = 12 * HOUR_S * 0.0004
    assert machine.is_settled()


def test_full_redis_still_tells_its_time(machine: Machine) -> None:
    client = ledger_connection()
    try:
        client.config_set("maxmemory", 1)
        assert machine.is_settled()
    finally:
        client.config_set("maxmemory", 0)


def test_nothing_ends_is_told_once_a_minute(
    machine: Machine, caplog: pytest.LogCaptureFixture, lose_ledger: Any
) -> None:
    lose_ledger()
    for _ in range(3):
        assert not machine.is_settled()
    assert len(caplog.records) == 1
    assert "nothing expires or is deleted now" in caplog.text


def test_other_machine_learns_of_a_step_and_counts_it_once(machine: Machine) -> None:
    for name in ("one", "two"):
        machine.switch_to(name)
        machine.read()
    machine.database = machine.ledger = HOUR_S
    machine.switch_to("one")
    assert not machine.is_settled()
    noted = ledger_connection().get(STEPPED)
    machine.switch_to("new")
    assert not machine.is_settled()
    machine.wait(70)
    machine.switch_to("two")
    assert machine.is_settled()
    assert ledger_connection().get(STEPPED) == noted


def test_slow_reading_takes_nothing_and_is_no_step(machine: Machine) -> None:
    machine.read()
    machine.reads_take = 1.5
    assert not machine.is_settled()
    machine.reads_take = 0
    assert machine.is_settled()


def test_without_redis_nothing_is_taken(machine: Machine, lose_ledger: Any) -> None:
    machine.read()
    lose_ledger()
    assert not machine.is_settled()


@pytest.mark.parametrize("junk", ["", "1 2", "a b c d e", "1 2 3 4 5 6"])
def test_keys_with_junk_are_written_anew(machine: Machine, junk: str) -> None:
    client = ledger_connection()
    client.set(STEPPED, junk)
    client.lpush(f"{READINGS}one", "another type")
    assert machine.is_settled()
    machine.database = HOUR_S
    assert not machine.is_settled()


def test_earlier_of_both_is_never_ahead_of_redis() -> None:
    now = timezone.now()
    assert earlier_of_both(now + dt.timedelta(hours=1)) < now + dt.timedelta(minutes=1)
    behind = now - dt.timedelta(hours=1)
    assert earlier_of_both(behind) == behind


def test_ledger_time_stays_steady_for_a_minute_after_a_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    learn_ledger_time((1_000, 0))
    learn_ledger_time((4_600, 0))
    assert ledger_now_ms() >= 4_600_000
    assert 1_000_000 <= steady_ledger_ms() < 1_000_000 + HOLD_S * 1_000
