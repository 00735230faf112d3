"""The waiting room of a sale: how fast it lets people in, and what this process knows of its line.

Note [Places in line]
~~~~~~~~~~~~~~~~~~~~~
Visitors are numbered as they come (``lua/include/visit_room.lua``). Who may buy is a function of
time: at ``t``, the turn of all numbers up to

    passed(t) = base + rate * (t - since)

has come, and as many more as the room lets in within a second. Nothing counts the people let in, so
nothing can be lost with Redis or drift: ``base`` and ``since`` are in the sale's row, and change
only with the rate or with a pause, so that ``passed`` never jumps. While nobody waits, ``passed``
goes on; the next visitor then gets the number after it, so nothing is saved up for a later crowd.

Of early visitors, who came before the start, the order may be drawn: their number in line becomes
``1 + draw * early``, where ``early`` is the last number given before the start and ``draw`` a
fraction that depends on nothing but the account and the shop's secret key. Some numbers then come
twice and others not at all; on average the rate is right.

If Redis loses its line or comes back with an older one, every buyer has a signed place
(``orders/placing/places.py``), and each process remembers the last number that it has seen: both go
with the next request. The rows of visits have the whole line as it was a moment ago, and a build of
the ledger gives Redis what it lacks of it (``stored_line.py``). So nobody loses a place, and nobody
who comes later gets an earlier number.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from locks.lua_script import Argument
from seckill_site.clocks.ledger import steady_ledger_ms
from seckill_site.clocks.machine import epoch_ms
from seckill_site.process_memory import Memory
from vouchers.models import RoomKind, SeckillVoucher

PLACE_KEPT_MS = 5 * 60_000
"""How long a place stays good once its turn has come, for a visitor who does not take it."""

_TERMS = re.compile(r"(\d+):(\d+):(\d+):(\d+):([as])", re.ASCII)


@dataclass(frozen=True)
class RoomTerms:
    """How a waiting room lets people in; Note [Places in line].

    ``rate`` is in people a second, 0 while the sale is paused. ``opened_ms`` names the opening;
    times are in milliseconds since 1970.
    """

    opened_ms: int
    rate: int
    base: int
    since_ms: int
    shuffled: bool = False

    @classmethod
    def from_sale(cls, sale: SeckillVoucher) -> RoomTerms | None:
        """Return the terms of this row; None if its waiting room is closed."""
        if not sale.room_opened_ms:
            return None
        waits_for_start = sale.room == RoomKind.START
        return cls(
            opened_ms=sale.room_opened_ms,
            rate=0 if sale.closed_by_shop else sale.room_rate,
            base=sale.room_base,
            since_ms=max(sale.room_since_ms, epoch_ms(sale.begins_at) if waits_for_start else 0),
            shuffled=sale.room_shuffled and waits_for_start,
        )

    @classmethod
    def parse(cls, word: str) -> RoomTerms | None:
        """Return the terms as the ledger has them; None for a closed room."""
        match = _TERMS.fullmatch(word)
        if match is None:
            return None
        opened_ms, rate, base, since_ms = map(int, match.groups()[:4])
        return cls(opened_ms, rate, base, since_ms, shuffled=match[5] == "s")

    def word(self) -> str:
        """Return the terms as one word, as the scripts take them."""
        order = "s" if self.shuffled else "a"
        return f"{self.opened_ms}:{self.rate}:{self.base}:{self.since_ms}:{order}"

    def passed(self, now_ms: int) -> int:
        """Return the highest number whose turn has come."""
        return self.base + self.rate * max(0, now_ms - self.since_ms) // 1000

    def head(self, now_ms: int) -> int:
        """Return the highest number that is let in now."""
        return self.passed(now_ms) + (self.rate if now_ms >= self.since_ms else 0)

    def wait_ms(self, number: int, now_ms: int) -> int | None:
        """Return how long this number still has to wait; None while nobody is let in."""
        if number <= self.head(now_ms):
            return 0
        if not self.rate:
            return None
        seconds_to_pass = (number - self.base - self.rate) / self.rate
        return max(0, self.since_ms - now_ms + max(0, round(seconds_to_pass * 1000)))


def slower(one: RoomTerms | None, other: RoomTerms | None) -> RoomTerms | None:
    """Return the terms that let fewer people in; a closed room lets in everybody."""
    if one is None or other is None:
        return one or other
    return min(one, other, key=lambda it: it.rate)


class Line(NamedTuple):
    """The line of a waiting room: the last number given, and the last one before the start."""

    terms: RoomTerms
    tail: int
    early: int | None

    def length(self, now_ms: int) -> int:
        """Return how many numbers wait to be let in."""
        return max(0, self.tail - self.terms.head(now_ms))

    def number_of(self, given: int, draw: int) -> int:
        """Return the number in line of the visitor who was given this one.

        Until ``early`` is known, all who are in line are early.
        """
        early = self.tail if self.early is None else self.early
        if self.terms.shuffled and given <= early:
            return 1 + draw * early // 2**32
        return given


_lines = Memory[int, Line](most=1_000)


def recall_line(*, sale_id: int) -> Line | None:
    """Return the line of a sale as this process knows it."""
    return _lines.last(sale_id)


def read_line(terms: RoomTerms, tail: str | int, early: str) -> Line:
    return Line(terms, int(tail), int(early) if early else None)


def remember_line(line: Line, *, sale_id: int) -> Line:
    """Keep what Redis said of a line, and return it; a number that it has lost is not forgotten."""
    last = _lines.last(sale_id)
    if last and last.terms.opened_ms == line.terms.opened_ms:
        known_early = [early for early in (line.early, last.early) if early is not None]
        line = Line(line.terms, max(line.tail, last.tail), max(known_early, default=None))
    _lines.keep(sale_id, line)
    return line


# --- A visit --------------------------------------------------------------------------------------


class SignedPlace(NamedTuple):
    """What a visitor's signed place says: the opening, the number given, and since when."""

    opened_ms: int
    given: int
    joined_ms: int


