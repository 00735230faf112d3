"""``manage.py plan``: its output and its one-line refusals."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError

from backoffice.capacity.figures import DOCUMENTED, read_figures, write_figures
from backoffice.management.commands import plan as plan_command
from tests.support.capacity import FIGURES

pytestmark = pytest.mark.quick


@pytest.fixture
def figures(tmp_path: Path) -> Path:
    path = tmp_path / "capacity.json"
    write_figures(path, FIGURES)
    return path


def plan(figures: Path, *options: str) -> dict[str, str]:
    """Return the values of the plan by their names."""
    out = io.StringIO()
    sizes = ("--buyers", "3000", "--units", "1000", "--pages", "6000")
    call_command("plan", *sizes, "--figures", str(figures), *options, stdout=out)
    assert out.getvalue().endswith("By the figures of 2026-11-11: 2 cores of a processor.\n")
    rows = [line for line in out.getvalue().splitlines() if line.startswith("  ")]
    return {row[:54].strip(): row[54:].strip() for row in rows}


def test_plan_says_what_an_evening_needs(figures: Path) -> None:
    found = plan(figures)
    assert found["Web processes"] == "2"
    assert found["Machines in all, without a proxy"] == "1"
    assert found["One Redis is enough"] == "yes"
    assert found["One writer is enough"] == "yes"
    assert found["Requests"] == "6,667 per second"


def test_plan_says_what_is_not_enough(figures: Path) -> None:
    write_figures(figures, replace(FIGURES, rows_per_s=20))
    found = plan(figures, "--buyers", "90000", "--within", "1", "--cores", "16")
    assert found["Machines of 16 cores for them"] == "3"
    assert found["One Redis is enough"] == "NO"
    assert found["One writer is enough"] == "NO"
    assert found["Units before a buyer waits 30 s"] == "620"


@pytest.mark.parametrize("measured", [False, True])
def test_figures_of_the_documentation_are_the_default(
    figures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, measured: bool
) -> None:
    path = figures if measured else tmp_path / "none.json"
    monkeypatch.setattr(plan_command, "FILE", path)
    out = io.StringIO()
    sizes = ("--buyers", "20000", "--units", "2000", "--pages", "60000")
    call_command("plan", *sizes, stdout=out)
    found = read_figures(path if measured else DOCUMENTED)
    assert f"By the figures of {found.measured_on}: {found.machine}." in out.getvalue()


@pytest.mark.parametrize(
    ("options", "error"),
    [
        (["--buyers", "0"], "Error: argument --buyers: give a number from 1 to 1,000,000,000"),
        (["--units", "-5"], "Error: argument --units: give a number from 1 to 1,000,000,000"),
        (["--pages", "2000000000"], "Error: argument --pages: give a number from 0 to "),
        (["--sign-ins", "-1"], "Error: argument --sign-ins: give a number from 0 to "),
        (["--within", "0"], "Error: argument --within: give a number from 1 to "),
        (["--cores", "0"], "Error: argument --cores: give a number from 1 to "),
        (["--figures", "no/such/file"], "no figures in no/such/file: run script/bench capacity"),
        (["--figures", "."], "cannot use the figures in ."),
    ],
)
def test_bad_input_is_refused(figures: Path, options: list[str], error: str) -> None:
    with pytest.raises(CommandError) as caught:
        plan(figures, *options)
    assert str(caught.value).startswith(error)
    assert caught.value.returncode == 1
