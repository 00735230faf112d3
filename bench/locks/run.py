"""One run: its plan, each library in turn in processes of its own, and the figures."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from typing import Any, TypeVar

from redis import Redis
from tqdm import tqdm

from bench import tables
from bench.locks.libraries import Compared, is_installed
from bench.tables import shown

C = TypeVar("C", bound=Compared)

BEGIN, END = "bench:begin", "bench:end"
"""The marks that are sent (ECHO) around the counted commands."""

CONTROL_TIMEOUT_S = 30


@dataclass(frozen=True)
class Plan:
    """The length of a run."""

    cycle_rounds: int
    cycle_s: float
    contended_rounds: int
    contended_s: float
    wake_rounds: int
    wakes: int
    held: int
    lease_s: int
    stopped_rounds: int


FULL = Plan(5, 0.4, 3, 1.0, wake_rounds=18, wakes=10, held=1_000, lease_s=10, stopped_rounds=3)
QUICK = Plan(2, 0.1, 1, 0.3, wake_rounds=1, wakes=4, held=100, lease_s=2, stopped_rounds=1)


@dataclass(frozen=True)
class Run:
    """One run: its plan, its Redis and its processes."""

    plan: Plan
    url: str
    processes: Executor

    def in_turn(self, libraries: Sequence[type[C]], *, rounds: int, what: str) -> Iterator[type[C]]:
        """Yield the installed libraries in rounds, so noise affects all alike; Redis is empty."""
        installed = [library for library in libraries if is_installed(library)]
        with control_of(self.url) as control:
            for library in tqdm(installed * rounds, desc=what, unit="run", disable=None):
                control.flushdb()
                yield library

    def at_once(self, *calls: Callable[[], Any]) -> list[Any]:
        """Run each call in a process of its own and return their results."""
        futures = [self.processes.submit(call) for call in calls]
        return [future.result() for future in futures]


@contextmanager
def control_of(url: str) -> Iterator[Redis]:
    """Offer a client for commands that are not measured."""
    with Redis.from_url(url, decode_responses=True, socket_timeout=CONTROL_TIMEOUT_S) as client:
        yield client


@contextmanager
def counted(url: str) -> Iterator[None]:
    """Count the commands of the block, for ``commands_sent``."""
    with control_of(url) as control:
        control.echo(BEGIN)
        yield
        control.echo(END)


@contextmanager
def commands_sent(url: str) -> Iterator[list[str]]:
    """Fill the list, at the end, with the commands that clients sent while they were counted.

    MONITOR distinguishes them from the calls of a script, which are not round trips.
    """
    sent: list[str] = []
    with control_of(url) as control, control.monitor() as monitor:  # type: ignore[no-untyped-call]
        yield sent
        commands = iter(monitor.next_command, None)
        for command in commands:
            if BEGIN in command["command"]:
                break
        for command in commands:
            if END in command["command"]:
                break
            if command["client_type"] != "lua":
                sent.append(command["command"])


# --- The figures ----------------------------------------------------------------------------------

OURS = "ours"
Value = float | str
"""A number, or a word that explains its absence."""


class Better(Enum):
    HIGHER = "higher"
    LOWER = "lower"
    ZERO = "zero"


@dataclass(frozen=True)
class Figure:
    """One line of the table: the values of one measure by the titles of the libraries."""

    row: str
    name: str
    better: Better
    values: dict[str, Value]

    def ratios(self) -> dict[str, float]:
        """Return ours / theirs for each other library with a number other than 0."""
        numbers = {title: it for title, it in self.values.items() if isinstance(it, float)}
        ours = numbers.pop(OURS, None)
        return {} if ours is None else {title: ours / it for title, it in numbers.items() if it}


def figure_of(
    row: str,
    name: str,
    better: Better,
    libraries: Sequence[type[C]],
    value: Callable[[type[C]], Value],
) -> Figure:
    """Return a figure with a value for each library, or the word that it is not installed."""
    values = {
        library.title: value(library) if is_installed(library) else "not installed"
        for library in libraries
    }
    return Figure(row, name, better, values)


def markdown(figures: Sequence[Figure], titles: Sequence[str]) -> str:
    """Return all figures as one table, with ours / theirs in brackets."""
    rows = []
    for figure in figures:
        ratios = figure.ratios()
        cells = [f"{figure.row}: {figure.name}", figure.better.value]
        for title in titles:
            cell = shown(figure.values.get(title, "–"))
            cells.append(f"{cell} (×{shown(ratios[title])})" if title in ratios else cell)
        rows.append(cells)
    return tables.markdown(["", "better", *titles], rows, words=2)
