"""``script/server`` as a newcomer starts it, with the packages of this clone."""

from __future__ import annotations

import http.client
import os
import re
import shutil
import signal
import subprocess
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.patience import GENEROUS_S, eventually, wait_for
from tests.support.stack import ROOT, free_port, processes_of, signal_each

LIMIT_MB = 500
CHILDREN = 4
"""Of the worker: three for tasks, and beat."""

STAMP = """
source script/lib/setup.sh
without_mysqlclient requirements.lock | hash_of | tr -d '\\n' >.venv/.requirements.lock
"""


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A clone with data of its own, in which nothing is left to install."""
    clone = tmp_path / "clone"
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True)
    for name in filter(None, listed.stdout.decode().split("\0")):
        if not name.startswith(("tests/", "docs/")) and (ROOT / name).exists():
            (clone / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, clone / name)
    (clone / ".venv").mkdir()
    for part in ("bin", "lib", "pyvenv.cfg"):
        (clone / ".venv" / part).symlink_to(ROOT / ".venv" / part)
    subprocess.run(["bash", "-c", STAMP], cwd=clone, env={**os.environ, "ROOT": "."}, check=True)
    return clone


@pytest.fixture
def server(clone: Path, tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """The running command, and its port."""
    names = ("PATH", "HOME", "LANG")
    environ = {name: os.environ[name] for name in names if name in os.environ}
    port = free_port()
    with subprocess.Popen(
        ["script/server", "--port", str(port)],
        cwd=clone,
        env={**environ, "TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as process:
        yield process, port
        process.kill()


def answer(port: int, path: str) -> int:
    try:
        return page(port, path)[0]
    except OSError:
        return 0


def page(port: int, path: str) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=GENEROUS_S)
    try:
        connection.request("GET", path, headers={"Accept": "text/html"})
        response = connection.getresponse()
        return response.status, response.read().decode()
    finally:
        connection.close()


@pytest.mark.slow
def test_server_can_sell_and_leaves_no_process(
    server: tuple[subprocess.Popen[str], int], tmp_path: Path
) -> None:
    process, port = server
    assert eventually(lambda: answer(port, "/readyz") == 200 or process.poll() is not None)
    style = re.search(r'"(/static/[^"]+[.]css)"', page(port, "/")[1])
    assert style
    statuses = [answer(port, path) for path in ("/", style[1], "/vouchers/1/", "/admin/")]
    process.send_signal(signal.SIGINT)
    said, _ = process.communicate(timeout=GENEROUS_S)

    assert statuses == [200, 200, 200, 302], said
    assert process.returncode == 128 + signal.SIGINT, said
    assert "[##..] tables ..." in said, "a first start shows how far it is"
    assert "password" in said
    assert not processes_of(tmp_path)


@pytest.mark.slow
def test_server_starts_what_ends_by_itself_again(
    server: tuple[subprocess.Popen[str], int], tmp_path: Path
) -> None:
    """granian ends when one of its workers dies twice within 5.5 s."""
    process, port = server
    assert eventually(lambda: answer(port, "/readyz") == 200)
    web = main_process(tmp_path)
    assert eventually(lambda: has_ended_without_workers(web))
    assert eventually(lambda: answer(port, "/readyz") == 200)
    process.send_signal(signal.SIGINT)
    said, _ = process.communicate(timeout=GENEROUS_S)

    assert process.returncode == 128 + signal.SIGINT, said
    assert "web ended by itself (exit status 1), so it is started again" in said
    assert not processes_of(tmp_path)


@pytest.mark.slow
def test_started_shop_takes_less_than_500_mb(
    server: tuple[subprocess.Popen[str], int],
    tmp_path: Path,
    record_property: Callable[[str, object], None],
) -> None:
    """All that was started, each page shared by several processes counted once."""
    process, port = server
    wait_until_ready(process, port)
    wait_for(lambda: has_restarted(tmp_path, 0), what="the worker and its children")
    for path in ["/", "/vouchers/1/", "/accounts/login/", "/admin/login/"] * 4:
        answer(port, path)
    children = children_of(main_process(tmp_path, "celery"))
    taken_mb = sum(memory_mb(pid)["Pss"] for pid in processes_of(tmp_path))
    record_property("pss_mb", round(taken_mb))

    assert 100 < taken_mb < LIMIT_MB
    for memory in map(memory_mb, children):
        assert memory["Private_Dirty"] < memory["Rss"] / 2, "children share what is loaded"


@pytest.mark.slow
def test_killed_worker_and_its_beat_come_back_together(
    server: tuple[subprocess.Popen[str], int], tmp_path: Path
) -> None:
    process, port = server
    wait_until_ready(process, port)
    before = kill_in_worker(tmp_path, lambda main: [main])
    assert eventually(lambda: has_restarted(tmp_path, before))
    before = kill_in_worker(tmp_path, children_of)
    assert eventually(lambda: has_restarted(tmp_path, before))
    process.send_signal(signal.SIGINT)
    said, _ = process.communicate(timeout=GENEROUS_S)

    assert "worker ended by itself (exit status 137), so it is started again" in said
    assert said.count("worker ended by itself") == 2
    assert "prefork-timer-shutdown" not in said  # the worker ends beat by itself


def wait_until_ready(process: subprocess.Popen[str], port: int) -> None:
    if not eventually(lambda: answer(port, "/readyz") == 200, within_s=GENEROUS_S):
        process.send_signal(signal.SIGINT)
        raise AssertionError(process.communicate()[0])


def kill_in_worker(scratch: Path, choose: Callable[[int], list[int]]) -> int:
    """Kill processes of the worker once all have started; return the main one."""
    wait_for(lambda: has_restarted(scratch, 0), what="the worker and its children")
    main = main_process(scratch, "celery")
    signal_each(choose(main), signal.SIGKILL)
    return main


def has_restarted(scratch: Path, before: int) -> bool:
    main = main_process(scratch, "celery")
    return main != before and len(children_of(main)) == CHILDREN


def memory_mb(pid: int) -> dict[str, float]:
    """Return the sizes of a process's memory; nothing for one that has ended."""
    lines = text_of(pid, "smaps_rollup").splitlines()[1:]
    return defaultdict(float, {line.split(":")[0]: int(line.split()[1]) / 1024 for line in lines})


def main_process(scratch: Path, program: str = "granian") -> int:
    """Return the main process of granian or Celery, 0 if none runs: no wrapper, and no child."""
    commands = {pid: text_of(pid, "cmdline") for pid in processes_of(scratch)}
    found = {pid for pid, it in commands.items() if f"\0{program}\0" in it}
    mains = [pid for pid in found if parent_of(pid) not in found]
    return mains[0] if len(mains) == 1 else 0


def children_of(pid: int) -> list[int]:
    everyone = [int(path.name) for path in Path("/proc").glob("[0-9]*")]
    return [it for it in everyone if pid and parent_of(it) == pid]


def has_ended_without_workers(main: int) -> bool:
    signal_each(children_of(main), signal.SIGKILL)
    return not Path(f"/proc/{main}").exists()


def parent_of(pid: int) -> int:
    return int((text_of(pid, "stat").rpartition(")")[2].split() or ["", "0"])[1])


def text_of(pid: int, name: str) -> str:
    try:
        return Path(f"/proc/{pid}/{name}").read_text()
    except OSError:  # it has ended meanwhile
        return ""
