"""Creating, editing and deleting sales: the order of the two writes, and the refusals."""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from dataclasses import replace
from typing import Any
from unittest.mock import Mock

import pytest
from django.core.exceptions import ValidationError
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from orders.models import OrderStatus, RefusalReason
from seckill_site.clocks import ledger as ledger_time
from tests.support.inspection import sale_keys
from tests.support.patience import GENEROUS_S, wait_for
from tests.support.rooms import place_at
from tests.support.sales import (
    HOUR,
    change_stock,
    make_loaded_sale,
    make_order,
    make_sale,
    make_user,
    make_voucher,
    make_waiting,
    redis_now_ms,
    reserve,
    terms,
)
from tests.support.tiers import slow_after
from vouchers.catalogue import sales
from vouchers.catalogue.sales import (
    LimitLowered,
    OrderIsDrawn,
    SaleHasBuyers,
    VoucherDetails,
    create_sale,
    create_voucher_on_sale,
    delete_sale,
    edit_sale,
    has_buyers,
    terms_of,
)
from vouchers.inventory.holdings import Holding, add_buyers
from vouchers.inventory.keys import LedgerUnavailable, NotLoaded
from vouchers.inventory.rebuild import load_sale
from vouchers.inventory.reservations import NotAdmitted, SalePaused, SoldOut
from vouchers.inventory.sale_state import BelowTaken, LedgerTerms, snapshot, write_terms
from vouchers.inventory.waiting_list import join_waiting
from vouchers.inventory.waiting_room import RoomTerms
from vouchers.lock_objects import lock_seckill_voucher
from vouchers.models import MAX_ROOM_RATE, MAX_STOCK, RoomKind, SeckillVoucher, Voucher

DETAILS = VoucherDetails("Noodles", "One bowl.", price_cents=8_000, face_value_cents=10_000)


def stored(sale):
    return SeckillVoucher.objects.get(pk=sale.pk)


def total_in_redis(sale):
    return snapshot(sale_id=sale.pk).terms.total


class Crash(Exception):
    """The end of a process between two writes."""


# --- creating -------------------------------------------------------------------------------------


@pytest.mark.django_db
def test_new_sale_is_loaded_after_commit(committed):
    wanted = terms(stock=7, limit=2, pay_within_s=60, rebuy=False, refundable=False)

    with committed():
        sale = create_sale(voucher=make_voucher(), terms=wanted)
        with pytest.raises(NotLoaded):
            snapshot(sale_id=sale.pk)

    assert terms_of(stored(sale)) == wanted
    assert snapshot(sale_id=sale.pk).terms == LedgerTerms.from_sale(stored(sale))


@pytest.mark.django_db(transaction=True)
def test_rolled_back_sale_is_never_loaded():
    with suppress(Crash), transaction.atomic():
        create_voucher_on_sale(details=DETAILS, terms=terms())
        raise Crash

    assert not sale_keys()
    assert not SeckillVoucher.objects.exists()


BROKEN_TERMS = [
    ({"stock": MAX_STOCK + 1}, "__all__"),
    ({"limit": 0}, "limit"),
    ({"room": "always"}, "room"),
    ({"room_rate": MAX_ROOM_RATE + 1}, "room_rate"),
]


@pytest.mark.django_db
@pytest.mark.parametrize(("changes", "field"), slow_after(2, BROKEN_TERMS))
def test_broken_rule_creates_neither_voucher_nor_sale(changes, field):
    with pytest.raises(ValidationError) as refused:
        create_voucher_on_sale(details=DETAILS, terms=terms(**changes))

    assert field in refused.value.message_dict
    assert not Voucher.objects.exists()
    assert not sale_keys()


@pytest.mark.django_db
def test_price_above_face_value_creates_nothing():
    details = VoucherDetails("Noodles", "", price_cents=2, face_value_cents=1)

    with pytest.raises(ValidationError):
        create_voucher_on_sale(details=details, terms=terms())

    assert not Voucher.objects.exists()


