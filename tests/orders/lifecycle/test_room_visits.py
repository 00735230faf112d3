"""Copying visits to waiting rooms from Redis into rows."""

from __future__ import annotations

import datetime as dt
from typing import Any
from unittest.mock import Mock

import pytest
from django.contrib.auth.models import User
from django.utils import timezone

from orders.lifecycle import room_visits
from orders.lifecycle.room_visits import store_visits
from orders.models import RoomVisit
from orders.tasks import store_visits as store_visits_task
from seckill_site.clocks.machine import from_epoch_ms
from seckill_site.failpoints import FailpointReached, armed
from seckill_site.process_memory import forget_everything
from tests.fixtures.site import RedisGone
from tests.support.orders import make_buyer, make_buyers, make_sale
from tests.support.passes import cut_after_one, without_lock
from tests.support.rooms import OPENED_MS, change_room, make_room, place_at
from vouchers.catalogue.live_changes import close_room
from vouchers.inventory.keys import LedgerKeys
from vouchers.inventory.room_visits import Visit
from vouchers.models import SeckillVoucher

pytestmark = pytest.mark.django_db


def store() -> None:
    store_visits(now=timezone.now())


def let_in(sale: SeckillVoucher, buyer: User) -> None:
    change_room(sale.pk, base=9)
    assert place_at(sale.pk, buyer.pk).is_in


def visits_of(sale: SeckillVoucher) -> list[RoomVisit]:
    return list(RoomVisit.objects.filter(seckill_voucher=sale).order_by("given"))


def is_unstored(sale: SeckillVoucher, ledger: Any) -> bool:
    return bool(ledger.exists(LedgerKeys(sale.pk).visits))


def test_visit_becomes_a_row_once(ledger: Any) -> None:
    sale, buyer = make_room(), make_buyer()
    place = place_at(sale.pk, buyer.pk)

    store()
    store()

    [visit] = visits_of(sale)
    assert (visit.user_id, visit.opened_ms, visit.given) == (buyer.pk, OPENED_MS, 1)
    assert visit.joined_at == from_epoch_ms(place.joined_ms)
    assert visit.let_in_at is None
    assert not is_unstored(sale, ledger)


def test_moment_of_being_let_in_follows(ledger: Any) -> None:
    sale, buyer = make_room(), make_buyer()
    place_at(sale.pk, buyer.pk)
    store()
    let_in(sale, buyer)

    store()

    [visit] = visits_of(sale)
    assert visit.let_in_at
    assert visit.let_in_at >= visit.joined_at


def test_visits_to_two_openings_are_two_rows() -> None:
    sale, buyer = make_room(), make_buyer()
    place_at(sale.pk, buyer.pk)
    store()
    change_room(sale.pk, opened_ms=OPENED_MS + 1)
    place_at(sale.pk, buyer.pk)

    store()

    assert [it.opened_ms for it in visits_of(sale)] == [OPENED_MS, OPENED_MS + 1]


def test_death_after_the_rows_loses_and_doubles_nothing(ledger: Any) -> None:
    sale, buyers = make_room(), make_buyers(3)
    for buyer in buyers:
        place_at(sale.pk, buyer.pk)

    with armed("visits.stored=raise"), pytest.raises(FailpointReached):
        store()
    assert len(visits_of(sale)) == 3
    assert is_unstored(sale, ledger)
    forget_everything()  # as a new process does
    store()

    assert [it.user_id for it in visits_of(sale)] == [it.pk for it in buyers]
    assert not is_unstored(sale, ledger)


@pytest.mark.parametrize("guarded", [True, False], ids=["guarded", "control"])
def test_visitor_let_in_meanwhile_is_stored_next(
    guarded: bool, monkeypatch: pytest.MonkeyPatch, ledger: Any
) -> None:
    """What changed since it was read stays: without that the row never says when."""
    sale, buyer = make_room(), make_buyer()
    place_at(sale.pk, buyer.pk)

    def meanwhile(name: str) -> None:
        if name == "visits.stored":
            let_in(sale, buyer)
            if not guarded:
                ledger.delete(LedgerKeys(sale.pk).visits)

    with monkeypatch.context() as patch:
        patch.setattr(room_visits, "failpoint", meanwhile)
        store()
    store()

    [visit] = visits_of(sale)
    assert bool(visit.let_in_at) is guarded


@pytest.mark.parametrize("guarded", [True, False], ids=["guarded", "control"])
def test_older_copy_sends_nobody_back(
    guarded: bool, monkeypatch: pytest.MonkeyPatch, ledger: Any
) -> None:
    """Redis comes back from before the visitor was let in, when no row had the visit yet."""
    if not guarded:
        monkeypatch.setattr(room_visits, "_let_in", Mock(return_value=set()))
    sale, buyer = make_room(), make_buyer()
    place_at(sale.pk, buyer.pk)
    older = ledger.hgetall(LedgerKeys(sale.pk).visits)
    let_in(sale, buyer)
    store()
    ledger.hset(LedgerKeys(sale.pk).visits, mapping=older)

    store()

    [visit] = visits_of(sale)
    assert bool(visit.let_in_at) is guarded
    assert not is_unstored(sale, ledger)


