"""The arithmetic of a plan."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from backoffice.capacity.planning import Evening, Plan
from tests.support.capacity import FIGURES

pytestmark = pytest.mark.quick

EVENING = Evening(buyers=3_000, units=1_000, pages=6_000, sign_ins=0, before_s=60, press_s=10)


def plan_of(**changes: Any) -> Plan:
    return Plan(FIGURES, replace(EVENING, **changes), cores=2)


def test_pages_load_before_the_start() -> None:
    before = plan_of().before
    # 100 pages a second, each with 11 requests for live/ and one for me/
    assert before.cores("web") == pytest.approx(100 * 13 * 100e-6)
    assert before.cores("redis") == pytest.approx(100 * 13 * 10e-6)
    assert before.cores("worker") == before.cores("database") == 0


def test_orders_and_receipts_come_at_the_start() -> None:
    start = plan_of().start
    # a second: 100 wins and 200 refusals, 2,000 requests for live/, 200 for receipts
    assert start.cores("web") == pytest.approx(2_500 * 100e-6 + 100 * 5_000e-6)
    assert start.cores("worker") == pytest.approx(100 * 40e-6)
    assert start.cores("redis") == pytest.approx(2_400 * 10e-6 + 100 * (20 + 30) * 1e-6)
    assert start.cores("database") == pytest.approx(100 * (300 + 50) * 1e-6)
    parts = (
        start.cores("web") + start.cores("worker") + start.cores("redis") + start.cores("database")
    )
    assert start.cores("all") == pytest.approx(parts)


def test_more_units_than_buyers_sell_no_more() -> None:
    assert plan_of(units=1_000_000).start == plan_of(units=3_000).start


def test_small_evening_fits_on_one_machine() -> None:
    plan = plan_of()
    assert plan.web_processes == 2
    assert plan.web_machines == plan.database_cores == plan.machines == 1


def test_sign_ins_take_more_than_all_else() -> None:
    plan = plan_of(sign_ins=3_000)  # 50 a second of 0.4 s each
    assert plan.before.cores("web") == pytest.approx(20.13)
    assert plan.web_processes == 34
    assert plan.web_machines == 17
    assert plan.machines == 21


def test_one_redis_is_enough_until_its_core_is_full() -> None:
    plan = plan_of()
    assert plan.one_redis_is_enough
    assert plan.redis_load == pytest.approx(0.029)
    assert plan.redis_times == pytest.approx(0.6 / 0.029)
    assert plan_of(buyers=60_000, units=20_000).one_redis_is_enough
    assert not plan_of(buyers=90_000, units=30_000).one_redis_is_enough


def test_writer_that_keeps_up_ends_with_the_presses() -> None:
    plan = plan_of(buyers=100_000, units=100_000)
    assert plan.last_row_s == pytest.approx(10)
    assert plan_of(buyers=200_000, units=200_000).last_row_s == pytest.approx(20)


def test_one_writer_is_enough_until_a_buyer_waits_too_long() -> None:
    assert plan_of().writer_units == 400_000  # in 10 s and 30 s more
    assert plan_of(buyers=400_000, units=400_000).one_writer_is_enough
    assert not plan_of(buyers=400_001, units=400_001).one_writer_is_enough


def test_ledger_holds_each_sold_unit() -> None:
    assert plan_of().ledger_bytes == 200_000