@pytest.mark.django_db
def test_sale_created_without_redis_is_loaded_later(committed, redis_gone):
    with redis_gone(), committed():
        sale = create_sale(voucher=make_voucher(), terms=terms())

    load_sale(sale_id=sale.pk)
    assert snapshot(sale_id=sale.pk).remaining == 5


# --- stock: up ------------------------------------------------------------------------------------


@pytest.mark.django_db
def test_raised_stock_sells_at_once(committed):
    sale = make_loaded_sale(stock=1)
    reserve(sale_id=sale.pk, order_id=501, user_id=1)

    with committed():
        change_stock(sale_id=sale.pk, stock=2)

    reserve(sale_id=sale.pk, order_id=502, user_id=2)
    with pytest.raises(SoldOut):
        reserve(sale_id=sale.pk, order_id=503, user_id=3)


# --- stock: down ----------------------------------------------------------------------------------


@pytest.mark.django_db
def test_stock_is_not_lowered_without_redis(committed, redis_gone):
    sale = make_loaded_sale(stock=5)

    with committed() as waiting, redis_gone(), pytest.raises(LedgerUnavailable):
        change_stock(sale_id=sale.pk, stock=2)

    assert waiting == []
    assert stored(sale).stock == total_in_redis(sale) == 5


@pytest.mark.django_db
@pytest.mark.parametrize("stock", slow_after(1, [0, 1, 2]))
def test_stock_never_falls_below_units_taken(committed, dump, stock):
    sale = make_loaded_sale(stock=5)
    for n in (1, 2):
        reserve(sale_id=sale.pk, order_id=500 + n, user_id=n)
    make_order(sale, make_user("ada"), order_id=501)
    reserve(sale_id=sale.pk, order_id=503, user_id=3)
    before = dump()

    with committed() as waiting, pytest.raises(BelowTaken) as refused:
        change_stock(sale_id=sale.pk, stock=stock)

    assert refused.value.taken == (1 if stock < 1 else 3)
    assert waiting == []
    assert dump() == before
    assert stored(sale).stock == 5


@pytest.mark.django_db
def test_unloaded_sale_is_not_narrowed(committed, dump):
    sale = make_sale(stock=5)
    before = dump()

    with committed() as waiting, pytest.raises(LedgerUnavailable):
        change_stock(sale_id=sale.pk, stock=2)

    assert waiting == []
    assert dump() == before
    assert stored(sale).stock == 5


@pytest.mark.django_db
def test_unloaded_sale_is_widened_and_loaded(committed):
    sale = make_sale(stock=5)

    with committed():
        change_stock(sale_id=sale.pk, stock=9)

    assert stored(sale).stock == total_in_redis(sale) == 9


# --- waiting room ---------------------------------------------------------------------------------

OPEN_ROOM = {"room": RoomKind.BUSY, "room_opened_ms": 7, "room_since_ms": 7, "room_rate": 20}


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    ("fields", "changes"),
    [({}, {"room": RoomKind.BUSY}), (OPEN_ROOM, {"room_rate": 19}), (OPEN_ROOM, {"paused": True})],
    ids=["opened", "slower", "paused"],
)
def test_room_that_lets_fewer_in_reaches_redis_first(fields, changes, steps):
    sale = make_loaded_sale(**fields)
    steps.clear()

    with suppress(Crash), transaction.atomic():
        edited = edit_sale(sale_id=sale.pk, terms=replace(terms_of(sale), **changes))
        raise Crash

    assert steps == ["FOR UPDATE", "write_terms", "UPDATE vouchers_seckillvoucher"]
    assert snapshot(sale_id=sale.pk).terms.room == RoomTerms.from_sale(edited)
    assert RoomTerms.from_sale(stored(sale)) != RoomTerms.from_sale(edited)

    load_sale(sale_id=sale.pk)
    assert snapshot(sale_id=sale.pk).terms.room == RoomTerms.from_sale(stored(sale))


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    ("fields", "changes"),
    slow_after(
        2,
        [
            (OPEN_ROOM, {"room": RoomKind.OFF}),
            (OPEN_ROOM, {"room_rate": 21}),
            ({**OPEN_ROOM, "paused": True}, {"paused": False}),
        ],
    ),
    ids=["closed", "faster", "resumed"],
)
def test_room_that_lets_more_in_reaches_redis_after_commit(fields, changes, steps, redis_gone):
    sale = make_loaded_sale(**fields)
    before = snapshot(sale_id=sale.pk).terms
    steps.clear()

    with redis_gone():  # a crash right after the commit
        edit_sale(sale_id=sale.pk, terms=replace(terms_of(sale), **changes))

    assert steps[:3] == ["FOR UPDATE", "UPDATE vouchers_seckillvoucher", "COMMIT"]
    assert snapshot(sale_id=sale.pk).terms == before

    load_sale(sale_id=sale.pk)
    assert snapshot(sale_id=sale.pk).terms.room == RoomTerms.from_sale(stored(sale))


