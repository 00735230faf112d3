"""``docs/six-steps.md``: the story with its tables, written from the figures of races.

The figures stand beside the documents as JSON, one table for each fault. From them alone, the texts
and the code the documents are made, so whoever makes them again gets the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from django.utils import translation
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from lab.crowd.faults import Fault
from lab.crowd.results import NoDocument, Result, figures_path, read_results
from lab.crowd.tables import FINDINGS, HEADINGS, cells_of, headings
from lab.interleaving.races import races_of
from lab.listing import culprit_of
from lab.notes import words_of
from lab.steps import STEPS
from lab.story.chapters import CHAPTERS, Chapter
from lab.verdict import MARKED_AS, Verdict

CHINESE = ".zh-CN.md"

FAULTS = {
    Fault.NONE: (
        gettext_lazy("The crowd alone"),
        gettext_lazy("No fault: the buyers just press twice."),
    ),
    Fault.KILL: (
        gettext_lazy("A process is killed"),
        gettext_lazy(
            "One of the selling processes is killed (`SIGKILL`) mid-sale, with a "
            "unit taken and nothing committed. What it was working on is gone with "
            "it; a successor with another name takes over the rest. Our shop is hit "
            "between two presses, and its worker is killed as well, with all its "
            "processes, and started again."
        ),
    ),
    Fault.PAUSE: (
        gettext_lazy("A process freezes"),
        gettext_lazy(
            "One of the selling processes is frozen (`SIGSTOP`) with a unit taken "
            "and nothing committed, for three times the life of a lab lock. Our shop "
            "is hit between two presses, and one of its two workers is frozen as "
            "well."
        ),
    ),
    Fault.REDIS_RESTART: (
        gettext_lazy("Redis comes back empty"),
        gettext_lazy(
            "Redis is stopped mid-sale and comes back without its data, as it does "
            "when nothing is written to its disk. In our shop this takes the ledger, "
            "the locks and the broker with it."
        ),
    ),
}
"""Title and text of each table."""


def write_document(document: Path) -> None:
    """Write a document anew from its figures, in the language that its name says.

    :raises NoDocument: it is no Markdown, or has no figures yet.
    """
    results = read_results(figures_path(document))
    if not results:
        raise NoDocument(f"{document} has no figures yet: race without --rewrite first")
    document.write_text(document_text(document.name, results), encoding="utf-8")


# --- Text -----------------------------------------------------------------------------------------


def document_text(name: str, results: Sequence[Result]) -> str:
    """Return what the document of this name says of these tables."""
    language = "zh-hans" if name.endswith(CHINESE) else "en"
    with translation.override(language):
        parts = [_head(name), *_tables(results), *_chapters(results)]
    return "\n\n".join(parts) + "\n"


def _head(name: str) -> str:
    stem = name.partition(".")[0]
    other = f"[English]({stem}.md) · [简体中文]({stem}{CHINESE})"
    intro = _(
        "If you have taken the classic course project, you know how a flash sale "
        "grows up in six steps. Here they run: each on a real MariaDB and a real "
        "Redis, in tables and keys of its own, with the same crowd, and with the "
        "faults that break it. The last line of each table is this shop."
    )
    made = _("This page is written by the command, including figures and lines of code:")
    commands = "\n".join(
        [
            "```bash",
            f"script/race                        # {_('all tables, on servers of its own')}",
            f"script/race v2 v3 --processes 1    # {_('some steps, another crowd')}",
            f"script/race v4 v5 --kill           # {_('one fault')}",
            f"script/race --documents            # {_('and rewrite this page')}",
            "```",
        ]
    )
    watch = _(
        "A race shows that a step breaks, not how. For that, `manage.py "
        "interleave` stops each side at a named point and shows both timelines, "
        "the same each time; the commands are below each step. Both commands are "
        "available where the environment has `SECKILL_LAB=true`."
    )
    return "\n\n".join([f"# {_('The six steps')}", other, intro, made, commands, watch])


def _tables(results: Sequence[Result]) -> Iterator[str]:
    yield f"## {_('The tables')}"
    yield str(_CROWD)
    yield "\n".join(f"- {text}" for text in _COLUMNS)
    for result in results:
        title, text = FAULTS[result.fault]
        yield f"### {title}"
        yield str(text)
        yield _table(result)
        yield _measured(result)


_CROWD = gettext_lazy(
    "Each buyer presses twice at the same moment, in different threads and, "
    "where there are several, in different processes; a buyer who is told "
    "“busy” or gets no answer tries again for three seconds."
)
_COLUMNS = (
    gettext_lazy(
        "**sold**: orders written; **oversold**: orders beyond the stock; "
        "**doubled**: orders beyond one per buyer"
    ),
    gettext_lazy(
        "**lost**: buyers who were promised a unit and ended up with neither an "
        "order nor an explanation"
    ),
    gettext_lazy(
        "**undersold**: units left although there were enough buyers; **turned "
        "away**: buyers told “sold out” before anyone pressed for the last unit "
        "(only counted where no fault brings units back)"
    ),
    gettext_lazy("**stuck**: buyers who can never buy because of leftover data"),
    gettext_lazy("**no answer**: presses whose process died, or that only met errors"),
    gettext_lazy(
        "**orders/s** from the first press to the last row; **p99** of one "
        "press. A sale of this size is over in a moment: for the speed of this "
        "shop, see [performance](performance.md)"
    ),
)


def _table(result: Result) -> str:
    """Return the verdicts as a table, with what broke in bold type."""
    lines = [headings(), ["---", *["---:"] * (len(HEADINGS) - 1)]]
    for verdict in result.verdicts:
        step, *cells = cells_of(verdict)
        cells[FINDINGS] = [cell if cell == "0" else f"**{cell}**" for cell in cells[FINDINGS]]
        lines.append([f"`{step}`", *cells])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _measured(result: Result) -> str:
    crowd = result.crowd
    text = _(
        "%(buyers)s buyers, %(stock)s units, %(processes)s × %(threads)s threads; %(date)s, "
        "%(machine)s."
    )
    return text % {
        "buyers": f"{crowd.buyers:,}",
        "stock": f"{crowd.stock:,}",
        "processes": crowd.processes,
        "threads": crowd.threads,
        "date": result.measured_on,
        "machine": result.machine,
    }


# --- Chapters -------------------------------------------------------------------------------------


def _chapters(results: Sequence[Result]) -> Iterator[str]:
    for chapter in CHAPTERS:
        yield f"## {chapter.title}"
        if len(chapter.steps) > 1:
            yield "\n".join(f"- `{name}` {STEPS[name].title}" for name in chapter.steps)
        yield f"**{_('What it is.')}** {chapter.what}"
        yield f"**{_('What it fixes.')}** {chapter.fixes}"
        yield f"**{_('What remains.')}** {chapter.leaves}"
        if chapter.instead:
            yield f"**{_('What this shop does instead.')}** {chapter.instead}"
        yield from _shown(chapter, results)


def _shown(chapter: Chapter, results: Sequence[Result]) -> Iterator[str]:
    """Say what the tables show of a chapter's steps, where to look, and how to watch it."""
    shown = list(_findings(chapter, results))
    if shown:
        yield f"**{_('In the tables.')}**"
        yield "\n".join(shown)
    lines = dict.fromkeys(_lines(chapter, results))
    if lines:
        yield f"**{_('Where to look.')}**"
        yield "\n".join(lines)
    commands = [
        f"manage.py interleave {name} {race.name}"
        for name in chapter.steps
        for race in races_of(STEPS[name])
        if race.expects[name] or STEPS[name].is_ours
    ]
    if commands:
        yield f"**{_('Watch it.')}**"
        yield "\n".join(["```bash", *commands, "```"])


