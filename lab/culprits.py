"""The line of a step's code that breaks: looked up in the source, so that it is never out of date.

Such a line ends with a comment, ``# breaks: oversold``, with one finding or several. The code of a
step is its ``buy`` and its writer, and what of the lab these use: what is nearest comes first, so
that a lock answers for a step before the transaction does that several steps share.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import CodeType, FunctionType, ModuleType

from lab.steps.step import Step

ROOT = Path(__file__).resolve().parents[1]
MARKER = re.compile(r"# breaks: ([a-z, ]+)$")

Source = FunctionType | type


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

    Where none is marked with it, the finding comes along with another: the nearest marked line.
    """
    marked = marked_lines(step)
    with_it = (it for it in marked if finding in it.findings)
    return next(with_it, marked[0] if marked else None)


def marked_lines(step: Step) -> tuple[Culprit, ...]:
    """Return the marked lines of a step, the nearest first."""
    return tuple(it for source in _sources(step) for it in _marked_in(source))


def _sources(step: Step) -> list[Source]:
    """Return the functions and classes of a step, the nearest first."""
    roots = (step.buy, step.writer)
    found = [it for it in map(_as_source, roots) if it]
    for source in found:  # grows on the way
        for used in _used_by(source):
            if used not in found:
                found.append(used)
    return found


def _used_by(source: Source) -> Iterator[Source]:
    functions = [source] if isinstance(source, FunctionType) else _methods(source)
    for function in functions:
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


def _methods(cls: type) -> list[FunctionType]:
    return [it for it in vars(cls).values() if isinstance(it, FunctionType)]


def _as_source(value: object) -> Source | None:
    """Return what the lab itself has written; None for all else."""
    plain = inspect.unwrap(value) if callable(value) else value
    if isinstance(plain, FunctionType | type) and plain.__module__.startswith("lab."):
        return plain
    return None


@cache
def _marked_in(source: Source) -> tuple[Culprit, ...]:
    lines, first = inspect.getsourcelines(source)
    path = Path(inspect.getsourcefile(source) or "").resolve().relative_to(ROOT)
    numbered = enumerate((line.rstrip() for line in lines), first)
    found = ((number, line, MARKER.search(line)) for number, line in numbered)
    return tuple(
        Culprit(str(path), number, line[: it.start()].strip(), tuple(re.findall("[a-z]+", it[1])))
        for number, line, it in found
        if it
    )
