"""V1: somebody else buys between the reading and the taking."""

from __future__ import annotations

import datetime as dt

import pytest
from django.db import connection
from django.db.models import F
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from lab.models import LabSale
from lab.points import listening
from lab.steps import STEPS
from lab.steps.step import Answer
from tests.lab.steps.meeting import at, buy, elsewhere, passed
from tests.support.tiers import slow_after

pytestmark = pytest.mark.django_db(transaction=True)


def overtaken(name: str, *, stock: int) -> tuple[int, Answer]:
    """Let buyer 2 buy while buyer 1 has read the stock; return the sale and what 1 is told."""
    sale_id = STEPS[name].open(stock)
    with at("stock read", lambda: elsewhere(lambda: buy(name, sale_id, 2))):
        return sale_id, buy(name, sale_id, 1)


@pytest.mark.parametrize("name", slow_after(1, [name for name in STEPS if name.startswith("v1")]))
def test_points_follow_the_statements(name: str) -> None:
    sale_id = STEPS[name].open(1)
    assert passed(lambda: buy(name, sale_id, 1)) == ["stock read", "unit taken"]


def test_without_a_guard_the_last_unit_is_sold_twice() -> None:
    sale_id, answer = overtaken("v1", stock=1)
    assert answer is Answer.BOUGHT
    assert STEPS["v1"].rows(sale_id) == [2, 1]
    assert LabSale.objects.get(pk=sale_id).stock == -1


def test_version_guard_refuses_after_any_other_write() -> None:
    sale_id = STEPS["v1-version"].open(2)

    def write() -> None:
        LabSale.objects.filter(pk=sale_id).update(version=F("version") + 1)

    with at("stock read", lambda: elsewhere(write)):
        assert buy("v1-version", sale_id, 1) is Answer.SOLD_OUT
    assert buy("v1-version", sale_id, 1) is Answer.BOUGHT
    assert LabSale.objects.get(pk=sale_id).version == 2


def test_version_guard_misses_a_writer_who_does_not_raise_it() -> None:
    sale_id = STEPS["v1-version"].open(1)
    with at("stock read", lambda: elsewhere(lambda: buy("v1-any-left", sale_id, 2))):
        assert buy("v1-version", sale_id, 1) is Answer.BOUGHT
    assert LabSale.objects.get(pk=sale_id).stock == -1


@pytest.mark.parametrize(
    ("name", "tries", "expected"),
    [("v1-retry", 2, Answer.BOUGHT), ("v1-retry-stale", 4, Answer.SOLD_OUT)],
)
def test_retry_succeeds_only_where_it_reads_again(name: str, tries: int, expected: Answer) -> None:
    sale_id, points = STEPS[name].open(2), list[str]()

    def listen(point: str) -> None:
        points.append(point)
        if len(points) == 1:
            elsewhere(lambda: buy(name, sale_id, 2))

    with listening(listen):
        assert buy(name, sale_id, 1) is expected
    assert points.count("stock read") == tries


def test_retry_stops_where_nothing_is_left() -> None:
    sale_id, answer = overtaken("v1-retry", stock=1)
    assert answer is Answer.SOLD_OUT
    assert LabSale.objects.get(pk=sale_id).stock == 0


@pytest.mark.parametrize(("stock", "expected"), [(1, Answer.SOLD_OUT), (2, Answer.BOUGHT)])
def test_guard_on_any_unit_left_sells_the_stock(stock: int, expected: Answer) -> None:
    sale_id, answer = overtaken("v1-any-left", stock=stock)
    assert answer is expected
    assert len(STEPS["v1-any-left"].rows(sale_id)) == stock


@pytest.mark.parametrize(("name", "filtered"), [("v1-late-filter", False), ("v1-any-left", True)])
def test_condition_after_the_update_is_in_no_statement(name: str, filtered: bool) -> None:
    sale_id = STEPS[name].open(1)
    with CaptureQueriesContext(connection) as queries:
        buy(name, sale_id, 1)
    (update,) = (it["sql"] for it in queries if it["sql"].startswith("UPDATE"))
    assert ("`stock` > 0" in update) is filtered
    assert not any("stock` > 0" in it["sql"] for it in queries if it["sql"] != update)


def test_condition_after_the_update_sells_the_last_unit_twice() -> None:
    sale_id, answer = overtaken("v1-late-filter", stock=1)
    assert answer is Answer.BOUGHT
    assert STEPS["v1-late-filter"].rows(sale_id) == [2, 1]


@pytest.mark.parametrize("change", ["begins_at", "ends_at"])
def test_window_of_the_row_is_looked_at(change: str) -> None:
    sale_id, now = STEPS["v1"].open(1), timezone.now()
    hours = dt.timedelta(hours=1 if change == "begins_at" else -1)
    LabSale.objects.filter(pk=sale_id).update(**{change: now + hours})
    assert buy("v1", sale_id, 1) is Answer.NOT_ON_SALE
    assert STEPS["v1"].rows(sale_id) == []


def test_snapshot_is_read_for_one_transaction_only() -> None:
    sale_id = STEPS["v1-retry-stale"].open(2)
    buy("v1-retry-stale", sale_id, 1)
    assert overtaken("v1-retry", stock=2)[1] is Answer.BOUGHT
