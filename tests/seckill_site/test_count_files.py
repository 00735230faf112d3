"""Files of counts over restarts: none is left behind, and no counter falls."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from time import perf_counter

import pytest
from prometheus_client.core import Metric
from prometheus_client.multiprocess import MultiProcessCollector

from seckill_site.count_files import CountFiles, counts_in, sum_ended
from seckill_site.exposition import counts_of_units
from tests.support.stack import ROOT

RESTARTS = """
import os, sys
from pathlib import Path
from seckill_site import count_files, metrics

directory, times, is_summed = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3] == "yes"
if not is_summed:
    count_files.sum_ended = lambda directory: None
for number in range(1, times + 1):
    if child := os.fork():
        os.waitpid(child, 0)
    else:
        metrics.counter("ledger_junk").inc()
        metrics.histogram("request", "page").observe(0.01)
        os._exit(0)
    if number % max(1, times // 20) == 0:
        found = {it.name: it for it in count_files.counts_in(directory)}
        print(found["seckill_ledger_junk"].samples[0].value)
"""


def restart(directory: Path, times: int, *, is_summed: bool = True) -> list[float]:
    """Let a process start and lose children; return the counts that a reader saw meanwhile."""
    command = [
        sys.executable,
        "-c",
        RESTARTS,
        str(directory),
        str(times),
        "yes" if is_summed else "no",
    ]
    environ = {**os.environ, "DJANGO_SETTINGS_MODULE": "seckill_site.settings"}
    environ["PROMETHEUS_MULTIPROC_DIR"] = str(directory)
    said = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True)
    assert said.returncode == 0, said.stderr
    return list(map(float, said.stdout.split()))


def scraped(directory: Path) -> dict[str, float]:
    """Return what a machine's metrics say of the unit in this directory."""
    samples = [it for metric in counts_of_units(directory.parent) for it in metric.samples]
    return {it.name: it.value for it in samples if it.labels["unit"] == directory.name}


def test_restarts_leave_no_files_and_no_counter_falls(tmp_path: Path) -> None:
    seen = restart(tmp_path, 20)
    assert seen == sorted(seen)
    assert seen[-1] == 20
    assert len(list(tmp_path.glob("*.db"))) <= 6  # the parent, the last child, and the sum


def test_without_the_sum_files_pile_up(tmp_path: Path) -> None:
    assert restart(tmp_path, 20, is_summed=False)[-1] == 20
    assert len(list(tmp_path.glob("*.db"))) == 42


@pytest.mark.slow
def test_scrape_is_quick_after_a_thousand_restarts(tmp_path: Path) -> None:
    unit = tmp_path / "worker"
    unit.mkdir()
    seen = restart(unit, 1_000)
    assert seen == sorted(seen)
    times = []
    for _ in range(5):
        started = perf_counter()
        found = scraped(unit)
        times.append(perf_counter() - started)
    assert found["seckill_ledger_junk_total"] == 1_000
    assert found["seckill_request_seconds_count"] == 1_000
    assert min(times) < 0.3
    assert sum(it.stat().st_size for it in unit.iterdir()) <= 6 * 128 * 1024


def test_sum_leaves_living_processes_alone(tmp_path: Path) -> None:
    own = CountFiles(tmp_path)
    gone = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"],
                          capture_output=True, text=True, check=True).stdout.strip()  # fmt: skip
    for kind in ("counter", "histogram"):
        (tmp_path / f"{kind}_{gone}.db").write_bytes(bytes(4096))
        (tmp_path / f"{kind}_0.db").write_bytes(bytes(4096))
    sum_ended(tmp_path)
    left = {it.stem.rpartition("_")[2] for it in tmp_path.glob("*.db")}
    assert left == {"0", str(own.owner())}


@pytest.mark.slow
def test_unit_that_ends_takes_its_counts_along(tmp_path: Path) -> None:
    """systemd removes the directory: no counter of another unit falls because of that."""
    for name in ("web-8000", "worker"):
        (tmp_path / name).mkdir()
        restart(tmp_path / name, 1)
    before = scraped(tmp_path / "worker")
    for path in (tmp_path / "web-8000").iterdir():
        path.unlink()
    (tmp_path / "web-8000").rmdir()
    assert scraped(tmp_path / "worker") == before
    assert not scraped(tmp_path / "web-8000")


@pytest.mark.slow
def test_reader_looks_again_where_files_were_added_up_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A control: what it reads first is counted twice, in a file and in the sum."""
    restart(tmp_path, 3)
    read, seen = MultiProcessCollector.collect, list[list[Path]]()

    def collect(self: MultiProcessCollector) -> list[Metric]:
        found = read(self)
        if not seen:
            sum_ended(tmp_path)
        seen.append(sorted(tmp_path.glob("*.db")))
        return found

    monkeypatch.setattr(MultiProcessCollector, "collect", collect)
    found = {it.name: it.samples[0].value for it in counts_in(tmp_path)}
    assert found["seckill_ledger_junk"] == 3
    assert len(seen) == 2
