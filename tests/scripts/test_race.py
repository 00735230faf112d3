"""``script/race``: what it says, that it comes to a table, and that it leaves nothing behind."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bench.around.guards import LEVELS, SALES
from lab.crowd.faults import Fault
from lab.crowd.results import Result
from lab.experiments import EXPERIMENTS
from lab.steps import STEPS
from tests.support.patience import GENEROUS_S, eventually
from tests.support.stack import processes_of

ROOT = Path(__file__).resolve().parents[2]
RACE = [sys.executable, "script/lib/race.py"]


def environ_with(scratch: Path) -> dict[str, str]:
    """Return an environment in which everything is made in ``scratch``."""
    return {**os.environ, "TMPDIR": str(scratch)}


def race(scratch: Path, *arguments: str, timeout_s: float = 110, status: int = 0) -> Any:
    """Run a race to its end, which has to leave nothing; return what it prints as JSON."""
    said = subprocess.run(
        [*RACE, *arguments, "--json"],
        cwd=ROOT, env=environ_with(scratch), capture_output=True, text=True, timeout=timeout_s,
        check=False,
    )  # fmt: skip
    assert said.returncode == status, said.stderr
    assert not list(scratch.iterdir())
    assert eventually(lambda: not processes_of(scratch))
    return json.loads(said.stdout)


def test_race_help_names_every_step_and_experiment() -> None:
    script = ROOT / "script" / "race"
    said = subprocess.run([script, "--help"], capture_output=True, text=True, check=True)
    assert said.stdout.startswith("Usage: script/race")
    named = re.findall(r"only these: (.*?)(?=;|\n +[A-Z-]{2,})", said.stdout, re.DOTALL)
    assert [it.split() for it in named] == [list(STEPS), list(EXPERIMENTS)]
    assert said.stderr == ""


@pytest.mark.faults  # half a minute for servers and tables
def test_race_leaves_no_process_or_file(tmp_path: Path) -> None:
    # Of a few units all may be promised before Redis has ended, and what it loses then is too late
    # for anybody else to buy.
    sizes = ["--threads", "4", "--buyers", "400", "--stock", "200"]
    stream, ours = Result.from_dict(
        race(tmp_path, "v5-stream", "ours", "--redis-restart", *sizes)
    ).verdicts
    assert stream.lost > 0
    assert ours.is_right


@pytest.mark.faults  # servers, tables and all processes of a shop
@pytest.mark.timeout(600)
@pytest.mark.parametrize("count", [2, 1])
def test_one_instance_killed_sells_exactly_the_stock(tmp_path: Path, count: int) -> None:
    """With one instance alone nobody is left, and the race has to say so: that is the control."""
    arguments = ["--instances", str(count), "--buyers", "100", "--stock", "30"]
    told = race(tmp_path, *arguments, timeout_s=500, status=0 if count == 2 else 1)
    result = Result.from_dict(told)
    (ours,) = result.verdicts
    assert (result.fault, ours.struck, len(ours.answered)) == (Fault.INSTANCES, True, count)
    if count == 2:
        assert ours.is_right
        assert (ours.sold, ours.doubled, ours.unanswered) == (30, 0, 0)
        assert min(ours.answered) > 0
        assert sum(ours.answered) >= result.crowd.presses
        assert ours.sent_on > 0
    else:
        assert ours.undersold > 0
        assert ours.sent_on == 0


@pytest.mark.faults  # only this MariaDB tells the application of locks
def test_search_without_an_index_locks_every_row_and_gap(tmp_path: Path) -> None:
    (table,) = race(tmp_path, "innodb-locks")
    found = {(name, level): locked for name, level, *locked in table["rows"]}
    committed, repeatable = LEVELS
    assert found == {
        ("sale by its key", committed): [1, 0],
        ("sale by its key", repeatable): [1, 0],
        ("sale by a search", committed): [1, 0],
        ("sale by a search", repeatable): [SALES, SALES + 1],
        ("conditional UPDATE", committed): [1, 0],
        ("conditional UPDATE", repeatable): [1, 0],
        ("order that does not exist", committed): [0, 0],
        ("order that does not exist", repeatable): [0, 1],
    }


@pytest.mark.faults
@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_stopped_race_leaves_nothing(tmp_path: Path, signum: int) -> None:
    arguments = [*RACE, "ours", "--buyers", "20000", "--stock", "20000"]
    with subprocess.Popen(
        arguments, cwd=ROOT, env=environ_with(tmp_path), stdout=subprocess.PIPE, text=True
    ) as run:
        assert run.stdout
        assert any("20,000 buyers" in line for line in run.stdout)  # it is at work
        run.send_signal(signum)
        assert run.wait(timeout=GENEROUS_S) == 128 + signum
    assert not list(tmp_path.iterdir())
    assert eventually(lambda: not processes_of(tmp_path))
