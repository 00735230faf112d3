"""The actors of a played race: how they move, stop, wait and die."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from django.db import OperationalError, connection

from lab.engine import fork_server as fork_servers
from lab.engine.database import waits_for_row
from lab.engine.fork_server import ForkServer, ForkServerGone, ProcessEnded
from lab.interleaving import actors
from lab.interleaving.actors import Actor, NeverCame, State
from lab.interleaving.stage import PlayedStage
from lab.interleaving.timeline import Column, Kind, Role
from lab.models import LabOrder, LabSale
from lab.steps import STEPS
from lab.steps.step import Answer
from tests.lab.interleaving.timelines import answers
from tests.support.patience import wait_for
from tests.support.tiers import slow_after

pytestmark = [pytest.mark.usefixtures("db"), pytest.mark.concurrency]


OpenStage = Callable[..., PlayedStage]


@pytest.fixture(scope="module")
def db(seen_by_all: None) -> None:
    """The database of the whole module."""


@pytest.fixture
def stage_of(fork_server: ForkServer) -> Iterator[OpenStage]:
    """Call it with a step's name for a stage with an open sale; all are cleared after the test."""
    stages: list[PlayedStage] = []

    def of(step: str, *, units: int = 2, buyers: int = 2) -> PlayedStage:
        stages.append(PlayedStage(STEPS[step], fork_server))
        stages[-1].open(units=units, buyers=buyers)
        return stages[-1]

    yield of
    for stage in stages:
        stage.__exit__(None, None, None)


def pid_of(stage: PlayedStage, number: int = 1) -> int:
    return stage.process(number).pid