@pytest.mark.django_db
def test_room_is_not_opened_without_redis(redis_gone):
    sale = make_loaded_sale()

    with redis_gone(), pytest.raises(LedgerUnavailable):
        edit_sale(sale_id=sale.pk, terms=replace(terms_of(sale), room=RoomKind.BUSY))

    assert RoomTerms.from_sale(stored(sale)) is None


@pytest.mark.django_db
def test_opened_room_refuses_tokens_minted_later(committed):
    sale = make_loaded_sale()
    with committed():
        edited = edit_sale(sale_id=sale.pk, terms=replace(terms_of(sale), room=RoomKind.BUSY))
    opened_ms = edited.room_opened_ms

    with pytest.raises(NotAdmitted):
        reserve(sale_id=sale.pk, order_id=501, user_id=1, minted_ms=opened_ms)
    reserve(sale_id=sale.pk, order_id=502, user_id=2, minted_ms=opened_ms - 1)


@pytest.mark.django_db
@pytest.mark.parametrize("guarded", [True, False], ids=["guarded", "control"])
@pytest.mark.parametrize("room", [RoomKind.OFF, RoomKind.BUSY])
def test_line_is_dated_by_the_present_time_of_redis(guarded, room, monkeypatch):
    """Its clock was set back since the last answer: with that, nobody is let in for a minute."""
    sale = make_loaded_sale(**{**OPEN_ROOM, "room": room})
    minute_ahead = ledger_time._Reading(redis_now_ms() + 60_000, time.monotonic())
    ledger_time._clock.learn(minute_ahead)
    if not guarded:
        monkeypatch.setattr(sales, "refresh_ledger_time", Mock())

    changed = replace(terms_of(sale), room=RoomKind.BUSY, room_rate=21)
    edited = edit_sale(sale_id=sale.pk, terms=changed)

    assert (edited.room_since_ms <= redis_now_ms()) is guarded


@pytest.mark.django_db
def test_new_sale_with_a_room_is_dated(committed):
    with committed():
        sale = create_sale(voucher=make_voucher(), terms=terms(room=RoomKind.START))

    assert RoomTerms.from_sale(stored(sale))
    assert snapshot(sale_id=sale.pk).terms == LedgerTerms.from_sale(stored(sale))


SHUFFLED = {"room_shuffled": True}
TO_START = {"room": RoomKind.START}
REORDERS = [
    (TO_START, SHUFFLED),
    ({**TO_START, **SHUFFLED}, {"room_shuffled": False}),
    ({**TO_START, **SHUFFLED}, {"room": RoomKind.BUSY}),
    (SHUFFLED, TO_START),
]
KEEPS_ORDER = [
    (SHUFFLED, {"room_shuffled": False}),
    (TO_START, {"room": RoomKind.BUSY}),
    ({**TO_START, **SHUFFLED}, {"room": RoomKind.OFF, "room_shuffled": False}),
    ({**TO_START, **SHUFFLED}, {"room_rate": 7}),
]


@pytest.mark.django_db
@pytest.mark.parametrize(("fields", "changes"), slow_after(2, REORDERS))
def test_order_of_a_line_is_settled_once_started(fields, changes, dump):
    sale = make_loaded_sale(**{**OPEN_ROOM, **fields})
    before = dump()

    with pytest.raises(OrderIsDrawn):
        edit_sale(sale_id=sale.pk, terms=replace(terms_of(sale), **changes))

    assert dump() == before
    assert terms_of(stored(sale)) == terms_of(sale)


