"""The engine of the played races: who moves, who stands still, and who is gone."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from django.db import OperationalError, connection

from lab.answers import Answer
from lab.models import LabOrder, LabSale
from lab.play import actors
from lab.play import backstage as backstages
from lab.play.actors import Actor, NeverCame, Rest
from lab.play.backstage import Backstage, BackstageGone
from lab.play.row_locks import waits_for_row
from lab.play.stage import Stage
from lab.play.timeline import Column, Kind, Role
from lab.steps import STEPS
from tests.support.patience import MOMENT_S

pytestmark = [pytest.mark.usefixtures("db"), pytest.mark.concurrency]


@pytest.fixture(scope="module")
def db(seen_by_all: None) -> None:
    """The database of the whole module."""


@pytest.fixture
def stage_of(backstage: Backstage) -> Iterator[Callable[..., Stage]]:
    """Call it with a step's name for a stage with an open sale; all are cleared after the test."""
    stages: list[Stage] = []

    def of(step: str, **options: int) -> Stage:
        stages.append(Stage(STEPS[step], backstage))
        stages[-1].open(**{"units": 2, "buyers": 2, **options})
        return stages[-1]

    yield of
    for stage in stages:
        stage.__exit__(None, None, None)


def pid_of(stage: Stage, number: int = 1) -> int:
    return stage.process(number)._pid


