"""Races between presses: several buyers, one buyer twice, or a buyer of another sale."""

from functools import partial

from django.utils.translation import gettext_lazy as _

from lab.interleaving.actors import Actor
from lab.interleaving.races.race import Race
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
        holds=(
            *("v1-as-read", "v1-version", "v1-retry", "v1-any-left", "v1-for-update", "v1-scan"),
            "ours",
        ),
    ),
    Race(
        name="stale-read",
        title=_("Overtaken after reading"),
        story=_(
            "There are three units and two buyers. Both read the stock, then one of them buys. "
            "What the other one read is now out of date, but there is enough for both."
        ),
        script=partial(_read_and_buy, units=3),
        breaks={
            "v1-as-read": {"undersold": 1},
            "v1-version": {"undersold": 1},
            "v1-retry-stale": {"undersold": 1},
        },
        holds=("v1-retry", "v1-any-left", "ours"),
    ),
    Race(
        name="outrun",
        title=_("Outrun each time"),
        story=_(
            "A buyer reads the stock, finds it changed, reads it again and tries again. Each time "
            "somebody else is faster. There is a unit for everybody."
        ),
        script=_outrun,
        breaks={"v1-retry": {"undersold": 1}},
        holds=(),
    ),
    Race(
        name="bystander",
        title=_("A bystander"),
        story=_(
            "A buyer holds a lock. A buyer who has nothing to do with it presses in another sale. "
            "A lock on one row or one buyer lets the bystander pass; a lock on everything does not."
        ),
        script=_pass_by,
        breaks={"v1-scan": {"delayed": 1}, "v3-one-lock": {"delayed": 1}},
        holds=("v1-for-update", "v3", "v6-owned", "ours"),
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
        breaks={
            **{
                step: {"doubled": 1}
                for step in ("v1-any-left", "v1-for-update", "v2", "v3-equal-key", "v3-inside")
            },
            "v6-mistyped": {"errors": 1},
        },
        holds=(
            *("v3", "v3-one-lock", "v3-bypassed"),
            *("v6-setnx", "v6-expiring", "v6-owned", "v6-watchdog", "ours"),
        ),
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
