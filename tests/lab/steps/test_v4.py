"""V4: what Redis has given away and the database never gets."""

from __future__ import annotations

import datetime as dt

import pytest
from django.utils import timezone
from redis import Redis
from redis.exceptions import ResponseError

from lab.keys import LabKeys
from lab.models import LabSale
from lab.steps import STEPS
from lab.steps.step import Answer
from lab.steps.v4 import set_stock, set_stock_and_window
from seckill_site.redis.ledger_connection import ledger_connection
from tests.lab.steps.meeting import Died, at, buy, die, elsewhere, passed

pytestmark = pytest.mark.django_db(transaction=True)


def test_points_follow_the_statements() -> None:
    sale_id = STEPS["v4"].open(1)
    assert passed(lambda: buy("v4", sale_id, 1)) == ["decided", "order written", "committed"]
    assert passed(lambda: buy("v4", sale_id, 2)) == ["decided"]


def test_second_press_after_the_decision_is_refused() -> None:
    sale_id, answers = STEPS["v4"].open(5), []
    with at("decided", lambda: answers.append(elsewhere(lambda: buy("v4", sale_id, 1)))):
        answers.append(buy("v4", sale_id, 1))
    assert answers == [Answer.ALREADY_ORDERED, Answer.BOUGHT]
    assert STEPS["v4"].rows(sale_id) == [1]


@pytest.mark.parametrize("where", ["decided", "order written"])
def test_death_before_commit_burns_a_unit_and_bars_its_buyer(where: str) -> None:
    sale_id = STEPS["v4"].open(1)
    with at(where, die), pytest.raises(Died):
        buy("v4", sale_id, 1)
    assert STEPS["v4"].rows(sale_id) == []
    assert buy("v4", sale_id, 2) is Answer.SOLD_OUT
    ledger_connection().incr(LabKeys(sale_id).stock)
    assert buy("v4", sale_id, 1) is Answer.ALREADY_ORDERED


def test_database_refuses_units_beyond_its_stock() -> None:
    sale_id = STEPS["v4"].open(1)
    ledger_connection().set(LabKeys(sale_id).stock, 2)
    assert [buy("v4", sale_id, 1), buy("v4", sale_id, 2)] == [Answer.BOUGHT, Answer.SOLD_OUT]


def test_empty_redis_means_sold_out(redis_databases: list[Redis]) -> None:
    sale_id = STEPS["v4"].open(5)
    redis_databases[0].flushdb()
    assert buy("v4", sale_id, 1) is Answer.SOLD_OUT


# --- The order in which a script looks ------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "told"), [("v4", Answer.SOLD_OUT), ("v4-window", Answer.ALREADY_ORDERED)]
)
def test_winner_of_the_last_unit_presses_again(name: str, told: Answer) -> None:
    sale_id = STEPS[name].open(1)
    assert buy(name, sale_id, 1) is Answer.BOUGHT
    assert buy(name, sale_id, 1) is told
    assert buy(name, sale_id, 2) is Answer.SOLD_OUT


@pytest.mark.parametrize(("name", "rows"), [("v4", [1]), ("v4-window", [])])
def test_only_a_script_with_the_window_waits_for_the_start(name: str, rows: list[int]) -> None:
    sale_id = STEPS[name].open(1, timezone.now() + dt.timedelta(hours=1))
    told = buy(name, sale_id, 1)
    assert told is (Answer.BOUGHT if rows else Answer.NOT_ON_SALE)
    assert STEPS[name].rows(sale_id) == rows


def test_script_with_the_window_stops_at_the_end() -> None:
    sale_id = STEPS["v4-window"].open(2)
    assert buy("v4-window", sale_id, 1) is Answer.BOUGHT
    LabSale.objects.filter(pk=sale_id).update(ends_at=timezone.now())
    set_stock_and_window(sale_id, 1)
    told = [buy("v4-window", sale_id, user_id) for user_id in (1, 2)]
    assert told == [Answer.ALREADY_ORDERED, Answer.NOT_ON_SALE]


def test_script_with_the_window_sells_nothing_when_redis_is_empty(
    redis_databases: list[Redis],
) -> None:
    sale_id = STEPS["v4-window"].open(1)
    redis_databases[0].flushdb()
    assert buy("v4-window", sale_id, 1) is Answer.NOT_ON_SALE


# --- A stock that nobody has put into Redis -------------------------------------------------------


def test_comparison_with_a_missing_stock_is_an_error_for_every_press() -> None:
    sale_id = STEPS["v4-nil"].open(5)
    for user_id in (1, 1, 2):
        with pytest.raises(ResponseError, match="attempt to compare nil with number"):
            buy("v4-nil", sale_id, user_id)
    assert STEPS["v4-nil"].rows(sale_id) == []


def test_same_script_sells_a_loaded_stock() -> None:
    sale_id = STEPS["v4-nil"].open(1)
    set_stock(sale_id, 1)
    told = [buy("v4-nil", sale_id, user_id) for user_id in (1, 2)]
    assert told == [Answer.BOUGHT, Answer.SOLD_OUT]
