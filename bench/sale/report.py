"""The report: the lines of the table, with the values of all repetitions, and the machine."""

import os
import platform
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from statistics import median
from typing import Any

from django.conf import settings

from bench.around.measuring import sql
from bench.sale.outcome import Outcome
from bench.sale.plan import THREADS, WORKERS, Plan
from bench.tables import Report, ratios, shown, spread
from lab.figures import first_match
from seckill_site.redis.ledger_connection import ledger_connection

PACKAGES = ("django", "granian", "redis", "hiredis", "django-redis", "mysqlclient", "celery")
OF_MARIADB = ("version", "innodb_flush_log_at_trx_commit", "innodb_buffer_pool_size", "sync_binlog")
OF_REDIS = ("appendonly", "appendfsync", "save", "maxmemory-policy")
HEADINGS = (
    "row", "what", "against", "ours", "theirs", "measured", "min–max", "target", "verdict",
    "by processor time", "note",
)  # fmt: skip


@dataclass(frozen=True)
class Target:
    """The bound of the median."""

    bound: float
    at_least: bool = True
    unit: str = "×"

    def met_by(self, value: float) -> bool:
        return value >= self.bound if self.at_least else value <= self.bound

    @classmethod
    def most(cls, bound: float, unit: str = "×") -> "Target":
        return cls(bound, at_least=False, unit=unit)

    def __str__(self) -> str:
        return f"{'≥' if self.at_least else '≤'} {_with_unit(self.bound, self.unit)}"


@dataclass(frozen=True)
class Line:
    """One line of the table.

    ``values`` has one value per repetition: a ratio, or the figure itself if nothing is compared.
    The ratios are those of ``ours`` and ``theirs``, in ``unit``.
    """

    row: str
    name: str
    against: str
    target: Target | None
    values: Sequence[float]
    unit: str = ""
    ours: Sequence[float] = ()
    theirs: Sequence[float] = ()
    processor: Sequence[float] = ()
    note: str = ""

    @classmethod
    def ratio(
        cls,
        row: str,
        name: str,
        against: str,
        target: Target | None,
        unit: str,
        ours: Sequence[float],
        theirs: Sequence[float],
        *,
        note: str = "",
    ) -> "Line":
        """Return the line of a comparison, repetition by repetition."""
        values = ratios(ours, theirs)
        return cls(row, name, against, target, values, unit, ours, theirs, note=note)

    @property
    def verdict(self) -> str:
        if self.target is None:
            return "shown"
        return "pass" if self.target.met_by(median(self.values)) else "MISS"

    def cells(self) -> list[str]:
        unit = self.target.unit if self.target else ("×" if self.ours else self.unit)
        return [
            self.row,
            self.name,
            self.against,
            *(_with_unit(median(it), self.unit) if it else "–" for it in (self.ours, self.theirs)),
            _with_unit(median(self.values), unit),
            spread(self.values),
            str(self.target) if self.target else "–",
            self.verdict,
            f"{shown(median(self.processor))}×" if self.processor else "–",
            self.note,
        ]


def _with_unit(value: float, unit: str) -> str:
    return f"{shown(value)}{unit}" if unit in ("", "×") else f"{shown(value)} {unit}"


def report_on(
    lines: Sequence[Line],
    outcomes: Sequence[Outcome],
    machine: dict[str, Any],
    *,
    name: str = "figures",
) -> Report:
    """Return the report: the table, a few lines on the machine, and all values."""
    plan, web = machine["plan"], machine["web"]

    def listed(pairs: dict[str, Any]) -> str:
        return ", ".join(f"{name} {value}" for name, value in pairs.items() if value != "")

    text = f"""\
{machine_line(machine)}
- Versions: Python {machine["python"]}, {listed(machine["packages"])}
- MariaDB: {listed(machine["mariadb"])}
- Redis: {listed(machine["redis"])}
- Web: {web["server"]}, {web["workers"]} workers, {web["threads"]} threads each; \
worker: 2 processes, at most {machine["batch"]} entries a transaction
- Repetitions: {plan["repetitions"]} (whole sales: {plan["sale_repetitions"]}, \
size: {plan["size_repetitions"]})"""
    values = {
        "lines": [
            {**asdict(line), "target": str(line.target or ""), "verdict": line.verdict}
            for line in lines
        ],
        "sales": [outcome.as_json() for outcome in outcomes],
        "machine": machine,
    }
    hidden = () if any(line.target for line in lines) else ("target", "verdict")
    shown_in = [number for number, name in enumerate(HEADINGS) if name not in hidden]
    cells = [[line.cells()[number] for number in shown_in] for line in lines]
    return Report(name, [HEADINGS[number] for number in shown_in], cells, text, values)


# --- The machine ----------------------------------------------------------------------------------


def describe(plan: Plan, *, front_door: bool = True) -> dict[str, Any]:
    """Return the machine, the versions, the settings of the servers and the plan."""
    redis, variables = ledger_connection(), "SHOW VARIABLES WHERE variable_name IN %s"
    return {
        "cores": len(os.sched_getaffinity(0)),
        "processor": first_match(r"^model name\s*: (.*)$", "/proc/cpuinfo"),
        "memory_gib": round(int(first_match(r"^MemTotal:\s*(\d+)", "/proc/meminfo")) / 2**20, 1),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "packages": {name: version(name) for name in PACKAGES},
        "mariadb": {row[0]: row[1] for row in sql(variables, OF_MARIADB)},
        "redis": {
            "version": redis.info("server")["redis_version"],
            **{name: redis.config_get(name)[name] for name in OF_REDIS},
        },
        "web": {
            "server": "granian with the front door" if front_door else "granian, Django alone",
            "workers": WORKERS,
            "threads": THREADS,
        },
        "batch": settings.SECKILL_BATCH_UNITS,
        "plan": asdict(plan),
    }


def machine_line(machine: dict[str, Any]) -> str:
    return (
        f"- Machine: {machine['cores']} cores of {machine['processor']}, "
        f"{machine['memory_gib']} GiB, Linux {machine['kernel']}"
    )
