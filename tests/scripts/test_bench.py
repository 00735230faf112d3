"""``script/bench``: that it runs, is complete, and leaves nothing behind; never how fast."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from backoffice.capacity.figures import Operation, read_figures
from tests.support.patience import GENEROUS_S, eventually
from tests.support.stack import ROOT, processes_of

PATIENCE_S = 600
"""The longest that a bench may take here; it measures, so a busy machine makes it slow."""

pytestmark = pytest.mark.timeout(PATIENCE_S + 60)

LOCKS = [sys.executable, "-m", "bench", "locks", "--quick", "--json"]
CAPACITY = [sys.executable, "-m", "bench", "capacity", "--tiny"]
FAIRNESS = [sys.executable, "-m", "bench", "fairness", "--tiny"]
SALE = [sys.executable, "-m", "bench", "sale", "--tiny"]
SERVERS = [sys.executable, "-m", "bench", "servers", "--tiny"]
SALE_ROWS = {
    "a": 3, "b": 1, "c": 1, "d": 2, "e": 2, "f": 5, "g": 4, "h": 3, "i": 5, "j": 2, "k": 6, "l": 5,
    "m": 2, "n": 4, "o": 5, "p": 3, "q": 2, "r": 2, "s": 4, "t": 2,
}  # fmt: skip
ROWS = {
    "1 uncontended": 2,
    "2 one key, 16 threads": 7,
    "2 one key, 4 processes × 4": 7,
    "3 wake-up in another process": 2,
    "4 100 held locks": 4,
    "5 stopped holder, lease 2 s": 2,
    "6 asyncio, uncontended": 1,
    "6 asyncio, one key, 16 tasks": 7,
}


def environ_with(scratch: Path) -> dict[str, str]:
    """Return an environment in which everything is made in ``scratch``."""
    return {**os.environ, "PYTHONPATH": str(ROOT / "script" / "lib"), "TMPDIR": str(scratch)}


@pytest.fixture
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory for what a benchmark writes; it is not where it works."""
    return tmp_path_factory.mktemp("results")


