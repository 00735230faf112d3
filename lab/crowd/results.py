"""The result of a crowd race: a table, stored as JSON beside its document, one for each fault."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lab.crowd.crowd import Crowd
from lab.crowd.faults import Fault
from lab.figures import figures_path, read_figures, write_figures
from lab.verdict import Verdict


@dataclass(frozen=True)
class Result:
    """A verdict on each step; ``measured_on`` is a date, ``machine`` a line of text."""

    crowd: Crowd
    fault: Fault
    measured_on: str
    machine: str
    verdicts: Sequence[Verdict]

    @classmethod
    def from_dict(cls, table: dict[str, Any]) -> Result:
        parts = {
            "crowd": Crowd(**table["crowd"]),
            "fault": Fault(table["fault"]),
            "verdicts": [Verdict(**verdict) for verdict in table["verdicts"]],
        }
        return cls(**table | parts)


def add_result(document: Path, result: Result) -> None:
    """Add the table of a race, in place of the last one with the same fault.

    :raises NoDocument: it is not Markdown.
    """
    path = figures_path(document)
    results = {it.fault: it for it in read_results(path)} | {result.fault: result}
    write_figures(path, [results[fault] for fault in Fault if fault in results])


def read_results(path: Path) -> list[Result]:
    """Return the tables of a file, in the order of the document; none if there is no file."""
    return [Result.from_dict(table) for table in read_figures(path)]
