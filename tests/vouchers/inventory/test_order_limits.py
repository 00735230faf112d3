"""Limits of new orders: per address and per account, in the script that reserves."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from pytest_django import Settings

from seckill_site.process_memory import forget_everything
from seckill_site.redis.ledger_connection import ledger_connection
from tests.fixtures.vouchers import DropGuard
from tests.support.draws import make_draw
from tests.support.sales import all_pending, lose_state, make_loaded_sale, open_ledger, reserve
from tests.support.tiers import slow_after
from tests.vouchers.inventory.test_reservations import WIN, commands_of_script
from vouchers.catalogue.sales import edit_sale, terms_of
from vouchers.inventory import reservations
from vouchers.inventory.entering import enter_call
from vouchers.inventory.keys import LedgerKeys, send
from vouchers.inventory.order_limits import (
    LimitKind,
    lift_order_limits,
    limited_subjects,
)
from vouchers.inventory.rebuild import load_sale
from vouchers.inventory.reservations import (
    AlreadyOrdered,
    OrdersLimited,
    Release,
    SoldOut,
    finish_reservation,
    release,
)
from vouchers.inventory.sale_state import LedgerTerms, snapshot
from vouchers.models import RoomKind, SeckillVoucher

WINDOW_MS = 1_000_000
HOME, OFFICE = "203.0.113.7", "198.51.100.1"
USERS = range(1, 1_000)


@pytest.fixture(autouse=True)
def few(settings: Settings, young_window: None) -> None:
    """Allow three orders per address and two per account."""
    settings.SECKILL_ORDERS_PER_ADDRESS, settings.SECKILL_ORDERS_PER_ACCOUNT = 3, 2


def order(user_id: int, *, address: str = HOME, order_id: int = 0) -> None:
    reserve(sale_id=1, order_id=order_id or 1_000 + user_id, user_id=user_id, address=address)


def cancel(user_id: int, *, order_id: int, unit: int = 1) -> None:
    entry = reservations.PendingEntry(order_id, user_id, unit, 0)
    release(sale_id=1, releases=[Release(entry, "cancelled", had_order=True)])


def cycle(user_id: int, times: int) -> None:
    """Order and cancel this often; as long as nothing has ended, the first is not counted."""
    for n in range(times):
        order(user_id, address="", order_id=5_000 + n)
        cancel(user_id, order_id=5_000 + n)


def orders_until_limited(users: range = USERS, **kwargs: Any) -> int:
    """Return how many new buyers are accepted before the first is limited."""
    for done, user_id in enumerate(users):
        try:
            order(user_id, **kwargs)
        except OrdersLimited:
            return done
    raise AssertionError("nobody was limited")


# --- several units --------------------------------------------------------------------------------


def press(user_id: int, quantity: int, *, address: str = HOME, block: int = 1) -> None:
    order_id = 29_000_000 << 32 | 0b1111 << 28 | (user_id * 100 + block) * 64
    reserve(sale_id=1, order_id=order_id, user_id=user_id, address=address, quantity=quantity)


def test_units_count_for_an_address_also_in_its_first_order() -> None:
    open_ledger(1, total=100, limit=9)
    with pytest.raises(OrdersLimited) as refused:
        press(1, 4)
    press(1, 2)
    order(2)
    with pytest.raises(OrdersLimited):
        order(3)

    assert refused.value.limit is LimitKind.ADDRESS
    assert snapshot(sale_id=1).taken == 3


def test_uncounted_first_order_is_counted_with_several_units() -> None:
    open_ledger(1, total=100, limit=9)
    order(1)
    with pytest.raises(OrdersLimited):
        press(2, 3)
    press(2, 2)
    with pytest.raises(OrdersLimited):
        order(3)

    assert snapshot(sale_id=1).taken == 3


def test_refused_units_count_for_neither_account_nor_address() -> None:
    """With a limit of 4, an account may order 2 and 3 more in a window; nothing else does."""
    open_ledger(1, total=100, limit=4, plain=0)
    press(1, 4, address="")
    for entry in all_pending(sale_id=1):
        cancel(1, order_id=entry.order_id, unit=entry.unit)
    with pytest.raises(OrdersLimited) as refused:
        press(1, 3, block=2)
    press(1, 1, block=3)

    assert refused.value.limit is LimitKind.ACCOUNT
    assert orders_until_limited(range(10, 99)) == 2, "one of three was taken"
    with pytest.raises(OrdersLimited):
        press(1, 1, address="", block=4)


# --- per address ----------------------------------------------------------------------------------


@pytest.mark.slow
def test_address_gets_its_limit_and_no_more(ledger: Any) -> None:
    keys = open_ledger(1, total=100)
    assert orders_until_limited() == 3

    with pytest.raises(OrdersLimited) as refused:
        order(50)

    assert refused.value.limit is LimitKind.ADDRESS
    assert 0 < refused.value.wait_ms <= WINDOW_MS
    assert (ledger.hlen(keys.buyers), ledger.zcard(keys.pending)) == (1 + 3, 3)


@pytest.mark.parametrize("guarded", [True, False], ids=["guard", "control"])
def test_control_without_the_check_an_address_takes_all(
    guarded: bool, drop_guard: DropGuard
) -> None:
    if not guarded:
        drop_guard(reservations, "_RESERVE", " and count > most then", " and false then")
    open_ledger(1, total=10)

    with pytest.raises(OrdersLimited if guarded else SoldOut):
        list(map(order, USERS))


def test_refused_first_order_is_no_order() -> None:
    open_ledger(1, total=100)
    order(50, address="")
    with pytest.raises(AlreadyOrdered):
        order(50, order_id=7)  # the first from this address

    assert orders_until_limited() == 3


def test_other_addresses_and_unlimited_ones_go_on() -> None:
    open_ledger(1, total=100)
    orders_until_limited()

    order(50, address=OFFICE)
    order(51, address="")


def test_accepted_id_is_accepted_again_at_the_limit() -> None:
    open_ledger(1, total=100)
    orders_until_limited()

    for user_id in (1, 2, 3):
        order(user_id)
    with pytest.raises(AlreadyOrdered):
        order(1, order_id=77)


def test_zero_allows_any_number(settings: Settings) -> None:
    settings.SECKILL_ORDERS_PER_ADDRESS = settings.SECKILL_ORDERS_PER_ACCOUNT = 0
    open_ledger(1, total=100)

    for user_id in range(1, 50):
        order(user_id)
    cycle(60, 20)


# --- per account ----------------------------------------------------------------------------------


def test_account_that_cycles_is_limited_though_it_changes_its_address() -> None:
    """Fifteen times in 2.7 s, without a limit."""
    open_ledger(1, total=100)

    for n in range(3):
        order(7, order_id=500 + n, address=f"203.0.113.{n}")
        cancel(7, order_id=500 + n)

    for n in range(3, 15):
        with pytest.raises(OrdersLimited) as refused:
            order(7, order_id=500 + n, address=f"203.0.113.{n}")
        assert refused.value.limit is LimitKind.ACCOUNT


def test_buyer_may_take_all_units_that_the_sale_allows() -> None:
    open_ledger(1, total=100, limit=20, plain=0)

    for n in range(20):
        order(7, order_id=500 + n, address="")


# --- windows --------------------------------------------------------------------------------------


def test_new_window_counts_anew(ledger: Any) -> None:
    keys = open_ledger(1, total=100)
    orders_until_limited()
    counts = ledger.hgetall(keys.limits)
    ledger.delete(keys.limits)
    for field, count in counts.items():  # as if it were the last window
        older = re.sub(r"^\d+", lambda found: str(int(found[0]) - 1), field)
        ledger.hset(keys.limits, older, count)
    forget_everything()

    assert orders_until_limited(range(100, 200)) == 3


def test_first_order_of_another_process_is_counted_too() -> None:
    open_ledger(1, total=100)
    order(1)
    order(2)
    forget_everything()  # the next order is the first of another process

    assert orders_until_limited(range(100, 200)) == 1


def test_counts_expire_two_windows_after_the_last_burst(ledger: Any) -> None:
    keys = open_ledger(1, total=100)
    orders_until_limited()

    assert WINDOW_MS < ledger.pttl(keys.limits) <= 2 * WINDOW_MS
    assert 0 < ledger.pttl(keys.limited) <= WINDOW_MS
    assert ledger.zrange(keys.limited, 0, -1, withscores=True) == [("a:203.0.113.7", 1)]


@pytest.mark.parametrize(
    "spoil",
    [
        lambda ledger, keys: ledger.delete(keys.limits, keys.limited),
        lambda ledger, keys: [ledger.set(key, "x") for key in (keys.limits, keys.limited)],
        lambda ledger, keys: [
            ledger.hset(keys.limits, field, "x") for field in ledger.hkeys(keys.limits)
        ],
    ],
    ids=["lost", "wrong type", "no count"],
)
def test_spoiled_counts_bar_nobody(ledger: Any, spoil: Callable[[Any, LedgerKeys], object]) -> None:
    keys = open_ledger(1, total=100)
    orders_until_limited()
    spoil(ledger, keys)
    forget_everything()

    assert orders_until_limited(range(100, 200)) in (3, 4)  # whoever finds it is not counted


# --- lifting --------------------------------------------------------------------------------------


def test_lifted_subjects_are_counted_anew() -> None:
    open_ledger(1, total=100)
    orders_until_limited()
    cycle(500, 3)
    with pytest.raises(OrdersLimited):
        order(500, address="", order_id=9_000)
    account, address = limited_subjects(sale_id=1, most=9)
    assert account == (LimitKind.ACCOUNT, "500", 1)
    assert address == (LimitKind.ADDRESS, HOME, 1)

    lift_order_limits(sale_id=1, subjects=[address.subject])

    assert limited_subjects(sale_id=1, most=9) == [account]
    assert orders_until_limited(range(100, 200)) == 3


# --- what it costs --------------------------------------------------------------------------------


def test_limits_cost_a_crowd_nothing_and_its_second_orders_two_commands() -> None:
    open_ledger(1, total=5)
    order(9, address=OFFICE)

    assert commands_of_script(lambda: order(1)) == WIN
    order(2)
    counting = [*WIN[:5], "HSETNX limits", "HINCRBY limits", *WIN[5:]]
    assert commands_of_script(lambda: order(3)) == counting
    order(8, address="")

    def late() -> None:
        with pytest.raises(SoldOut):
            order(4)

    assert commands_of_script(late) == WIN[:3]


# --- a sale's own limit ---------------------------------------------------------------------------


@pytest.mark.django_db
@pytest.mark.parametrize(("per_address", "accepted"), slow_after(2, [(None, 3), (1, 1), (5, 5)]))
def test_sale_may_have_its_own_limit(per_address: int | None, accepted: int) -> None:
    sale = make_loaded_sale(stock=100, per_address=per_address)

    assert accepted_by(sale.pk) == accepted


@pytest.mark.django_db
def test_sale_without_a_limit_per_address() -> None:
    sale = make_loaded_sale(stock=20, per_address=0)

    with pytest.raises(SoldOut):
        accepted_by(sale.pk)


@pytest.mark.slow
@pytest.mark.django_db(transaction=True)
def test_own_limit_is_changed_and_removed_by_an_edit() -> None:
    sale = make_loaded_sale(stock=100, per_address=1)
    edit(sale.pk, per_address=4)
    assert accepted_by(sale.pk) == 4
    edit(sale.pk, per_address=None)
    assert accepted_by(sale.pk, address=OFFICE, first=100) == 3


@pytest.mark.django_db(transaction=True)
def test_own_limit_survives_a_rebuild_and_the_last_unit(ledger: Any) -> None:
    sale = make_loaded_sale(stock=2, per_address=1)
    assert accepted_by(sale.pk) == 1
    reserve(sale_id=sale.pk, order_id=999, user_id=99)  # writes when the last unit went
    lose_state(sale.pk)
    ledger.delete(LedgerKeys(sale.pk).limits)
    forget_everything()
    load_sale(sale_id=sale.pk)
    edit(sale.pk, stock=100)

    assert accepted_by(sale.pk, first=200) == 1


@pytest.mark.django_db(transaction=True)
def test_own_limit_stands_beside_a_waiting_room() -> None:
    sale = make_loaded_sale(stock=100, per_address=2)
    edit(sale.pk, room=RoomKind.BUSY)

    assert accepted_by(sale.pk) == 2
    assert snapshot(sale_id=sale.pk).terms == LedgerTerms.from_sale(
        SeckillVoucher.objects.get(pk=sale.pk)
    )


def accepted_by(sale_id: int, *, address: str = HOME, first: int = 1) -> int:
    for done, user_id in enumerate(range(first, first + 99)):
        try:
            reserve(sale_id=sale_id, order_id=1_000 + user_id, user_id=user_id, address=address)
        except OrdersLimited:
            return done
    raise AssertionError("nobody was limited")


def edit(sale_id: int, **changes: Any) -> None:
    sale = SeckillVoucher.objects.get(pk=sale_id)
    edit_sale(sale_id=sale_id, terms=replace(terms_of(sale), **changes))


# --- Entries in a draw ----------------------------------------------------------------------------


@pytest.mark.django_db
@pytest.mark.parametrize("wrong_type", [False, True])
def test_entries_of_an_address_have_the_limit_of_orders(wrong_type: bool) -> None:
    sale_id = make_draw().pk
    if wrong_type:  # the count starts anew
        ledger_connection().set(LedgerKeys(sale_id).limits, "x")

    def enter(user_id: int, address: str = HOME) -> None:
        ids = {"sale_id": sale_id, "order_id": 1_000 + user_id, "user_id": user_id}
        send(enter_call(**ids, address=address).finished_by(finish_reservation))

    counted = range(1, 4 + wrong_type)
    for user_id in counted:
        enter(user_id)
    with pytest.raises(OrdersLimited) as refused:
        enter(9)
    assert (refused.value.limit, refused.value.wait_ms > 0) == (LimitKind.ADDRESS, True)
    enter(counted[0])  # a repeat is no new entry
    enter(10, OFFICE)
    enter(11, "")
    assert [it.subject for it in limited_subjects(sale_id=sale_id, most=9)] == [f"a:{HOME}"]
    lift_order_limits(sale_id=sale_id, subjects=[f"a:{HOME}"])
    enter(12)
