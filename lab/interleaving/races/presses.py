"""Races between presses: several buyers, one buyer twice, one too early, or another sale."""

import datetime as dt
from functools import partial

from django.utils import timezone

from lab.interleaving.actors import Actor
from lab.interleaving.races.race import Script
from lab.interleaving.stage import PlayedStage

_CHECKED = {"v3-inside": "lock released", "ours": "place.read"}


def _meet(stage: PlayedStage, *pressing: Actor) -> None:
    """Let each come to the point after its check, if it can; then finish one after the other."""
    name = stage.step.name
    point = _CHECKED.get(name, "stock read" if name.startswith("v1") else "orders counted")
    for actor in pressing:
        actor.until(point, or_end=True)
    for actor in pressing:
        if not actor.has_ended:
            actor.finish()
    if stage.step.is_ours:
        stage.worker(process=2).finish()


def _read_and_buy(stage: PlayedStage, *, units: int) -> None:
    stage.open(units=units, buyers=2)
    _meet(stage, stage.buyer("A", 1), stage.buyer("B", 2))


def _press_twice(stage: PlayedStage, *, processes: tuple[int, int]) -> None:
    stage.open(units=2, buyers=1)
    same = processes[0] == processes[1] and stage.step.is_ours
    token = stage.token(1) if same else None  # both presses are on one page
    both = zip(("A", "A'"), processes, strict=True)
    _meet(stage, *(stage.buyer(name, 1, process=it, token=token) for name, it in both))


def _pass_by(stage: PlayedStage) -> None:
    stage.open(units=1, buyers=2)
    _meet(stage, stage.buyer("A", 1), stage.stranger("S"))


def _outrun(stage: PlayedStage) -> None:
    """Let another buyer buy between each reading of the stock and the try that follows."""
    stage.open(units=4, buyers=4)
    slow = stage.buyer("A", 1)
    for number, name in enumerate("BCD", 2):
        slow.until("stock read")
        stage.buyer(name, number).finish()
    slow.finish()


def _press_in_turn(stage: PlayedStage, *, units: int) -> None:
    """Let one buyer press twice, the second time when the first order is written."""
    stage.open(units=units, buyers=1)
    for name in ("A", "A'"):
        stage.buyer(name, 1).finish()
        _write(stage)


def _press_too_early(stage: PlayedStage) -> None:
    stage.open(units=1, buyers=1, begins_at=timezone.now() + dt.timedelta(hours=1))
    stage.buyer("A", 1).finish()
    _write(stage)


def _write(stage: PlayedStage) -> None:
    """Let the background half of a step that has one write what is promised."""
    if stage.step.is_ours:
        stage.worker(process=2).finish()
    elif stage.step.writer:
        stage.writer(process=1).finish()


def _buy_two_vouchers(stage: PlayedStage) -> None:
    stage.open(units=1, buyers=1)
    elsewhere, here = stage.elsewhere("A", 1), stage.buyer("A'", 1, process=2)
    if stage.step.is_ours:
        _meet(stage, elsewhere, here)
        return
    first = elsewhere
    if stage.step.writer:
        elsewhere.finish()
        first = stage.writer(process=1)
    first.until("orders counted")
    here.finish()
    for _turn in range(2 if stage.step.writer else 0):  # the first may find what W is writing
        stage.writer(process=2, name="W'").finish()
    first.finish()
    for _turn in range(2 if stage.step.writer else 0):
        stage.writer(process=2, name="W'").finish()


SCRIPTS: dict[str, Script] = {
    "last-unit": partial(_read_and_buy, units=1),
    "stale-read": partial(_read_and_buy, units=3),
    "outrun": _outrun,
    "bystander": _pass_by,
    "double-click": partial(_press_twice, processes=(1, 1)),
    "one-after-the-other": partial(_press_in_turn, units=2),
    "winner-again": partial(_press_in_turn, units=1),
    "before-the-start": _press_too_early,
    "two-vouchers": _buy_two_vouchers,
    "two-processes": partial(_press_twice, processes=(1, 2)),
}
