"""Counts: summed over processes, and never a reason to stop one.

``tests/faults/test_p_disks.py`` has the same on a disk that is full or read-only.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.stack import ROOT

COUNT = """
import os, shutil, sys
from seckill_site import metrics

directory, lose_it = sys.argv[1:]
metrics.JUNK.inc()
if lose_it:
    shutil.rmtree(directory)
if child := os.fork():
    os.waitpid(child, 0)
    sys.stdout.write(metrics.exposition().decode())
else:
    metrics.JUNK.inc()
    metrics.PUBLISHES.labels("sent").inc()
"""


def counted(directory: Path, *, lose_it: bool = False) -> str:
    """Let a process and its child count, and return what the first shows."""
    command = [sys.executable, "-c", COUNT, str(directory), "yes" * lose_it]
    environ = {
        **os.environ,
        "DJANGO_SETTINGS_MODULE": "seckill_site.settings",
        "PROMETHEUS_MULTIPROC_DIR": str(directory),
    }
    said = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True)
    assert said.returncode == 0, said.stderr
    return said.stdout


def test_counts_are_summed_over_processes(tmp_path: Path) -> None:
    text = counted(tmp_path)
    assert "seckill_ledger_junk_total 2.0" in text
    assert 'seckill_publishes_total{outcome="sent"} 1.0' in text


def test_files_of_counts_have_no_holes(tmp_path: Path) -> None:
    """A count in a hole of a file would end its process on a full disk."""
    counted(tmp_path)
    sizes = [(it.stat().st_size, it.stat().st_blocks * 512) for it in tmp_path.iterdir()]
    assert len(sizes) == 4
    assert all(blocks >= size for size, blocks in sizes)


@pytest.mark.parametrize("name", ["missing", "file"])
def test_without_a_directory_a_process_counts_in_memory(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").touch()
    assert "seckill_ledger_junk_total 1.0" in counted(tmp_path / name)


def test_lost_directory_leaves_the_own_counts(tmp_path: Path) -> None:
    (tmp_path / "lost").mkdir()
    assert "seckill_ledger_junk_total" in counted(tmp_path / "lost", lose_it=True)


def test_file_that_cannot_be_read_leaves_the_own_counts(tmp_path: Path) -> None:
    (tmp_path / "counter_1.db").touch()
    assert "seckill_ledger_junk_total 1.0" in counted(tmp_path)
