"""The timeline of a played race: which actor did what, when, and the reply."""

from __future__ import annotations

import textwrap
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from lab.interleaving.descriptions import is_read
from lab.texts import TEXTS

NARROWEST_COLUMN = 16
GAP = 2
_NUMBER, _TIME = 3, 5
_MARGIN = _NUMBER + GAP + _TIME + GAP


class Kind(StrEnum):
    """The kind of an event; its ``what`` has the details, if any."""

    BEGINS = "begins"
    POINT = "point"
    STATEMENT = "statement"
    COMMAND = "command"
    LOG = "log"
    WAITS_FOR_ROW = "waits for row"
    WAITS_FOR_LOCK = "waits for lock"
    WAITS_FOR_ROOM = "waits for room"
    GOES_ON = "goes on"
    ANSWER = "answer"
    FAILS = "fails"
    KILLED = "killed"
    STOPPED = "stopped"
    CONTINUED = "continued"
    CUT = "cut"
    EMPTIED = "emptied"
    LEASE_OVER = "lease over"
    LEASE_KEPT = "lease kept"
    NO_LEASE = "no lease"


class Role(StrEnum):
    """The role of an actor."""

    BUYER = "buyer"
    STRANGER = "stranger"
    ELSEWHERE = "elsewhere"
    WRITER = "writer"
    WORKER = "worker"


@dataclass(frozen=True)
class Column:
    """The column of an actor, even if it moves to another process; ``number`` is the buyer's."""

    name: str
    role: Role
    number: int = 0

    @property
    def role_text(self) -> str:
        """The role in words."""
        return str(TEXTS["role"][self.role] % {"number": self.number})


@dataclass
class Event:
    """One event; without ``actors``, it concerns all of them.

    ``what`` is the name, statement or answer itself; ``reply`` is the reply to it.
    """

    number: int
    at_ms: int
    actors: tuple[str, ...]
    kind: Kind
    what: str = ""
    reply: str = ""

    @property
    def text(self) -> str:
        """The event in words."""
        if self.kind is Kind.ANSWER:
            return str(TEXTS["answer"].get(self.what, self.what))
        texts = TEXTS["event"]
        return str(texts[self.kind] % {"what": self.what}) if self.kind in texts else self.what


@dataclass
class Timeline:
    """The actors of a race and its events in order; times are of the monotonic clock."""

    began_at: float = field(default_factory=time.monotonic)
    columns: list[Column] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)

    def add(
        self, at: float, actors: tuple[str, ...], kind: Kind, what: str = "", reply: str = ""
    ) -> None:
        """Add an event."""
        at_ms = round((at - self.began_at) * 1000)
        self.events.append(Event(len(self.events) + 1, at_ms, actors, kind, what, reply))

    def reply(self, actor: str, at: float, what: str) -> None:
        """Add the reply to an actor's last statement; after a wait, as an event of its own."""
        last = self.events[-1]
        if last.actors == (actor,) and last.kind in (Kind.STATEMENT, Kind.COMMAND):
            last.reply = what
        else:
            self.add(at, (actor,), Kind.GOES_ON, reply=what)

    def without_reads(self) -> list[Event]:
        """Return the events except those that only read."""
        looks = (Kind.STATEMENT, Kind.COMMAND)
        return [it for it in self.events if it.kind not in looks or not is_read(it.what)]


# --- As text --------------------------------------------------------------------------------------


def side_by_side(timeline: Timeline, events: Sequence[Event], *, width: int) -> str:
    """Return these events as text of this width: a column per actor, a row per event."""
    count = len(timeline.columns)
    column = max(NARROWEST_COLUMN, (width - _MARGIN - GAP * (count - 1)) // count)
    whole = count * column + (count - 1) * GAP
    heads = [f"{it.name}: {it.role_text}" for it in timeline.columns]
    lines = [f"{'#':>{_NUMBER}}{'ms':>{GAP + _TIME}}{' ' * GAP}{_row(heads, column)}"]
    lines.append("-" * (_MARGIN + whole))
    for event in events:
        margin = f"{event.number:>{_NUMBER}}{event.at_ms:>{GAP + _TIME}}{' ' * GAP}"
        for line in _lines(timeline, event, column, whole):
            lines.append(f"{margin}{line}".rstrip())
            margin = " " * _MARGIN
    return "\n".join(lines)


def _lines(timeline: Timeline, event: Event, column: int, whole: int) -> Iterator[str]:
    if not event.actors:
        yield f" {event.text} ".center(whole, "-")
        return
    names = [it.name for it in timeline.columns]
    for line in _cell(event, column):
        yield _row([line if name in event.actors else "" for name in names], column)


def _cell(event: Event, width: int) -> Iterator[str]:
    """Return an event as lines of one column, with the reply indented below."""
    text = _CELLS.get(event.kind, "* {}").format(event.text)
    yield from textwrap.wrap(text, width, subsequent_indent="  ")
    if event.reply:
        yield from textwrap.wrap(
            f"-> {event.reply}", width, initial_indent="  ", subsequent_indent="     "
        )


_CELLS = {
    Kind.POINT: "[{}]",
    Kind.ANSWER: "= {}",
    Kind.FAILS: "! {}",
    Kind.LOG: 'says "{}"',
    Kind.STATEMENT: "{}",
    Kind.COMMAND: "{}",
}


def _row(cells: Sequence[str], column: int) -> str:
    return (" " * GAP).join(f"{cell:<{column}}" for cell in cells).rstrip()
