"""What a race ran on."""

from __future__ import annotations

import os
import platform
import re
from pathlib import Path

from django.db import connection

from seckill_site.ledger_connection import ledger_connection


def describe_machine() -> str:
    """Return processor, memory and versions in one line."""
    processor = _found(r"^model name\s*: (.*)$", Path("/proc/cpuinfo"))
    kib = _found(r"^MemTotal:\s*(\d+)", Path("/proc/meminfo"))
    parts = [
        f"{len(os.sched_getaffinity(0))} × {processor}",
        f"{int(kib) / 2**20:.1f} GiB",
        f"Linux {platform.release().partition('-')[0]}",
        f"Python {platform.python_version()}",
        _database_version(),
        f"Redis {ledger_connection().info('server')['redis_version']}",
    ]
    return ", ".join(parts)


def _found(pattern: str, path: Path) -> str:
    match = re.search(pattern, path.read_text(), re.MULTILINE)
    return match[1] if match else "0"


def _database_version() -> str:
    with connection.cursor() as cursor:
        cursor.execute("SELECT VERSION()")
        version = str(cursor.fetchone()[0])
    return f"{'MariaDB' if 'MariaDB' in version else 'MySQL'} {version.partition('-')[0]}"
