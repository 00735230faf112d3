"""``docs/six-steps.md``: the story with its tables, written from the figures of races.

The figures are beside the documents as JSON, one table for each fault. The documents depend only on
them, the code and ``templates/lab/six_steps/``.
"""

import re
from collections.abc import Sequence
from pathlib import Path

from django.template.loader import render_to_string
from django.utils import translation
from django.utils.translation import gettext_lazy

from lab.crowd.faults import Fault
from lab.crowd.results import NoDocument, Result, figures_path, read_results
from lab.crowd.tables import COLUMNS, FINDINGS, cells_of, headings
from lab.interleaving.races import races_of
from lab.listing import Culprit, culprit_of
from lab.steps import STEPS
from lab.verdict import finding_text

CHINESE = ".zh-CN.md"

TITLES = {
    Fault.NONE: gettext_lazy("The crowd alone"),
    Fault.KILL: gettext_lazy("A process is killed"),
    Fault.PAUSE: gettext_lazy("A process freezes"),
    Fault.REDIS_RESTART: gettext_lazy("Redis comes back empty"),
}


def write_document(document: Path) -> None:
    """Rewrite a document from its figures, in the language of its file name.

    :raises NoDocument: it is not Markdown, or has no figures yet.
    """
    results = read_results(figures_path(document))
    if not results:
        raise NoDocument(f"{document} has no figures yet: race without --rewrite first")
    document.write_text(document_text(document.name, results), encoding="utf-8")


def document_text(name: str, results: Sequence[Result]) -> str:
    """Return the text of the document with this name."""
    names = dict.fromkeys(step.partition("-")[0] for step in STEPS)
    with translation.override("zh-hans" if name.endswith(CHINESE) else "en"):
        context = {
            "stem": name.partition(".")[0],
            "tables": [{"result": it, **_table(it)} for it in results],
            "chapters": {it: Chapter(it, results) for it in names},
        }
        text = render_to_string("lab/six_steps/page.txt", context)
    return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"


def _table(result: Result) -> dict[str, object]:
    """Return a table for the page, with the findings in bold type."""
    lines = [headings(), ["---", *["---:"] * (len(COLUMNS) - 1)]]
    for verdict in result.verdicts:
        step, *cells = cells_of(verdict)
        cells[FINDINGS] = [cell if cell == "0" else f"**{cell}**" for cell in cells[FINDINGS]]
        lines.append([f"`{step}`", *cells])
    return {
        "title": TITLES[result.fault],
        "rows": "\n".join(f"| {' | '.join(line)} |" for line in lines),
        "buyers": f"{result.crowd.buyers:,}",
        "stock": f"{result.crowd.stock:,}",
    }


class Chapter:
    """One design and its variants, as the tables show them."""

    def __init__(self, name: str, results: Sequence[Result]) -> None:
        self.steps = [step for step in STEPS.values() if step.name.partition("-")[0] == name]
        names = [step.name for step in self.steps]
        self._verdicts = [
            (result.fault, it) for result in results for it in result.verdicts if it.step in names
        ]

    def findings(self) -> list[tuple[object, str, str]]:
        """Return the findings by table; under a fault, only those that do not occur without it."""
        found: dict[tuple[Fault, str, str], str] = {}
        for fault, verdict in self._verdicts:
            for name, count in [*verdict.findings, ("told_lost", verdict.told_lost)]:
                if count and (Fault.NONE, verdict.step, name) not in found:
                    found[fault, verdict.step, name] = finding_text(name, count)
                    if name == "errors":
                        found[fault, verdict.step, name] += f" (`{verdict.error}`)"
        return [(TITLES[fault], step, what) for (fault, step, _), what in found.items()]

    def culprits(self) -> list[Culprit]:
        """Return the lines of code behind the findings."""
        found = (
            culprit_of(STEPS[verdict.step], finding)
            for _, verdict in self._verdicts
            for finding, _count in verdict.findings
        )
        return list(dict.fromkeys(it for it in found if it))

    def races(self) -> list[tuple[str, str]]:
        """Return the races that show the findings or, for ours, that nothing breaks."""
        return [
            (step.name, race.name)
            for step in self.steps
            for race in races_of(step)
            if step.name in race.breaks or step.is_ours
        ]
