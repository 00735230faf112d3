"""The faults, and their table at the end of a run, whichever process tried them."""

from __future__ import annotations

import os
from typing import Any

import pytest

REPORT = "SECKILL_FAULT_REPORT"
PROPERTY = "outcome"
"""Under this name a test's report carries what came of its faults."""

FAULTS = {
    "W1": "a web process exits before, while or after it reserves",
    "W2": "replies of the reserve script are dropped or late",
    "W3": "Redis is killed, silent, unreachable, full or loses its scripts under load",
    "W4": "the broker refuses or stalls at the publish",
    "W7": "keys are rotated during a sale",
    "K1": "a worker child is killed at each step of a batch",
    "K2": "a worker group is killed up to 15 times; everything is killed at once, servers too",
    "K3": "a worker is stopped for longer than its lease",
    "K4": "one task runs up to five times at once",
    "K5": "an order kills or hangs its process, or raises",
    "K6": "the broker is emptied, unreachable for up to 120 s or full of junk",
    "K7": "up to 50,000 orders wait with workers off and sweeps on",
    "K8": "the broker answers with each of nine errors and keys of a wrong type",
    "K9": "no worker runs for an hour",
    "D1": "MariaDB is killed, read-only or full of connections; connections break; 1205, 1213",
    "D2": "a batch meets each of 41 error numbers, once or for up to 30 s",
    "D3": "one of two workers cannot reach the database",
    "G1": "a Galera cluster loses its writer, has two, or migrates; an order is refused",
    "R1": "the ledger is killed, emptied, goes back, loses a key, or fails over",
    "R2": "a reconcile runs under load",
    "R3": "a worker is killed while it ends orders; returned units go to those who wait",
    "R5": "keys of a sale of a wrong type, entries that cannot be parsed",
    "R6": "each error of Redis at each script, once or for 3 s",
    "R7": "the line of a waiting room: Redis is killed, loses data, fails over, jumps in time",
    "S1": "a machine of Redis Sentinel dies, with the replicas cut off before or not",
    "CL": "the clock of the database, Redis, web, worker or beat is off by up to an hour",
    "C1": "the cache is lost, restarted, or away during sign-outs",
    "P1": "the disk of metrics, logs and static files is full, read-only or gone",
    "DR": "a draw: a worker is killed at each step, the ledger is killed or emptied",
}
"""The faults by their codes, in the order of the table."""


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the table of this run, as Markdown, where a report was asked for."""
    reports = [report for kind in terminalreporter.stats.values() for report in kind]
    outcomes: list[Any] = [
        outcome
        for report in reports
        # A subtest's report carries its test's outcomes as well: they would be counted twice.
        if type(report) is pytest.TestReport and report.when == "call"
        for name, outcome in report.user_properties
        if name == PROPERTY
    ]
    if outcomes and REPORT in os.environ:
        terminalreporter.section("faults")
        for line in table(outcomes):
            terminalreporter.write_line(line)


def table(outcomes: list[dict[str, Any]]) -> list[str]:
    """Return a Markdown table with a row for each fault, and the sums of all in the last line."""
    names = [name for name in outcomes[0] if name not in ("fault", "what")]
    rows = [["fault", "what", "runs", *(name.replace("_", " ") for name in names)]]
    rows.append(["---"] * len(rows[0]))
    for fault, what in FAULTS.items():
        if runs := [outcome for outcome in outcomes if outcome["fault"] == fault]:
            rows.append([fault, what, *_summed(names, runs)])
    rows.append([f"**{it}**" if it else "" for it in ("all", "", *_summed(names, outcomes))])
    return [f"| {' | '.join(row)} |" for row in rows]


def _summed(names: list[str], runs: list[dict[str, Any]]) -> list[str]:
    values = {name: [run[name] for run in runs] for name in names}
    sums = [max(it) if name.startswith("worst") else sum(it) for name, it in values.items()]
    return [str(len(runs)), *map(str, sums)]
