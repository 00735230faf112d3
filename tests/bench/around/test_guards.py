"""Guards: what they cost is counted by the server, and what the story says of locks is true."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import pytest
from django.db import OperationalError, connection, connections, transaction

from bench.around.guards import GUARDS, LEVELS, STATEMENTS, lock, sell
from lab.crowd.crowd import Crowd
from lab.models import LabOrder, LabSale
from tests.support.patience import GENEROUS_S

pytestmark = pytest.mark.django_db(transaction=True)

READ_COMMITTED, REPEATABLE_READ = LEVELS
DEADLOCK, NOT_ALLOWED = 1213, 1227


def both(task: Callable[[Barrier], object]) -> list[object]:
    """Let two connections do something, and return their results."""
    meeting = Barrier(2, timeout=GENEROUS_S)

    def run() -> object:
        try:
            return task(meeting)
        finally:
            connections.close_all()

    with ThreadPoolExecutor(2) as pool:
        return [it.result() for it in [pool.submit(run), pool.submit(run)]]


@pytest.mark.slow
@pytest.mark.concurrency
def test_each_guard_has_a_line_and_its_updates_are_counted() -> None:
    crowd = Crowd(buyers=24, stock=8, threads=2, clicks=1)
    rows: dict[Any, Any] = {name: figures for name, *figures in sell(crowd)}
    assert tuple(rows) == GUARDS
    for name in ("v1-any-left", "v1-for-update"):
        sold, turned_away, tries, *_ = rows[name]
        assert (sold, turned_away) == (8, 0)
        assert tries >= 1
    assert rows["v1-for-update"][2] == 1
    assert not LabSale.objects.exists()


@pytest.mark.parametrize(("level", "errors"), [(READ_COMMITTED, 0), (REPEATABLE_READ, 1)])
def test_only_locked_gaps_let_two_inserts_deadlock(level: str, errors: int) -> None:
    sale = LabSale.objects.create(step="locks", offered=1, stock=1)

    def press(meeting: Barrier) -> int:
        with connection.cursor() as cursor:
            cursor.execute(f"SET TRANSACTION ISOLATION LEVEL {level}")
            try:
                with transaction.atomic():
                    cursor.execute(STATEMENTS["order that does not exist"].format(sale.pk))
                    meeting.wait()
                    LabOrder.objects.create(sale=sale, user_id=1)
            except OperationalError as error:
                return int(error.args[0])
        return 0

    assert [it for it in both(press) if it] == [DEADLOCK] * errors
    assert LabOrder.objects.count() == 2 - errors


def test_locks_are_not_guessed_without_the_privilege() -> None:
    with pytest.raises(OperationalError) as caught:
        list(lock())
    assert caught.value.args[0] == NOT_ALLOWED
    assert not LabSale.objects.exists()
