"""The result of a crowd race: one table, and where it is kept.

The figures of a document stand beside it as JSON, one table for each fault.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from lab.crowd.crowd import Crowd
from lab.crowd.faults import Fault
from lab.verdict import Verdict


class NoDocument(Exception):
    """A file is not one that figures can be written to; the text says why."""


@dataclass(frozen=True)
class Result:
    """A verdict on each step; ``measured_on`` is a date, ``machine`` a line of words."""

    crowd: Crowd
    fault: Fault
    measured_on: str
    machine: str
    verdicts: Sequence[Verdict]

    @classmethod
    def from_dict(cls, found: dict[str, Any]) -> Result:
        parts = {
            "crowd": Crowd(**found["crowd"]),
            "fault": Fault(found["fault"]),
            "verdicts": [Verdict(**verdict) for verdict in found["verdicts"]],
        }
        return cls(**found | parts)


def figures_path(document: Path) -> Path:
    """Return where the figures of a document are: all its languages share them.

    :raises NoDocument: it is no Markdown.
    """
    if document.suffix != ".md":
        raise NoDocument(f"{document} does not end with .md: name the steps before --document")
    return document.with_name(f"{document.name.partition('.')[0]}.json")


def add_result(document: Path, result: Result) -> None:
    """Put a race's table in the place of the last one with the same fault.

    :raises NoDocument: it is no Markdown.
    """
    path = figures_path(document)
    results = {it.fault: it for it in read_results(path)} | {result.fault: result}
    found = [asdict(results[fault]) for fault in Fault if fault in results]
    path.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def read_results(path: Path) -> list[Result]:
    """Return the tables of a file, in the order of the document; none if there is no file."""
    if not path.exists():
        return []
    return [Result.from_dict(found) for found in json.loads(path.read_text(encoding="utf-8"))]
