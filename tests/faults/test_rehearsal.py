"""A rehearsal whose processes die: it goes on or clears up, and leaves nothing either way."""

from __future__ import annotations

import datetime as dt
import subprocess
import sys
from pathlib import Path

import pytest
from django.utils import timezone

from backoffice.rehearsal.phases import NOT_DRAINED
from backoffice.rehearsal.service import publish_rehearsal, start_rehearsal
from orders.models import Rehearsal, RehearsalPhase
from orders.models.jobs import OVER
from tests.concurrency.sales import make_sale
from tests.faults.conftest import with_inside
from tests.support.patience import wait_for
from tests.support.rehearsals import everything_there
from tests.support.stack import ROOT, Stack
from vouchers.models import SeckillVoucher

pytestmark = [pytest.mark.slow, pytest.mark.concurrency, pytest.mark.usefixtures("row_locks")]

BUYERS, STOCK = 120, 20
SECONDS = 100

PREPARING = ["rehearse.copied", "rehearse.peopled"]
BUYING = ["rehearse.fired"]
WRITING = ["fulfill.begun", "batch.before_commit", "batch.committed", "fulfill.released"]
JUDGING = ["rehearse.drained", "rehearse.judged"]
CLEARING = [
    "clear.closed",
    "clear.before_commit",
    "clear.orders_deleted",
    "clear.buyers_deleted",
    "clear.shadow_deleted",
    "rehearse.cleared",
]


def begun(url: str, *, sale: SeckillVoucher) -> Rehearsal:
    """Begin one as the admin does."""
    rehearsal = start_rehearsal(
        sale_id=sale.pk, buyers=BUYERS, stock=STOCK, duplicates=20, connections=20, url=url
    )
    publish_rehearsal(rehearsal_id=rehearsal.pk, turn=rehearsal.turn)
    return rehearsal


def let_time_pass() -> None:
    """Let beat see that nothing was heard of the rehearsal for long."""
    long_ago = timezone.now() - dt.timedelta(minutes=1)
    Rehearsal.objects.filter(running=True).update(changed_at=long_ago)


def ended() -> Rehearsal:
    over = Rehearsal.objects.filter(phase__in=OVER)
    wait_for(lambda: over.exists(), what="end", seconds=SECONDS)
    return over.get()


def die_at(point: str, stack: Stack, inside: Path) -> None:
    """Let the worker's child die at a point of a rehearsal, and look what becomes of it."""
    sale = make_sale(stock=STOCK)
    before = everything_there()
    worker = stack.processes[1]
    (inside / "failpoint").write_text(point)
    begun(stack.processes[0].url, sale=sale)  # type: ignore[attr-defined]
    worker.wait_until(lambda: not (inside / "failpoint").exists(), what="death", seconds=SECONDS)
    if not Rehearsal.objects.filter(phase__in=OVER).exists():
        let_time_pass()

    rehearsal = ended()

    assert (rehearsal.phase, rehearsal.problem) == (RehearsalPhase.DONE, "")
    assert rehearsal.verdict["is_right"], rehearsal.verdict
    assert rehearsal.verdict["cleared"]
    assert everything_there() == before
    Rehearsal.objects.all().delete()


@pytest.fixture
def shop(stack: Stack, inside: Path) -> Stack:
    """A web server, a worker whose children can be told to die, and beat."""
    with stack.together():
        stack.web()
        stack.worker("--beat", concurrency=3, **with_inside(inside))
    return stack


def test_rehearsal_survives_worker_killed_during_crowd(shop: Stack, inside: Path) -> None:
    die_at("rehearse.fired", shop, inside)


@pytest.mark.faults
@pytest.mark.parametrize("points", [PREPARING + BUYING, WRITING, JUDGING, CLEARING])
def test_rehearsal_ends_after_worker_killed_anywhere(
    shop: Stack, inside: Path, points: list[str], subtests: pytest.Subtests
) -> None:
    for point in points:
        with subtests.test(point):
            die_at(point, shop, inside)


@pytest.mark.faults
@pytest.mark.parametrize("points", [PREPARING + BUYING, JUDGING, CLEARING])
def test_beat_ends_the_rehearsal_of_killed_command(
    shop: Stack, points: list[str], subtests: pytest.Subtests
) -> None:
    for point in points:
        with subtests.test(point):
            sale = make_sale(stock=STOCK)
            before = everything_there()
            assert killed_at(point, sale, shop) == -9
            let_time_pass()
            rehearsal = ended()
            assert (rehearsal.phase, rehearsal.problem) == (RehearsalPhase.DONE, "")
            assert rehearsal.verdict["is_right"]
            assert everything_there() == before
            Rehearsal.objects.all().delete()


@pytest.mark.faults
def test_killed_rehearsal_is_cleared_up_without_beat(
    stack: Stack, subtests: pytest.Subtests
) -> None:
    with stack.together():
        stack.web()
        stack.worker(concurrency=1)
    for point in ("rehearse.copied", "rehearse.fired", "clear.orders_deleted"):
        with subtests.test(point):
            sale = make_sale(stock=STOCK)
            before = everything_there()
            assert killed_at(point, sale, stack) == -9
            let_time_pass()
            out = run(stack, "--clear").stdout
            assert out.startswith("cleared up after"), out
            assert everything_there() == before
            assert run(stack, "--clear").stdout == "Nothing is left of earlier rehearsals.\n"


@pytest.mark.faults
def test_rehearsal_without_worker_says_so_and_clears_up(stack: Stack) -> None:
    web = stack.web()
    sale = make_sale(stock=STOCK)
    before = everything_there()
    done = run(stack, str(sale.pk), "--buyers", "50", "--stock", "10", "--url", web.url)
    assert done.returncode == 1, done.stderr
    assert NOT_DRAINED in done.stdout
    assert everything_there() == before


def killed_at(point: str, sale: SeckillVoucher, stack: Stack) -> int:
    url = stack.processes[0].url  # type: ignore[attr-defined]
    sizes = ["--buyers", str(BUYERS), "--stock", str(STOCK)]
    return run(stack, str(sale.pk), *sizes, "--url", url, FAILPOINT=point).returncode


def run(stack: Stack, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "manage.py", "rehearse", *arguments],
        cwd=ROOT,
        env={**stack._environ, **environ},
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
