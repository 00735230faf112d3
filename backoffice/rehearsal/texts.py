"""A rehearsal in words: its progress and its verdict."""

import datetime as dt
from typing import Any

from django.utils.translation import gettext, gettext_noop

from backoffice.figures import Figure, Section
from backoffice.rehearsal.service import progress
from backoffice.rehearsal.verdict import Verdict
from orders.models import Rehearsal, RehearsalPhase
from orders.models.jobs import OVER
from seckill_site.formatting import NO_VALUE, grouped

SILENCE = dt.timedelta(seconds=10)
"""Time without progress after which the page asks whether a worker is running."""

_PROGRESS = {
    RehearsalPhase.PREPARING: gettext_noop("%(done)s of %(total)s buyers created"),
    RehearsalPhase.BUYING: gettext_noop("%(done)s of %(total)s clicks answered"),
    RehearsalPhase.DRAINING: gettext_noop("%(done)s of %(total)s orders written"),
    RehearsalPhase.CLEARING: gettext_noop("%(done)s of %(total)s buyers removed"),
}

_ERRORS = {
    "oversold": (gettext_noop("Orders above the stock"), gettext_noop("%(count)s oversold")),
    "lost": (gettext_noop("Accepted and lost"), gettext_noop("%(count)s lost")),
    "doubled": (gettext_noop("Orders above a buyer's limit"), gettext_noop("%(count)s doubled")),
    "undersold": (
        gettext_noop("Unsold although someone wanted them"),
        gettext_noop("%(count)s unsold although someone wanted them"),
    ),
    "difference": (
        gettext_noop("Difference between Redis and database"),
        gettext_noop("Redis and database differ by %(count)s"),
    ),
}
"""Values that must be zero in a verdict: the name for the table, and the count in a sentence."""

_FAST = {
    "p50_ms": (gettext_noop("Response time, median"), gettext_noop("%s ms")),
    "p90_ms": (gettext_noop("Response time, 90th percentile"), gettext_noop("%s ms")),
    "p99_ms": (gettext_noop("Response time, 99th percentile"), gettext_noop("%s ms")),
    "max_ms": (gettext_noop("Response time, slowest"), gettext_noop("%s ms")),
    "requests_per_s": (gettext_noop("Requests"), gettext_noop("%s per second")),
    "drain_s": (gettext_noop("From the first request to the last order"), gettext_noop("%s s")),
    "orders_per_s": (gettext_noop("Orders written"), gettext_noop("%s per second")),
}

_MANY = {
    "buyers": gettext_noop("Buyers"),
    "stock": gettext_noop("Vouchers offered"),
    "requests": gettext_noop("Requests sent"),
    "accepted": gettext_noop("Buyers' orders accepted"),
    "orders": gettext_noop("Orders in the database"),
    "refused": gettext_noop("Of these, refused when written"),
    "unanswered": gettext_noop("Clicks without an answer"),
    "interruptions": gettext_noop("Process crashes"),
}

ANSWERS = {
    "accepted": gettext_noop("accepted"),
    "sold_out": gettext_noop("sold out"),
    "already_ordered": gettext_noop("already ordered"),
    "not_started": gettext_noop("not started"),
    "ended": gettext_noop("ended"),
    "paused": gettext_noop("paused"),
    "unavailable": gettext_noop("busy, asked to retry"),
    "rate_limited": gettext_noop("too many requests"),
    "unanswered": gettext_noop("no answer"),
}


def progress_json(rehearsal: Rehearsal, *, now: dt.datetime) -> dict[str, Any]:
    """Return the progress of a rehearsal, for its page and its script."""
    done, total = progress(rehearsal)
    phase = RehearsalPhase(rehearsal.phase)
    return {
        "over": phase in OVER,
        "phase": phase.value,
        "label": str(phase.label),
        "text": _progress_text(rehearsal, done, total, now),
        "done": done,
        "total": total,
    }


def _progress_text(rehearsal: Rehearsal, done: int, total: int, now: dt.datetime) -> str:
    if not rehearsal.running:
        return ""
    if rehearsal.changed_at < now - SILENCE:
        return gettext(
            "There has been no activity for a while. Are a worker and beat running? "
            "Once they are, the rehearsal continues or is cleaned up automatically."
        )
    text = _PROGRESS.get(RehearsalPhase(rehearsal.phase), "")
    if not total or not text:
        return ""
    return gettext(text) % {"done": _number(done), "total": _number(total)}


def outcome(rehearsal: Rehearsal) -> str:
    """Return the outcome of a rehearsal in a few words, for a list."""
    if rehearsal.running:
        return str(RehearsalPhase(rehearsal.phase).label)
    if rehearsal.problem:
        return gettext("failed: %(problem)s") % {"problem": gettext(rehearsal.problem)}
    wrongs = _wrongs(Verdict.of(rehearsal.verdict))
    return gettext("incorrect: %(wrongs)s") % {"wrongs": wrongs} if wrongs else gettext("correct")


def headline(rehearsal: Rehearsal) -> tuple[str, str]:
    """Return the verdict as a headline, and whether it is *right*, *wrong* or *failed*."""
    if rehearsal.problem:
        words = {"problem": gettext(rehearsal.problem)}
        return gettext("No verdict: %(problem)s") % words, "failed"
    verdict = Verdict.of(rehearsal.verdict)
    if verdict.is_right:
        words = {"live": _number(verdict.orders - verdict.refused)}
        return gettext("Passed: %(live)s vouchers sold, none twice, nothing lost") % words, "right"
    return gettext("Failed: %(wrongs)s") % {"wrongs": _wrongs(verdict)}, "wrong"


def _wrongs(verdict: Verdict) -> str:
    counts = [(text, getattr(verdict, key)) for key, (_, text) in _ERRORS.items()]
    return ", ".join(gettext(text) % {"count": _number(count)} for text, count in counts if count)


def tables(rehearsal: Rehearsal) -> list[Section]:
    """Return the figures of the verdict, or an empty list without one."""
    if not rehearsal.verdict:
        return []
    verdict = Verdict.of(rehearsal.verdict)
    errors = [(gettext(name), getattr(verdict, key)) for key, (name, _) in _ERRORS.items()]
    fast = []
    for key, (name, unit) in _FAST.items():
        value = getattr(verdict, key)
        shown = NO_VALUE if value is None else gettext(unit) % _number(value)
        fast.append(Figure(gettext(name), shown))
    many = [Figure(gettext(name), _number(getattr(verdict, key))) for key, name in _MANY.items()]
    answers = [
        Figure(gettext(ANSWERS.get(code, code)), _number(count))
        for code, count in sorted(verdict.answers.items(), key=lambda item: -item[1])
    ]
    return [
        Section(
            gettext("Correctness"),
            [Figure(name, _number(count), is_wrong=count != 0) for name, count in errors],
        ),
        Section(gettext("Speed"), fast),
        Section(gettext("Counts"), many),
        Section(gettext("Answers to clicks"), answers),
    ]


def _number(value: float) -> str:
    return grouped(round(value) if value >= 100 else value)
