"""V6: what a lock for all processes separates, and what goes wrong without it."""

from __future__ import annotations

import time

import pytest
from django.db.models.functions import Now
from redis.exceptions import ResponseError

from lab import locks
from lab.keys import LabKeys
from lab.locks import ExpiringLock, NamedLock, OwnedLock, RowLock, is_held
from lab.models import LabLock
from lab.steps import STEPS
from lab.steps.step import Answer
from seckill_site.redis.ledger_connection import ledger_connection
from tests.lab.steps.meeting import Died, at, buy, die, elsewhere, passed
from tests.support.patience import wait_for
from tests.support.tiers import slow_after

pytestmark = pytest.mark.django_db(transaction=True)

FORMS = [
    *("v6-setnx", "v6-expiring", "v6-thread-id", "v6-uuid", "v6-owned", "v6-watchdog"),
    *("v6-row", "v6-get-lock"),
]


def lock_of(sale_id: int) -> str:
    return LabKeys(sale_id).lock_of(1)


def lose_lease(sale_id: int) -> None:
    """End the lease now, as it ends while its holder stands still."""
    row = LabLock.objects.filter(name=lock_of(sale_id))
    # Elsewhere, because an update in the press's own transaction would lock the row.
    in_row = elsewhere(lambda: row.update(expires_at=Now()))
    assert in_row or ledger_connection().pexpire(lock_of(sale_id), 0)


@pytest.mark.parametrize("name", FORMS)
def test_lock_is_held_until_after_the_commit(name: str) -> None:
    sale_id = STEPS[name].open(1)
    assert passed(lambda: buy(name, sale_id, 1)) == [
        "lock held",
        *("orders counted", "unit taken", "order written"),
        *("committed", "lock released"),
    ]
    assert not is_held(lock_of(sale_id))


@pytest.mark.parametrize("name", slow_after(1, FORMS))
def test_simultaneous_second_press_is_busy(name: str) -> None:
    sale_id, told = STEPS[name].open(5), []
    with at("orders counted", lambda: told.append(elsewhere(lambda: buy(name, sale_id, 1)))):
        assert buy(name, sale_id, 1) is Answer.BOUGHT
    assert told == [Answer.BUSY]
    assert buy(name, sale_id, 1) is Answer.ALREADY_ORDERED
    assert STEPS[name].rows(sale_id) == [1]


@pytest.mark.parametrize("name", slow_after(1, FORMS))
def test_another_buyer_is_not_busy(name: str) -> None:
    sale_id, told = STEPS[name].open(5), []
    with at("orders counted", lambda: told.append(elsewhere(lambda: buy(name, sale_id, 2)))):
        assert buy(name, sale_id, 1) is Answer.BOUGHT
    assert told == [Answer.BOUGHT]


@pytest.mark.parametrize(
    ("name", "told"), [("v6-per-buyer", Answer.BUSY), ("v6-owned", Answer.BOUGHT)]
)
def test_lock_of_the_buyer_alone_is_taken_by_another_sale(name: str, told: Answer) -> None:
    sale_id, other_id, answers = STEPS[name].open(1), STEPS[name].open(1), []
    with at("orders counted", lambda: answers.append(elsewhere(lambda: buy(name, other_id, 1)))):
        assert buy(name, sale_id, 1) is Answer.BOUGHT
    assert answers == [told]


@pytest.mark.parametrize("name", slow_after(1, FORMS))
def test_lock_is_free_after_a_failed_press(name: str) -> None:
    sale_id = STEPS[name].open(5)
    with at("unit taken", die), pytest.raises(Died):
        buy(name, sale_id, 1)
    assert buy(name, sale_id, 1) is Answer.BOUGHT


@pytest.mark.parametrize(
    ("name", "form"),
    slow_after(2, [("v6-expiring", ExpiringLock), ("v6-owned", OwnedLock), ("v6-row", RowLock)]),
)
def test_lease_lets_the_buyer_return(name: str, form: type[NamedLock]) -> None:
    sale_id = STEPS[name].open(5)
    assert form(lock_of(sale_id)).take()
    assert buy(name, sale_id, 1) is Answer.BUSY
    wait_for(lambda: buy(name, sale_id, 1) is Answer.BOUGHT)
    assert STEPS[name].rows(sale_id) == [1]


@pytest.mark.slow
def test_renewed_lock_outlives_its_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locks, "LEASE_MS", 2_000)  # renewed in time even if the machine stalls
    name = "v6-watchdog"
    sale_id, told = STEPS[name].open(5), set()

    def work_for_long() -> None:
        until = time.monotonic() + 1.5 * locks.LEASE_MS / 1_000
        while time.monotonic() < until:
            told.add(elsewhere(lambda: buy(name, sale_id, 1)))
            time.sleep(0.05)

    with at("orders counted", work_for_long):
        assert buy(name, sale_id, 1) is Answer.BOUGHT
    assert told == {Answer.BUSY}
    assert STEPS[name].rows(sale_id) == [1]


@pytest.mark.parametrize(
    "name", slow_after(1, ["v6-expiring", "v6-owned", "v6-watchdog", "v6-row"])
)
def test_holder_writes_after_its_lease_expired(name: str) -> None:
    sale_id = STEPS[name].open(5)

    def stand_still_too_long() -> None:
        lose_lease(sale_id)
        assert elsewhere(lambda: buy(name, sale_id, 1)) is Answer.BOUGHT

    with at("orders counted", stand_still_too_long):
        assert buy(name, sale_id, 1) is Answer.BOUGHT
    assert STEPS[name].rows(sale_id) == [1, 1]


def test_mistyped_release_answers_a_bought_order_with_an_error() -> None:
    sale_id = STEPS["v6-mistyped"].open(1)
    with pytest.raises(ResponseError, match="nonexistent global variable 'KEY'"):
        buy("v6-mistyped", sale_id, 1)
    assert STEPS["v6-mistyped"].rows(sale_id) == [1]
    assert buy("v6-mistyped", sale_id, 1) is Answer.BUSY


def test_mistyped_release_hides_that_all_is_sold() -> None:
    sale_id = STEPS["v6-mistyped"].open(0)
    with pytest.raises(ResponseError):
        buy("v6-mistyped", sale_id, 1)
    assert buy("v6-owned", sale_id, 2) is Answer.SOLD_OUT
