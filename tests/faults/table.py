"""The table of all faults at the end of a run, whichever process tried them."""

from __future__ import annotations

import os
from typing import Any

import pytest

REPORT = "SECKILL_FAULT_REPORT"
PROPERTY = "outcome"
"""Under this name a test's report carries what came of its faults."""


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
    """Return the lines of a Markdown table, sorted by fault, with the sums in the last line."""
    outcomes = sorted(outcomes, key=lambda outcome: (outcome["fault"], outcome["what"]))
    names = list(outcomes[0])
    rows = [[name.replace("_", " ") for name in names], ["---"] * len(names)]
    rows += [[str(outcome[name]) for name in names] for outcome in outcomes]
    rows.append([summed(name, [outcome[name] for outcome in outcomes]) for name in names])
    return [f"| {' | '.join(row)} |" for row in rows]


def summed(name: str, values: list[Any]) -> str:
    if name in ("fault", "what"):
        return "**all**" if name == "fault" else f"{len(values)} faults"
    return f"**{max(values) if name.startswith('worst') else sum(values)}**"
