"""V4: what Redis has given away and the database never gets."""

from __future__ import annotations

import pytest
from redis import Redis
from redis.exceptions import ResponseError

from lab.keys import LabKeys
from lab.steps import STEPS
from lab.steps.step import Answer
from lab.steps.v4 import set_stock
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