@pytest.mark.django_db
@pytest.mark.parametrize(("fields", "changes"), slow_after(2, KEEPS_ORDER))
def test_other_edits_of_a_started_line_are_allowed(fields, changes):
    sale = make_loaded_sale(**{**OPEN_ROOM, **fields})

    edit_sale(sale_id=sale.pk, terms=replace(terms_of(sale), **changes))


@pytest.mark.django_db
@pytest.mark.parametrize(("fields", "changes"), slow_after(2, REORDERS))
def test_order_of_a_line_may_change_before_the_start(fields, changes):
    sale = make_loaded_sale(**{**OPEN_ROOM, **fields, "begins_at": timezone.now() + HOUR / 2})

    edit_sale(sale_id=sale.pk, terms=replace(terms_of(sale), **changes))


@pytest.mark.django_db
def test_deleted_sale_leaves_no_line(ledger):
    sale = make_loaded_sale(**OPEN_ROOM)
    place_at(sale.pk, make_user("ada").pk)

    delete_sale(sale_id=sale.pk)

    assert sale_keys() == []


# --- window, pause, limit -------------------------------------------------------------------------


def changed(sale, changes):
    """Return a sale's terms with these changes; time deltas move its window."""
    moved = {
        name: getattr(sale, name) + value
        for name, value in changes.items()
        if name in ("begins_at", "ends_at")
    }
    return replace(terms_of(sale), **{**changes, **moved})


NARROWER = [
    {"stock": 4},
    {"begins_at": HOUR / 2},
    {"ends_at": -HOUR / 2},
    {"paused": True},
    {"rebuy": False},
]


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    "changes", slow_after(1, NARROWER), ids=lambda changes: next(iter(changes))
)
def test_narrowing_reaches_redis_first_and_survives_crash(changes, steps):
    sale = make_loaded_sale(stock=5)
    narrower = changed(sale, changes)
    steps.clear()

    with suppress(Crash), transaction.atomic():
        edit_sale(sale_id=sale.pk, terms=narrower)
        raise Crash

    link = ["INSERT vouchers_chainlink"] if "stock" in changes else []
    assert steps == ["FOR UPDATE", "write_terms", *link, "UPDATE vouchers_seckillvoucher"]
    for name in changes:
        setattr(sale, name, getattr(narrower, name))
    assert snapshot(sale_id=sale.pk).terms == LedgerTerms.from_sale(sale)
    assert terms_of(stored(sale)) != narrower

    load_sale(sale_id=sale.pk)
    assert snapshot(sale_id=sale.pk).terms == LedgerTerms.from_sale(stored(sale))


WIDER = [
    {"stock": 6},
    {"begins_at": -HOUR},
    {"ends_at": HOUR},
    {"paused": False},
    {"limit": 3},
    {"rebuy": True},
]


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("changes", slow_after(1, WIDER), ids=lambda changes: next(iter(changes)))
def test_widening_reaches_redis_after_commit(changes, steps, redis_gone):
    sale = make_loaded_sale(stock=5, paused=True, rebuy=False)
    wider = changed(sale, changes)
    before = snapshot(sale_id=sale.pk).terms
    steps.clear()

    with redis_gone():  # a crash right after the commit
        edit_sale(sale_id=sale.pk, terms=wider)

    link = ["INSERT vouchers_chainlink"] if "stock" in changes else []
    expected = ["FOR UPDATE", *link, "UPDATE vouchers_seckillvoucher", "COMMIT"]
    assert steps[: len(expected)] == expected
    assert terms_of(stored(sale)) == wider
    assert snapshot(sale_id=sale.pk).terms == before

    load_sale(sale_id=sale.pk)
    assert snapshot(sale_id=sale.pk).terms == LedgerTerms.from_sale(stored(sale))


