"""Each named race with each step that it is meant for: what it shows, each time."""

from __future__ import annotations

import pytest

from lab.engine.fork_server import ForkServer
from lab.interleaving.races import RACES, races_of
from lab.interleaving.races.race import play
from lab.interleaving.timeline import Kind
from lab.models import LabOrder, LabSale
from lab.steps import STEPS
from tests.lab.interleaving.timelines import answers, outline
from tests.support.inspection import sale_keys
from tests.support.tiers import slow_after
from vouchers.models import SeckillVoucher

pytestmark = [pytest.mark.usefixtures("db"), pytest.mark.concurrency]

PAIRS = [(race, step) for race in RACES.values() for step in race.expects]

IN_DEFAULT_TIER = {"ours", "v3-inside", "v5-put", "v6-dropped", "v6-expiring"}
"""One step that never breaks, one without Redis, one with a lock in it, and two with a queue."""

WAITS = "holder-dies"
"""A race that waits for the end of leases."""


def tier_of(race_name: str, step: str) -> tuple[pytest.MarkDecorator, ...]:
    if step not in IN_DEFAULT_TIER:
        return (pytest.mark.faults,)
    first = races_of(STEPS[step])[0].name
    return () if race_name == first != WAITS else (pytest.mark.slow,)


@pytest.fixture(scope="module")
def db(seen_by_all: None) -> None:
    """The database of the whole module."""


@pytest.mark.parametrize(
    ("race_name", "step_name"),
    [pytest.param(race.name, step, marks=tier_of(race.name, step)) for race, step in PAIRS],
)
def test_race_is_deterministic(race_name: str, step_name: str, fork_server: ForkServer) -> None:
    race, step = RACES[race_name], STEPS[step_name]

    once, again = play(step, race, fork_server), play(step, race, fork_server)

    assert dict(once.verdict.findings) == dict(again.verdict.findings) == race.expects[step_name]
    assert outline(once.timeline) == outline(again.timeline)
    assert bool(once.culprit) == bool(race.expects[step_name])


def test_every_step_has_races_and_ours_never_breaks() -> None:
    breaking = {step for race, step in PAIRS if race.expects[step]}

    assert all(races_of(step) for step in STEPS.values())
    assert breaking == set(STEPS) - {"v4-window", "v5-aside", "v6-get-lock", "ours"}


@pytest.mark.parametrize("step_name", slow_after(1, ["v6-watchdog", "ours"]))
def test_played_race_leaves_nothing(step_name: str, fork_server: ForkServer) -> None:
    play(STEPS[step_name], RACES["process-stands-still"], fork_server)

    assert not LabSale.objects.exists()
    assert not LabOrder.objects.exists()
    assert not SeckillVoucher.objects.exists()
    assert not sale_keys()


def test_receipt_of_ours_tells_of_a_lost_order(fork_server: ForkServer) -> None:
    played = play(STEPS["ours"], RACES["redis-empty"], fork_server)

    assert answers(played.timeline, "B") == ["queued", "refused lost", "queued"]
    assert answers(played.timeline, "C") == ["sold out"]
    assert (played.verdict.sold, played.verdict.offered) == (2, 2)


def test_paused_worker_of_ours_is_refused_by_the_fence(fork_server: ForkServer) -> None:
    played = play(STEPS["ours"], RACES["process-stands-still"], fork_server)

    went_on = next(it.number for it in played.timeline.events if it.kind is Kind.CONTINUED)
    after = [it.what for it in played.timeline.events[went_on:] if it.actors == ("W",)]
    assert "ROLLBACK" in after
    assert "COMMIT" not in after
    assert any("StaleFence" in it for it in after)


def test_late_delete_takes_anothers_lock_unless_compared(fork_server: ForkServer) -> None:
    third = {}
    for name in ("v6-expiring", "v6-owned"):
        played = play(STEPS[name], RACES["deletes-anothers-lock"], fork_server)
        third[name] = answers(played.timeline, "A''")

    assert third == {"v6-expiring": ["bought"], "v6-owned": ["busy"]}


def test_lock_without_expiry_is_not_awaited(fork_server: ForkServer) -> None:
    played = play(STEPS["v6-setnx"], RACES["holder-dies"], fork_server)

    assert [it.kind for it in played.timeline.events if not it.actors] == [Kind.NO_LEASE]
    assert answers(played.timeline, "A") == ["busy", "busy"]
