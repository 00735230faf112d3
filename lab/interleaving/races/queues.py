"""Races around a queue: full, poisoned, read by two, or by a loop with a slip of the pen."""

from lab.interleaving.races.race import Script
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


SCRIPTS: dict[str, Script] = {
    "queue-full": queue_full,
    "poisoned-entry": poisoned_entry,
    "one-name": one_name,
    "write-fails": write_fails,
    "quiet-moment": quiet_moment,
}
