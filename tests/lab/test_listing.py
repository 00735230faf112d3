"""A step's code for a page."""

from __future__ import annotations

import pytest

from lab.interleaving.races import RACES
from lab.interleaving.races.race import Race
from lab.listing import listing
from lab.steps import STEPS

pytestmark = pytest.mark.quick


def marked(step: str, *findings: str) -> list[tuple[str, str]]:
    return [
        (excerpt.path, line.text.strip())
        for excerpt in listing(STEPS[step], findings)
        for line in excerpt.lines
        if line.breaks
    ]


def test_only_the_line_that_breaks_is_marked() -> None:
    ((path, text),) = marked("v1", "oversold")

    assert path == "lab/steps/v1.py"
    assert text.endswith("# breaks: oversold")
    assert marked("v1") == []


def test_culprit_elsewhere_is_shown_with_its_class() -> None:
    excerpts = listing(STEPS["v6-owned"], ["doubled"])

    assert excerpts[0].path == "lab/steps/v6.py"
    lock = next(it for it in excerpts if it.path == "lab/locks.py")
    assert lock.lines[0].text.startswith("class OwnedLock(")
    assert [line.number for line in lock.lines][1] == lock.lines[0].number + 1
    assert marked("v6-owned", "doubled")[0][0] == "lab/locks.py"


def test_class_is_shown_with_the_class_it_extends() -> None:
    shown = [it.lines[0].text for it in listing(STEPS["v6-watchdog"], [])]

    assert "class WatchdogLock(OwnedLock):" in shown
    assert "class OwnedLock(NamedLock):" in shown


def test_script_with_the_line_that_breaks_is_shown() -> None:
    excerpts = listing(STEPS["v6-mistyped"], ["errors"])

    assert excerpts[0].path == "lab/steps/v6.py"
    assert "lab/lua/delete_mistyped.lua" in [it.path for it in excerpts]
    assert marked("v6-mistyped", "errors")[0][1].startswith("if redis.call('GET', KEY[1])")


def test_ours_shows_the_shop_itself() -> None:
    excerpts = listing(STEPS["ours"], [])

    assert [it.path for it in excerpts] == [
        "lab/steps/ours.py", "orders/placing/service.py", "orders/fulfilment/batch.py",
    ]  # fmt: skip
    assert excerpts[1].lines[0].text.startswith("def place_order(")


@pytest.mark.parametrize("race", RACES.values(), ids=list(RACES))
def test_every_flaw_of_a_race_has_its_line(race: Race) -> None:
    for step, findings in race.expects.items():
        assert bool(marked(step, *findings)) == bool(findings), step
