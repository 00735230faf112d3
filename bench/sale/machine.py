"""What the figures were measured on."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Iterable
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

from django.conf import settings
from django.db import connection

from bench.sale.plan import THREADS, WORKERS, Plan
from seckill_site.ledger_connection import ledger_connection

PACKAGES = ("django", "granian", "redis", "hiredis", "django-redis", "mysqlclient", "celery")
OF_MARIADB = ("version", "innodb_flush_log_at_trx_commit", "innodb_buffer_pool_size", "sync_binlog")
OF_REDIS = ("appendonly", "appendfsync", "save", "maxmemory-policy")


def describe(plan: Plan) -> dict[str, Any]:
    """Return the machine, the versions, the settings of the servers, and the plan."""
    return {
        "cores": len(os.sched_getaffinity(0)),
        "processor": _found(r"^model name\s*: (.*)$", Path("/proc/cpuinfo")),
        "memory_gib": round(int(_found(r"^MemTotal:\s*(\d+)", Path("/proc/meminfo"))) / 2**20, 1),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "packages": {name: version(name) for name in PACKAGES},
        "mariadb": _mariadb(OF_MARIADB),
        "redis": _redis(OF_REDIS),
        "web": {"server": "granian", "workers": WORKERS, "threads": THREADS},
        "batch": settings.SECKILL_BATCH_UNITS,
        "plan": asdict(plan),
    }


def as_text(machine: dict[str, Any]) -> str:
    """Return the description in a few lines."""

    def listed(pairs: dict[str, Any]) -> str:
        return ", ".join(f"{name} {value}" for name, value in pairs.items() if value != "")

    return "\n".join(
        [
            f"- Machine: {machine['cores']} cores of {machine['processor']}, "
            f"{machine['memory_gib']} GiB, Linux {machine['kernel']}",
            f"- Versions: Python {machine['python']}, {listed(machine['packages'])}",
            f"- MariaDB: {listed(machine['mariadb'])}",
            f"- Redis: {listed(machine['redis'])}",
            f"- Web: {machine['web']['server']}, {machine['web']['workers']} workers, "
            f"{machine['web']['threads']} threads each; worker: 2 processes, "
            f"at most {machine['batch']} entries a transaction",
            f"- Repetitions: {machine['plan']['repetitions']} "
            f"(whole sales: {machine['plan']['sale_repetitions']}, "
            f"size: {machine['plan']['size_repetitions']})",
        ]
    )


def _found(pattern: str, path: Path) -> str:
    match = re.search(pattern, path.read_text(), re.MULTILINE)
    return match[1] if match else "0"


def _mariadb(names: Iterable[str]) -> dict[str, str]:
    with connection.cursor() as cursor:
        cursor.execute("SHOW VARIABLES WHERE variable_name IN %s", [tuple(names)])
        return dict(cursor.fetchall())


def _redis(names: Iterable[str]) -> dict[str, str]:
    redis = ledger_connection()
    found = {name: redis.config_get(name)[name] for name in names}
    return {"version": redis.info("server")["redis_version"], **found}
