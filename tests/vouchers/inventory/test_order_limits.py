"""Limits of new orders: per address and per account, in the script that reserves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from pytest_django import Settings

from tests.fixtures.vouchers import ScriptWithout
from tests.support.sales import (
    make_loaded_sale,
    open_ledger,
    past_ms,
    redis_now_ms,
)
from tests.vouchers.inventory.test_reservations import WIN, commands_of_script
from vouchers.catalogue.sales import edit_sale, terms_of
from vouchers.inventory import reservations
from vouchers.inventory.keys import LedgerKeys
from vouchers.inventory.rebuild import load_sale
from vouchers.inventory.reservations import (
    LIMIT_WINDOW_MS,
    AlreadyOrdered,
    LimitKind,
    OrdersLimited,
    Release,
    SoldOut,
    release,
    reserve,
)
from vouchers.inventory.sale_state import parse_state
from vouchers.models import SeckillVoucher

HOME, OFFICE = "203.0.113.7", "198.51.100.1"
USERS = range(1, 1_000)


@pytest.fixture(autouse=True)
def few(settings: Settings) -> None:
    """Allow three orders per address, and two per account."""
    settings.SECKILL_ORDERS_PER_ADDRESS, settings.SECKILL_ORDERS_PER_ACCOUNT = 3, 2


def order(user_id: int, *, address: str = HOME, order_id: int = 0) -> None:
    reserve(sale_id=1, order_id=order_id or 1_000 + user_id, user_id=user_id, address=address)


def cancel(user_id: int, *, order_id: int) -> None:
    entry = reservations.PendingEntry(order_id, user_id, 1, 0)
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


# --- per address ----------------------------------------------------------------------------------


def test_address_gets_its_limit_and_no_more() -> None:
    open_ledger(1, total=100)
    assert orders_until_limited() == 3

    with pytest.raises(OrdersLimited) as refused:
        order(50)

    assert refused.value.limit is LimitKind.ADDRESS
    assert 0 < refused.value.wait_ms <= LIMIT_WINDOW_MS


@pytest.mark.parametrize("guarded", [True, False], ids=["guard", "control"])
def test_control_without_the_check_an_address_takes_all(
    guarded: bool, monkeypatch: pytest.MonkeyPatch, script_without: ScriptWithout
) -> None:
    if not guarded:
        guard = "if before >= most then limited = limited or field end"
        without = script_without("reserve", guard, "")
        monkeypatch.setattr(reservations, "_RESERVE", without)
    open_ledger(1, total=10)

    with pytest.raises(OrdersLimited if guarded else SoldOut):
        list(map(order, USERS))


def test_other_addresses_and_unlimited_ones_go_on() -> None:
    open_ledger(1, total=100)
    orders_until_limited()

    order(50, address=OFFICE)
    order(51, address="")


def test_limited_address_takes_no_unit(ledger: Any) -> None:
    keys = open_ledger(1, total=100)
    orders_until_limited()

    assert (ledger.hlen(keys.buyers), ledger.zcard(keys.pending)) == (1 + 3, 3)


def test_accepted_id_is_accepted_again_at_the_limit() -> None:
    open_ledger(1, total=100)
    orders_until_limited()

    for user_id in (1, 2, 3):
        order(user_id)
    with pytest.raises(AlreadyOrdered):
        order(1, order_id=77)


def test_sold_out_at_the_limit_is_sold_out() -> None:
    open_ledger(1, total=3)
    for user_id in (1, 2, 3):
        order(user_id)

    with pytest.raises(SoldOut):
        order(4)


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


def test_other_accounts_may_order_after_one_is_limited() -> None:
    open_ledger(1, total=100)
    cycle(7, 3)
    with pytest.raises(OrdersLimited):
        order(7, address="", order_id=900)

    order(8, address="")


def test_buyer_may_take_all_units_that_the_sale_allows() -> None:
    open_ledger(1, total=100, limit=20, plain=0)

    for n in range(20):
        order(7, order_id=500 + n, address="")


# --- windows --------------------------------------------------------------------------------------


def test_new_window_counts_anew(ledger: Any) -> None:
    keys = open_ledger(1, total=100)
    orders_until_limited()
    ledger.hset(keys.limits, "until", past_ms(1))

    assert orders_until_limited(range(100, 200)) == 3
    assert ledger.hlen(keys.limits) == 2
    assert ledger.zrange(keys.limited, 0, -1) == ["a:203.0.113.7"]


def test_counts_expire_with_the_sale(ledger: Any) -> None:
    keys = open_ledger(1, total=100)
    orders_until_limited()
    ends_at_ms = int(parse_state(ledger.hget(keys.buyers, "state"))["ends_at_ms"])

    latest_ms = max(ends_at_ms, redis_now_ms() + LIMIT_WINDOW_MS) + 3_600_000
    assert 0 < ledger.pexpiretime(keys.limits) <= latest_ms
    assert ledger.pexpiretime(keys.limited) == int(ledger.hget(keys.limits, "until"))


@pytest.mark.parametrize(
    "spoil",
    [
        lambda ledger, keys: ledger.delete(keys.limits, keys.limited),
        lambda ledger, keys: [ledger.set(key, "x") for key in (keys.limits, keys.limited)],
        lambda ledger, keys: ledger.hset(keys.limits, "until", "soon"),
        lambda ledger, keys: ledger.hset(keys.limits, "until", 2**60),
        lambda ledger, keys: ledger.hset(keys.limits, "a:203.0.113.7", "-1"),
    ],
    ids=["lost", "wrong type", "no time", "clock set back", "no count"],
)
def test_spoiled_counts_bar_nobody(ledger: Any, spoil: Callable[[Any, LedgerKeys], object]) -> None:
    keys = open_ledger(1, total=100)
    orders_until_limited()
    spoil(ledger, keys)

    assert orders_until_limited(range(100, 200)) == 3


# --- what it costs --------------------------------------------------------------------------------


def test_limits_cost_a_win_two_commands_and_a_refusal_none() -> None:
    open_ledger(1, total=3)
    commands = [commands_of_script(lambda user=user: order(user)) for user in (1, 2)]

    counting = [*WIN[:4], "HMGET limits", "HSET limits", *WIN[4:]]
    assert commands[1] == counting
    order(3)

    def late() -> None:
        with pytest.raises(SoldOut):
            order(4)

    assert commands_of_script(late) == WIN[:3]


# --- a sale's own limit ---------------------------------------------------------------------------


@pytest.mark.django_db
@pytest.mark.parametrize(("per_address", "accepted"), [(None, 3), (1, 1), (5, 5)])
def test_sale_may_have_its_own_limit(per_address: int | None, accepted: int) -> None:
    sale = make_loaded_sale(stock=100, per_address=per_address)

    assert accepted_by(sale.pk) == accepted


@pytest.mark.django_db
def test_sale_without_a_limit_per_address() -> None:
    sale = make_loaded_sale(stock=20, per_address=0)

    with pytest.raises(SoldOut):
        accepted_by(sale.pk)


@pytest.mark.django_db(transaction=True)
def test_own_limit_is_changed_and_removed_by_an_edit() -> None:
    sale = make_loaded_sale(stock=100, per_address=1)
    edit(sale.pk, per_address=4)
    assert accepted_by(sale.pk) == 4
    edit(sale.pk, per_address=None)
    assert accepted_by(sale.pk, address=OFFICE, first=100) == 3


@pytest.mark.django_db
def test_own_limit_survives_a_new_window_and_a_rebuild(ledger: Any) -> None:
    sale = make_loaded_sale(stock=100, per_address=1)
    keys = LedgerKeys(sale.pk)
    assert accepted_by(sale.pk) == 1
    ledger.hset(keys.limits, "until", past_ms(1))
    assert accepted_by(sale.pk, first=100) == 1
    ledger.delete(keys.limits, keys.buyers)
    load_sale(sale_id=sale.pk)
    assert accepted_by(sale.pk, first=200) == 1


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
