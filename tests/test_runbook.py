"""The runbook: an entry for each alert, and nothing in it that is not there."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import yaml
from django.core.management import call_command
from django.urls import resolve

ROOT = Path(__file__).resolve().parents[1]
TEXT = (ROOT / "docs/runbook.md").read_text()
ENTRIES = dict(re.findall(r"^## (\w+)\n(.*?)(?=^## |\Z)", TEXT, re.MULTILINE | re.DOTALL))
COMMANDS = sorted(set(re.findall(r"manage\.py ([a-z_]+(?: [^`\n]+)?)", TEXT)))
UNITS = sorted(set(re.findall(r"\bseckill-[a-z]+(?:-[a-z]+)?(?:@\w+)?", TEXT)))

RULES = yaml.safe_load((ROOT / "deploy/prometheus/alerts.yml").read_text())["groups"][0]["rules"]
ALERTS = {it["alert"] for it in RULES}
OTHERS = {"mariadb", "redis-server@ledger", "redis-server@broker"}
"""Units of Debian that the runbook names."""


def test_each_alert_has_an_entry_with_all_its_parts() -> None:
    assert ENTRIES.keys() == ALERTS
    for name, text in ENTRIES.items():
        assert re.findall(r"^\*\*(\w+)\*\*:", text, re.MULTILINE) == [
            "Means", "Look", "Do", "Over"
        ], name  # fmt: skip


def test_every_alert_that_is_named_exists() -> None:
    named = set(re.findall(r"\*([A-Z][a-z]+(?:[A-Z][a-z]+)+)\*", TEXT))
    assert named <= ALERTS
    assert named


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_runs(command: str) -> None:
    name, *arguments = shlex.split(command)
    if name == "metrics":
        return  # it serves until it is stopped; tests/backoffice/test_metrics_command.py has it
    if name == "check":
        arguments += ["--fail-level", "CRITICAL"]  # the settings of the tests are not a shop's
    if arguments == ["--help"]:
        with pytest.raises(SystemExit, match="0"):
            call_command(name, *arguments)
    else:
        call_command(name, *arguments)


def test_units_and_paths_exist() -> None:
    for unit in UNITS:
        template = re.sub(r"@.*", "@", unit)
        assert (ROOT / f"deploy/{template}.service").exists(), unit
    controlled = re.findall(r"systemctl \w+ ([\w@ -]+)`", TEXT)
    assert {it for units in controlled for it in units.split()} <= OTHERS | set(UNITS)
    guide = (ROOT / "deploy/README.md").read_text()
    assert all(it in guide for it in OTHERS)
    for path in set(re.findall(r"(/(?:etc|srv)/[\w./]*\w)", TEXT)):
        assert path in guide
    for path in set(re.findall(r"`(/[a-z]+z)`", TEXT)):
        assert resolve(path)
