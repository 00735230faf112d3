"""The table of a race: its columns, and a verdict as their cells."""

from __future__ import annotations

from collections.abc import Sequence

from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from lab.verdict import Verdict

HEADINGS = (
    gettext_noop("step"),
    gettext_noop("sold"),
    gettext_noop("oversold"),
    gettext_noop("doubled"),
    gettext_noop("lost"),
    gettext_noop("undersold"),
    gettext_noop("turned away"),
    gettext_noop("stuck"),
    gettext_noop("no answer"),
    gettext_noop("orders/s"),
    gettext_noop("p99 ms"),
)
FINDINGS = slice(1, 7)
"""The columns after the step's in which anything but 0 is a flaw."""


def headings() -> list[str]:
    return [_(heading) for heading in HEADINGS]


def cells_of(verdict: Verdict) -> list[str]:
    """Return a verdict as the table shows it."""
    return [
        verdict.step,
        f"{verdict.sold:,}",
        f"{verdict.oversold:,}",
        f"{verdict.doubled:,}",
        f"{verdict.lost:,}",
        f"{verdict.undersold:,}",
        f"{verdict.turned_away:,}",
        f"{verdict.stuck:,}",
        f"{verdict.unanswered:,}",
        "–" if verdict.orders_per_s is None else f"{verdict.orders_per_s:,.0f}",
        "–" if verdict.p99_ms is None else f"{verdict.p99_ms:,.1f}",
    ]


def markdown(rows: Sequence[Sequence[str]]) -> str:
    """Return rows, the first of which are the headings, as a table of a document."""
    lines = [f"| {' | '.join(row)} |" for row in rows]
    dashes = f"| {' | '.join(['---', *['---:'] * (len(rows[0]) - 1)])} |"
    return "\n".join([lines[0], dashes, *lines[1:]])
