"""What ``script/lint`` gives its linters to read."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.patience import GENEROUS_S
from tests.support.stack import ROOT

pytestmark = pytest.mark.quick


def test_every_lua_script_is_linted_with_its_includes(tmp_path: Path) -> None:
    command = [sys.executable, "script/lib/assemble_lua.py", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True, timeout=GENEROUS_S)
    found = {path.relative_to(tmp_path) for path in tmp_path.rglob("*.lua")}
    tracked = {path.relative_to(ROOT) for path in ROOT.glob("[a-z]*/**/lua/*.lua")}
    assert found == {path for path in tracked if not path.name.startswith("_")}
    reserve = tmp_path / "vouchers" / "inventory" / "lua" / "reserve.lua"
    assert "-- @include" not in reserve.read_text()


# --- Known vulnerabilities ------------------------------------------------------------------------


@pytest.fixture
def audit(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(ROOT / "script" / "lib"))
    import audit

    return audit


@pytest.mark.slow
@pytest.mark.parametrize("listens", [False, True])
def test_unreachable_advisories_fail_and_hold_up_nothing(listens: bool) -> None:
    """A closed port refuses; one that nobody reads from says nothing for ever."""
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        if listens:
            silent.listen()
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/"
        command = [sys.executable, "script/lib/audit.py", "--advisories", url]
        said = subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=GENEROUS_S
        )
    assert said.returncode == 0
    assert said.stdout == "left out: the advisories of PyPI cannot be reached\n"


@pytest.mark.parametrize(("advisories", "there"), [([], False), ([{"id": "PYSEC-1-1"}], True)])
def test_mirror_without_advisories_is_no_clean_bill(
    audit: Any, tmp_path: Path, advisories: list[dict[str, str]], there: bool
) -> None:
    answer = tmp_path / "json"
    answer.write_text(json.dumps({"info": {}, "vulnerabilities": advisories}))
    assert audit.can_reach(answer.as_uri()) is there


def test_known_vulnerability_fails(audit: Any, capsys: pytest.CaptureFixture[str]) -> None:
    advisory = {"id": "PYSEC-1-1", "fix_versions": ["2.0"]}
    bad = {"name": "b", "version": "1.0", "vulns": [advisory]}
    good = {"name": "g", "version": "1.0", "vulns": []}
    skipped = {"name": "s", "skip_reason": "not on PyPI"}
    assert audit.report({"dependencies": [good, bad, skipped]}) == 1
    assert "b 1.0: PYSEC-1-1, fixed in 2.0" in capsys.readouterr().out
    assert audit.report({"dependencies": [good, skipped]}) == 0


def test_advisory_is_ignored_with_a_reason_only(audit: Any) -> None:
    assert audit.ignored("# a comment\n\nPYSEC-1-1 we never call it\n") == ["PYSEC-1-1"]
    with pytest.raises(ValueError, match="PYSEC-1-2 is ignored without a reason"):
        audit.ignored("PYSEC-1-2\n")


def test_list_of_ignored_advisories_can_be_read(audit: Any) -> None:
    audit.ignored(audit.IGNORED.read_text())