@pytest.mark.django_db(transaction=True)
def test_mixed_edit_narrows_first():
    sale = make_loaded_sale(stock=5)
    wider: Any = {
        "ends_at": sale.ends_at + HOUR,
        "limit": 2,
        "pay_within_s": 60,
        "refundable": False,
    }
    mixed = replace(terms_of(sale), stock=3, **wider)

    with suppress(Crash), transaction.atomic():
        edit_sale(sale_id=sale.pk, terms=mixed)
        raise Crash

    sale.stock = 3
    assert snapshot(sale_id=sale.pk).terms == LedgerTerms.from_sale(sale)

    edit_sale(sale_id=sale.pk, terms=mixed)
    assert snapshot(sale_id=sale.pk).terms == LedgerTerms.from_sale(stored(sale))
    assert terms_of(stored(sale)) == mixed


@pytest.mark.django_db
def test_oversold_ledger_can_be_paused(committed):
    """After a lost ledger: live orders, and reservations that fulfilment has yet to refuse."""
    sale = make_loaded_sale(stock=1)
    reserve(sale_id=sale.pk, order_id=501, user_id=1)
    add_buyers(sale_id=sale.pk, holdings=[Holding(400, 2, 1)])

    with committed():
        edit_sale(sale_id=sale.pk, terms=replace(terms_of(sale), paused=True))

    assert snapshot(sale_id=sale.pk).terms.paused


@pytest.mark.django_db
def test_limit_is_never_lowered(committed, dump):
    sale = make_loaded_sale(limit=3)
    before = dump()

    with committed() as waiting, pytest.raises(LimitLowered):
        edit_sale(sale_id=sale.pk, terms=terms(limit=2, stock=1))

    assert waiting == []
    assert dump() == before
    assert terms_of(stored(sale)).limit == 3
    assert stored(sale).stock == 5


@pytest.mark.django_db
@pytest.mark.parametrize(
    "changes",
    slow_after(
        1, [{"limit": 21}, {"stock": MAX_STOCK + 1}, {"ends_at": timezone.now() - 2 * HOUR}]
    ),
)
def test_edit_breaking_a_rule_changes_nothing(dump, changes):
    sale = make_loaded_sale()
    before = dump()

    with pytest.raises(ValidationError):
        edit_sale(sale_id=sale.pk, terms=terms(**changes))

    assert dump() == before
    assert terms_of(stored(sale)) == terms_of(sale)


@pytest.mark.django_db
def test_invalid_description_never_reaches_redis(dump):
    sale = make_loaded_sale(stock=5)
    details = VoucherDetails("Noodles", "", price_cents=2, face_value_cents=1)
    before = dump()

    for stock in (1, 9):
        with pytest.raises(ValidationError):
            edit_sale(sale_id=sale.pk, terms=terms(stock=stock), details=details)

    assert (stored(sale).stock, dump()) == (5, before)


@pytest.mark.django_db
def test_edit_may_change_voucher_description(committed):
    sale = make_loaded_sale()
    details = VoucherDetails("Rice", "Two bowls.", price_cents=1, face_value_cents=2)

    with committed():
        edit_sale(sale_id=sale.pk, terms=terms(), details=details)

    voucher = stored(sale).voucher
    assert (voucher.title, voucher.rules) == ("Rice", "Two bowls.")
    assert (voucher.price_cents, voucher.face_value_cents) == (1, 2)


@pytest.mark.django_db
def test_order_keeps_its_price(committed):
    sale = make_loaded_sale()
    order = make_order(sale, make_user("ada"), order_id=501)
    details = VoucherDetails("Rice", "", price_cents=1, face_value_cents=2)

    with committed():
        edit_sale(sale_id=sale.pk, terms=terms(), details=details)

    order.refresh_from_db()
    assert order.price_cents == 8_000


@pytest.mark.django_db
def test_edit_of_missing_sale_raises():
    with pytest.raises(SeckillVoucher.DoesNotExist):
        edit_sale(sale_id=404, terms=terms())


# --- the sold count -------------------------------------------------------------------------------


