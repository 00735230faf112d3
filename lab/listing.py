"""The code of a step as a page shows it: with line numbers, and the lines that break marked."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from lab.culprits import ROOT, culprit_of, marked_lines
from lab.steps import ours
from lab.steps.step import Step
from orders.fulfilment.batch import write_batch
from orders.placing.service import place_order

OURS: tuple[Callable[..., object], ...] = (ours.buy, place_order, write_batch)
"""What to read of the shop; ``ARCHITECTURE.md`` leads on."""


@dataclass(frozen=True)
class Line:
    """One line of code; ``breaks`` where it is the one to look at."""

    number: int
    text: str
    breaks: bool


@dataclass(frozen=True)
class Excerpt:
    """A part of a file, or all of it; ``path`` is from the repository's root."""

    path: str
    lines: tuple[Line, ...]


def listing(step: Step, findings: Iterable[str]) -> list[Excerpt]:
    """Return the code of a step; marked in it are the lines that these findings come from."""
    culprits = {str(it) for it in (culprit_of(step, finding) for finding in findings) if it}
    if step.name == "ours":
        return [_excerpt(*_place_of(function), culprits) for function in OURS]
    whole = _path_of(step.buy)
    places = {(whole, 1, len(_lines(whole)))}
    places |= {
        (it.path, *_around(it.path, it.line)) for it in marked_lines(step) if it.path != whole
    }
    return [_excerpt(*place, culprits) for place in sorted(places, key=lambda it: it[0] != whole)]


def _excerpt(path: str, first: int, last: int, culprits: set[str]) -> Excerpt:
    numbered = enumerate(_lines(path)[first - 1 : last], first)
    return Excerpt(path, tuple(Line(it, text, f"{path}:{it}" in culprits) for it, text in numbered))


def _place_of(function: Callable[..., object]) -> tuple[str, int, int]:
    lines, first = inspect.getsourcelines(function)
    return _path_of(function), first, first + len(lines) - 1


def _path_of(function: Callable[..., object]) -> str:
    return str(Path(inspect.getsourcefile(function) or "").resolve().relative_to(ROOT))


@cache
def _lines(path: str) -> list[str]:
    return (ROOT / path).read_text(encoding="utf-8").splitlines()


def _around(path: str, line: int) -> tuple[int, int]:
    """Return the first and last line of the function or class in which this line stands."""
    for node in ast.parse("\n".join(_lines(path))).body:
        last = node.end_lineno or node.lineno
        if node.lineno <= line <= last:
            return node.lineno, last
    return line, line
