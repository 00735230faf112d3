"""The verdict on a sale of a step: what was sold, and how often something broke."""

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from lab.texts import TEXTS

FINDINGS = tuple(it for it in TEXTS["finding"] if it != "told_lost")
"""Possible findings, worst first; a buyer who is told of the loss was treated fairly."""

MARKED_AS = {"turned_away": "undersold"}
"""Findings whose line is marked with the name of another finding."""


@dataclass(frozen=True)
class Answers:
    """The answers to a crowd; ``took_ms`` is ascending, ``first_us`` the time of the first press.

    ``promised`` are the user ids with a promise. ``turned_away`` are those that were told "sold
    out" although a later press got a unit. ``denied`` are those with a promise that were told "sold
    out" by another press. ``errors`` counts the unanswered ones that met an error
    although all servers responded.
    """

    promised: frozenset[int]
    turned_away: frozenset[int] = frozenset()
    denied: frozenset[int] = frozenset()
    unanswered: int = 0
    errors: int = 0
    took_ms: Sequence[float] = ()
    first_us: int = 0


@dataclass(frozen=True)
class Verdict:
    """The result of one step with one crowd.

    ``sold`` counts rows, ``oversold`` those beyond the stock, ``doubled`` those beyond one per
    buyer. Buyers with a promise and no row are ``told_lost`` if their receipt says so, else
    ``lost``. ``undersold`` counts units left although there were enough buyers, ``turned_away``
    buyers without a unit who were told "sold out" while one was left. ``denied`` buyers have a unit
    and were told "sold out". ``stuck`` buyers can never buy, because of leftover data. Only a
    played race counts ``early`` rows, from before the start, and ``delayed`` buyers of another
    sale, who had to wait. ``struck`` says whether the fault happened, ``is_quiet`` whether
    everything ended in time. ``error`` is the most common error of unanswered presses, and
    ``errors`` counts those that met one although all servers responded. ``answered`` counts the
    presses that each instance answered, ``sent_on`` those that nginx sent to a second.
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
    errors: int = 0
    answered: list[int] = field(default_factory=list)
    sent_on: int = 0
    delayed: int = 0
    early: int = 0
    denied: int = 0

    @property
    def findings(self) -> list[tuple[str, int]]:
        """What broke and how often, worst first."""
        return [(name, getattr(self, name)) for name in FINDINGS if getattr(self, name)]

    @property
    def is_right(self) -> bool:
        """Whether every voucher was sold once, to one buyer each, and every promise was kept."""
        return self.is_quiet and not self.findings


def judge(
    *,
    step: str,
    buyers: int,
    offered: int,
    rows: Sequence[int],
    answers: Answers,
    told_lost: Collection[int],
    barred: Collection[int],
    last_row_us: int = 0,
    delayed: int = 0,
    has_started: bool = True,
) -> Verdict:
    """Compare the answers to the crowd with the rows.

    ``rows`` has the user id of each order. ``told_lost`` are buyers with a promise whose receipt
    says that the order is lost. ``barred`` are user ids that leftover data keeps from buying.
    Nothing may be sold until the sale ``has_started``.
    """
    sold_to = Counter(rows)
    without = answers.promised - sold_to.keys()
    lost = without - set(told_lost)
    took_s = (last_row_us - answers.first_us) / 1_000_000
    return Verdict(
        step=step,
        buyers=buyers,
        offered=offered,
        sold=len(rows),
        oversold=max(0, len(rows) - offered),
        doubled=len(rows) - len(sold_to),
        lost=len(lost),
        undersold=max(0, min(offered, buyers) - len(rows)) if has_started else 0,
        turned_away=len(answers.turned_away - sold_to.keys()),
        stuck=len(set(barred) - sold_to.keys() - lost),
        told_lost=len(without) - len(lost),
        unanswered=answers.unanswered,
        errors=answers.errors,
        orders_per_s=round(len(rows) / took_s, 1) if rows and took_s > 0 else None,
        p99_ms=round(percentile(answers.took_ms, 99), 1) if answers.took_ms else None,
        delayed=delayed,
        early=0 if has_started else len(rows),
        denied=len(answers.denied & sold_to.keys()),
    )


def percentile(values: Sequence[float], percent: int) -> float:
    """Return the value that this percentage of all values does not exceed (nearest rank)."""
    return sorted(values)[max(0, -(-len(values) * percent // 100) - 1)]


def finding_text(finding: str, count: int) -> str:
    """Return a finding in words."""
    return str(TEXTS["finding"][finding] % {"count": count})
