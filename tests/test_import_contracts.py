"""The import contracts of pyproject.toml."""

from __future__ import annotations

from pathlib import Path

import pytest
from importlinter.cli import lint_imports

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


def test_import_contracts_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)

    assert lint_imports(no_cache=True) == 0


def test_control_module_in_no_layer_breaks_contract(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(ROOT)
    contracts = tmp_path / "contracts.ini"
    contracts.write_text(INCOMPLETE_CONTRACT)

    assert lint_imports(config_filename=str(contracts), no_cache=True) == 1
