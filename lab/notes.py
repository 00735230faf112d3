"""A verdict in words: what broke, how often, and which line to look at."""

from __future__ import annotations

from collections.abc import Iterator

from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from lab.listing import Culprit, culprit_of
from lab.steps import STEPS
from lab.verdict import MARKED_AS, Verdict

WORDS = {
    "oversold": gettext_noop("%(count)s sold beyond the stock"),
    "doubled": gettext_noop("%(count)s given to buyers who already had one"),
    "lost": gettext_noop("%(count)s promised and never written"),
    "undersold": gettext_noop("%(count)s left over although there were enough buyers"),
    "turned_away": gettext_noop("%(count)s turned away while units were left"),
    "stuck": gettext_noop("%(count)s blocked for ever by leftover data"),
    "told_lost": gettext_noop("%(count)s told in their receipts that the order was lost"),
}


def notes_on(verdict: Verdict, *, has_fault: bool) -> list[str]:
    """Return a line for each thing that broke, then what else is to be said.

    ``has_fault`` says whether a fault was asked for.
    """
    broke = [f"{words_of(name, count)}: {where(verdict, name)}" for name, count in verdict.findings]
    return [*broke, *_besides(verdict, has_fault)]


def words_of(finding: str, count: int) -> str:
    return _(WORDS[finding]) % {"count": count}


def where(verdict: Verdict, finding: str) -> Culprit | str:
    """Return the line of the step that a finding comes from; a dash where none is known."""
    return culprit_of(STEPS[verdict.step], MARKED_AS.get(finding, finding)) or "–"


def _besides(verdict: Verdict, has_fault: bool) -> Iterator[str]:
    if verdict.told_lost:
        yield words_of("told_lost", verdict.told_lost)
    if not verdict.is_quiet:
        yield _("it did not finish in time")
    if has_fault and not verdict.struck:
        yield _("the fault did not happen: the sale ended first")
    if verdict.error and verdict.unanswered:
        yield _("most of the missing answers were: %(error)s") % {"error": verdict.error}
