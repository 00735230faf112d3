"""The import contracts of pyproject.toml."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.quick

ROOT = Path(__file__).resolve().parents[1]

INCOMPLETE_CONTRACT = """
[importlinter]
root_package = locks

[importlinter:contract:1]
name = locks
type = layers
containers = locks
layers = hold
exhaustive = true
"""


def lint_imports(*options: str) -> subprocess.CompletedProcess[str]:
    """Run import-linter in a process of its own, because it reconfigures logging."""
    code = "from importlinter.cli import lint_imports_command as run; run()"
    command = [sys.executable, "-c", code, "--no-cache", *options]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_import_contracts_are_kept() -> None:
    done = lint_imports()

    assert done.returncode == 0, done.stdout


def test_control_module_in_no_layer_breaks_contract(tmp_path: Path) -> None:
    contracts = tmp_path / "contracts.ini"
    contracts.write_text(INCOMPLETE_CONTRACT)

    done = lint_imports("--config", str(contracts))

    assert done.returncode == 1
    assert "not listed as layers" in done.stdout
