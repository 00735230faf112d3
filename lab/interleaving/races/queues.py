"""Races around a queue: full, poisoned, read by two, or by a loop with a slip of the pen."""

from lab.interleaving.races.race import Race
from lab.interleaving.stage import PlayedStage
from lab.steps.stream_readers import POISONED


def queue_full(stage: PlayedStage) -> None:
    stage.open(units=4, buyers=3)
    for number, name in enumerate("ABC", 1):
        press = stage.buyer(name, number)
        if press.until("queued", or_end=True) and not press.has_ended:
            press.finish()
    if press.has_ended:
        for _turn in range(3):
            stage.writer(process=1).finish()
    else:
        stage.kill(1)
    stage.buyer("C", 3, process=2).finish()


def poisoned_entry(stage: PlayedStage) -> None:
    stage.open(units=1, buyers=1)
    stage.buyer("A", 1).finish()
    for _turn in range(POISONED + 1):
        stage.writer(process=1).finish()


def one_name(stage: PlayedStage) -> None:
    stage.open(units=2, buyers=1)
    stage.buyer("A", 1).finish()
    first = stage.writer(process=1)
    first.until("orders counted")
    stage.writer(process=2, name="W'").finish()
    first.finish()


def write_fails(stage: PlayedStage) -> None:
    stage.open(units=1, buyers=1)
    stage.buyer("A", 1).finish()
    failing = stage.writer(process=1)
    failing.until("unit taken")
    stage.cut(failing)
    failing.finish()
    for _turn in range(2):
        stage.writer(process=1).finish()


def quiet_moment(stage: PlayedStage) -> None:
    stage.open(units=1, buyers=1)
    stage.writer(process=1).finish()
    stage.buyer("A", 1).finish()
    for _turn in range(2):
        stage.writer(process=1).finish()


RACES = (
    Race(
        name="queue-full",
        script=queue_full,
        breaks={
            "v5-add": {"undersold": 1, "stuck": 1, "errors": 1},
            "v5-offer": {"lost": 1, "undersold": 1},
            "v5-put": {"lost": 2, "undersold": 3, "stuck": 1},
        },
        holds=("v5",),
    ),
    Race(
        name="poisoned-entry",
        script=poisoned_entry,
        breaks={"v5-poisoned": {"lost": 1, "undersold": 1}},
        holds=("v5-aside",),
    ),
    Race(
        name="one-name",
        script=one_name,
        breaks={"v5-one-name": {"doubled": 1}},
        holds=("v5-stream", "v6-kept", "v6-renewed"),
    ),
    Race(
        name="write-fails",
        script=write_fails,
        breaks={"v5-new-only": {"lost": 1, "undersold": 1}},
        holds=("v5-stream", "v5-one-name"),
    ),
    Race(
        name="quiet-moment",
        script=quiet_moment,
        breaks={"v5-returning": {"lost": 1, "undersold": 1}},
        holds=("v5-stream",),
    ),
)
