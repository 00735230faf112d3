"""Figures of measurements: stored as JSON beside the documents that show them."""

from __future__ import annotations

import json
import os
import platform
import re
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from django.db import connection

from seckill_site.redis.ledger_connection import ledger_connection


class NoDocument(Exception):
    """A file cannot hold figures; the message says why."""


def figures_path(document: Path) -> Path:
    """Return the path of a document's figures, which all its languages share.

    :raises NoDocument: it is not Markdown.
    """
    if document.suffix != ".md":
        raise NoDocument(f"{document} does not end with .md: name the steps before --document")
    return document.with_name(f"{document.name.partition('.')[0]}.json")


def read_figures(path: Path) -> list[dict[str, Any]]:
    """Return the tables of a file, in the order of the document; none if there is no file."""
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else []


def write_figures(path: Path, tables: Iterable[Any]) -> None:
    as_dicts = [asdict(table) for table in tables]
    path.write_text(json.dumps(as_dicts, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def describe_machine() -> str:
    """Return processor, memory and versions in one line."""
    processor = first_match(r"^model name\s*: (.*)$", "/proc/cpuinfo")
    kib = first_match(r"^MemTotal:\s*(\d+)", "/proc/meminfo")
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


def first_match(pattern: str, path: str) -> str:
    """Return the group of the first match in a file, or "0" if nothing matches."""
    match = re.search(pattern, Path(path).read_text(), re.MULTILINE)
    return match[1] if match else "0"
