"""The table of all faults at the end of a run, whichever process tried them."""

from __future__ import annotations

import os
from typing import Any

import pytest

REPORT = "SECKILL_FAULT_REPORT"
PROPERTY = "outcome"
"""Under this name a test's report carries what came of its faults."""

COLUMNS = {
    "fault": "fault",
    "what": "what",
    "orders": "orders",
    "accepted": "accepted",
    "unknown": "unknown",
    "refused": "refused later",
    "lost": "lost",
    "doubled": "doubled",
    "oversold": "oversold",
    "worst_recovery_s": "worst recovery s",
}


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the table of this run, as Markdown, where a report was asked for."""
    reports = [report for kind in terminalreporter.stats.values() for report in kind]
    outcomes: list[Any] = [
        outcome
        for report in reports
        if isinstance(report, pytest.TestReport) and report.when == "call"
        for name, outcome in report.user_properties
        if name == PROPERTY
    ]
    if outcomes and REPORT in os.environ:
        terminalreporter.section("faults")
        for line in table(outcomes):
            terminalreporter.write_line(line)


def table(outcomes: list[dict[str, Any]]) -> list[str]:
    """Return the lines of a Markdown table, in an order of its own."""
    outcomes = sorted(outcomes, key=lambda outcome: (outcome["fault"], outcome["what"]))
    rows = [list(COLUMNS.values()), ["---"] * len(COLUMNS)]
    rows += [[str(outcome[name]) for name in COLUMNS] for outcome in outcomes]
    return [f"| {' | '.join(row)} |" for row in rows]
