"""The line of a waiting room that a build of the ledger restores from the rows of visits."""

from __future__ import annotations

from typing import Any
from unittest.mock import Mock

import pytest
from django.utils import timezone

from orders.lifecycle.room_visits import store_visits
from orders.models import RoomVisit
from seckill_site.process_memory import forget_everything
from tests.fixtures.vouchers import DropGuard
from tests.support.rooms import place_at, signed
from tests.support.sales import HOUR, lose_state, make_loaded_sale, make_user, redis_now_ms
from tests.support.tiers import slow_after
from vouchers.inventory import rebuild
from vouchers.inventory.keys import LedgerKeys
from vouchers.inventory.rebuild import drop_wrong_types, load_sale, rebuild_sale
from vouchers.inventory.sale_state import snapshot
from vouchers.inventory.waiting_room import RoomTerms
from vouchers.models import RoomKind, SeckillVoucher

pytestmark = pytest.mark.django_db


def in_line(*names: str, **fields: Any) -> tuple[SeckillVoucher, dict[str, int]]:
    """Return a sale whose room lets nobody in, and the visitors in its line, all stored."""
    line = {"room": RoomKind.BUSY, "room_opened_ms": 5, "room_since_ms": 5, "room_rate": 1}
    sale = make_loaded_sale(**{**line, "paused": True, **fields})
    visitors = {name: make_user(name).pk for name in names}
    for user_id in visitors.values():
        place_at(sale.pk, user_id)
    store_visits(now=timezone.now())
    return sale, visitors


@pytest.mark.parametrize("guarded", [True, False], ids=["guarded", "control"])
def test_newcomers_stay_behind_a_line_lost_with_everything(guarded: bool, ledger: Any) -> None:
    """The rows of visits: they know the last number when no process does."""
    sale, visitors = in_line("ada", "bob", "eve")
    if not guarded:
        RoomVisit.objects.all().delete()
    places = {name: place_at(sale.pk, user_id) for name, user_id in visitors.items()}
    ledger.flushall()
    forget_everything()

    load_sale(sale_id=sale.pk)

    assert place_at(sale.pk, make_user("new").pk).number == (4 if guarded else 1)
    for name, user_id in visitors.items():
        again = place_at(sale.pk, user_id, signed=signed(places[name]))
        assert again.number == places[name].number


