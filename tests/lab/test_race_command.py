"""``manage.py race``: its table, its exit status, its refusals, and that nothing is left of it."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError
from django.db import connection
from redis import Redis
from redis.exceptions import ConnectionError as RedisConnectionError

from lab.crowd.faults import Fault
from lab.crowd.results import Result
from lab.crowd.stage import CrowdStage
from lab.management.commands import race
from lab.models import LabOrder, LabSale
from lab.steps import STEPS
from lab.steps.step import Step
from lab.verdict import Verdict
from seckill_site.redis.ledger_connection import ledger_connection
from tests.support.patience import GENEROUS_S, wait_for
from tests.support.stack import ROOT, free_port, processes_of
from tests.support.tiers import slow_after
from vouchers.models import SeckillVoucher

pytestmark = pytest.mark.django_db(transaction=True)

SIZES = ("--buyers", "40", "--stock", "10", "--threads", "4")
LONGER = ("--buyers", "400", "--stock", "200", "--threads", "4")
"""A sale with many units left when the fault comes: eight threads sell ten before it acts."""
RIGHT = Verdict(
    step="ours", buyers=40, offered=10, sold=10, oversold=0, doubled=0, lost=0, undersold=0,
    turned_away=0, stuck=0, told_lost=0, unanswered=0, orders_per_s=99.0, p99_ms=9.0,
)  # fmt: skip


def raced(*arguments: object) -> tuple[int, str, str]:
    """Return the exit status, what was printed, and what was wrong."""
    out = io.StringIO()
    try:
        call_command("race", *map(str, arguments), stdout=out, stderr=io.StringIO())
    except CommandError as error:
        return error.returncode, out.getvalue(), str(error)
    except SystemExit as end:
        return int(end.code or 0), out.getvalue(), ""
    return 0, out.getvalue(), ""


@pytest.fixture
def made_up(monkeypatch: pytest.MonkeyPatch) -> Callable[[Verdict], None]:
    """Let no sale take place, and each come to this verdict."""

    def come_to(verdict: Verdict) -> None:
        def run(stage: CrowdStage) -> Verdict:
            return replace(verdict, step=stage.step.name)

        monkeypatch.setattr(CrowdStage, "run", run)
        monkeypatch.setattr(race, "ForkServer", nullcontext)

    return come_to


# --- What it says ---------------------------------------------------------------------------------


def test_each_step_has_a_line_with_flaws_and_culprits(made_up: Callable[[Verdict], None]) -> None:
    """Made up, because in a crowd so small a step may break or not."""
    made_up(replace(RIGHT, sold=12, oversold=2, doubled=1))
    status, out, _ = raced("v2", "v1", *SIZES)
    assert status == 0
    title, headings, *lines = out.strip().splitlines()
    assert title.startswith("40 buyers press 2 times each for 10 units, 2 processes of 4 threads")
    assert headings.split()[:4] == ["step", "sold", "oversold", "doubled"]
    assert lines[0].startswith("v1 ")  # the story's order
    assert " sold beyond the stock: lab/steps/v1.py:" in lines[1]
    assert " given to buyers who already had one: lab/steps/v2.py:" in lines[-1]


@pytest.mark.concurrency
def test_json_output_is_only_the_result() -> None:
    status, out, _ = raced("v2", "--kill", "--json", *SIZES)
    result = Result.from_dict(json.loads(out))
    assert status == 0
    assert (result.fault, result.crowd.buyers) == (Fault.KILL, 40)
    assert [(it.step, it.struck) for it in result.verdicts] == [("v2", True)]


def test_all_steps_race_by_default(made_up: Callable[[Verdict], None]) -> None:
    made_up(RIGHT)
    status, out, _ = raced("--json")
    assert status == 0
    assert [it.step for it in Result.from_dict(json.loads(out)).verdicts] == list(STEPS)


@pytest.mark.parametrize(("step", "status"), [("v1", 0), ("ours", 1)])
def test_only_ours_may_not_break(
    made_up: Callable[[Verdict], None], step: str, status: int
) -> None:
    made_up(replace(RIGHT, sold=12, oversold=2))
    assert raced(step)[0] == status


# --- What it refuses ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "words"),
    slow_after(
        2,
        [
            (
                ["v7"],
                "argument NAME: there is no step or experiment v7; there are steps: v1, v1-as-",
            ),
            (["ids", "v1"], "an experiment has no crowd and no fault"),
            (["--experiments", "--kill"], "an experiment has no crowd and no fault"),
            (["--stock", 0], "argument --stock: must be from 1 to 100,000"),
            (["--clicks", 6], "argument --clicks: must be from 1 to 5"),
            (["--processes", 16, "--threads", 64], "at most 200: each has a connection"),
            (["--redis-restart"], "script/race has one for it"),
            (["--kill", "--pause"], "not allowed with argument"),
            (["--instances", 2], "--instances is for ours alone: script/race starts them"),
            (["--rewrite"], "--rewrite wants --document FILE"),
            (["v1", "--document", "six.md"], "--document wants the whole table: name no steps"),
            (["--document", "six.md", "v1"], "v1 does not end with .md: name the steps before"),
            (["--document", "none/six.md", "--rewrite"], "none/six.md has no figures yet"),
        ],
    ),
)
def test_bad_options_are_refused_with_a_reason(arguments: list[object], words: str) -> None:
    status, out, wrong = raced(*arguments)
    assert words in wrong
    assert status == (1 if "argument" in words else 2)  # argparse, but not on a command line
    assert out == ""


# --- What it leaves -------------------------------------------------------------------------------


@pytest.mark.slow
def test_interrupted_race_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = Step.rows

    def interrupt(step: Step, sale_id: int) -> list[int]:
        if rows(step, sale_id):
            connection.connection.query("SELECT 1")  # its reply is never read
            raise KeyboardInterrupt
        return []

    monkeypatch.setattr(Step, "rows", interrupt)
    status, _, wrong = raced("v5-stream", *SIZES)
    assert (status, wrong) == (130, "interrupted; nothing is left of the race")
    assert_nothing_is_left()


@pytest.mark.slow
@pytest.mark.parametrize(
    "signum", [pytest.param(signal.SIGTERM, marks=pytest.mark.faults), signal.SIGKILL]
)
def test_ended_race_leaves_no_process(tmp_path: Path, signum: int) -> None:
    """After SIGKILL its sale is left, but no process."""
    arguments = ["v1", "--buyers", "20000", "--stock", "20000", "--threads", "4"]
    with subprocess.Popen(
        [sys.executable, "manage.py", "race", *arguments],
        cwd=ROOT, env=environ_with(tmp_path), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    ) as run:  # fmt: skip
        wait_for(LabOrder.objects.exists, what="an order")
        run.send_signal(signum)
        status = run.wait(timeout=GENEROUS_S)
    assert status == (143 if signum == signal.SIGTERM else -9)
    wait_for(lambda: not processes_of(tmp_path), what="the end of all processes")
    if signum != signal.SIGKILL:
        assert_nothing_is_left()
        assert not list(tmp_path.iterdir())


def assert_nothing_is_left() -> None:
    assert not LabSale.objects.exists()
    assert not LabOrder.objects.exists()
    assert not SeckillVoucher.objects.exists()
    assert not list(ledger_connection().scan_iter("*lab:*"))


# --- Redis comes back empty -----------------------------------------------------------------------


@pytest.fixture
def forgetful_redis(tmp_path: Path) -> Iterator[int]:
    """A Redis that writes nothing to disk and is started again when it ends; its port."""
    port = free_port()
    again = 'while redis-server --port "$0" --save "" --appendonly no; do :; done'
    with subprocess.Popen(
        ["sh", "-c", again, str(port)],
        cwd=tmp_path, stdout=subprocess.DEVNULL, start_new_session=True,
    ) as loop:  # fmt: skip
        client = Redis(port=port)
        wait_for(lambda: pings(client), what="Redis")
        yield port
        client.close()
        os.killpg(loop.pid, signal.SIGKILL)


@pytest.mark.concurrency
@pytest.mark.parametrize(
    "step",
    [
        pytest.param("v5-stream", marks=pytest.mark.slow),
        *(pytest.param(it, marks=pytest.mark.faults) for it in ("v4", "ours")),
    ],
)
def test_redis_comes_back_empty(tmp_path: Path, forgetful_redis: int, step: str) -> None:
    said = subprocess.run(
        [sys.executable, "manage.py", "race", step, "--redis-restart", "--json", *LONGER],
        cwd=ROOT, env=environ_with(tmp_path, forgetful_redis), capture_output=True, text=True,
        timeout=GENEROUS_S, check=False,
    )  # fmt: skip
    assert said.returncode == 0, said.stderr
    (verdict,) = Result.from_dict(json.loads(said.stdout)).verdicts
    assert verdict.struck
    if step == "ours":
        assert verdict.is_right
    else:
        assert verdict.undersold > 0
        assert bool(verdict.lost) == (step == "v5-stream")


def environ_with(scratch: Path, redis_port: int | None = None) -> dict[str, str]:
    """Return the settings of this process on its database, and on another Redis where given."""
    database = urlsplit(os.environ["DATABASE_URL"])
    name = connection.settings_dict["NAME"]
    environ = os.environ | {
        "DATABASE_URL": database._replace(path=f"/{name}").geturl(),
        "TMPDIR": str(scratch),
    }
    if redis_port:
        urls = {"REDIS_URL": 0, "CACHE_URL": 1, "CELERY_BROKER_URL": 2}
        environ |= {name: f"redis://127.0.0.1:{redis_port}/{it}" for name, it in urls.items()}
        environ["SECKILL_LAB_REDIS_RESTARTS"] = "true"
    return environ


def pings(client: Redis) -> bool:
    try:
        return bool(client.ping())
    except RedisConnectionError:
        return False
