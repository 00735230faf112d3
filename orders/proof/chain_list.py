"""The published list of a chain: one text with a line for each order and mark, and every head.

Five lines ``# name: value`` come first. Each link is its lines, as ``vouchers/chain.py`` writes
them, and the head after them in a line ``= <head>``. A part of a list starts at a later position,
with the head before its first link, so it can be checked without the rest.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from orders.published_files import HASH, MalformedRecord, read_head
from vouchers.chain import Mark, first_head, next_head

_FIELDS = ("sale", "first", "entries", "start", "head")
_LINE = re.compile(r"[1-9][0-9]{0,18} [0-9]{1,15}( refused)?|! [a-z]+( [0-9]{1,19})+", re.ASCII)


class Link(NamedTuple):
    """A batch of orders, or a mark: its lines, which end with a line break, and the head after."""

    text: str
    head: str

    @property
    def entries(self) -> int:
        return 0 if self.text.startswith("!") else self.text.count("\n")


@dataclass
class ChainList:
    """Links of a sale's chain from the position ``first`` on; ``start`` is the head before."""

    sale_id: int
    first: int
    start: str
    links: list[Link] = field(default_factory=list)

    @property
    def head(self) -> str:
        return self.links[-1].head if self.links else self.start

    @property
    def entries(self) -> int:
        return sum(link.entries for link in self.links)

    @property
    def given_by_hand(self) -> list[int]:
        """The orders that staff made live after they had been refused."""
        marks = [it.text.split() for it in self.links if it.text.startswith(f"! {Mark.RETRY} ")]
        return [int(words[2]) for words in marks]

    def text(self) -> str:
        values = (self.sale_id, self.first, self.entries, self.start, self.head)
        head = [f"# {name}: {it}\n" for name, it in zip(_FIELDS, values, strict=True)]
        return "".join([*head, *(f"{it.text}= {it.head}\n" for it in self.links)])

    def parts(self, *, size: int) -> list[ChainList]:
        """Return the links around each ``size`` positions, whole."""
        parts: list[ChainList] = []
        done, head = 0, self.start
        for link in self.links:
            # A mark belongs to the order before it.
            start = done if link.entries else max(done - 1, 0)
            for number in range(start // size, max(done + link.entries - 1, 0) // size + 1):
                if number == len(parts):
                    parts.append(ChainList(self.sale_id, done + 1, head))
                parts[number].links.append(link)
            done, head = done + link.entries, link.head
        return parts

    @classmethod
    def parse(cls, text: str) -> ChainList:
        """Return the list in a text.

        :raises MalformedRecord: the text is not the list of a chain.
        """
        lines = text.splitlines()
        head = read_head(lines, _FIELDS, numbers=("sale", "first", "entries"))
        chain, added = cls(int(head["sale"]), int(head["first"]), head["start"]), ""
        for number, line in enumerate(lines[len(_FIELDS) :], start=len(_FIELDS) + 1):
            if _LINE.fullmatch(line):
                added += f"{line}\n"
            elif added and line.startswith("= ") and HASH.fullmatch(line[2:]):
                chain.links.append(Link(added, line[2:]))
                added = ""
            else:
                raise MalformedRecord(f"line {number} is no order, mark or head")
        if added or (str(chain.entries), chain.head) != (head["entries"], head["head"]):
            raise MalformedRecord("the list does not end as its head says")
        return chain

    def problems(self, *, old_heads: Collection[str] = ()) -> Iterator[str]:
        """Compute the chain again, and yield what does not follow; ``old_heads`` must be in it."""
        head, position = self.start, self.first
        if self.first == 1 and head != first_head(sale_id=self.sale_id):
            yield "the chain does not start as that of this sale does"
        for link in self.links:
            if next_head(head, link.text) != link.head:
                last = position + max(link.entries, 1) - 1
                yield f"positions {position} to {last}: a line was changed, moved, added or removed"
            head, position = link.head, position + link.entries
        known = {link.head for link in self.links}
        yield from (f"the head {it} is not in this chain" for it in old_heads if it not in known)
