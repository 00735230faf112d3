"""The documents of the lab, written from figures of races and of experiments.

``docs/six-steps.md`` has a table for each fault, ``docs/around-the-six-steps.md`` one for each
experiment. The figures are beside the documents as JSON. The documents depend only on them, the
code and ``templates/lab/``.
"""

import re
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from django.template.loader import render_to_string
from django.utils import translation

from lab.crowd.results import Result, read_results
from lab.crowd.tables import FINDINGS, cells_of, headings
from lab.experiments import EXPERIMENTS
from lab.experiments.experiment import Table, read_tables
from lab.figures import NoDocument, figures_path
from lab.interleaving.races import races_of
from lab.listing import Culprit, culprit_of
from lab.steps import STEPS
from lab.texts import TEXTS
from lab.verdict import finding_text

CHINESE = ".zh-CN.md"
AROUND = "around-"


def is_of_experiments(document: Path) -> bool:
    """Return whether a document shows experiments, not races."""
    return document.name.startswith(AROUND)


def write_document(document: Path) -> None:
    """Rewrite a document from its figures, in the language of its file name.

    :raises NoDocument: it is not Markdown, or has no figures yet.
    """
    path = figures_path(document)
    if not path.exists():
        raise NoDocument(f"{document} has no figures yet: race without --rewrite first")
    if is_of_experiments(document):
        text = experiments_text(document.name, read_tables(path))
    else:
        text = document_text(document.name, read_results(path))
    document.write_text(text, encoding="utf-8")


def experiments_text(name: str, tables: Mapping[str, Table]) -> str:
    """Return the text of the document of experiments with this name."""
    with _language_of(name):
        measured = [(it, tables[it.name]) for it in EXPERIMENTS.values() if it.name in tables]
        chapters = [(it, table, _markdown(it.headings(), table.cells())) for it, table in measured]
        return _render("experiments", name, {"chapters": chapters})


def document_text(name: str, results: Sequence[Result]) -> str:
    """Return the text of the document with this name."""
    names = dict.fromkeys(step.partition("-")[0] for step in STEPS)
    with _language_of(name):
        tables = [{"result": it, **_table(it)} for it in results]
        chapters = {it: Chapter(it, results) for it in names}
        return _render("six_steps", name, {"tables": tables, "chapters": chapters})


def _language_of(name: str) -> AbstractContextManager[None]:
    return translation.override("zh-hans" if name.endswith(CHINESE) else "en")


def _render(folder: str, name: str, context: dict[str, object]) -> str:
    context["stem"] = name.partition(".")[0]
    text = render_to_string(f"lab/{folder}/page.txt", context)
    return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"


def _markdown(headings: list[str], rows: list[list[str]]) -> str:
    lines = [headings, ["---", *["---:"] * (len(headings) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _table(result: Result) -> dict[str, object]:
    """Return a table for the page, with the findings in bold type."""
    lines = []
    for verdict in result.verdicts:
        step, *cells = cells_of(verdict)
        cells[FINDINGS] = [cell if cell == "0" else f"**{cell}**" for cell in cells[FINDINGS]]
        lines.append([f"`{step}`", *cells])
    return {
        "title": TEXTS["fault"][result.fault],
        "rows": _markdown(headings(), lines),
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

    def answers(self) -> list[tuple[object, str, str]]:
        """Return what buyers were told that no column has, by the first table that shows it."""
        answers: dict[tuple[str, str], tuple[object, str, str]] = {}
        for fault, it in self._verdicts:
            for name, text in (("errors", f" (`{it.error}`)"), ("told_lost", "")):
                if count := getattr(it, name):
                    told = finding_text(name, count) + text
                    answers.setdefault((it.step, name), (TEXTS["fault"][fault], it.step, told))
        return list(answers.values())

    def culprits(self) -> list[Culprit]:
        """Return the lines of code behind the findings."""
        culprits = (
            culprit_of(STEPS[verdict.step], finding)
            for _, verdict in self._verdicts
            for finding, _count in verdict.findings
        )
        return list(dict.fromkeys(it for it in culprits if it))

    def races(self) -> list[tuple[str, str]]:
        """Return the races that show the findings or, for ours, that nothing breaks."""
        return [
            (step.name, race.name)
            for step in self.steps
            for race in races_of(step)
            if step.name in race.breaks or step.is_ours
        ]
