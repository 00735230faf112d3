"""P: the disk of metrics, logs and static files is full, read-only or gone."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest
import requests
from django.db import connection

from tests.concurrency.sales import crowd_of, make_sale
from tests.faults.history import History, Outcome, Report
from tests.support.patience import GENEROUS_S
from tests.support.stack import ROOT, Process, Stack, Web, free_port
from vouchers.models import SeckillVoucher

pytestmark = [pytest.mark.slow, pytest.mark.concurrency, pytest.mark.usefixtures("row_locks")]

BUYERS = 20
DISK_BYTES = 4 * 1024 * 1024


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A small disk of its own."""
    path = tmp_path / "disk"
    path.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(path)]
    mounted = subprocess.run(command, capture_output=True, text=True, check=False)
    if mounted.returncode:
        pytest.skip(f"mounting a small disk needs root: {mounted.stderr.strip()}")
    yield path
    subprocess.run(["umount", "--lazy", str(path)], check=True)


def fill(disk: Path) -> None:
    with suppress(OSError), (disk / "all").open("ab", buffering=0) as file:
        while True:
            file.write(bytes(4096))


def make_read_only(disk: Path) -> None:
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)


def on(disk: Path) -> dict[str, Any]:
    return {"PROMETHEUS_MULTIPROC_DIR": str(disk)}


def sell_out(history: History, sale: SeckillVoucher, url: str) -> Outcome:
    """Let more buyers come than there are units; all of them are answered, and the metrics, too."""
    history.fire(sale, crowd_of(sale, count=2 * BUYERS), url=url)
    history.settle(sale)
    assert requests.get(f"{url}/metrics", timeout=GENEROUS_S).status_code == 200
    outcome = history.check(sale)
    assert (outcome.orders, outcome.unknown) == (BUYERS, 0)
    return outcome


@pytest.mark.parametrize("state", ["full", "read-only", "missing"])
def test_p1_shop_sells_without_room_for_its_counts(
    disk: Path, stack: Stack, report: Report, state: str
) -> None:
    history = History("P1", f"a directory of metrics that is {state}")
    {"full": fill, "read-only": make_read_only, "missing": Path.exists}[state](disk)
    environ = on(disk / "missing" if state == "missing" else disk)
    with stack.together():
        web = stack.web(workers=2, **environ)
        stack.worker(**environ)
    report(sell_out(history, make_sale(stock=BUYERS), web.url))


def test_p1_disk_that_fills_up_stops_no_process(
    disk: Path, transactional_db: None, report: Report
) -> None:
    history = History("P1", "the disk of metrics and logs fills up")
    sale = make_sale(stock=BUYERS)
    with Stack(disk, database=connection.settings_dict["NAME"]) as stack:
        with stack.together():
            web, worker = stack.web(workers=2, **on(disk)), stack.worker("--beat", **on(disk))
        before = {*web.children(), *worker.children()}
        fill(disk)
        outcome = sell_out(history, sale, web.url)
        assert before <= {*web.children(), *worker.children()}
    report(outcome)


def test_p1_full_logs_stop_no_unit(stack: Stack, report: Report) -> None:
    history = History("P1", "logs that take nothing")
    port = free_port()
    environ = {**os.environ, "DATABASE_URL": stack.database_url}
    processes = []
    with ExitStack() as ended, Path("/dev/full").open("wb") as full:
        for unit in ("web@", "worker", "beat"):
            command = command_of(unit).replace("%i", str(port))
            output: dict[str, Any] = {"stdout": full, "stderr": full, "stdin": subprocess.DEVNULL}
            popen = subprocess.Popen(
                shlex.split(command), cwd=ROOT, env=environ, start_new_session=True, **output
            )
            processes.append(Process(unit, popen, Path(os.devnull)))
            ended.callback(processes[-1].kill)
        web = Web("web", processes[0].popen, Path(os.devnull), port)
        web.wait_until(web.is_alive, what="answer")
        report(sell_out(history, make_sale(stock=BUYERS), web.url))
        assert [process.popen.poll() for process in processes] == [None] * 3


def command_of(unit: str) -> str:
    """Return what systemd starts, as this Python runs it."""
    text = (ROOT / f"deploy/seckill-{unit}.service").read_text().replace("\\\n", " ")
    command = text.partition("\nExecStart=/srv/seckill/.venv/bin/")[2].partition("\n")[0]
    return f"{sys.executable} -m {command}".replace("${SECKILL_LISTEN}", "127.0.0.1")


def test_p1_shop_sells_without_its_static_files(
    stack: Stack, report: Report, tmp_path: Path
) -> None:
    history = History("P1", "static files that are gone")
    with stack.together():
        web = stack.web(STATIC_ROOT=str(tmp_path / "gone"), DEBUG="false")
        stack.worker()
    sale = make_sale(stock=BUYERS)
    for path in ("", f"vouchers/{sale.pk}/", "no-such-page/"):
        page = requests.get(
            f"{web.url}/{path}", headers={"Accept": "text/html"}, timeout=GENEROUS_S
        )
        assert page.status_code == (404 if path.startswith("no") else 200)
    report(sell_out(history, sale, web.url))