class Visitor(NamedTuple):
    """A visitor of a waiting room: the draw is below 2^32; ``again`` after an expired place."""

    draw: int
    signed: SignedPlace | None = None
    again: bool = False


class PlaceState(StrEnum):
    """The states of ``visit_room.lua``."""

    IN = "IN"
    WAITING = "WAITING"
    EXPIRED = "EXPIRED"
    NONE = "NONE"


class Place(NamedTuple):
    """A visitor's place: the number that was given, and the number in line that follows from it."""

    line: Line
    given: int
    joined_ms: int
    number: int
    state: PlaceState

    @property
    def is_in(self) -> bool:
        """Whether the room has let this visitor in."""
        return self.state is PlaceState.IN


def visit_args(*, sale_id: int, visitor: Visitor) -> list[Argument]:
    """Return the arguments of a visit, in the order of ``read_buyer.lua``."""
    line, signed = recall_line(sale_id=sale_id), visitor.signed
    opened_ms = max(line.terms.opened_ms if line else 0, signed.opened_ms if signed else 0)
    if line and line.terms.opened_ms != opened_ms:
        line = None
    place = ""
    if signed and signed.opened_ms == opened_ms:
        place = f"{signed.given}:{signed.joined_ms}"
    tail, early = (line.tail, line.early) if line else (0, None)
    known_early = "" if early is None else early
    again = int(visitor.again)
    draw, now_ms = str(visitor.draw), steady_ledger_ms()
    return [draw, PLACE_KEPT_MS, again, place, opened_ms, tail, known_early, now_ms]


def read_place(words: str) -> Place:
    """Read what ``visit_room.lua`` returned.

    :raises ValueError: these are not its words.
    """
    word, given, joined_ms, number, state, tail, early = words.split(" ")
    terms = RoomTerms.parse(word)
    if terms is None:
        raise ValueError(f"not the terms of a waiting room: {word}")
    return Place(
        read_line(terms, tail, early), int(given), int(joined_ms), int(number), PlaceState(state)
    )
