"""The private servers of ``script/lib/servers.py``."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.faults.private import OwnMariaDB, script_library

OF_ANOTHER_SERVER = "#sql-temptable-4711-3-8.MAI"


@pytest.fixture
def shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A temporary directory in which another MariaDB has a temporary table."""
    shared = tmp_path / "shared"
    shared.mkdir()
    (shared / OF_ANOTHER_SERVER).touch()
    monkeypatch.setenv("TMPDIR", str(shared))
    return shared


@pytest.mark.slow
def test_mariadb_spares_the_temporary_tables_of_other_servers(tmp_path: Path, shared: Path) -> None:
    mariadb = OwnMariaDB(tmp_path)
    mariadb.start()
    mariadb.kill()
    assert [path.name for path in shared.iterdir()] == [OF_ANOTHER_SERVER]


@pytest.mark.slow
def test_without_directory_of_its_own_mariadb_deletes_them(tmp_path: Path, shared: Path) -> None:
    """The control: two servers that were made at once broke each other in this way."""
    mariadb = script_library("servers").MariaDB(tmp_path / "mysql")
    left_out = ("--tmpdir=", "--init-file=")
    command = [word for word in mariadb.prepare() if not word.startswith(left_out)]
    subprocess.run([*command, "--bootstrap"], input=b"", check=True)
    assert not list(shared.iterdir())


def test_failed_installation_shows_its_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    servers = script_library("servers")
    broken = tmp_path / "mariadb-install-db"
    broken.write_text("#!/bin/sh\necho the disk is full\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setattr(servers, "mariadb_binary", lambda name: str(broken))
    with pytest.raises(servers.CannotRun, match="the disk is full"):
        servers.MariaDB(tmp_path / "mysql").prepare()
