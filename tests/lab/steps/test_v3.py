"""V3: what a lock in the process keeps apart, and what it does not."""

from __future__ import annotations

import threading
from collections import defaultdict

import pytest
from django.db import transaction

from lab.models import LabSale
from lab.steps import STEPS, v3
from lab.steps.step import Answer
from tests.lab.steps.meeting import Died, at, beside, buy, die, elsewhere, passed

pytestmark = pytest.mark.django_db(transaction=True)

OF_V2 = ["orders counted", "unit taken", "order written"]


def test_lock_is_held_until_after_the_commit() -> None:
    sale_id = STEPS["v3"].open(1)
    assert passed(lambda: buy("v3", sale_id, 1)) == ["lock held", *OF_V2, "committed"]


def test_second_form_releases_before_the_commit() -> None:
    sale_id = STEPS["v3-inside"].open(1)
    assert passed(lambda: buy("v3-inside", sale_id, 1)) == [
        *("lock held", *OF_V2),
        *("lock released", "committed"),
    ]


def test_second_press_waits_and_sees_the_order() -> None:
    sale_id, waits = STEPS["v3"].open(5), threading.Event()
    first = beside(lambda: buy("v3", sale_id, 1), until="orders counted", held_for=waits)
    with first as answer, at("waits for the lock", waits.set):
        assert buy("v3", sale_id, 1) is Answer.ALREADY_ORDERED
        assert answer.result() is Answer.BOUGHT
    assert STEPS["v3"].rows(sale_id) == [1]


def test_equal_keys_have_two_locks() -> None:
    once, again = v3.Key("7"), v3.Key("7")
    assert once == again
    assert once.lock is not again.lock
    assert v3.lock_of_buyer(7) is v3.lock_of_buyer(7)


@pytest.mark.parametrize(("name", "stock"), [("v3", 1), ("v3-bypassed", 0)])
def test_unit_comes_back_only_with_a_transaction(name: str, stock: int) -> None:
    sale_id = STEPS[name].open(1)
    with at("unit taken", die), pytest.raises(Died):
        buy(name, sale_id, 1)
    assert LabSale.objects.get(pk=sale_id).stock == stock
    assert STEPS[name].rows(sale_id) == []


def test_django_refuses_a_locking_read_without_transaction() -> None:
    sale_id = STEPS["v3-bypassed"].open(1)
    with pytest.raises(transaction.TransactionManagementError):
        LabSale.objects.select_for_update().get(pk=sale_id)


def test_lock_is_free_after_a_failed_press() -> None:
    sale_id = STEPS["v3"].open(5)
    with at("unit taken", die), pytest.raises(Died):
        buy("v3", sale_id, 1)
    assert elsewhere(lambda: buy("v3", sale_id, 1)) is Answer.BOUGHT


@pytest.mark.parametrize(
    ("name", "told"),
    [("v3-uncounted", Answer.BOUGHT), ("v3", Answer.ALREADY_ORDERED)],
)
def test_lock_replaces_no_count(name: str, told: Answer) -> None:
    sale_id = STEPS[name].open(5)
    assert [buy(name, sale_id, 1), buy(name, sale_id, 1)] == [Answer.BOUGHT, told]


def test_processes_have_separate_locks(monkeypatch: pytest.MonkeyPatch) -> None:
    sale_id = STEPS["v3"].open(5)

    def press_in_another_process() -> None:
        monkeypatch.setattr(v3, "_locks", defaultdict(threading.Lock))
        assert elsewhere(lambda: buy("v3", sale_id, 1)) is Answer.BOUGHT

    with at("orders counted", press_in_another_process):
        assert buy("v3", sale_id, 1) is Answer.BOUGHT
    assert STEPS["v3"].rows(sale_id) == [1, 1]