def _verdicts(chapter: Chapter, results: Sequence[Result]) -> Iterator[tuple[Fault, Verdict]]:
    for result in results:
        yield from ((result.fault, it) for it in result.verdicts if it.step in chapter.steps)


def _findings(chapter: Chapter, results: Sequence[Result]) -> Iterator[str]:
    """Return what broke, table by table; of a fault only what does not break without it."""
    known: set[tuple[str, str]] = set()
    for fault, verdict in _verdicts(chapter, results):
        for name, count in [*verdict.findings, ("told_lost", verdict.told_lost)]:
            if not count or (verdict.step, name) in known:
                continue
            what = words_of(name, count)
            names = {"fault": FAULTS[fault][0], "step": verdict.step, "what": what}
            yield "- " + _("%(fault)s, `%(step)s`: %(what)s") % names
            if fault is Fault.NONE:
                known.add((verdict.step, name))


def _lines(chapter: Chapter, results: Sequence[Result]) -> Iterator[str]:
    """Return each line that a finding of the tables comes from, as a link with its code."""
    for _fault, verdict in _verdicts(chapter, results):
        for finding, _count in verdict.findings:
            found = culprit_of(STEPS[verdict.step], MARKED_AS.get(finding, finding))
            if found:
                yield f"- [{found}](../{found.path}#L{found.line}): `{found.code}`"
