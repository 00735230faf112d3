"""The published record of a draw: one text with the list, the seed and the result.

Six lines ``# name: value`` come first, then one entry id a line: in rising order before the draw,
in drawn order after it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from orders.draws.rules import commitment_of, drawn_order, list_digest
from orders.published_files import MalformedRecord, read_head

_FIELDS = ("sale", "commitment", "digest", "entries", "units", "seed")
_ID = re.compile(r"[1-9][0-9]{0,18}", re.ASCII)


class WrongDraw(Exception):
    """The record contradicts itself; the message says how."""


@dataclass(frozen=True)
class DrawRecord:
    """A draw as it is published; ``seed`` is empty until it is drawn."""

    sale_id: int
    commitment: str
    digest: str
    units: int
    seed: str
    entry_ids: Sequence[int]

    @property
    def winners(self) -> Sequence[int]:
        """The entries that won, in drawn order; none before the draw."""
        return self.entry_ids[: self.units] if self.seed else []

    def lines(self) -> Iterator[str]:
        """Return the record line by line."""
        values = (self.sale_id, self.commitment, self.digest, len(self.entry_ids), self.units)
        for name, value in zip(_FIELDS, (*values, self.seed), strict=True):
            yield f"# {name}: {value}\n"
        for entry_id in self.entry_ids:
            yield f"{entry_id}\n"

    @classmethod
    def parse(cls, text: str) -> DrawRecord:
        """Return the record in a text.

        :raises MalformedRecord: the text is not the record of a draw.
        """
        lines = text.splitlines()
        head = read_head(lines, _FIELDS, numbers=("sale", "entries", "units"), maybe="seed")
        ids = [_entry_id(line, number) for number, line in enumerate(lines[6:], start=7)]
        if len(ids) != int(head["entries"]):
            raise MalformedRecord(f"{head['entries']} entries are announced, {len(ids)} follow")
        numbers = int(head["sale"]), int(head["units"])
        return cls(numbers[0], head["commitment"], head["digest"], numbers[1], head["seed"], ids)


def _entry_id(line: str, number: int) -> int:
    if not _ID.fullmatch(line):
        raise MalformedRecord(f"line {number} is not an entry id")
    return int(line)


def verify(record: DrawRecord) -> None:
    """Compute a draw again and compare.

    :raises WrongDraw: something does not follow from list and seed, or there is no seed yet.
    """
    if len(set(record.entry_ids)) != len(record.entry_ids):
        raise WrongDraw("an entry is in the list twice")
    if list_digest(record.entry_ids) != record.digest:
        raise WrongDraw("the digest is not that of the list")
    if not record.seed:
        raise WrongDraw("the seed is not published yet; the digest of the list is right")
    if commitment_of(record.seed) != record.commitment:
        raise WrongDraw("the seed is not the one that was promised")
    order = drawn_order(seed=record.seed, digest=record.digest, entry_ids=record.entry_ids)
    if order != list(record.entry_ids):
        raise WrongDraw("the order does not follow from seed and list")
