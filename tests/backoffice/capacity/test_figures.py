"""The file of figures: written, read, and refused when it holds something else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from backoffice.capacity.figures import BadFigures, NoFigures, read_figures, write_figures
from tests.support.capacity import FIGURES

pytestmark = pytest.mark.quick


def test_figures_survive_the_file(tmp_path: Path) -> None:
    path = tmp_path / "new" / "capacity.json"
    write_figures(path, FIGURES)
    assert read_figures(path) == FIGURES


def test_missing_file_names_the_command_that_measures(tmp_path: Path) -> None:
    with pytest.raises(NoFigures, match="run script/bench capacity first"):
        read_figures(tmp_path / "capacity.json")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"format": 0}, "its format is not 1"),
        ({"wins_per_s": 0}, "a figure is not above 0"),
        ({"rows_per_s": float("nan")}, "a figure is not above 0"),
        ({"cores": "two"}, "TypeError"),
        ({"costs": {}}, "KeyError: 'purchase page'"),
        ({"costs": []}, "TypeError"),
        ({"unknown": 1}, "unexpected keyword argument 'unknown'"),
    ],
)
def test_bad_figures_are_refused(tmp_path: Path, change: dict[str, Any], reason: str) -> None:
    path = tmp_path / "capacity.json"
    path.write_text(json.dumps({**FIGURES.as_json(), **change}))
    with pytest.raises(BadFigures, match=r"run script/bench capacity again$") as caught:
        read_figures(path)
    assert reason in str(caught.value)


@pytest.mark.parametrize("text", ["", "[]", "{}", '"text"', "\0"])
def test_other_files_are_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "capacity.json"
    path.write_text(text)
    with pytest.raises(BadFigures):
        read_figures(path)
    with pytest.raises(BadFigures):
        read_figures(tmp_path)
