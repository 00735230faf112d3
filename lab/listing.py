"""The code of a step for a page, with the lines that break.

A line that breaks ends with a comment that names its findings, such as ``# breaks: oversold``. The
comments are read from the source, so they are never out of date. The code of a step is its ``buy``,
its writer, and the lab's code and scripts that these use. The nearest comes first: a lock explains
a step better than the transaction that several steps share.
"""

import inspect
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from types import FunctionType, ModuleType

from lab.steps import ours
from lab.steps.step import Step
from lab.verdict import MARKED_AS
from locks.lua_script import LuaScript
from orders.fulfilment.batch import write_batch
from orders.placing.service import place_order

ROOT = Path(__file__).resolve().parents[1]
MARKER = re.compile(r"(?:#|--) breaks: ([a-z, ]+)$")

OURS: tuple[Callable[..., object], ...] = (ours.buy, place_order, write_batch)
"""The functions of the shop to read; ``ARCHITECTURE.md`` describes the rest."""

Source = FunctionType | type | LuaScript


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
    """Return the line marked with a finding, else the nearest marked line."""
    marked = marked_lines(step)
    with_it = (it for it in marked if MARKED_AS.get(finding, finding) in it.findings)
    return next(with_it, marked[0] if marked else None)


def marked_lines(step: Step) -> tuple[Culprit, ...]:
    """Return the marked lines of a step, the nearest first."""
    return tuple(it for source in _sources_of(step) for it in _marked_in(source))


def _sources_of(step: Step) -> list[Source]:
    """Return the functions and classes of a step, the nearest first."""
    sources = list(_of_the_lab(step.buy, step.writer))
    for source in sources:  # grows during the loop
        sources += [it for it in dict.fromkeys(_used_by(source)) if it not in sources]
    return sources


def _of_the_lab(*values: object) -> Iterator[Source]:
    """Yield the functions, classes and scripts of the lab; those of a variant alone first."""
    for value in values:
        if isinstance(value, partial):
            yield from _of_the_lab(*value.keywords.values(), value.func)
            continue
        if isinstance(value, LuaScript):
            yield value
            continue
        plain = inspect.unwrap(value) if callable(value) else value
        if isinstance(plain, FunctionType | type) and plain.__module__.startswith("lab."):
            yield plain


def _used_by(source: Source) -> Iterator[Source]:
    if isinstance(source, type):
        yield from _of_the_lab(*source.__bases__)
    members = [source] if isinstance(source, FunctionType) else vars(source).values()
    for function in members:
        if not isinstance(function, FunctionType):
            continue
        names = function.__code__.co_names
        for name in names:
            value = function.__globals__.get(name)
            if isinstance(value, ModuleType):
                yield from _of_the_lab(*(getattr(value, other, None) for other in names))
            else:
                yield from _of_the_lab(value)


@cache
def _marked_in(source: Source) -> tuple[Culprit, ...]:
    path, first, last = _place_of(source)
    numbered = enumerate(_lines(path)[first - 1 : last], first)
    matches = ((number, line, MARKER.search(line)) for number, line in numbered)
    return tuple(
        Culprit(path, number, line[: it.start()].strip(), tuple(re.findall("[a-z]+", it[1])))
        for number, line, it in matches
        if it
    )


# --- The listing ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Line:
    """One line of code; ``breaks`` marks the one to look at."""

    number: int
    text: str
    breaks: bool


@dataclass(frozen=True)
class Excerpt:
    """A part of a file, or all of it; ``path`` is from the repository's root."""

    path: str
    lines: tuple[Line, ...]


def listing(step: Step, findings: Iterable[str]) -> list[Excerpt]:
    """Return the code of a step, with the lines behind these findings marked."""
    culprits = {str(culprit_of(step, finding)) for finding in findings}
    if step.is_ours:
        places = [_place_of(it) for it in OURS]
    else:
        sources = _sources_of(step)
        whole, _, _ = _place_of(next(_of_the_lab(getattr(step.buy, "func", step.buy))))
        others = (_place_of(it) for it in sources if _marked_in(it))
        places = [(whole, 1, len(_lines(whole))), *(it for it in others if it[0] != whole)]
    return [_excerpt(*place, culprits) for place in places]


def _excerpt(path: str, first: int, last: int, culprits: set[str]) -> Excerpt:
    numbered = enumerate(_lines(path)[first - 1 : last], first)
    return Excerpt(path, tuple(Line(it, text, f"{path}:{it}" in culprits) for it, text in numbered))


def _place_of(source: Callable[..., object] | LuaScript) -> tuple[str, int, int]:
    """Return the path of a function, class or script, and its first and last line."""
    if isinstance(source, LuaScript):
        script = f"lab/lua/{source.name}.lua"
        return script, 1, len(_lines(script))
    path = Path(inspect.getsourcefile(source) or "").resolve().relative_to(ROOT)
    lines, first = inspect.getsourcelines(source)
    return str(path), first, first + len(lines) - 1


@cache
def _lines(path: str) -> list[str]:
    return (ROOT / path).read_text(encoding="utf-8").splitlines()
