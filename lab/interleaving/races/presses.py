"""Races between presses: several buyers, one buyer twice, one too early, or another sale."""

import datetime as dt
from functools import partial

from django.utils import timezone

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


RACES = (
    Race(
        name="last-unit",
        script=partial(_read_and_buy, units=1),
        breaks={"v1": {"oversold": 1}, "v1-late-filter": {"oversold": 1}},
        holds=(
            *("v1-as-read", "v1-version", "v1-retry", "v1-any-left", "v1-for-update", "v1-scan"),
            "ours",
        ),
    ),
    Race(
        name="stale-read",
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
        script=_outrun,
        breaks={"v1-retry": {"undersold": 1}},
        holds=(),
    ),
    Race(
        name="bystander",
        script=_pass_by,
        breaks={"v1-scan": {"delayed": 1}, "v3-one-lock": {"delayed": 1}},
        holds=("v1-for-update", "v3", "v6-owned", "ours"),
    ),
    Race(
        name="double-click",
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
        name="one-after-the-other",
        script=partial(_press_in_turn, units=2),
        breaks={"v1-any-left": {"doubled": 1}, "v3-uncounted": {"doubled": 1}},
        holds=("v2", "v3", "v6-owned", "ours"),
    ),
    Race(
        name="winner-again",
        script=partial(_press_in_turn, units=1),
        breaks={step: {"denied": 1} for step in ("v4", "v5", "v5-stream")},
        holds=("v2", "v4-window", "ours"),
    ),
    Race(
        name="before-the-start",
        script=_press_too_early,
        breaks={step: {"early": 1} for step in ("v4", "v5-stream")},
        holds=("v1-any-left", "v4-window", "ours"),
    ),
    Race(
        name="two-vouchers",
        script=_buy_two_vouchers,
        breaks={
            "v6-per-buyer": {"undersold": 1, "turned_away": 1},
            "v6-queue": {"lost": 1, "undersold": 1},
            "v6-stream": {"lost": 1, "undersold": 1},
        },
        holds=("v6-owned", "v6-renewed", "ours"),
    ),
    Race(
        name="two-processes",
        script=partial(_press_twice, processes=(1, 2)),
        breaks={"v2": {"doubled": 1}, "v3": {"doubled": 1}},
        holds=("v6-owned", "v6-row", "v6-get-lock", "ours"),
    ),
)