@pytest.mark.django_db(transaction=True)
def test_edit_waits_for_fulfilment(row_locks):
    sale = make_loaded_sale(stock=5)
    held, go_on, edited = threading.Event(), threading.Event(), threading.Event()

    def fulfil():
        with transaction.atomic():
            row = lock_seckill_voucher(sale_id=sale.pk)
            row.sold += 3
            row.save(update_fields=["sold"])
            held.set()
            assert go_on.wait(GENEROUS_S)
        connection.close()

    def edit():
        with suppress(BelowTaken):
            change_stock(sale_id=sale.pk, stock=2)
        edited.set()
        connection.close()

    def waits_for_row():
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT 1 FROM information_schema.processlist WHERE db = DATABASE() "
                "AND id <> CONNECTION_ID() AND info LIKE '%FOR UPDATE%'"
            )
            return cursor.fetchone() is not None

    threads = [threading.Thread(target=fulfil), threading.Thread(target=edit)]
    threads[0].start()
    assert held.wait(GENEROUS_S)
    threads[1].start()
    wait_for(waits_for_row, what="the edit's wait for the row")
    assert not edited.is_set()
    go_on.set()
    for thread in threads:
        thread.join(GENEROUS_S)

    assert (stored(sale).sold, stored(sale).stock) == (3, 5)


@pytest.mark.django_db
def test_edit_names_columns_it_writes():
    sale = make_loaded_sale()

    with CaptureQueriesContext(connection) as queries:
        edit_sale(sale_id=sale.pk, terms=terms(stock=9))

    [update] = [q["sql"] for q in queries if q["sql"].startswith("UPDATE")]
    assert "`stock` = 9" in update
    for column in ("sold", "epoch", "fence"):
        assert f"`{column}` =" not in update


# --- deleting -------------------------------------------------------------------------------------


@pytest.mark.django_db
def test_sale_without_buyers_is_deleted_with_ledger(ledger):
    sale = make_loaded_sale()
    other = make_loaded_sale()

    delete_sale(sale_id=sale.pk)

    assert list(SeckillVoucher.objects.all()) == [other]
    assert not list(ledger.scan_iter(f"*{{{sale.pk}}}*"))
    assert snapshot(sale_id=other.pk).remaining == 5


@pytest.mark.django_db
def test_sale_with_waiting_list_only_is_deleted():
    sale, ada = make_loaded_sale(stock=0), make_user("ada")
    make_waiting(sale, ada, order_id=501)
    join_waiting(sale_id=sale.pk, order_id=501, user_id=ada.pk, joined_at_ms=1)

    delete_sale(sale_id=sale.pk)

    assert not SeckillVoucher.objects.exists()
    assert not sale_keys()


@pytest.mark.django_db
def test_unloaded_sale_is_not_deleted():
    sale = make_sale()

    with pytest.raises(LedgerUnavailable):
        delete_sale(sale_id=sale.pk)
    assert stored(sale)

    load_sale(sale_id=sale.pk)
    delete_sale(sale_id=sale.pk)
    assert not SeckillVoucher.objects.exists()
    assert not sale_keys()


@pytest.mark.django_db
def test_oversold_ledger_is_not_deleted():
    sale = make_loaded_sale(stock=1)
    reserve(sale_id=sale.pk, order_id=501, user_id=1)
    add_buyers(sale_id=sale.pk, holdings=[Holding(400, 2, 1)])

    with pytest.raises(SaleHasBuyers):
        delete_sale(sale_id=sale.pk)

    assert not snapshot(sale_id=sale.pk).terms.paused


@pytest.mark.django_db
def test_sale_with_reservation_is_not_deleted_and_sells_on():
    sale = make_loaded_sale()
    reserve(sale_id=sale.pk, order_id=501, user_id=1)

    with pytest.raises(SaleHasBuyers):
        delete_sale(sale_id=sale.pk)

    assert stored(sale)
    reserve(sale_id=sale.pk, order_id=502, user_id=2)


@pytest.mark.django_db
@pytest.mark.parametrize(
    "fields",
    slow_after(
        1,
        [
            {},
            {"status": OrderStatus.CANCELLED},
            {"status": OrderStatus.REFUSED, "reason": RefusalReason.SOLD_OUT},
        ],
    ),
)
def test_sale_with_any_order_is_not_deleted(ledger, fields):
    sale = make_loaded_sale()
    make_order(sale, make_user("ada"), order_id=501, **fields)
    ledger.flushdb()

    with pytest.raises(SaleHasBuyers):
        delete_sale(sale_id=sale.pk)

    assert stored(sale)


