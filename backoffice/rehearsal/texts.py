"""A rehearsal in words: its progress and its verdict."""

import datetime as dt
from pathlib import Path
from typing import Any

from django.utils.translation import gettext

from backoffice.figures import Figure, Section
from backoffice.rehearsal.service import progress
from backoffice.rehearsal.verdict import Verdict
from orders.models import Rehearsal, RehearsalPhase
from orders.models.jobs import OVER
from seckill_site.formatting import NO_VALUE, grouped, listed
from seckill_site.web.text_files import read_texts

SILENCE = dt.timedelta(seconds=10)
"""Time without progress after which the page asks whether a worker is running."""

_TEXTS = read_texts(Path(__file__).with_suffix(".toml"))
_ERRORS = _TEXTS["errors"]


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
        return str(_TEXTS["silent"])
    text = _TEXTS["progress"].get(rehearsal.phase)
    if not total or not text:
        return ""
    return str(text % {"done": _number(done), "total": _number(total)})


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
    return listed(text % {"count": _number(count)} for text, count in counts if count)


def tables(rehearsal: Rehearsal) -> list[Section]:
    """Return the figures of the verdict, or an empty list without one."""
    if not rehearsal.verdict:
        return []
    verdict = Verdict.of(rehearsal.verdict)
    errors = [(str(name), getattr(verdict, key)) for key, (name, _) in _ERRORS.items()]
    fast = []
    for key, (name, unit) in _TEXTS["speed"].items():
        value = getattr(verdict, key)
        shown = NO_VALUE if value is None else unit % _number(value)
        fast.append(Figure(str(name), shown))
    many = [
        Figure(str(name), _number(getattr(verdict, key))) for key, name in _TEXTS["counts"].items()
    ]
    answers = [
        Figure(str(_TEXTS["answers"].get(code, code)), _number(count))
        for code, count in sorted(verdict.answers.items(), key=lambda item: -item[1])
    ]
    return [
        Section(
            gettext("Correctness"),
            [Figure(name, _number(count), is_wrong=count != 0) for name, count in errors],
        ),
        Section(gettext("Speed"), fast),
        Section(gettext("Counts"), many),
        Section(gettext("Answers to presses"), answers),
    ]


def _number(value: float) -> str:
    return grouped(round(value) if value >= 100 else value)
