"""The result of a crowd race: a table, stored as JSON beside its document, one for each fault."""

from __future__ import annotations

import json
import os
import platform
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from django.db import connection

from lab.crowd.crowd import Crowd
from lab.crowd.faults import Fault
from lab.verdict import Verdict
from seckill_site.ledger_connection import ledger_connection


class NoDocument(Exception):
    """A file cannot hold the figures of a race; the message says why."""


@dataclass(frozen=True)
class Result:
    """A verdict on each step; ``measured_on`` is a date, ``machine`` a line of text."""

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
    """Return the path of a document's figures, which all its languages share.

    :raises NoDocument: it is not Markdown.
    """
    if document.suffix != ".md":
        raise NoDocument(f"{document} does not end with .md: name the steps before --document")
    return document.with_name(f"{document.name.partition('.')[0]}.json")


def add_result(document: Path, result: Result) -> None:
    """Add the table of a race, in place of the last one with the same fault.

    :raises NoDocument: it is not Markdown.
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


def describe_machine() -> str:
    """Return processor, memory and versions in one line."""
    processor = _found(r"^model name\s*: (.*)$", Path("/proc/cpuinfo"))
    kib = _found(r"^MemTotal:\s*(\d+)", Path("/proc/meminfo"))
    with connection.cursor() as cursor:
        cursor.execute("SELECT VERSION()")
        version = str(cursor.fetchone()[0])
    parts = [
        f"{len(os.sched_getaffinity(0))} × {processor}",
        f"{int(kib) / 2**20:.1f} GiB",
        f"Linux {platform.release().partition('-')[0]}",
        f"Python {platform.python_version()}",
        f"{'MariaDB' if 'MariaDB' in version else 'MySQL'} {version.partition('-')[0]}",
        f"Redis {ledger_connection().info('server')['redis_version']}",
    ]
    return ", ".join(parts)


def _found(pattern: str, path: Path) -> str:
    match = re.search(pattern, path.read_text(), re.MULTILINE)
    return match[1] if match else "0"
