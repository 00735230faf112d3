"""Counts: summed over processes, and never a reason to stop one.

``tests/faults/test_p_disks.py`` has the same on a disk that is full or read-only.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from prometheus_client import REGISTRY

from seckill_site import metrics
from tests.support.stack import ROOT

COUNT = """
import os, shutil, sys
from seckill_site import exposition, metrics

directory, lose_it = sys.argv[1:]
metrics.counter("ledger_junk").inc()
if lose_it:
    shutil.rmtree(directory)
if child := os.fork():
    os.waitpid(child, 0)
    sys.stdout.write(exposition.exposition().decode())
else:
    metrics.counter("ledger_junk").inc()
    metrics.counter("publishes", "sent").inc()
"""


def counted(directory: Path, *, lose_it: bool = False, program: str = COUNT) -> str:
    """Let a process and its child count, and return what the first shows."""
    command = [sys.executable, "-c", program, str(directory), "yes" * lose_it]
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


@pytest.mark.slow
def test_files_of_counts_have_no_holes(tmp_path: Path) -> None:
    """A count in a hole of a file would end its process on a full disk."""
    counted(tmp_path)
    sizes = [(it.stat().st_size, it.stat().st_blocks * 512) for it in tmp_path.glob("*.db")]
    assert len(sizes) == 4
    assert all(blocks >= size for size, blocks in sizes)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["missing", "file"])
def test_without_a_directory_a_process_counts_in_memory(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").touch()
    assert "seckill_ledger_junk_total 1.0" in counted(tmp_path / name)


@pytest.mark.slow
def test_lost_directory_leaves_the_own_counts(tmp_path: Path) -> None:
    (tmp_path / "lost").mkdir()
    assert "seckill_ledger_junk_total" in counted(tmp_path / "lost", lose_it=True)


@pytest.mark.slow
def test_file_that_cannot_be_read_leaves_the_own_counts(tmp_path: Path) -> None:
    (tmp_path / "counter_1.db").touch()
    assert "seckill_ledger_junk_total 1.0" in counted(tmp_path)


CLOSE_AND_COUNT = """
import os, sys
from seckill_site import exposition, metrics

metrics.counter("ledger_junk").inc()
if child := os.fork():
    assert os.waitpid(child, 0)[1] == 0
    sys.stdout.write(exposition.exposition().decode())
else:
    os.closerange(3, 1_000)
    metrics.counter("ledger_junk").inc()
    metrics.counter("publishes", "sent").inc()
    os._exit(0)
"""


def test_child_counts_after_it_closed_what_it_inherited(tmp_path: Path) -> None:
    """Beat in a worker does so: with an error in its first count, the worker would start again."""
    text = counted(tmp_path, program=CLOSE_AND_COUNT)
    assert "seckill_ledger_junk_total 2.0" in text
    assert 'seckill_publishes_total{outcome="sent"} 1.0' in text


LABELS = {
    "seckill_batches": (),
    "seckill_backoffs": (),
    "seckill_breaker_openings": ("server",),
    "seckill_database_seconds": (),
    "seckill_differences": (),
    "seckill_fulfilled": ("status",),
    "seckill_ledger_junk": (),
    "seckill_ledger_seconds": (),
    "seckill_limited_requests": ("limit",),
    "seckill_lock_waits": ("of",),
    "seckill_loop_lag_seconds": (),
    "seckill_lost_leases": (),
    "seckill_messages": ("way", "outcome"),
    "seckill_order_requests": ("answer",),
    "seckill_payments": ("provider", "outcome"),
    "seckill_provider_calls": ("provider", "outcome"),
    "seckill_publishes": ("outcome",),
    "seckill_reconciled": ("outcome",),
    "seckill_refusals": ("code",),
    "seckill_request_seconds": ("kind",),
    "seckill_requests": ("kind", "status"),
    "seckill_retries": (),
    "seckill_set_aside": (),
    "seckill_webhooks": ("outcome",),
}
"""All labels of what processes count: none may hold a user, an address, a token or an order id."""


def test_all_labels_are_known() -> None:
    own = {it.name for it in REGISTRY.collect() if it.name.startswith("seckill_")}
    assert own == LABELS.keys()
    for metric in REGISTRY.collect():
        for it in metric.samples if metric.name in LABELS else ():
            assert set(it.labels) - {"le"} == set(LABELS[metric.name])


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/", "page"),
        ("/vouchers/12/", "sale"),
        ("/vouchers/12/live/", "live"),
        ("/vouchers/12/token/", "token"),
        ("/vouchers/12/orders/", "order"),
        ("/vouchers/12/orders/9/", "receipt"),
        ("/vouchers/12/orders/9/pay/", "receipt"),
        ("/vouchers/12/anything-else/", "sale"),
        ("/admin/orders/order/9/", "admin"),
        ("/a-made-up-path/", "page"),
        ("/metrics", "metrics"),
        ("*", "page"),
        ("", "page"),
    ],
)
def test_kind_names_no_id(path: str, kind: str) -> None:
    assert metrics.kind_of(path) == kind
