"""What happened in a played race, in order: who did what, when, and what came back."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from django.utils.translation import gettext_lazy as _

from lab.interleaving.words import is_read
from lab.steps.step import Answer

if TYPE_CHECKING:
    from django_stubs_ext import StrOrPromise


class Kind(StrEnum):
    """What an event is; ``what`` of the event says more, where there is more to say."""

    BEGINS = "begins"
    POINT = "point"
    STATEMENT = "statement"
    COMMAND = "command"
    LOG = "log"
    WAITS_FOR_ROW = "waits for row"
    WAITS_FOR_LOCK = "waits for lock"
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
    """What an actor plays."""

    BUYER = "buyer"
    WRITER = "writer"
    WORKER = "worker"


_WORDS: dict[Kind, StrOrPromise] = {
    Kind.BEGINS: _("starts, in process %(what)s"),
    Kind.WAITS_FOR_ROW: _("waits for the row"),
    Kind.WAITS_FOR_LOCK: _("waits for the lock of its process"),
    Kind.GOES_ON: _("has the row now"),
    Kind.KILLED: _("is killed with its process"),
    Kind.STOPPED: _("freezes with its whole process"),
    Kind.CONTINUED: _("continues where it stopped"),
    Kind.CUT: _("its connection to the database is cut"),
    Kind.EMPTIED: _("Redis comes back empty"),
    Kind.LEASE_OVER: _("a lease has passed: the lock is gone"),
    Kind.NO_LEASE: _("the lock never expires: it stays until somebody deletes it"),
    Kind.LEASE_KEPT: _("more than a lease has passed: the lock is still there"),
}

_ANSWERS: dict[str, StrOrPromise] = {
    Answer.BOUGHT: _("bought"),
    Answer.QUEUED: _("queued"),
    Answer.SOLD_OUT: _("sold out"),
    Answer.ALREADY_ORDERED: _("already ordered"),
    Answer.BUSY: _("busy"),
    "": _("done"),
    "refused lost": _("your order was lost, buy again"),
}

_ROLES: dict[Role, StrOrPromise] = {
    Role.BUYER: _("buyer %(number)s"),
    Role.WRITER: _("writes the orders"),
    Role.WORKER: _("fulfils the orders"),
}


@dataclass(frozen=True)
class Column:
    """Somebody in a race, by name, with their role; ``number`` is a buyer's.

    Who acts again, maybe in another process, does so in the same column.
    """

    name: str
    role: Role
    number: int = 0

    @property
    def part(self) -> str:
        """The role in words."""
        return str(_ROLES[self.role] % {"number": self.number})


@dataclass
class Event:
    """One thing that happened; without ``actors`` it happened to everybody.

    ``what`` is the name, statement or answer itself; ``reply`` what came back for it.
    """

    number: int
    at_ms: int
    actors: tuple[str, ...]
    kind: Kind
    what: str = ""
    reply: str = ""

    @property
    def words(self) -> str:
        """What happened, for a reader."""
        if self.kind is Kind.ANSWER:
            return str(_ANSWERS.get(self.what, self.what))
        return str(_WORDS[self.kind] % {"what": self.what}) if self.kind in _WORDS else self.what


@dataclass
class Timeline:
    """The actors of a race and its events in order; moments are of the monotonic clock."""

    began_at: float = field(default_factory=time.monotonic)
    columns: list[Column] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)

    def add(
        self, at: float, actors: tuple[str, ...], kind: Kind, what: str = "", reply: str = ""
    ) -> None:
        """Note what happened last."""
        at_ms = round((at - self.began_at) * 1000)
        self.events.append(Event(len(self.events) + 1, at_ms, actors, kind, what, reply))

    def reply(self, actor: str, at: float, what: str) -> None:
        """Note what came back for the last statement of an actor: there, or after a wait anew."""
        last = self.events[-1]
        if last.actors == (actor,) and last.kind in (Kind.STATEMENT, Kind.COMMAND):
            last.reply = what
        else:
            self.add(at, (actor,), Kind.GOES_ON, reply=what)

    def without_reads(self) -> list[Event]:
        """Return the events that are more than a look at something."""
        looks = (Kind.STATEMENT, Kind.COMMAND)
        return [it for it in self.events if it.kind not in looks or not is_read(it.what)]

    def as_dict(self) -> dict[str, Any]:
        """Return all of it for JSON."""
        return {
            "actors": [
                {"name": it.name, "role": it.role, "buyer": it.number or None}
                for it in self.columns
            ],
            "events": [asdict(it) for it in self.events],
        }
