"""The code of a step as a page shows it, and the lines of it that break.

These are looked up in the source, so that they are never out of date. A line that breaks ends with
a comment, ``# breaks: oversold``, with one finding or several. The code of a step is its ``buy``
and its writer, and what these use of the lab. The nearest comes first, so that a lock answers for a
step before the transaction that several steps share.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import CodeType, FunctionType, ModuleType

from lab.steps import ours
from lab.steps.step import Step
from orders.fulfilment.batch import write_batch
from orders.placing.service import place_order

ROOT = Path(__file__).resolve().parents[1]
MARKER = re.compile(r"# breaks: ([a-z, ]+)$")

OURS: tuple[Callable[..., object], ...] = (ours.buy, place_order, write_batch)
"""The functions of the shop to read; ``ARCHITECTURE.md`` leads on."""

Source = FunctionType | type


# --- The lines that break -------------------------------------------------------------------------


@dataclass(frozen=True)
class Culprit:
    """A line that breaks; ``path`` is from the repository's root."""

    path: str
    line: int
    code: str
    findings: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.path}:{self.line}"


def culprit_of(step: Step, finding: str) -> Culprit | None:
    """Return the line to look at for a finding.

    If none is marked with it, the finding comes along with another: the nearest marked line.
    """
    marked = marked_lines(step)
    with_it = (it for it in marked if finding in it.findings)
    return next(with_it, marked[0] if marked else None)


def marked_lines(step: Step) -> tuple[Culprit, ...]:
    """Return the marked lines of a step, the nearest first."""
    sources = [it for it in map(_as_source, (step.buy, step.writer)) if it]
    for source in sources:  # grows on the way
        sources += [it for it in dict.fromkeys(_used_by(source)) if it not in sources]
    return tuple(it for source in sources for it in _marked_in(source))


def _used_by(source: Source) -> Iterator[Source]:
    """Return the functions and classes of the lab that a source uses."""
    members = [source] if isinstance(source, FunctionType) else vars(source).values()
    for function in members:
        if not isinstance(function, FunctionType):
            continue
        names = list(_names_in(function.__code__))
        for name in names:
            value = function.__globals__.get(name)
            if isinstance(value, ModuleType):
                values = [getattr(value, other, None) for other in names]
            else:
                values = [value]
            yield from (it for it in map(_as_source, values) if it)


def _names_in(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names_in(constant)


def _as_source(value: object) -> Source | None:
    """Return a function or class of the lab itself; None for all else."""
    plain = inspect.unwrap(value) if callable(value) else value
    if isinstance(plain, FunctionType | type) and plain.__module__.startswith("lab."):
        return plain
    return None


@cache
def _marked_in(source: Source) -> tuple[Culprit, ...]:
    lines, first = inspect.getsourcelines(source)
    path = _path_of(source)
    numbered = enumerate((line.rstrip() for line in lines), first)
    found = ((number, line, MARKER.search(line)) for number, line in numbered)
    return tuple(
        Culprit(path, number, line[: it.start()].strip(), tuple(re.findall("[a-z]+", it[1])))
        for number, line, it in found
        if it
    )


# --- The listing ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Line:
    """One line of code; ``breaks`` if it is the one to look at."""

    number: int
    text: str
    breaks: bool


@dataclass(frozen=True)
class Excerpt:
    """A part of a file, or all of it; ``path`` is from the repository's root."""

    path: str
    lines: tuple[Line, ...]


def listing(step: Step, findings: Iterable[str]) -> list[Excerpt]:
    """Return the code of a step; the lines that these findings come from are marked in it."""
    culprits = {str(it) for it in (culprit_of(step, finding) for finding in findings) if it}
    if step.is_ours:
        starts = [(_path_of(it), *inspect.getsourcelines(it)) for it in OURS]
        return [
            _excerpt(path, first, first + len(lines) - 1, culprits) for path, lines, first in starts
        ]
    whole = _path_of(step.buy)
    places = {(whole, 1, len(_lines(whole)))}
    places |= {
        (it.path, *_around(it.path, it.line)) for it in marked_lines(step) if it.path != whole
    }
    return [_excerpt(*place, culprits) for place in sorted(places, key=lambda it: it[0] != whole)]


def _excerpt(path: str, first: int, last: int, culprits: set[str]) -> Excerpt:
    numbered = enumerate(_lines(path)[first - 1 : last], first)
    return Excerpt(path, tuple(Line(it, text, f"{path}:{it}" in culprits) for it, text in numbered))


def _path_of(source: Callable[..., object]) -> str:
    return str(Path(inspect.getsourcefile(source) or "").resolve().relative_to(ROOT))


@cache
def _lines(path: str) -> list[str]:
    return (ROOT / path).read_text(encoding="utf-8").splitlines()


def _around(path: str, line: int) -> tuple[int, int]:
    """Return the first and last line of the function or class around this line."""
    for node in ast.parse("\n".join(_lines(path))).body:
        last = node.end_lineno or node.lineno
        if node.lineno <= line <= last:
            return node.lineno, last
    return line, line