@pytest.mark.parametrize("guarded", [True, False], ids=["guarded", "control"])
def test_visitors_without_signed_place_keep_theirs(
    guarded: bool, ledger: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The places in the rows: without them, whoever comes without a cookie is the last in line."""
    if not guarded:
        monkeypatch.setattr(rebuild, "restore_places", Mock())
    sale, visitors = in_line("ada", "bob", "eve")
    ledger.flushall()
    forget_everything()

    load_sale(sale_id=sale.pk)

    numbers = [place_at(sale.pk, visitors[name]).number for name in ("eve", "ada", "bob")]
    assert numbers == ([3, 1, 2] if guarded else [4, 5, 6])


@pytest.mark.parametrize("guarded", [True, False], ids=["guarded", "control"])
def test_visitor_let_in_long_ago_stays_in(
    guarded: bool, ledger: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The moment in the row: without it, the turn of who has bought nothing yet has expired."""
    if not guarded:
        monkeypatch.setattr(rebuild, "restore_places", Mock())
    sale, visitors = in_line("ada", paused=False)
    place = place_at(sale.pk, visitors["ada"])
    assert place.is_in
    SeckillVoucher.objects.filter(pk=sale.pk).update(room_base=10**12)
    ledger.flushall()

    load_sale(sale_id=sale.pk)

    state = place_at(sale.pk, visitors["ada"], signed=signed(place)).state
    assert state == ("IN" if guarded else "EXPIRED")


@pytest.mark.parametrize(
    ("text", "number", "let_in"),
    slow_after(
        2,
        [
            ("2:7:0", 2, False),
            ("2:7:9", 2, True),  # the row says less
            ("9:7:0", 2, False),  # joined again before the build, without the signed place
            ("9:7:9", 9, True),
            ("junk", 2, False),
            ("2::0", 2, False),
        ],
    ),
)
def test_place_that_redis_has_is_replaced_by_a_better_one_only(
    ledger: Any, text: str, number: int, let_in: bool
) -> None:
    sale, visitors = in_line("ada", "bob")
    ledger.hset(LedgerKeys(sale.pk).room, visitors["bob"], text)
    lose_state(sale.pk)

    load_sale(sale_id=sale.pk)

    place = place_at(sale.pk, visitors["bob"])
    assert (place.number, place.is_in) == (number, let_in)


@pytest.mark.parametrize("guarded", [True, False], ids=["guarded", "control"])
def test_newcomers_stay_behind_a_line_that_went_back(
    guarded: bool, ledger: Any, drop_guard: DropGuard
) -> None:
    if not guarded:
        guard = "if is_older then redis.call('HSET', KEYS[10], 'tail', tail) end"
        drop_guard(rebuild, "_LOAD", guard)
    sale, _ = in_line("ada", "bob", "eve")
    ledger.hset(LedgerKeys(sale.pk).room, "tail", 1)
    forget_everything()

    rebuild_sale(sale_id=sale.pk)

    assert place_at(sale.pk, make_user("new").pk).number == (4 if guarded else 2)


@pytest.mark.parametrize(
    ("known", "early"),
    slow_after(
        2,
        [
            ({"tail": 3}, 2),  # a copy from before the start
            ({"tail": 3, "early": 1}, 2),  # and a visit has drawn it
            ({"tail": 4, "early": 1}, 2),
            ({"tail": 4, "early": 3}, 3),  # the rows know fewer
            ({"tail": 4}, None),  # not older: the next visit draws it
        ],
    ),
)
def test_line_that_went_back_is_drawn_as_before(
    ledger: Any, known: dict[str, int], early: int | None
) -> None:
    sale, _ = in_line("ada", "bob", "cat", "dan", room=RoomKind.START, room_shuffled=True)
    RoomVisit.objects.filter(given__lte=2).update(joined_at=sale.begins_at - HOUR / 2)
    room = LedgerKeys(sale.pk).room
    ledger.hdel(room, "early")
    ledger.hset(room, mapping=known)
    forget_everything()

    rebuild_sale(sale_id=sale.pk)

    line = snapshot(sale_id=sale.pk).line
    assert line
    assert (line.tail, line.early) == (4, early)


def test_restored_line_expires_with_the_sale(ledger: Any) -> None:
    sale, _ = in_line("ada")
    ledger.flushall()

    load_sale(sale_id=sale.pk)

    assert 3_600_000 < ledger.pttl(LedgerKeys(sale.pk).room) <= 7_200_000


def test_line_that_redis_still_has_is_not_replaced(ledger: Any) -> None:
    sale, visitors = in_line("ada", "bob")
    place_at(sale.pk, make_user("late").pk)  # no row has this one yet
    before = ledger.hgetall(LedgerKeys(sale.pk).room)
    lose_state(sale.pk)

    load_sale(sale_id=sale.pk)

    assert ledger.hgetall(LedgerKeys(sale.pk).room) == before
    assert place_at(sale.pk, visitors["ada"]).number == 1


def test_rows_of_another_opening_restore_nothing(ledger: Any) -> None:
    sale, _ = in_line("ada", "bob")
    SeckillVoucher.objects.filter(pk=sale.pk).update(room_opened_ms=6)
    ledger.flushall()
    forget_everything()

    load_sale(sale_id=sale.pk)

    assert place_at(sale.pk, make_user("new").pk).number == 1


def test_line_of_a_wrong_type_is_restored(ledger: Any) -> None:
    sale, _ = in_line("ada", "bob")
    keys = LedgerKeys(sale.pk)
    lose_state(sale.pk)
    ledger.delete(keys.room)
    ledger.rpush(keys.room, "a mistyped command")
    forget_everything()

    load_sale(sale_id=sale.pk)

    assert place_at(sale.pk, make_user("new").pk).number == 3


def test_reconcile_gives_a_line_of_a_wrong_type_its_places_back(ledger: Any) -> None:
    sale, visitors = in_line("ada", "bob")
    keys = LedgerKeys(sale.pk)
    ledger.delete(keys.room)
    ledger.rpush(keys.room, "a mistyped command")
    forget_everything()

    drop_wrong_types(sale_ids=[sale.pk])
    load_sale(sale_id=sale.pk)

    assert place_at(sale.pk, visitors["bob"]).number == 2
    assert place_at(sale.pk, make_user("new").pk).number == 3


def test_closed_room_restores_no_line(ledger: Any) -> None:
    sale, _ = in_line("ada")
    SeckillVoucher.objects.filter(pk=sale.pk).update(room=RoomKind.OFF, room_opened_ms=0)
    ledger.flushall()

    load_sale(sale_id=sale.pk)

    assert not ledger.exists(LedgerKeys(sale.pk).room)


@pytest.mark.parametrize("rate_changed", [False, True])
def test_restored_line_keeps_the_draw_of_the_start(ledger: Any, rate_changed: bool) -> None:
    """Two came early and two after the start, one of them before the rate was changed."""
    fields = {"room": RoomKind.START, "room_shuffled": True}
    sale, _ = in_line("ada", "bob", "cat", "dan", **fields)
    early = RoomVisit.objects.filter(given__lte=2)
    early.update(joined_at=sale.begins_at - HOUR / 2)
    since_ms = redis_now_ms() if rate_changed else 5
    SeckillVoucher.objects.filter(pk=sale.pk).update(room_since_ms=since_ms)
    ledger.flushall()
    forget_everything()

    load_sale(sale_id=sale.pk)

    line = snapshot(sale_id=sale.pk).line
    assert line
    assert (line.tail, line.early) == (4, 2)


def test_line_restored_before_the_start_is_drawn_later(ledger: Any) -> None:
    fields = {"begins_at": timezone.now() + HOUR / 2, "room": RoomKind.START}
    sale, _ = in_line("ada", "bob", room_shuffled=True, **fields)
    ledger.flushall()
    forget_everything()

    load_sale(sale_id=sale.pk)

    line = snapshot(sale_id=sale.pk).line
    assert line
    assert (line.terms, line.tail, line.early) == (RoomTerms.from_sale(sale), 2, None)
