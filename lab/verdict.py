"""What a sale of a step has come to: counts, and in words what broke."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

from lab.crowds.told import Told

FINDINGS = ("oversold", "doubled", "lost", "undersold", "turned_away", "stuck")
"""What may break, worst first."""

MARKED_AS = {"turned_away": "undersold"}
"""Findings whose line is marked with the name of another."""


@dataclass(frozen=True)
class Verdict:
    """What one step did with one crowd.

    ``sold`` are rows, ``oversold`` those beyond the units offered, ``doubled`` those beyond one a
    buyer. ``lost`` are buyers who heard a promise and have neither row nor word when all is quiet;
    ``told_lost`` are those who have the word. ``undersold`` are units left although there were
    buyers enough; ``turned_away`` are buyers who heard "sold out" before the last unit was pressed
    for, and have none. ``stuck`` are buyers who can never buy, because of what was left behind.
    ``unanswered`` presses got no answer at all. ``struck`` says whether the fault that was asked
    for has come; ``is_quiet`` whether all was over in time. ``error`` is what most presses without
    an answer met.
    """

    step: str
    buyers: int
    offered: int
    sold: int
    oversold: int
    doubled: int
    lost: int
    undersold: int
    turned_away: int
    stuck: int
    told_lost: int
    unanswered: int
    orders_per_s: float | None
    p99_ms: float | None
    struck: bool = False
    is_quiet: bool = True
    error: str = ""

    @property
    def findings(self) -> list[tuple[str, int]]:
        """Return what broke and how often, worst first."""
        return [(name, getattr(self, name)) for name in FINDINGS if getattr(self, name)]

    @property
    def is_right(self) -> bool:
        """Whether every unit was sold once, to one buyer each, and nobody's promise was broken."""
        return self.is_quiet and not self.findings

    @classmethod
    def of(cls, found: dict[str, Any]) -> Verdict:
        """Read what ``as_json`` has written."""
        return cls(**{field.name: found[field.name] for field in fields(cls)})

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def judge(
    *,
    step: str,
    buyers: int,
    offered: int,
    rows: Sequence[int],
    told: Told,
    with_word: Collection[int],
    held: Collection[int],
    last_row_us: int,
) -> Verdict:
    """Hold what the crowd heard against the rows.

    ``rows`` has the user id of each order. ``with_word`` are promised buyers who can read that
    their order is lost. ``held`` are user ids that something left behind keeps from buying.
    """
    have = Counter(rows)
    without = told.promised - have.keys()
    lost = without - set(with_word)
    took_s = (last_row_us - told.first_us) / 1_000_000
    return Verdict(
        step=step,
        buyers=buyers,
        offered=offered,
        sold=len(rows),
        oversold=max(0, len(rows) - offered),
        doubled=len(rows) - len(have),
        lost=len(lost),
        undersold=max(0, min(offered, buyers) - len(rows)),
        turned_away=len(told.turned_away - have.keys()),
        stuck=len(set(held) - have.keys() - lost),
        told_lost=len(without) - len(lost),
        unanswered=told.unanswered,
        orders_per_s=round(len(rows) / took_s, 1) if rows and took_s > 0 else None,
        p99_ms=round(percentile(told.took_ms, 99), 1) if told.took_ms else None,
    )


def percentile(ascending: Sequence[float], percent: int) -> float:
    """Return the value that so many percent do not exceed."""
    return ascending[max(0, -(-len(ascending) * percent // 100) - 1)]
