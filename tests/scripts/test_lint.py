"""What ``script/lint`` gives its linters to read."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.stack import ROOT

pytestmark = pytest.mark.quick


def test_every_lua_script_is_linted_with_its_includes(tmp_path: Path) -> None:
    command = [sys.executable, "script/lib/assemble_lua.py", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True, timeout=30)
    found = {path.relative_to(tmp_path) for path in tmp_path.rglob("*.lua")}
    tracked = {path.relative_to(ROOT) for path in ROOT.glob("[a-z]*/**/lua/*.lua")}
    assert found == {path for path in tracked if not path.name.startswith("_")}
    reserve = tmp_path / "vouchers" / "inventory" / "lua" / "reserve.lua"
    assert "-- @include" not in reserve.read_text()