def test_visit_of_a_deleted_account_is_dropped(ledger: Any) -> None:
    sale, gone, buyer = make_room(), make_buyer(), make_buyer()
    for visitor in (gone, buyer):
        place_at(sale.pk, visitor.pk)
    gone.delete()

    store()

    assert [it.user_id for it in visits_of(sale)] == [buyer.pk]
    assert not is_unstored(sale, ledger)


def test_account_takes_its_visits_along() -> None:
    sale, buyer = make_room(), make_buyer()
    place_at(sale.pk, buyer.pk)
    store()

    buyer.delete()

    assert visits_of(sale) == []


@pytest.mark.slow
def test_one_pass_stores_a_part_of_a_crowd(monkeypatch: pytest.MonkeyPatch, ledger: Any) -> None:
    monkeypatch.setattr(room_visits, "AT_ONCE", 200)
    sale, buyers = make_room(), make_buyers(1_200)
    fields = {str(it.pk): f"{OPENED_MS}:{n}:2:0" for n, it in enumerate(buyers, start=1)}
    ledger.hset(LedgerKeys(sale.pk).visits, mapping=fields)
    passes = 0
    while is_unstored(sale, ledger):
        store()
        passes += 1

    assert passes <= 6
    assert [it.given for it in visits_of(sale)] == list(range(1, 1_201))


def test_last_visits_to_a_closed_room_are_stored(
    django_capture_on_commit_callbacks: Any, ledger: Any
) -> None:
    sale, buyers = make_room(), make_buyers(2)
    place_at(sale.pk, buyers[0].pk)
    store()
    place_at(sale.pk, buyers[1].pk)
    with django_capture_on_commit_callbacks(execute=True):
        close_room(sale_id=sale.pk)

    store()

    assert [it.user_id for it in visits_of(sale)] == [it.pk for it in buyers]
    assert not is_unstored(sale, ledger)


def test_visits_to_an_ended_sale_are_stored(ledger: Any) -> None:
    sale, buyer = make_room(), make_buyer()
    place_at(sale.pk, buyer.pk)
    ended = timezone.now() - dt.timedelta(hours=1)
    begun = ended - dt.timedelta(hours=1)
    SeckillVoucher.objects.filter(pk=sale.pk).update(begins_at=begun, ends_at=ended)

    store()

    assert len(visits_of(sale)) == 1


def test_junk_does_not_keep_others_from_being_stored(ledger: Any) -> None:
    sale, buyer = make_room(), make_buyer()
    place_at(sale.pk, buyer.pk)
    fields = {"junk": "junk", str(2**63): "1:1:1:1", "1": "1:1:9999999999999999:0"}
    ledger.hset(LedgerKeys(sale.pk).visits, mapping=fields)

    store()

    assert [it.user_id for it in visits_of(sale)] == [buyer.pk]
    assert not is_unstored(sale, ledger)


def test_lost_redis_is_no_failure_of_the_task(redis_gone: RedisGone, caplog: Any) -> None:
    make_room()

    with redis_gone():
        store_visits_task()

    assert "the task store_visits goes on later" in caplog.text


def test_sales_without_a_room_cost_no_command(ledger_trips: list[int]) -> None:
    make_sale()
    ledger_trips.clear()

    store()

    assert ledger_trips == []


@pytest.mark.quick
def test_repeated_visit_replaces_its_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """On SQLite, too, which names the unique fields of a conflict."""
    without_lock(monkeypatch)
    sale, buyer = make_sale(loaded=False, room_opened_ms=OPENED_MS), make_buyer()
    for given, let_in_ms in ((1, 0), (9, 5_000)):
        visit = Visit(buyer.pk, OPENED_MS, given, 2_000, let_in_ms)
        monkeypatch.setattr(room_visits, "unstored_visits", Mock(return_value=[visit]))
        monkeypatch.setattr(room_visits, "forget_visits", Mock())
        store()

    [row] = visits_of(sale)
    assert (row.given, row.let_in_at) == (9, from_epoch_ms(5_000))


def test_cut_pass_is_continued_by_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    cut_after_one(monkeypatch)
    rooms = [make_room() for _ in range(2)]
    for sale in rooms:
        place_at(sale.pk, make_buyer().pk)
    stored = []
    for _ in rooms:
        is_left = store_visits(now=timezone.now())
        stored.append((RoomVisit.objects.count(), is_left))
    assert stored == [(1, True), (2, False)]