def output_of(command: Sequence[str | Path], scratch: Path) -> str:
    """Run a benchmark to its end, which has to leave nothing; return what it prints."""
    said = subprocess.run(
        command,
        cwd=ROOT,
        env=environ_with(scratch),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert said.returncode == 0, said.stderr
    assert not list(scratch.iterdir())
    return said.stdout


ALL = "capacity fairness locks sale servers shop"


@pytest.mark.parametrize(
    ("arguments", "code", "out", "error"),
    [
        (["--help"], 0, "Usage: script/bench NAME", ""),
        (["locks", "--help"], 0, "Usage: script/bench NAME", ""),
        ([], 1, "", f"bench: name a benchmark: {ALL}"),
        (["no_such"], 1, "", f"bench: unknown benchmark no_such; there are: {ALL}"),
        (["../locks"], 1, "", f"bench: unknown benchmark ../locks; there are: {ALL}"),
    ],
)
def test_bench_names_its_benchmarks(arguments: list[str], code: int, out: str, error: str) -> None:
    said = subprocess.run(
        [ROOT / "script" / "bench", *arguments],
        capture_output=True,
        text=True,
        timeout=GENEROUS_S,
        check=False,
    )
    assert said.returncode == code
    assert said.stdout.startswith(out)
    assert said.stderr.startswith(error)
    assert said.stderr.count("\n") == (1 if error else 0)


@pytest.mark.slow
def test_locks_bench_has_every_row_and_no_overlap(tmp_path: Path) -> None:
    """The libraries of requirements-bench.txt may be missing, our lock and redis-py's are there."""
    report = json.loads(output_of(LOCKS, tmp_path))
    rows = [figure["row"] for figure in report["figures"]]
    assert {row: rows.count(row) for row in rows} == ROWS
    assert all(isinstance(it["values"]["ours"], float | str) for it in report["figures"])
    assert all(it["values"]["redis-py"] != "not installed" for it in report["figures"])
    assert report["two_holders_met"] is False


@pytest.mark.faults  # a minute of full load
def test_sale_bench_has_every_row_and_sells_exactly(tmp_path: Path, results: Path) -> None:
    files = {name: results / f"sale.{name}" for name in ("json", "markdown", "picture")}
    options = [text for name, path in files.items() for text in (f"--{name}", str(path))]
    output_of([*SALE, *options], tmp_path)
    report = json.loads(files["json"].read_text())
    rows = [line["row"] for line in report["lines"]]
    assert {row: rows.count(row) for row in rows} == SALE_ROWS
    verdicts = {(sale["design"], sale["verdict"]) for sale in report["sales"]}
    exact = "sold exactly, no buyer twice"
    assert verdicts == {("ours", exact), ("classic", exact)}
    assert all(line["name"] in files["markdown"].read_text() for line in report["lines"])
    assert files["picture"].read_text().startswith("<svg ")


@pytest.mark.faults  # the whole shop, and a rehearsal's cleanup
def test_capacity_bench_measures_every_figure_and_rehearses(tmp_path: Path, results: Path) -> None:
    figures, values = results / "capacity.json", results / "values.json"
    said = output_of(
        [*CAPACITY, "--rehearse", "--figures", str(figures), "--json", str(values)], tmp_path
    )
    assert set(read_figures(figures).costs) == set(Operation)
    rehearsals = json.loads(values.read_text())["rehearsals"]
    verdicts = [verdict for it in rehearsals for verdict in it["verdicts"]]
    assert [verdict["is_right"] for verdict in verdicts] == [True] * 2
    assert "seconds to the last order" in said


@pytest.mark.faults  # three web servers and a worker under load
def test_fairness_bench_has_a_row_for_each_guard_and_flood(tmp_path: Path, results: Path) -> None:
    document, picture, values = (results / it for it in ("all.md", "all.svg", "all.json"))
    marks = [f"<!-- {it}: begin --><!-- {it}: end -->" for it in ("fairness", "floods")]
    document.write_text("\n".join(marks))
    files = ["--json", str(values), "--markdown", str(document), "--picture", str(picture)]
    output_of([*FAIRNESS, *files], tmp_path)
    found = json.loads(values.read_text())
    units = {it["guard"]: it["units"] for it in found["contests"] if it["addresses"] == 1}
    assert len(units) == 7
    assert all(0 <= it <= 10 for of in units.values() for it in of)
    assert len(found["floods"]) == 4
    assert document.read_text().count("\n| ") == 2 * 2 + len(units) + 4
    assert picture.read_text().startswith("<svg")


@pytest.mark.faults  # four web servers under load
def test_servers_bench_has_a_row_for_each_server(tmp_path: Path, results: Path) -> None:
    """The servers of requirements-bench.txt may be missing, granian is there."""
    table, values = results / "servers.md", results / "servers.json"
    output_of([*SERVERS, "--json", str(values), "--markdown", str(table)], tmp_path)
    servers = {it["name"]: it["rounds"] for it in json.loads(values.read_text())["servers"]}
    assert {"granian 1×1", "front door 2×4"} <= set(servers)
    figures = [figure for rounds in servers.values() for it in rounds for figure in it.values()]
    assert len(figures) == 6 * len(servers)
    assert all(figure > 0 for figure in figures)
    rows = table.read_text().splitlines()[3:7]
    assert [row.split("|")[1].strip() for row in rows] == [
        "granian 1×1", "**front door 2×4**", "gunicorn 2×4", "waitress 1×8",
    ]  # fmt: skip
    assert sum("not installed" in row for row in rows) == 4 - len(servers)


@pytest.mark.parametrize(
    "signum", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.faults)]
)
@pytest.mark.parametrize(
    ("command", "processes"), [(LOCKS, 5), pytest.param(SALE, 12, marks=pytest.mark.faults)]
)
def test_stopped_bench_leaves_nothing(
    tmp_path: Path, command: list[str], processes: int, signum: int
) -> None:
    with subprocess.Popen(command, cwd=ROOT, env=environ_with(tmp_path)) as run:
        assert eventually(lambda: len(processes_of(tmp_path)) >= processes)  # it is at work
        (config,) = tmp_path.glob("*/redis/redis.conf")
        port = int(re.findall(r"^port (\d+)$", config.read_text(), re.MULTILINE)[0])
        run.send_signal(signum)
        assert run.wait(timeout=GENEROUS_S) == 128 + signum
    assert not list(tmp_path.iterdir())
    assert eventually(lambda: not processes_of(tmp_path))
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), timeout=5)