def state_of(pid: int) -> str:
    """Return how the kernel has a process: S sleeping, T stopped, nothing for gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0]
    except (FileNotFoundError, ProcessLookupError):  # gone before it was opened, or read
        return ""


def doing(stage: Stage, task: Callable[[], object], *, name: str = "X", process: int = 1) -> Actor:
    return stage._actor(Column(name, Role.WORKER), process, task)


# --- One moves at a time --------------------------------------------------------------------------


def test_an_actor_stands_at_a_point_until_it_is_let_go(stage_of: Callable[..., Stage]) -> None:
    stage = stage_of("v1")
    buyer = stage.buyer("A", 1)

    assert buyer.until("unit taken")

    assert (buyer.rest, buyer.at) == (Rest.STANDS, "unit taken")
    assert stage.process(1).hear("A", 0.3) is None
    assert (LabSale.objects.get().stock, LabOrder.objects.count()) == (2, 0)
    buyer.finish()
    assert (LabSale.objects.get().stock, LabOrder.objects.count()) == (1, 1)
    assert stage.timeline.answers("A") == [Answer.BOUGHT]


def test_the_points_of_the_shop_are_points_too(stage_of: Callable[..., Stage]) -> None:
    stage = stage_of("ours")

    assert stage.buyer("A", 1).until("place.reserved")

    points = [it.what for it in stage.timeline.events if it.kind is Kind.POINT]
    assert points == ["place.read", "place.reserved"]


def test_what_an_actor_asks_is_noted_with_what_came_back(stage_of: Callable[..., Stage]) -> None:
    stage = stage_of("v4")

    stage.buyer("A", 1).finish()

    told = [
        (it.kind, it.what.replace(str(stage.sale_id), "7"), it.reply)
        for it in stage.timeline.events
    ]
    assert told == [
        (Kind.BEGINS, "1", ""),
        (Kind.COMMAND, "decide.lua lab:{7}:stock 1", "TAKEN"),
        (Kind.POINT, "decided", ""),
        (Kind.STATEMENT, "BEGIN", ""),
        (
            Kind.STATEMENT,
            "UPDATE lab_labsale SET stock = (stock - 1) WHERE (id = 7 AND stock > 0)",
            "1 row",
        ),
        (Kind.STATEMENT, "INSERT INTO lab_laborder (sale_id, user_id) VALUES (7, 1)", "1 row"),
        (Kind.POINT, "order written", ""),
        (Kind.STATEMENT, "COMMIT", ""),
        (Kind.POINT, "committed", ""),
        (Kind.ANSWER, "bought", ""),
    ]


def test_the_times_are_those_at_which_it_happened(stage_of: Callable[..., Stage]) -> None:
    stage = stage_of("v1")

    stage.buyer("A", 1).finish()

    times = [it.at_ms for it in stage.timeline.events]
    assert times == sorted(times)
    assert 0 <= times[0] <= times[-1] < 10_000
    assert [it.number for it in stage.timeline.events] == list(range(1, len(times) + 1))


# --- Who waits ------------------------------------------------------------------------------------


def test_one_that_waits_for_a_row_is_seen_and_stands_as_soon_as_it_has_it(
    stage_of: Callable[..., Stage],
) -> None:
    stage = stage_of("v1-for-update", units=1)
    first, second = stage.buyer("A", 1), stage.buyer("B", 2, process=2)
    first.until("stock read")

    assert not second.until("stock read")

    assert (second.rest, waits_for_row(second.connection_id)) == (Rest.WAITS, True)
    assert not waits_for_row(first.connection_id, besides=1)
    first.finish()
    assert second.rest is Rest.WAITS, "it has the row, and does not move before it is told to"
    second.finish()
    assert stage.timeline.answers("B") == [Answer.SOLD_OUT]
    kinds = [it.kind for it in stage.timeline.events if it.actors == ("B",)]
    assert kinds[2:5] == [Kind.STATEMENT, Kind.WAITS_FOR_ROW, Kind.GOES_ON]


def test_one_that_waits_for_the_lock_of_its_process_goes_on_when_it_is_let_go_of(
    stage_of: Callable[..., Stage],
) -> None:
    stage = stage_of("v3")
    first, second = stage.buyer("A", 1), stage.buyer("A'", 1)
    first.until("unit taken")

    assert not second.until("orders counted")

    assert second.rest is Rest.WAITS
    first.finish()
    assert second.until("orders counted")
    second.finish()
    assert stage.timeline.answers("A'") == [Answer.ALREADY_ORDERED]


def test_a_wait_that_nobody_ends_is_an_error_that_names_who_and_where(
    stage_of: Callable[..., Stage],
) -> None:
    stage = stage_of("v1-for-update")
    first, second = stage.buyer("A", 1), stage.buyer("B", 2)
    first.until("stock read")
    second.until("stock read")

    with pytest.raises(
        NeverCame, match=r"^B cannot come to its end: it waits for a lock, and stood"
    ):
        second.finish()


def test_one_that_takes_too_long_is_an_error_that_names_who_and_where(
    stage_of: Callable[..., Stage], monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = stage_of("v1")
    buyer = stage.buyer("A", 1)
    buyer.until("stock read")
    stage.stop(1)
    monkeypatch.setattr(actors, "PATIENCE_S", 0.3)

    with pytest.raises(
        NeverCame,
        match=r"^A did not come to 'unit taken' within 0\.3 s, and last stood at 'stock r",
    ):
        buyer.until("unit taken")


def test_without_the_privilege_the_number_of_all_who_wait_tells(
    stage_of: Callable[..., Stage],
) -> None:
    stage = stage_of("v1-for-update", units=1)
    first, second = stage.buyer("A", 1), stage.buyer("B", 2, process=2)
    first.until("stock read")

    with connection.execute_wrapper(refused_with(1227)):
        assert not second.until("stock read")
        assert not waits_for_row(second.connection_id, besides=1_000)

    assert second.in_row_wait
    first.finish()
    second.finish()
    assert stage.timeline.answers("B") == [Answer.SOLD_OUT]


def test_another_error_on_looking_who_waits_is_one() -> None:
    with (
        connection.execute_wrapper(refused_with(2013)),
        pytest.raises(OperationalError, match="refused"),
    ):
        waits_for_row(1)


def refused_with(number: int) -> Callable[..., Any]:
    """Return what refuses the look at the waiting transactions with this error."""

    def refuse(execute: Callable[..., Any], sql: str, *rest: Any) -> Any:
        if "innodb_trx" in sql:
            raise OperationalError(number, "refused")
        return execute(sql, *rest)

    return refuse


# --- What never comes -----------------------------------------------------------------------------


def test_a_point_that_never_comes_is_an_error_that_names_it(
    stage_of: Callable[..., Stage],
) -> None:
    buyer = stage_of("v1").buyer("A", 1)

    with pytest.raises(NeverCame, match=r"^A ended before 'no such point', and last stood at 'u"):
        buyer.until("no such point")
    with pytest.raises(NeverCame, match=r"^A cannot come to 'its end': it has ended$"):
        buyer.finish()


def test_what_an_actor_meets_is_told_and_does_not_end_its_process(
    stage_of: Callable[..., Stage],
) -> None:
    stage = stage_of("v1")

    doing(stage, partial(int, "seven")).finish()
    stage.buyer("A", 1).finish()

    assert [it.what for it in stage.timeline.events if it.kind is Kind.FAILS] == [
        "ValueError: invalid literal for int() with base 10: 'seven'"
    ]


def test_a_process_that_ends_by_itself_is_an_error(stage_of: Callable[..., Stage]) -> None:
    stage = stage_of("v1")

    with pytest.raises(NeverCame, match=r"^X: process 1 has ended by itself$"):
        doing(stage, partial(os._exit, 3)).finish()


def test_somebody_is_on_stage_once(stage_of: Callable[..., Stage]) -> None:
    stage = stage_of("v1")
    stage.buyer("A", 1).until("stock read")

    with pytest.raises(ValueError, match="A is on stage already"):
        stage.buyer("A", 1)


# --- What befalls a process -----------------------------------------------------------------------


def test_a_killed_process_is_gone_and_the_database_has_let_go_of_its_row(
    stage_of: Callable[..., Stage],
) -> None:
    stage = stage_of("v1-for-update")
    buyer, pid = stage.buyer("A", 1), pid_of(stage)
    buyer.until("unit taken")

    stage.kill(1)

    assert (buyer.rest, state_of(pid)) == (Rest.GONE, "")
    assert stage.buyer("B", 2, process=2).until("unit taken"), "nobody holds the row"
    with pytest.raises(NeverCame, match=r"^A cannot come to 'its end': it was killed$"):
        buyer.finish()


def test_a_stopped_process_does_nothing_until_it_is_let_go(stage_of: Callable[..., Stage]) -> None:
    stage = stage_of("v1")
    buyer, pid = stage.buyer("A", 1), pid_of(stage)
    buyer.until("unit taken")

    stage.stop(1)

    assert state_of(pid) == "T"
    stage.process(1).order("go", "A")
    assert stage.process(1).hear("A", 0.3) is None
    assert not LabOrder.objects.exists()
    stage.resume(1)
    buyer.rest = Rest.MOVES
    buyer._come_to_rest("its end")
    assert LabOrder.objects.count() == 1


def test_two_processes_share_no_memory_and_two_actors_of_one_do(
    stage_of: Callable[..., Stage],
) -> None:
    stage = stage_of("v5")
    stage.buyer("A", 1, process=1).finish()

    stage.writer(process=2).finish()
    assert not LabOrder.objects.exists()
    stage.writer(process=1).finish()
    assert LabOrder.objects.count() == 1


def test_a_stage_is_cleared_also_where_it_was_interrupted_amid_a_reply(
    backstage: Backstage,
) -> None:
    stage = Stage(STEPS["v1"], backstage)
    stage.open(units=2, buyers=2)
    connection.connection.query("SELECT 1")  # its reply is never read
    with pytest.raises(KeyboardInterrupt), stage:
        raise KeyboardInterrupt
    assert not LabSale.objects.exists()


@pytest.mark.parametrize(
    "goes_wrong", ["the race", "a stopped process", "the director dies", "it is killed"]
)
def test_no_process_is_left_whatever_goes_wrong(goes_wrong: str) -> None:
    with Backstage(database=str(connection.settings_dict["NAME"])) as own:
        stage = Stage(STEPS["v1"], own)
        stage.open(units=2, buyers=2)
        stage.buyer("A", 1).until("unit taken")
        stage.buyer("B", 2, process=2).until("stock read")
        pids = [pid_of(stage, 1), pid_of(stage, 2)]
        if goes_wrong == "the race":
            with pytest.raises(ZeroDivisionError), stage:
                raise ZeroDivisionError
        else:
            stage.stop(2)
        assert [state_of(pid) for pid in pids] == (
            ["", ""] if goes_wrong == "the race" else ["S", "T"]
        )
        if goes_wrong == "the director dies":
            own._control.close()  # as its death does
            own._popen.wait(10)
        if goes_wrong == "it is killed":
            own._popen.kill()
            own._popen.wait()
    deadline = time.monotonic() + MOMENT_S
    while any(state_of(pid) not in ("", "Z") for pid in pids):
        assert time.monotonic() < deadline
    assert own._popen.returncode == (-9 if goes_wrong == "it is killed" else 0)
    LabSale.objects.all().delete()


def test_signals_meet_no_stranger_once_a_process_has_ended(
    stage_of: Callable[..., Stage],
) -> None:
    stage = stage_of("v1")
    with pytest.raises(NeverCame):
        doing(stage, partial(os._exit, 0)).finish()

    stage.process(1).signal(signal.SIGKILL)

    assert not stage.process(1).alive


def test_a_backstage_that_does_not_start_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backstages, "_START", "raise SystemExit(3)")

    with pytest.raises(BackstageGone, match="it has ended"):
        Backstage(database="nowhere")


def test_a_backstage_that_has_ended_says_so() -> None:
    own = Backstage(database=str(connection.settings_dict["NAME"]))
    own._popen.kill()
    own._popen.wait()

    with pytest.raises(BackstageGone):
        own.fork()
    own.close()


# --- A lease --------------------------------------------------------------------------------------


def test_the_lease_of_a_process_is_that_of_its_locks(stage_of: Callable[..., Stage]) -> None:
    stage = stage_of("v6-owned")
    stage.process(1, lease_ms=12_345)

    stage.buyer("A", 1).until("lock held")

    (command,) = [it.what for it in stage.timeline.events if it.kind is Kind.COMMAND]
    assert command.endswith("NX PX 12345")
