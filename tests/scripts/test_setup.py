"""What the scripts install, by ``script/lib/setup.sh``."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.support.stack import ROOT

pytestmark = pytest.mark.quick

LOCK = ROOT / "requirements.lock"


def run_with_setup(commands: str, directory: Path) -> subprocess.CompletedProcess[str]:
    """Run commands in a shell that has sourced the library, with ``directory`` as its clone."""
    commands = f"RETRY_AFTER_S=0; {commands}"
    library = ROOT / "script" / "lib" / "setup.sh"
    return subprocess.run(
        ["bash", "-c", f"set -euo pipefail; ROOT={directory}; source {library}; {commands}"],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


def test_installation_that_fails_once_is_tried_again(tmp_path: Path) -> None:
    step = "step() { echo step; mkdir $ROOT/first 2>/dev/null && return 1 || return $1; };"
    (tmp_path / "again").mkdir()
    said = run_with_setup(f"{step} retried step 0", tmp_path)
    assert (said.returncode, said.stdout) == (0, "step\nstep\n")
    assert "trying once more" in said.stderr
    said = run_with_setup(f"{step} retried step 7", tmp_path / "again")
    assert (said.returncode, said.stdout) == (7, "step\nstep\n")


def test_failed_installation_shows_the_end_of_its_log(tmp_path: Path) -> None:
    (tmp_path / ".run").mkdir()
    (tmp_path / ".run" / "install.log").write_text("error: could not build wheels\n")
    said = run_with_setup("install_failed", tmp_path)
    assert said.returncode == 1
    assert said.stderr.startswith("error: could not build wheels\n")
    assert "pip could not install the Python packages" in said.stderr


def test_installation_on_a_full_disk_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / ".run").mkdir()
    text = "Collecting django\nERROR: [Errno 28] No space left on device\n"
    (tmp_path / ".run" / "install.log").write_text(text)
    said = run_with_setup("install_failed", tmp_path)
    assert said.returncode == 1
    assert said.stderr.startswith("bash: the disk is full: make room")
    assert said.stderr.count("\n") == 1


def test_mysqlclient_is_installed_apart_from_all_others(tmp_path: Path) -> None:
    alone = run_with_setup(f"mysqlclient_alone {LOCK}", tmp_path).stdout
    others = run_with_setup(f"without_mysqlclient {LOCK}", tmp_path).stdout
    assert alone.startswith("mysqlclient==")
    assert alone.count("==") == 1
    assert "--hash=sha256:" in alone
    assert "mysqlclient==" not in others
    assert sorted([*alone.splitlines(), *others.splitlines()]) == sorted(
        LOCK.read_text().splitlines()
    )
