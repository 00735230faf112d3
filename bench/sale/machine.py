"""The machine, versions and settings of a run."""

from __future__ import annotations

import os
import platform
import re
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
    """Return the machine, the versions, the settings of the servers and the plan."""
    redis = ledger_connection()
    with connection.cursor() as cursor:
        cursor.execute("SHOW VARIABLES WHERE variable_name IN %s", [OF_MARIADB])
        mariadb = dict(cursor.fetchall())
    return {
        "cores": len(os.sched_getaffinity(0)),
        "processor": _found(r"^model name\s*: (.*)$", Path("/proc/cpuinfo")),
        "memory_gib": round(int(_found(r"^MemTotal:\s*(\d+)", Path("/proc/meminfo"))) / 2**20, 1),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "packages": {name: version(name) for name in PACKAGES},
        "mariadb": mariadb,
        "redis": {
            "version": redis.info("server")["redis_version"],
            **{name: redis.config_get(name)[name] for name in OF_REDIS},
        },
        "web": {"server": "granian", "workers": WORKERS, "threads": THREADS},
        "batch": settings.SECKILL_BATCH_UNITS,
        "plan": asdict(plan),
    }


def machine_line(machine: dict[str, Any]) -> str:
    return (
        f"- Machine: {machine['cores']} cores of {machine['processor']}, "
        f"{machine['memory_gib']} GiB, Linux {machine['kernel']}"
    )


def as_text(machine: dict[str, Any]) -> str:
    """Return the description in a few lines."""
    plan, web = machine["plan"], machine["web"]

    def listed(pairs: dict[str, Any]) -> str:
        return ", ".join(f"{name} {value}" for name, value in pairs.items() if value != "")

    return f"""\
{machine_line(machine)}
- Versions: Python {machine["python"]}, {listed(machine["packages"])}
- MariaDB: {listed(machine["mariadb"])}
- Redis: {listed(machine["redis"])}
- Web: {web["server"]}, {web["workers"]} workers, {web["threads"]} threads each; \
worker: 2 processes, at most {machine["batch"]} entries a transaction
- Repetitions: {plan["repetitions"]} (whole sales: {plan["sale_repetitions"]}, \
size: {plan["size_repetitions"]})"""


def _found(pattern: str, path: Path) -> str:
    match = re.search(pattern, path.read_text(), re.MULTILINE)
    return match[1] if match else "0"
