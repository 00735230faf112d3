"""Each alert, as ``promtool`` evaluates it: what makes it fire, and what does not."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

pytestmark = [pytest.mark.operations]

RULES = Path(__file__).resolve().parents[2] / "deploy/prometheus/alerts.yml"

LAG = 'seckill_loop_lag_seconds_count{unit="web-8000"}'
OK, UNAVAILABLE, PROBED = (
    f'seckill_requests_total{{kind="{kind}",status="{status}"}}'
    for kind, status in (("order", "202"), ("order", "503"), ("readyz", "503"))
)
SILENT = 'seckill_provider_silent_seconds{provider="stripe"}'
FAILED, ANSWERED = (
    f'seckill_provider_calls_total{{provider="stripe",outcome="{it}"}}' for it in ("failed", "ok")
)


def missing(name: str) -> str:
    return f'seckill_heartbeat_missing{{name="{name}"}}'


def late(work: str) -> str:
    return f'seckill_late_seconds{{work="{work}"}}'


def up(part: str) -> str:
    return f'seckill_up{{part="{part}"}}'


MEMORY, LIMIT, RUN = (f"seckill_redis_{it}" for it in ("memory_bytes", "memory_limit_bytes", "run"))
HAVE, WANTED = "seckill_redis_replicas", "seckill_redis_replicas_wanted"
STAMP = "seckill_backup_timestamp_seconds"

Series = dict[str, str]
"""The values of each series, every five seconds, in the notation of ``promtool``."""

LONG = 60
"""The number of values: five minutes."""

CASES: dict[str, tuple[list[Series], list[Series]]] = {
    # The alert: what makes it fire, and what does not.
    "NoWebServer": (
        [{LAG: f"0+10x20 200x{LONG}"}, {up("redis"): f"1x{LONG}"}],
        [{LAG: f"0+10x{LONG}"}],
    ),
    "AnswersUnavailable": (
        [{OK: f"0+10x{LONG}", UNAVAILABLE: f"0+10x{LONG}"}, {UNAVAILABLE: f"0+1x{LONG}"}],
        [
            {OK: f"0+99x{LONG}", UNAVAILABLE: f"0+1x{LONG}"},
            {OK: f"0+1x{LONG}", PROBED: f"0+9x{LONG}"},
        ],
    ),
    "ServerAway": (
        [{up("redis"): f"0x{LONG}"}, {up("redis"): f"1x{LONG}", up("broker"): f"0x{LONG}"}, {}],
        [{up("redis"): f"1x{LONG}", up("broker"): f"1x{LONG}", up("database"): f"0x{LONG}"}],
    ),
    "DatabaseTakesNoOrders": (
        [{up("database"): f"0x{LONG}"}, {up("orders"): f"0x{LONG}"}],
        [{up("database"): f"1x{LONG}", up("orders"): f"1x{LONG}", up("redis"): f"0x{LONG}"}],
    ),
    "OrdersWait": (
        [{"seckill_oldest_pending_seconds": f"0+5x{LONG}"}],
        [{"seckill_oldest_pending_seconds": f"19x{LONG}"}],
    ),
    "NobodyTakesFromQueue": (
        [{missing("queue:celery"): f"1x{LONG}"}],
        [{missing("queue:celery"): f"0x{LONG}", missing("beat"): f"1x{LONG}"}],
    ),
    "BeatSilent": (
        [{missing("beat"): f"1x{LONG}"}],
        [{missing("beat"): f"0x{LONG}", missing("queue:celery"): f"1x{LONG}"}],
    ),
    "OrdersSetAside": (
        [{"seckill_set_aside": f"1x{LONG}"}, {"seckill_set_aside_total": f"0x20 1x{LONG}"}],
        [{"seckill_set_aside": f"0x{LONG}", "seckill_set_aside_total": f"3x{LONG}"}],
    ),
    "LedgerDiffers": (
        [{"seckill_sales_differing": f"1x{LONG}"}],
        [
            {"seckill_sales_differing": f"0x20 1x2 0x{LONG}"},
            {"seckill_sales_differing": f"0x{LONG}"},
        ],
    ),
    "RedisFullOrNew": (
        [{MEMORY: f"90x{LONG}", LIMIT: f"100x{LONG}"}, {RUN: f"5x20 7x{LONG}"}],
        [
            {MEMORY: f"80x{LONG}", LIMIT: f"100x{LONG}", RUN: f"5x{LONG}"},
            {MEMORY: f"90x{LONG}", LIMIT: f"0x{LONG}"},
        ],
    ),
    "ProviderSilent": (
        [{SILENT: f"0+5x{LONG}"}, {FAILED: f"0+1x{LONG}", ANSWERED: f"9x{LONG}"}],
        [
            {SILENT: f"100x{LONG}", ANSWERED: f"0+1x{LONG}"},
            {FAILED: f"0+1x{LONG}", ANSWERED: f"0+1x{LONG}"},
        ],
    ),
    "WorkLate": (
        [{late("payments"): f"130x{LONG}"}, {late("mails"): f"310x{LONG}"}],
        [{late("payments"): f"110x{LONG}", late("mails"): f"290x{LONG}"}],
    ),
    "ClockOff": (
        [{'seckill_clock_ahead_seconds{clock="web a"}': f"-2x{LONG}"}],
        [{'seckill_clock_ahead_seconds{clock="web a"}': f"-0.5x{LONG}"}],
    ),
    "ReconcileFails": (
        [
            {missing("task:orders.tasks.reconcile"): f"1x{LONG}"},
            {'seckill_reconciled_total{outcome="failed"}': f"0+1x{LONG}"},
        ],
        [
            {
                missing("task:orders.tasks.reconcile"): f"0x{LONG}",
                'seckill_reconciled_total{outcome="ok"}': f"0+1x{LONG}",
            }
        ],
    ),
    "ReplicaMissing": (
        [{HAVE: f"0x{LONG}", WANTED: f"1x{LONG}"}],
        [{HAVE: f"0x{LONG}", WANTED: f"0x{LONG}"}, {HAVE: f"1x{LONG}", WANTED: f"1x{LONG}"}],
    ),
    "BackupTooOld": (
        [{STAMP: f"{-27 * 3600}x{LONG}"}],
        [{STAMP: f"0x{LONG}"}, {}],
    ),
}


def case(name: str, series: Series, *, fires: bool) -> dict[str, Any]:
    """Return a test for ``promtool``: how many of this alert fire after four minutes."""
    return {
        "interval": "5s",
        "input_series": [{"series": it, "values": values} for it, values in series.items()],
        "promql_expr_test": [
            {
                "expr": f'count(ALERTS{{alertname="{name}",alertstate="firing"}}) or vector(0)',
                "eval_time": "4m",
                "exp_samples": [{"labels": "{}", "value": int(fires)}],
            }
        ],
    }


def rules() -> dict[str, dict[str, Any]]:
    (group,) = yaml.safe_load(RULES.read_text())["groups"]
    return {it["alert"]: it for it in group["rules"]}


def check(tmp_path: Path, tests: list[dict[str, Any]], *, file: Path = RULES) -> str:
    """Let ``promtool`` run tests; return what it says of those that fail."""
    path = tmp_path / "tests.yml"
    whole = {"rule_files": [str(file)], "evaluation_interval": "5s", "tests": tests}
    path.write_text(yaml.safe_dump(whole))
    command = ["promtool", "test", "rules", str(path)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    said = ended.stdout + ended.stderr
    assert ("FAILED" in said) == bool(ended.returncode)
    return said if ended.returncode else ""


def cases_of(*, fires: bool) -> list[dict[str, Any]]:
    return [
        case(name, series, fires=fires)
        for name, (firing, calm) in CASES.items()
        for series in (firing if fires else calm)
    ]


def test_there_are_at_most_sixteen_alerts_and_a_case_for_each() -> None:
    assert rules().keys() == CASES.keys()
    assert len(CASES) <= 16


def test_each_alert_fires(tmp_path: Path) -> None:
    assert check(tmp_path, cases_of(fires=True)) == ""


def test_no_alert_fires_without_its_reason(tmp_path: Path) -> None:
    assert check(tmp_path, cases_of(fires=False)) == ""


@pytest.mark.parametrize("name", CASES)
def test_without_its_rule_an_alert_does_not_fire(tmp_path: Path, name: str) -> None:
    """A control: the test of an alert fails where the rule has another name."""
    broken = tmp_path / "alerts.yml"
    broken.write_text(RULES.read_text().replace(f"alert: {name}\n", f"alert: No{name}\n"))
    tests = [case(name, it, fires=True) for it in CASES[name][0]]
    assert "FAILED" in check(tmp_path, tests, file=broken)
