"""Races around a queue that is full, poisoned or read by two."""

from django.utils.translation import gettext_lazy as _

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


RACES = (
    Race(
        name="queue-full",
        title=_("The queue is full"),
        story=_(
            "Two orders fill the queue, and the writer has not come yet. Redis has already given "
            "the third buyer a unit. What follows is an error, a promise that nobody keeps, or a "
            "wait: here, until the process dies."
        ),
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
        title=_("An entry that nobody can write"),
        story=_(
            "The stream still has entries of an older release, with another name for a field. The "
            "reader fails, looks into its pending list, finds the same entry and fails again. A "
            "buyer's order waits behind it."
        ),
        script=poisoned_entry,
        breaks={"v5-poisoned": {"lost": 1, "undersold": 1}},
        holds=("v5-aside",),
    ),
    Race(
        name="one-name",
        title=_("Two readers, one name"),
        story=_(
            "A reader has counted no order and is about to write. A second one starts and looks "
            "into the pending list of its name. If both have one name, it finds what the first "
            "one is writing."
        ),
        script=one_name,
        breaks={"v5-one-name": {"doubled": 1}},
        holds=("v5-stream", "v6-kept"),
    ),
)
