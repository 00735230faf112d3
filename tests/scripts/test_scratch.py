"""``script/lib/scratch.py`` with workers, as ``script/test`` runs it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.patience import GENEROUS_S, eventually
from tests.support.stack import ROOT, processes_of

ITS_OWN = ("DATABASE_URL", "REDIS_URL", "CACHE_URL", "CELERY_BROKER_URL", "STATIC_ROOT")
TEST = """
import json, os, pathlib, subprocess, time

def test_in_each_worker():
    subprocess.Popen(["sleep", "77"], start_new_session=True)
    note = pathlib.Path(__file__).with_name("note of " + os.environ["PYTEST_XDIST_WORKER"])
    note.with_suffix(".new").write_text(json.dumps(dict(os.environ)))
    note.with_suffix(".new").rename(note)
    time.sleep(77)
"""


@pytest.mark.slow
def test_each_worker_has_own_servers_and_leaves_nothing(tmp_path: Path) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    with started(tmp_path, scratch) as run:
        notes = [tmp_path / f"note of {worker}" for worker in ("gw0", "gw1")]
        assert eventually(lambda: all(note.exists() for note in notes))
        first, second = (json.loads(note.read_text()) for note in notes)
        run.send_signal(signal.SIGINT)
        said, _ = run.communicate(timeout=GENEROUS_S)
        assert run.returncode == 128 + signal.SIGINT
    assert [name for name in ITS_OWN if first[name] == second[name]] == []
    assert "no tests ran" in said.splitlines()[-1]
    assert not list(scratch.glob("seckill-*"))
    assert not processes_of(scratch)


def started(directory: Path, scratch: Path) -> subprocess.Popen[str]:
    """Run the test above in two workers."""
    ini = directory / "pytest.ini"
    ini.write_text("[pytest]")
    (directory / "test_it.py").write_text(TEST)
    pytest = [
        sys.executable,
        "-m",
        "pytest",
        "-c",
        str(directory / "pytest.ini"),
        "-p",
        "no:django",
    ]
    workers = ["-p", "tests.support.own_servers", "-n", "2", "--dist", "each"]
    environ = {name: it for name, it in os.environ.items() if not name.startswith("PYTEST_")}
    return subprocess.Popen(
        [
            sys.executable,
            "script/lib/scratch.py",
            "--places",
            "2",
            *pytest,
            *workers,
            str(directory),
        ],
        cwd=ROOT,
        env={**environ, "TMPDIR": str(scratch)},
        stdout=subprocess.PIPE,
        text=True,
    )
