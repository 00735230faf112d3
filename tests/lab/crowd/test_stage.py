"""Races of small crowds: each flaw comes each time that it is asked for, and none for ours."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from lab.crowd.crowd import Crowd
from lab.crowd.faults import Fault
from lab.crowd.stage import CrowdStage
from lab.engine.fork_server import ForkServer
from lab.models import LabOrder, LabSale
from lab.steps import STEPS
from lab.verdict import Verdict
from orders.models import VoucherOrder
from seckill_site.redis.ledger_connection import ledger_connection
from vouchers.models import SeckillVoucher

pytestmark = pytest.mark.concurrency

SMALL = Crowd(buyers=60, stock=20, processes=2, threads=4)

Race = Callable[..., Verdict]


@pytest.fixture
def race(fork_server: ForkServer, transactional_db: None) -> Iterator[Race]:
    """Let a small crowd buy from a step; its sales, orders and keys are gone afterwards."""

    def run(step: str, *, fault: Fault = Fault.NONE, crowd: Crowd = SMALL) -> Verdict:
        with CrowdStage(STEPS[step], fork_server, crowd=crowd, fault=fault) as stage:
            return stage.run()

    yield run
    assert not LabSale.objects.exists()
    assert not LabOrder.objects.exists()
    assert not SeckillVoucher.objects.exists()
    assert not VoucherOrder.objects.exists()
    assert not list(ledger_connection().scan_iter("*lab:*"))
    assert not list(ledger_connection().scan_iter("*seckill:{*"))


@pytest.mark.slow
def test_v1_oversells_and_doubles(race: Race):
    verdict = race("v1")
    assert verdict.oversold > 0
    assert verdict.doubled > 0
    assert verdict.sold == verdict.offered + verdict.oversold


@pytest.mark.parametrize("step", ["v4-window", "v6-setnx"])
def test_crowd_alone_breaks_nothing_from_v4_on(race: Race, step: str):
    """Locks with a lease are left out: a machine that freezes for a moment is a fault, too."""
    assert race(step).is_right


@pytest.mark.parametrize("step", ["v4", pytest.param("v5-put", marks=pytest.mark.slow)])
def test_script_as_taught_denies_the_last_winner(race: Race, step: str):
    assert [name for name, _ in race(step).findings] == ["denied"]


@pytest.mark.slow
def test_loop_that_returned_writes_nothing(race: Race):
    assert race("v5-returning").lost == SMALL.stock


def test_every_press_meets_the_error_of_a_script(race: Race):
    few = replace(SMALL, buyers=16, stock=8)
    nil, mistyped = race("v4-nil", crowd=few), race("v6-mistyped", crowd=few)
    assert nil.findings == [("undersold", 8), ("errors", 32)]
    assert "attempt to compare nil with number" in nil.error
    assert mistyped.sold == 8  # and nobody was told
    assert mistyped.findings == [("errors", mistyped.errors)]
    assert mistyped.errors >= 16
    assert "nonexistent global variable 'KEY'" in mistyped.error


# --- A process is killed or stands still ----------------------------------------------------------


def test_killed_v4_loses_a_unit_and_bars_its_buyer(race: Race):
    verdict = race("v4", fault=Fault.KILL)
    assert verdict.struck
    assert verdict.undersold > 0
    assert verdict.stuck > 0
    assert verdict.lost == 0
    assert verdict.unanswered > 0


@pytest.mark.slow
def test_lock_without_expiry_bars_the_buyer_of_a_killed_holder(race: Race):
    assert race("v6-setnx", fault=Fault.KILL).stuck > 0


# --- Ours -----------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    "fault",
    [Fault.NONE, *(pytest.param(it, marks=pytest.mark.faults) for it in (Fault.KILL, Fault.PAUSE))],
)
def test_ours_is_right_under_every_fault(race: Race, fault: Fault):
    verdict = race("ours", fault=fault)
    assert verdict.is_right, verdict
    assert verdict.sold == verdict.offered
    assert verdict.struck == (fault is not Fault.NONE)
