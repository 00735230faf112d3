"""Races between presses: two buyers for one unit, or one buyer twice."""

from functools import partial

from django.utils.translation import gettext_lazy as _

from lab.interleaving.actors import Actor
from lab.interleaving.races.race import Race
from lab.interleaving.stage import PlayedStage


def _read_and_buy(stage: PlayedStage, *, units: int) -> None:
    """Let two buyers read the stock, then finish one after the other."""
    stage.open(units=units, buyers=2)
    point = "place.read" if stage.step.is_ours else "stock read"
    pressing = [stage.buyer("A", 1), stage.buyer("B", 2)]
    for actor in pressing:
        actor.until(point)
    _finish(stage, pressing)


def _press_twice(stage: PlayedStage, *, processes: tuple[int, int]) -> None:
    """Let one buyer's two presses check for an order, if they can, then finish."""
    stage.open(units=2, buyers=1)
    same = processes[0] == processes[1] and stage.step.is_ours
    token = stage.token(1) if same else None  # both presses are on one page
    first = stage.buyer("A", 1, process=processes[0], token=token)
    second = stage.buyer("A'", 1, process=processes[1], token=token)
    first.until(_CHECKED.get(stage.step.name, "orders counted"))
    second.until(_CHECKED.get(stage.step.name, "orders counted"), or_end=True)
    _finish(stage, [first, second])


_CHECKED = {"v3-inside": "lock released", "ours": "place.read"}
"""The point after the check, in steps where it is not "orders counted"."""


def _finish(stage: PlayedStage, pressing: list[Actor]) -> None:
    for actor in pressing:
        if not actor.has_ended:
            actor.finish()
    if stage.step.is_ours:
        stage.worker(process=2).finish()


RACES = (
    Race(
        name="last-unit",
        title=_("The last unit"),
        story=_(
            "One unit is left and two buyers press at the same moment. Both read the stock before "
            "either has taken a unit, so both see one left. Then they continue, one after the "
            "other."
        ),
        script=partial(_read_and_buy, units=1),
        breaks={"v1": {"oversold": 1}},
        holds=("v1-as-read", "v1-any-left", "v1-for-update", "ours"),
    ),
    Race(
        name="stale-read",
        title=_("Overtaken after reading"),
        story=_(
            "There are three units and two buyers. Both read the stock, then one of them buys. "
            "What the other one read is now out of date, but there is enough for both."
        ),
        script=partial(_read_and_buy, units=3),
        breaks={"v1-as-read": {"undersold": 1}},
        holds=("v1-any-left", "ours"),
    ),
    Race(
        name="double-click",
        title=_("A double click"),
        story=_(
            "A buyer may have one unit and presses twice. Both presses reach the same process. The "
            "second is let in as soon as the step allows it: in the worst case, before the first "
            "order is visible."
        ),
        script=partial(_press_twice, processes=(1, 1)),
        breaks={"v2": {"doubled": 1}, "v3-inside": {"doubled": 1}, "v6-mistyped": {"errors": 1}},
        holds=("v3", "v6-setnx", "v6-expiring", "v6-owned", "v6-watchdog", "ours"),
    ),
    Race(
        name="two-processes",
        title=_("Two processes"),
        story=_(
            "The same buyer presses twice, and the load balancer sends the two presses to two "
            "processes. What one process keeps in memory, the other does not know."
        ),
        script=partial(_press_twice, processes=(1, 2)),
        breaks={"v2": {"doubled": 1}, "v3": {"doubled": 1}},
        holds=("v6-owned", "v6-row", "v6-get-lock", "ours"),
    ),
)
