"""Races between presses: two buyers at one unit, one buyer twice."""

from __future__ import annotations

from django.utils.translation import gettext_lazy as _

from lab.interleaving.actors import Actor
from lab.interleaving.races.race import RIGHT, Race
from lab.interleaving.stage import PlayedStage


def _read_and_buy(stage: PlayedStage, *, units: int) -> None:
    """Let two buyers come as far as knowing the stock, then one after the other to their end."""
    stage.open(units=units, buyers=2)
    point = "place.read" if stage.step.is_ours else "stock read"
    pressing = [stage.buyer("A", 1), stage.buyer("B", 2)]
    for actor in pressing:
        actor.until(point)
    _finish(stage, pressing)


def _press_twice(stage: PlayedStage, *, processes: tuple[int, int]) -> None:
    """Let one buyer's two presses come as far as the check, if they can, then to their end."""
    stage.open(units=2, buyers=1)
    same = processes[0] == processes[1] and stage.step.is_ours
    token = stage.token(1) if same else None  # the page that is pressed twice has one
    first = stage.buyer("A", 1, process=processes[0], token=token)
    second = stage.buyer("A'", 1, process=processes[1], token=token)
    first.until(_CHECKED.get(stage.step.name, "orders counted"))
    second.until(_CHECKED.get(stage.step.name, "orders counted"), or_end=True)
    _finish(stage, [first, second])


_CHECKED = {"v3-inside": "lock released", "ours": "place.read"}
"""Where the first press has checked and others may come in, in steps in which it is elsewhere."""


def _finish(stage: PlayedStage, pressing: list[Actor]) -> None:
    for actor in pressing:
        if not actor.has_ended:
            actor.finish()
    if stage.step.is_ours:
        stage.worker(process=2).finish()


def last_unit(stage: PlayedStage) -> None:
    _read_and_buy(stage, units=1)


def stale_read(stage: PlayedStage) -> None:
    _read_and_buy(stage, units=3)


def double_click(stage: PlayedStage) -> None:
    _press_twice(stage, processes=(1, 1))


def two_processes(stage: PlayedStage) -> None:
    _press_twice(stage, processes=(1, 2))


RACES = (
    Race(
        name="last-unit",
        title=_("The last unit"),
        story=_(
            "One unit is left and two buyers press at the same moment. Both read the "
            "stock before either has taken a unit, so both see one left. Then they "
            "continue, one after the other."
        ),
        play=last_unit,
        expects={
            "v1": {"oversold": 1},
            "v1-as-read": RIGHT,
            "v1-any-left": RIGHT,
            "v1-for-update": RIGHT,
            "ours": RIGHT,
        },
    ),
    Race(
        name="stale-read",
        title=_("Overtaken after reading"),
        story=_(
            "There are three units and two buyers. Both read the stock, then one of "
            "them buys. What the other one read is now out of date, but there is "
            "enough for both."
        ),
        play=stale_read,
        expects={"v1-as-read": {"undersold": 1}, "v1-any-left": RIGHT, "ours": RIGHT},
    ),
    Race(
        name="double-click",
        title=_("A double click"),
        story=_(
            "A buyer may have one unit and presses twice. Both presses reach the "
            "same process. The second is let in as soon as the step allows it: in "
            "the worst case, before the first order is visible."
        ),
        play=double_click,
        expects={
            "v2": {"doubled": 1},
            "v3": RIGHT,
            "v3-inside": {"doubled": 1},
            "v6-setnx": RIGHT,
            "v6-expiring": RIGHT,
            "v6-owned": RIGHT,
            "v6-watchdog": RIGHT,
            "ours": RIGHT,
        },
    ),
    Race(
        name="two-processes",
        title=_("Two processes"),
        story=_(
            "The same buyer presses twice, and the load balancer sends the two "
            "presses to two processes. What one process keeps in memory, the other "
            "does not know."
        ),
        play=two_processes,
        expects={"v2": {"doubled": 1}, "v3": {"doubled": 1}, "v6-owned": RIGHT, "ours": RIGHT},
    ),
)