def state_of(pid: int) -> str:
    """Return how the kernel has a process: S sleeping, T stopped, nothing for gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0]
    except (FileNotFoundError, ProcessLookupError):  # gone before it was opened, or read
        return ""


def doing(
    stage: PlayedStage, task: Callable[[], object], *, name: str = "X", process: int = 1
) -> Actor:
    return stage.actor(Column(name, Role.WORKER), process, task)


# --- One moves at a time --------------------------------------------------------------------------


def test_actor_stops_at_a_point(stage_of: OpenStage) -> None:
    stage = stage_of("v1")
    buyer = stage.buyer("A", 1)

    assert buyer.until("unit taken")

    assert (buyer.state, buyer.at) == (State.STANDS, "unit taken")
    assert stage.process(1).receive("A", timeout_s=0.3) is None
    assert (LabSale.objects.get().stock, LabOrder.objects.count()) == (2, 0)
    buyer.finish()
    assert (LabSale.objects.get().stock, LabOrder.objects.count()) == (1, 1)
    assert answers(stage.timeline, "A") == [Answer.BOUGHT]


def test_failpoints_of_the_shop_are_points(stage_of: OpenStage) -> None:
    stage = stage_of("ours")

    assert stage.buyer("A", 1).until("place.reserved")

    points = [it.what for it in stage.timeline.events if it.kind is Kind.POINT]
    assert points == ["place.read", "place.reserved"]


def test_statements_and_commands_are_noted_with_replies(stage_of: OpenStage) -> None:
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


def test_events_are_numbered_and_timed_in_order(stage_of: OpenStage) -> None:
    stage = stage_of("v1")

    stage.buyer("A", 1).finish()

    times = [it.at_ms for it in stage.timeline.events]
    assert times == sorted(times)
    assert 0 <= times[0] <= times[-1] < 10_000
    assert [it.number for it in stage.timeline.events] == list(range(1, len(times) + 1))


# --- Waiting --------------------------------------------------------------------------------------


def test_actor_stops_after_a_row_wait(stage_of: OpenStage) -> None:
    stage = stage_of("v1-for-update", units=1)
    first, second = stage.buyer("A", 1), stage.buyer("B", 2, process=2)
    first.until("stock read")

    assert not second.until("stock read")

    assert (second.state, waits_for_row(second.connection_id)) == (State.WAITS, True)
    assert not waits_for_row(first.connection_id, known_waiting=1)
    first.finish()
    assert second.state is State.WAITS, "it has the row, and waits for its next move"
    second.finish()
    assert answers(stage.timeline, "B") == [Answer.SOLD_OUT]
    kinds = [it.kind for it in stage.timeline.events if it.actors == ("B",)]
    assert kinds[2:5] == [Kind.STATEMENT, Kind.WAITS_FOR_ROW, Kind.GOES_ON]


def test_actor_waiting_for_process_lock_continues_on_release(stage_of: OpenStage) -> None:
    stage = stage_of("v3")
    first, second = stage.buyer("A", 1), stage.buyer("A'", 1)
    first.until("unit taken")

    assert not second.until("orders counted")

    assert second.state is State.WAITS
    first.finish()
    assert second.until("orders counted")
    second.finish()
    assert answers(stage.timeline, "A'") == [Answer.ALREADY_ORDERED]


def test_endless_wait_raises_with_actor_and_point(stage_of: OpenStage) -> None:
    stage = stage_of("v1-for-update")
    first, second = stage.buyer("A", 1), stage.buyer("B", 2)
    first.until("stock read")
    second.until("stock read")

    with pytest.raises(
        NeverCame, match=r"^B cannot come to its end: it waits for a lock, and stood"
    ):
        second.finish()


def test_slow_actor_raises_with_actor_and_point(
    stage_of: OpenStage, monkeypatch: pytest.MonkeyPatch
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


def test_row_wait_is_seen_without_the_privilege(stage_of: OpenStage) -> None:
    stage = stage_of("v1-for-update", units=1)
    first, second = stage.buyer("A", 1), stage.buyer("B", 2, process=2)
    first.until("stock read")

    with connection.execute_wrapper(refused_with(1227)):
        assert not second.until("stock read")
        assert not waits_for_row(second.connection_id, known_waiting=1_000)

    assert second.in_row_wait
    first.finish()
    second.finish()
    assert answers(stage.timeline, "B") == [Answer.SOLD_OUT]


def test_other_errors_of_the_row_wait_query_are_raised() -> None:
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


# --- Missing points -------------------------------------------------------------------------------


def test_unreached_point_raises_with_its_name(stage_of: OpenStage) -> None:
    buyer = stage_of("v1").buyer("A", 1)

    with pytest.raises(NeverCame, match=r"^A ended before 'no such point', and last stood at 'u"):
        buyer.until("no such point")
    with pytest.raises(NeverCame, match=r"^A cannot come to 'its end': it has ended$"):
        buyer.finish()


def test_exception_of_an_actor_does_not_end_its_process(stage_of: OpenStage) -> None:
    stage = stage_of("v1")

    doing(stage, partial(int, "seven")).finish()
    stage.buyer("A", 1).finish()

    assert [it.what for it in stage.timeline.events if it.kind is Kind.FAILS] == [
        "ValueError: invalid literal for int() with base 10: 'seven'"
    ]


def test_unexpected_process_end_raises(stage_of: OpenStage) -> None:
    stage = stage_of("v1")

    with pytest.raises(ProcessEnded, match=r"^process 1 has ended by itself$"):
        doing(stage, partial(os._exit, 3)).finish()


def test_actor_is_on_stage_once(stage_of: OpenStage) -> None:
    stage = stage_of("v1")
    stage.buyer("A", 1).until("stock read")

    with pytest.raises(ValueError, match="A is on stage already"):
        stage.buyer("A", 1)


# --- Faults of a process --------------------------------------------------------------------------


def test_killed_process_releases_its_row_lock(stage_of: OpenStage) -> None:
    stage = stage_of("v1-for-update")
    buyer, pid = stage.buyer("A", 1), pid_of(stage)
    buyer.until("unit taken")

    stage.kill(1)

    assert (buyer.state, state_of(pid)) == (State.GONE, "")
    assert stage.buyer("B", 2, process=2).until("unit taken"), "nobody holds the row"
    with pytest.raises(NeverCame, match=r"^A cannot come to 'its end': it was killed$"):
        buyer.finish()


def test_stopped_process_does_nothing_until_resumed(stage_of: OpenStage) -> None:
    stage = stage_of("v1")
    buyer, pid = stage.buyer("A", 1), pid_of(stage)
    buyer.until("unit taken")

    stage.stop(1)

    assert state_of(pid) == "T"
    stage.process(1).send("go", "A")
    assert stage.process(1).receive("A", timeout_s=0.3) is None
    assert not LabOrder.objects.exists()
    stage.resume(1)
    buyer.state = State.MOVES
    buyer.come_to_rest("its end")
    assert LabOrder.objects.count() == 1


def test_actors_share_memory_only_within_a_process(stage_of: OpenStage) -> None:
    stage = stage_of("v5")
    stage.buyer("A", 1, process=1).finish()

    stage.writer(process=2).finish()
    assert not LabOrder.objects.exists()
    stage.writer(process=1).finish()
    assert LabOrder.objects.count() == 1


def test_stage_is_cleared_after_interrupt_amid_a_reply(fork_server: ForkServer) -> None:
    stage = PlayedStage(STEPS["v1"], fork_server)
    stage.open(units=2, buyers=2)
    connection.connection.query("SELECT 1")  # its reply is never read
    with pytest.raises(KeyboardInterrupt), stage:
        raise KeyboardInterrupt
    assert not LabSale.objects.exists()


@pytest.mark.parametrize(
    "goes_wrong",
    slow_after(1, ["the race", "a stopped process", "the director dies", "it is killed"]),
)
def test_no_process_is_left_after_a_failure(goes_wrong: str) -> None:
    with ForkServer() as own:
        stage = PlayedStage(STEPS["v1"], own)
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
    wait_for(lambda: all(state_of(pid) in ("", "Z") for pid in pids), what="the end of all")
    assert own._popen.returncode == (-9 if goes_wrong == "it is killed" else 0)
    LabSale.objects.all().delete()


def test_signal_to_an_ended_process_does_nothing(stage_of: OpenStage) -> None:
    stage = stage_of("v1")
    with pytest.raises(ProcessEnded):
        doing(stage, partial(os._exit, 0)).finish()

    stage.process(1).signal(signal.SIGKILL)

    assert not stage.process(1).is_alive


def test_failed_start_of_the_fork_server_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fork_servers, "_PROGRAM", "raise SystemExit(3)")

    with pytest.raises(ForkServerGone, match="it has ended"):
        ForkServer()


@pytest.mark.slow
def test_ended_fork_server_raises() -> None:
    own = ForkServer()
    own._popen.kill()
    own._popen.wait()

    with pytest.raises(ForkServerGone):
        own.fork(print, 1)
    own.close()


# --- A lease --------------------------------------------------------------------------------------


def test_process_lease_is_the_lease_of_its_locks(stage_of: OpenStage) -> None:
    stage = stage_of("v6-owned")
    stage.process(1, lease_ms=12_345)

    stage.buyer("A", 1).until("lock held")

    (command,) = [it.what for it in stage.timeline.events if it.kind is Kind.COMMAND]
    assert command.endswith("NX PX 12345")
