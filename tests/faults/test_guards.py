"""One guard at a time is taken out of the product, and what it keeps out gets in.

Each story is told twice: with all guards, and without the one it is about. Guards whose control
stands beside their own tests are listed in ``docs/reliability.md``.
"""

from __future__ import annotations

import hashlib
from contextlib import suppress

import pytest

from locks.lua_script import LuaScript
from orders.fulfilment import batch
from orders.fulfilment.batch import StaleFence, write_batch
from orders.fulfilment.worker import fulfil_sale
from tests.support.inspection import buyers_of, live_ids, refusals_of
from tests.support.orders import (
    an_entry,
    ids,
    make_buyer,
    make_buyers,
    make_sale,
    reserved_sale,
    tokens_for,
)
from tests.support.sales import reserve
from vouchers.inventory import reservations
from vouchers.inventory.keys import ledger_script
from vouchers.inventory.reservations import AlreadyOrdered
from vouchers.lock_objects import lock_seckill_voucher
from vouchers.models import SeckillVoucher

pytestmark = pytest.mark.django_db

on_and_off = pytest.mark.parametrize("guarded", [True, False], ids=["guarded", "control"])


def take_out(patch: pytest.MonkeyPatch, guard: str, *, instead: str = "") -> None:
    """Let ``reserve.lua`` run with a piece of its text taken out."""
    script: LuaScript = ledger_script("reserve")
    assert guard in script.source, guard
    script.source = script.source.replace(guard, instead)
    script.sha = hashlib.sha1(script.source.encode(), usedforsecurity=False).hexdigest()
    patch.setattr(reservations, "_RESERVE", script)


@on_and_off
def test_repeated_token_takes_one_unit(monkeypatch: pytest.MonkeyPatch, guarded: bool) -> None:
    """Same id, same answer: without it a double click burns stock."""
    if not guarded:
        take_out(monkeypatch, "if held and held == order_id then return nil, held, true end")
    sale, buyer = make_sale(limit=2), make_buyer()
    (token,) = tokens_for(sale, [buyer])
    for _ in range(2):
        reserve(sale_id=sale.pk, order_id=token.order_id, user_id=buyer.pk)
    assert len(buyers_of(sale)) == (1 if guarded else 2)


@on_and_off
def test_two_tokens_of_buyer_make_one_order(monkeypatch: pytest.MonkeyPatch, guarded: bool) -> None:
    """The buyer check: without it both are accepted, and one turns into a refusal."""
    if not guarded:
        take_out(monkeypatch, "    if held then\n", instead="    if false then\n")
    sale, buyer = make_sale(), make_buyer()
    accepted = []
    for token in tokens_for(sale, [buyer, buyer]):
        try:
            reserve(sale_id=sale.pk, order_id=token.order_id, user_id=buyer.pk)
            accepted.append(token.order_id)
        except AlreadyOrdered:
            pass
    fulfil_sale(sale_id=sale.pk)
    assert len(accepted) == (1 if guarded else 2)
    assert refusals_of(sale) == ({} if guarded else {accepted[1]: "already_ordered"})
    assert len(live_ids(sale)) == 1, "the unique key and the look under the row's lock still hold"


@on_and_off
def test_accepted_order_survives_a_lost_message(
    monkeypatch: pytest.MonkeyPatch, guarded: bool
) -> None:
    """The pending set: without it the only word of an accepted order is a message."""
    if not guarded:
        take_out(monkeypatch, "redis.call('ZADD', KEYS[2], now, order_id .. ':' .. field)")
    sale, tokens = reserved_sale(make_buyers(3))
    # The message of the reservations is lost; this is the one that the sweep sends.
    fulfil_sale(sale_id=sale.pk)
    assert live_ids(sale) == (ids(tokens) if guarded else [])
    assert len(buyers_of(sale)) == 3


@on_and_off
def test_overtaken_lock_holder_does_not_write(
    monkeypatch: pytest.MonkeyPatch, guarded: bool
) -> None:
    """The fence: without it one writes who has lost the lock and does not know."""
    sale, buyers = make_sale(), make_buyers(2)
    if not guarded:
        monkeypatch.setattr(batch, "lock_seckill_voucher", locked_without_fence)
    newer, older = sale.fence + 2, sale.fence + 1
    written = []
    for number, (buyer, token) in enumerate(zip(buyers, (newer, older), strict=True), start=1):
        entry = an_entry(sale, buyer.pk, order_id=1_000 + number)
        with suppress(StaleFence):
            write_batch(
                sale_id=sale.pk,
                entries=[entry],
                fencing_token=token,
                number=sale.batch + number,
                lost=lambda: False,
            )
            written.append(token)
    assert written == ([newer] if guarded else [newer, older])
    assert len(live_ids(sale)) == len(written)


def locked_without_fence(*, sale_id: int) -> SeckillVoucher:
    """Lock the row and forget which token wrote last."""
    sale = lock_seckill_voucher(sale_id=sale_id)
    sale.fence = 0
    return sale
