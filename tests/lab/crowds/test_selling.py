"""Races of small crowds: each flaw comes each time that it is asked for, and none for ours."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from lab.crowds.faults import Fault
from lab.models import LabOrder, LabSale
from orders.models import VoucherOrder
from seckill_site.ledger_connection import ledger_connection
from tests.lab.racing import SMALL, race
from vouchers.models import SeckillVoucher


@pytest.fixture
def nothing_left(transactional_db: None) -> Iterator[None]:
    """Whatever a race came to, its sales, orders and keys are gone after it."""
    yield
    assert not LabSale.objects.exists()
    assert not LabOrder.objects.exists()
    assert not SeckillVoucher.objects.exists()
    assert not VoucherOrder.objects.exists()
    assert not list(ledger_connection().scan_iter("*lab:*"))
    assert not list(ledger_connection().scan_iter("*seckill:{*"))


pytestmark = [pytest.mark.concurrency, pytest.mark.usefixtures("nothing_left")]


def test_v1_sells_too_much_and_twice_to_one_buyer() -> None:
    verdict = race("v1")
    assert verdict.oversold > 0
    assert verdict.doubled > 0
    assert verdict.sold == verdict.offered + verdict.oversold


def test_with_the_stock_as_it_was_read_buyers_are_sent_away_while_units_are_left() -> None:
    verdict = race("v1-as-read")
    assert verdict.turned_away > 0
    assert verdict.oversold == 0


@pytest.mark.parametrize("step", ["v1-any-left", "v1-for-update"])
def test_a_guard_of_the_stock_sells_what_there_is_but_minds_no_buyer(step: str) -> None:
    verdict = race(step)
    assert verdict.doubled > 0
    assert verdict.findings == [("doubled", verdict.doubled)]


@pytest.mark.parametrize("step", ["v2", "v3", "v3-inside"])
def test_two_processes_sell_twice_to_one_buyer(step: str) -> None:
    verdict = race(step)
    assert verdict.doubled > 0
    assert verdict.findings == [("doubled", verdict.doubled)]


def test_in_one_process_v3_is_right() -> None:
    assert race("v3", crowd=replace(SMALL, processes=1)).is_right


@pytest.mark.parametrize("step", ["v4", "v5", "v5-stream", "v6-setnx"])
def test_from_v4_on_a_crowd_alone_does_no_harm(step: str) -> None:
    """Not so where a lock has a lease: a machine that stands still for a moment is a fault, too."""
    assert race(step).is_right


# --- What breaks when a process is killed or stands still -----------------------------------------


def test_where_v4_dies_a_unit_is_gone_and_its_buyer_barred() -> None:
    verdict = race("v4", fault=Fault.KILL)
    assert verdict.struck
    assert verdict.undersold > 0
    assert verdict.stuck > 0
    assert verdict.lost == 0
    assert verdict.unanswered > 0


@pytest.mark.parametrize("step", ["v5", "v5-stream"])
def test_where_v5_dies_promises_are_broken(step: str) -> None:
    verdict = race(step, fault=Fault.KILL)
    assert verdict.lost > 0
    assert verdict.undersold > 0


def test_where_a_holder_dies_its_lock_without_an_end_bars_the_buyer() -> None:
    assert race("v6-setnx", fault=Fault.KILL).stuck > 0


def test_where_a_holder_dies_its_lock_with_an_end_ends() -> None:
    assert race("v6-owned", fault=Fault.KILL).stuck == 0


@pytest.mark.parametrize("step", ["v6-expiring", "v6-owned", "v6-watchdog"])
def test_who_stands_still_for_longer_than_its_lease_sells_to_who_has_one_already(step: str) -> None:
    verdict = race(step, fault=Fault.PAUSE)
    assert verdict.struck
    assert verdict.doubled > 0
    assert verdict.findings == [("doubled", verdict.doubled)]


# --- Ours -----------------------------------------------------------------------------------------


def test_ours_is_right() -> None:
    assert_right(Fault.NONE)


@pytest.mark.faults
@pytest.mark.parametrize("fault", [Fault.KILL, Fault.PAUSE])
def test_ours_is_right_whatever_befalls_it(fault: Fault) -> None:
    assert_right(fault)


def assert_right(fault: Fault) -> None:
    verdict = race("ours", fault=fault)
    assert verdict.is_right, verdict
    assert verdict.sold == verdict.offered
    assert verdict.struck == (fault is not Fault.NONE)
