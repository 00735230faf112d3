"""``manage.py interleave``."""

from __future__ import annotations

import io
import os
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.utils import translation

from lab.engine.fork_server import ForkServer, ForkServerGone, ProcessEnded
from lab.interleaving.actors import NeverCame
from lab.interleaving.races import RACES
from lab.interleaving.races.race import Outcome, play
from lab.management.commands import interleave
from lab.steps import STEPS


def said(*arguments: str) -> str:
    out = io.StringIO()
    call_command("interleave", *arguments, stdout=out)
    return out.getvalue()


@pytest.fixture(scope="module")
def db(seen_by_all: None) -> None:
    """The database of the whole module."""


@pytest.fixture(autouse=True)
def width(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")


def test_no_arguments_list_steps_and_races() -> None:
    text = said()

    assert text.startswith("manage.py interleave STEP RACE\n\nv1 ")
    assert all(name in text for name in [*STEPS, *RACES])
    assert max(map(len, text.splitlines())) <= 100


@pytest.mark.parametrize(
    ("arguments", "error", "status"),  # argparse exits with 2 only on a command line
    [
        (["v9"], "argument STEP: invalid choice: 'v9' (choose from ", 1),
        (["v2"], "the races for v2 are: double-click, one-after-the-other, ", 2),
        (["v2", "rush-hour"], "argument RACE: invalid choice: 'rush-hour'", 1),
        (["v2", "last-unit"], "the races for v2 are: double-click, one-after-the-other, ", 2),
    ],
)
def test_unknown_names_are_refused_with_the_known_ones(
    arguments: list[str], error: str, status: int
) -> None:
    with pytest.raises(CommandError) as raised:
        said(*arguments)

    assert error in str(raised.value)
    assert raised.value.returncode == status


@pytest.fixture
def played_on(db: None, fork_server: ForkServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the command use the processes of the tests, which are there already."""
    monkeypatch.setattr(interleave, "ForkServer", lambda: nullcontext(fork_server))


@pytest.mark.slow
@pytest.mark.usefixtures("db")
def test_command_leaves_no_processes() -> None:
    before = children()

    assert said("v1-any-left", "last-unit").splitlines()[-1].startswith("Right: 1 of 1 sold")

    assert children() == before


def children() -> set[str]:
    """Return the ids of this process's children."""
    return set(Path(f"/proc/self/task/{os.getpid()}/children").read_text().split())


@pytest.mark.usefixtures("played_on")
class TestOutcome:
    def test_timelines_end_with_a_one_line_verdict(self) -> None:
        with translation.override("zh-hans"):
            text = said("v1", "last-unit")

        lines = text.splitlines()
        with translation.override("en"):  # what another test has left is not asked
            assert lines[0] == f"The last unit, with v1: {STEPS['v1'].title}"
        assert "  #     ms  A: buyer 1" in text
        assert "-> stock 1" in text
        assert lines[-1].startswith("Broken: 1 sold beyond the stock. Look at lab/steps/v1.py:")
        assert max(map(len, lines[:-1])) <= 100

    def test_reads_of_ours_are_shown_only_with_all(self) -> None:
        short, full = said("ours", "double-click"), said("ours", "double-click", "--all")

        assert "checks of database and ledger are left out" in short
        assert "snapshot.lua" not in short
        assert "snapshot.lua" in full
        assert short.splitlines()[-1].startswith("Right: 1 of 2 sold")

    @pytest.mark.parametrize(("step", "status"), [("ours", 1), ("v1-any-left", None)])
    def test_exit_status_is_1_only_if_ours_broke(
        self, step: str, status: int | None, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def break_it(*arguments: Any) -> Outcome:
            outcome = play(*arguments)
            return replace(outcome, verdict=replace(outcome.verdict, oversold=1))

        monkeypatch.setattr(interleave, "play", break_it)

        if status is None:
            assert "Broken: 1 sold beyond the stock" in said(step, "last-unit")
        else:
            with pytest.raises(SystemExit) as ended:
                said(step, "last-unit")
            assert ended.value.code == status

    @pytest.mark.parametrize(
        "error", [NeverCame("A is nowhere"), ForkServerGone("it has ended"), ProcessEnded("B is")]
    )
    def test_failed_play_is_a_command_error(
        self, error: Exception, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fail(*_: Any) -> Outcome:
            raise error

        monkeypatch.setattr(interleave, "play", fail)

        with pytest.raises(CommandError, match=f"could not be played with v1: {error}") as raised:
            said("v1", "last-unit")
        assert raised.value.returncode == 2

    def test_missing_row_locks_are_a_command_error(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(interleave, "has_row_locks", lambda: False)

        with pytest.raises(CommandError, match="set DATABASE_URL to a MariaDB") as raised:
            said("v1", "last-unit")
        assert raised.value.returncode == 2