@pytest.mark.django_db
def test_sale_is_not_deleted_without_redis(redis_gone):
    sale = make_loaded_sale()

    with redis_gone(), pytest.raises(LedgerUnavailable):
        delete_sale(sale_id=sale.pk)

    assert stored(sale)
    reserve(sale_id=sale.pk, order_id=501, user_id=1)


@pytest.mark.django_db
def test_delete_locks_row_and_closes_ledger_first(steps):
    sale = make_loaded_sale()
    steps.clear()

    delete_sale(sale_id=sale.pk)

    assert steps[:3] == ["FOR UPDATE", "write_terms", "snapshot"]
    assert {it.partition(" ")[0] for it in steps[3:]} == {"DELETE"}
    assert steps[-1] == "DELETE vouchers_seckillvoucher"


@pytest.mark.django_db
def test_nobody_reserves_during_delete(monkeypatch):
    sale = make_loaded_sale()
    look = snapshot

    def try_to_buy(*, sale_id):
        with pytest.raises(SalePaused):
            reserve(sale_id=sale_id, order_id=501, user_id=1)
        return look(sale_id=sale_id)

    monkeypatch.setattr(sales, "snapshot", try_to_buy)

    delete_sale(sale_id=sale.pk)

    assert not SeckillVoucher.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_rolled_back_delete_leaves_loadable_sale():
    sale = make_loaded_sale(stock=5)

    with suppress(Crash), transaction.atomic():
        delete_sale(sale_id=sale.pk)
        raise Crash

    load_sale(sale_id=sale.pk)
    reserve(sale_id=sale.pk, order_id=501, user_id=1)
    assert snapshot(sale_id=sale.pk).remaining == 4


@pytest.mark.django_db
def test_row_or_ledger_shows_buyers(redis_gone):
    sale = make_loaded_sale()
    assert not has_buyers(sale=sale)

    with redis_gone():
        assert has_buyers(sale=sale), "nobody can tell, so careful"

    reserve(sale_id=sale.pk, order_id=501, user_id=1)
    assert has_buyers(sale=sale)

    never_loaded = make_sale()
    assert not has_buyers(sale=never_loaded)
    make_order(never_loaded, make_user("ada"), order_id=502, status=OrderStatus.CANCELLED)
    assert has_buyers(sale=never_loaded)


# --- crossing edits -------------------------------------------------------------------------------


@pytest.mark.django_db(transaction=True)
def test_crossing_edits_leave_ledger_like_row(row_locks):
    sale = make_loaded_sale(stock=10)
    barrier = threading.Barrier(4)

    def edit(stocks):
        barrier.wait(GENEROUS_S)
        for stock in stocks:
            change_stock(sale_id=sale.pk, stock=stock)
        connection.close()

    threads = [
        threading.Thread(target=edit, args=[stocks])
        for stocks in ([20, 5, 30], [7, 40, 3], [50, 2, 60], [8, 9, 10])
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(GENEROUS_S)

    assert snapshot(sale_id=sale.pk).terms == LedgerTerms.from_sale(stored(sale))


@pytest.mark.django_db(transaction=True)
def test_control_crossing_edits_without_new_lock_oversell(monkeypatch):
    """The control: the edit up copies what it remembers, after an edit down was committed."""
    sale = make_loaded_sale(stock=10)

    def copy_what_was_read(*, sale_ids):
        remembered = LedgerTerms.from_sale(stored(sale))
        monkeypatch.undo()
        change_stock(sale_id=sale.pk, stock=5)
        write_terms(sale_id=sale_ids[0], terms=remembered)

    monkeypatch.setattr(sales, "load_after_commit", copy_what_was_read)

    change_stock(sale_id=sale.pk, stock=20)

    assert stored(sale).stock == 5
    assert total_in_redis(sale) == 20
