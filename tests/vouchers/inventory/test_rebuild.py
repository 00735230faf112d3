"""Loading a sale: new, with a lost or broken ledger, and several loads at once."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import nullcontext, suppress
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import OperationalError, connection, transaction
from django.utils import timezone
from pytest_django import DjangoAssertNumQueries

from orders.fulfilment.worker import fulfil_sale
from orders.models import OrderStatus, RefusalReason
from seckill_site.clocks.database import database_now
from seckill_site.clocks.machine import epoch_ms
from seckill_site.installation import own_identity
from seckill_site.redis.ledger_connection import ledger_connection
from tests.fixtures.site import RedisGone
from tests.fixtures.vouchers import DropGuard, Dump
from tests.support.orders import another_session, at_once, hold_row
from tests.support.sales import (
    HOUR,
    all_pending,
    change_state,
    lose_state,
    make_loaded_sale,
    make_order,
    make_sale,
    make_user,
    make_waiting,
    open_ledger,
    redis_now_ms,
    reserve,
    reserve_entry,
    why_ended,
)
from tests.support.tiers import slow_after
from vouchers.inventory import rebuild
from vouchers.inventory.holdings import Holding, held_order_ids, read_buyers, read_pending
from vouchers.inventory.keys import (
    CONTENTS,
    STATE,
    LedgerKeys,
    LedgerUnavailable,
    NotLoaded,
    ledger_script,
)
from vouchers.inventory.rebuild import (
    FENCE_BITS,
    FOREIGN_KEPT_MS,
    LoadCode,
    load_after_commit,
    load_sale,
    load_sale_exclusively,
    rebuild_sale,
    snapshot_or_load,
)
from vouchers.inventory.reservations import ENDED_RETENTION_MS, AlreadyOrdered, SoldOut, confirm
from vouchers.inventory.sale_state import LedgerTerms, snapshot
from vouchers.inventory.waiting_list import waiting_order_ids
from vouchers.models import SeckillVoucher

LOAD = ledger_script("load")
WORDS = (
    *("epoch", "total", "limit", "paused", "rebuy", "begins_at_ms", "ends_at_ms"),
    *("loaded_at_ms", "batch"),
)


# --- a new sale -----------------------------------------------------------------------------------


@pytest.mark.django_db
def test_new_sale_is_loaded_with_terms_of_row(ledger: Any) -> None:
    sale = make_sale(stock=5, limit=2, paused=True, rebuy=False)

    load_sale(sale_id=sale.pk)

    sale.refresh_from_db()
    found = snapshot(sale_id=sale.pk)
    assert found.terms == LedgerTerms.from_sale(sale)
    assert (found.epoch, found.taken, found.pending) == (1, 0, 0)
    assert ledger.hkeys(LedgerKeys(sale.pk).buyers) == [STATE]
    assert ledger.hget(LedgerKeys(sale.pk).sale, "identity") == str(sale.identity)
    assert (sale.epoch, sale.fence) == (1, 1 << FENCE_BITS)


@pytest.mark.django_db
def test_loading_loaded_sale_only_copies_terms() -> None:
    sale = make_loaded_sale(stock=5)
    reserve(sale_id=sale.pk, order_id=501, user_id=7)
    SeckillVoucher.objects.filter(pk=sale.pk).update(stock=9, paused=True)

    load_sale(sale_id=sale.pk)

    sale.refresh_from_db()
    found = snapshot(sale_id=sale.pk)
    assert found.terms == LedgerTerms.from_sale(sale)
    assert (found.epoch, found.taken, sale.epoch) == (1, 1, 1)


@pytest.mark.django_db(transaction=True)
def test_row_is_locked_for_every_write_of_a_load(steps: list[str]) -> None:
    sale = make_sale()
    own_identity()  # written on first use
    steps.clear()

    load_sale(sale_id=sale.pk)

    assert steps == [
        "check_format",
        *("FOR UPDATE", "write_terms", "COMMIT"),
        *("FOR UPDATE", "INSERT vouchers_chainlink", "UPDATE vouchers_seckillvoucher", "COMMIT"),
        *("FOR UPDATE", "put_foreign_aside", "snapshot", "unload", "load", "COMMIT"),
    ]


@pytest.mark.django_db(transaction=True)
def test_load_inside_transaction_is_refused() -> None:
    sale = make_sale()

    with transaction.atomic(), pytest.raises(RuntimeError, match="durable"):
        load_sale(sale_id=sale.pk)


@pytest.mark.django_db
def test_epoch_stays_when_redis_does_not_answer(redis_gone: RedisGone) -> None:
    sale = make_sale()

    with redis_gone(), pytest.raises(LedgerUnavailable):
        load_sale(sale_id=sale.pk)

    sale.refresh_from_db()
    assert (sale.epoch, sale.fence) == (0, 0)


@pytest.mark.django_db
def test_contents_beyond_one_chunk_are_all_loaded(
    ledger: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rebuild, "_CHUNK_SIZE", 2)
    sale = make_sale()
    for n in range(1, 6):
        make_order(sale, make_user(f"buyer {n}"), order_id=500 + n)
        make_order(sale, make_user(f"once {n}"), order_id=600 + n, status=OrderStatus.CANCELLED)
        make_waiting(sale, make_user(f"waiting {n}"), order_id=700 + n)

    load_sale(sale_id=sale.pk)

    assert waiting_order_ids(sale_id=sale.pk) == set(range(701, 706))
    assert set(ledger.hvals(LedgerKeys(sale.pk).barred)) == {str(600 + n) for n in range(1, 6)}
    assert {holding.order_id for holding in read_buyers(sale_id=sale.pk)} == set(range(501, 506))


# --- a lost ledger --------------------------------------------------------------------------------


class RunningSale:
    """A sale with one live order, one pending entry and one refused order."""

    def __init__(self, *, stock: int = 5) -> None:
        self.sale = make_loaded_sale(stock=stock)
        self.pk, self.keys = self.sale.pk, LedgerKeys(self.sale.pk)
        self.ada, self.bob, self.eve = (make_user(name) for name in ("ada", "bob", "eve"))
        done = reserve_entry(sale_id=self.pk, order_id=501, user_id=self.ada.pk)
        make_order(self.sale, self.ada, order_id=501)
        confirm(sale_id=self.pk, entries=[done])
        reserve(sale_id=self.pk, order_id=502, user_id=self.bob.pk)
        refused = {"status": OrderStatus.REFUSED, "reason": RefusalReason.ALREADY_ORDERED}
        make_order(self.sale, self.eve, order_id=503, **refused)

        self.ordered, self.pending = Holding(501, self.ada.pk, 1), Holding(502, self.bob.pk, 1)

    def check_contents(self) -> None:
        assert read_buyers(sale_id=self.pk) == {self.ordered, self.pending}
        assert read_pending(sale_id=self.pk) == {self.pending}


@pytest.mark.django_db
def test_flushed_ledger_is_rebuilt_from_orders_under_new_epoch(ledger: Any) -> None:
    running = RunningSale()
    ledger.flushall()

    load_sale(sale_id=running.pk)

    assert read_buyers(sale_id=running.pk) == {running.ordered}
    assert all_pending(sale_id=running.pk) == []
    assert snapshot(sale_id=running.pk).remaining == 4
    running.sale.refresh_from_db()
    assert (running.sale.epoch, running.sale.fence) == (2, 2 << FENCE_BITS)
    assert snapshot(sale_id=running.pk).epoch == 2


@pytest.mark.django_db
def test_higher_fence_is_never_lowered() -> None:
    sale = make_sale(fence=99 << FENCE_BITS)

    load_sale(sale_id=sale.pk)

    sale.refresh_from_db()
    assert sale.fence == 99 << FENCE_BITS


@pytest.mark.django_db
def test_lost_buyers_are_rebuilt_from_orders_and_pending(ledger: Any) -> None:
    running = RunningSale()
    ledger.unlink(running.keys.buyers)

    load_sale(sale_id=running.pk)

    running.check_contents()


@pytest.mark.django_db
def test_buyer_without_row_or_pending_entry_becomes_pending(ledger: Any) -> None:
    running = RunningSale()
    ledger.unlink(running.keys.pending)
    lose_state(running.pk)  # a lost `pending` alone does not start a build
    before_ms = redis_now_ms()

    load_sale(sale_id=running.pk)

    running.check_contents()
    [entry] = all_pending(sale_id=running.pk)
    assert before_ms <= entry.accepted_at_ms <= redis_now_ms()


@pytest.mark.django_db
def test_surviving_pending_entry_keeps_its_time(ledger: Any) -> None:
    running = RunningSale()
    [before] = all_pending(sale_id=running.pk)
    lose_state(running.pk)

    load_sale(sale_id=running.pk)

    assert all_pending(sale_id=running.pk) == [before]


@pytest.mark.django_db
def test_pending_entry_with_row_is_dropped(ledger: Any) -> None:
    running = RunningSale()
    make_order(running.sale, running.bob, order_id=502)
    lose_state(running.pk)

    load_sale(sale_id=running.pk)

    assert read_buyers(sale_id=running.pk) == {running.ordered, running.pending}
    assert all_pending(sale_id=running.pk) == []


@pytest.mark.django_db
def test_live_order_wins_over_survivor_of_same_unit(ledger: Any) -> None:
    running = RunningSale()
    make_order(running.sale, running.bob, order_id=400)
    lose_state(running.pk)

    load_sale(sale_id=running.pk)

    assert held_order_ids(sale_id=running.pk, user_id=running.bob.pk) == [400]
    assert [entry.order_id for entry in all_pending(sale_id=running.pk)] == [502]


@pytest.mark.django_db
def test_ended_orders_are_rebuilt_with_reason(ledger: Any) -> None:
    running = RunningSale()
    make_order(running.sale, running.bob, order_id=504, status=OrderStatus.CANCELLED)
    ledger.flushall()

    load_sale(sale_id=running.pk)

    assert why_ended(sale_id=running.pk, order_id=503) == f"{running.eve.pk}:already_ordered"
    assert why_ended(sale_id=running.pk, order_id=504) == f"{running.bob.pk}:cancelled"
    assert why_ended(sale_id=running.pk, order_id=501) is None


OVER = (OrderStatus.CANCELLED, OrderStatus.EXPIRED, OrderStatus.REFUNDED)


@pytest.mark.django_db
def test_rebuild_bars_buyers_of_ended_but_not_refused_orders(ledger: Any) -> None:
    running = RunningSale()
    for n, status in enumerate(OVER):
        user = make_user(status.value)
        make_order(running.sale, user, order_id=600 + n, status=status)
    had = [running.sale.orders.get(pk=600 + n) for n in range(len(OVER))]
    ledger.flushall()

    load_sale(sale_id=running.pk)

    expected = {str(order.user_id): str(order.pk) for order in had}
    assert ledger.hgetall(running.keys.barred) == expected


@pytest.mark.django_db
def test_rebuilt_sale_bars(ledger: Any) -> None:
    sale, ada = make_loaded_sale(rebuy=False), make_user("ada")
    make_order(sale, ada, order_id=501, status=OrderStatus.CANCELLED)
    ledger.flushall()
    load_sale(sale_id=sale.pk)

    with pytest.raises(AlreadyOrdered, match="order 501"):
        reserve(sale_id=sale.pk, order_id=502, user_id=ada.pk)


def read_waiting(ledger: Any, sale: SeckillVoucher) -> list[tuple[str, float]]:
    """Return ``<order id>:<user>`` of all waiting buyers in their order, with their times."""
    return list(ledger.zrange(LedgerKeys(sale.pk).waiting, 0, -1, withscores=True))


@pytest.mark.django_db
def test_waiting_list_is_rebuilt_in_order(ledger: Any) -> None:
    sale, other = make_loaded_sale(stock=0), make_loaded_sale(stock=0)
    joined_at = timezone.now().replace(microsecond=123_000)
    for n, name in enumerate(("ada", "bob", "eve")):
        make_waiting(sale, make_user(name), order_id=501 + n, joined_at=joined_at - n * HOUR)
    make_waiting(sale, make_user("gone"), order_id=504, live=None, outcome="left")
    make_waiting(other, make_user("elsewhere"), order_id=505)
    users = dict(sale.waiting_entries.values_list("order_id", "user_id"))
    ledger.flushall()

    load_sale(sale_id=sale.pk)

    assert read_waiting(ledger, sale) == [
        (f"{order_id}:{users[order_id]}", epoch_ms(joined_at - hours * HOUR))
        for order_id, hours in ((503, 2), (502, 1), (501, 0))
    ]


@pytest.mark.django_db
@pytest.mark.parametrize("guarded", [True, False], ids=["guard", "control"])
def test_rebuilt_waiting_list_comes_before_newcomers(
    guarded: bool, ledger: Any, drop_guard: DropGuard
) -> None:
    """A ledger with nothing but a waiting list is not plain."""
    if not guarded:
        drop_guard(rebuild, "_LOAD", "if i > 2 then plain = '0' end")
    sale, ada = make_loaded_sale(stock=0), make_user("ada")
    make_waiting(sale, ada, order_id=501)
    ledger.flushall()
    load_sale(sale_id=sale.pk)
    change_state(sale.pk, total=1)  # without giving the unit away

    with pytest.raises(SoldOut) if guarded else nullcontext():
        reserve(sale_id=sale.pk, order_id=601, user_id=make_user("eve").pk)


@pytest.mark.django_db
@pytest.mark.parametrize("guarded", [True, False], ids=["guard", "control"])
@pytest.mark.parametrize("name", slow_after(1, ["ended", "tries", "barred", "waiting"]))
def test_nothing_is_accepted_between_reading_and_installing(
    name: str, guarded: bool, ledger: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Orders in a plain sale do not read these keys, so their wrong type does not stop any."""
    sale, ada = make_loaded_sale(), make_user("ada")
    ledger.set(getattr(LedgerKeys(sale.pk), name), "wrong")
    if not guarded:
        monkeypatch.setattr(rebuild, "_close", lambda **_: True)
    collect, accepted = rebuild._collect_contents, []

    def collect_and_order(**given: Any) -> Any:
        contents = collect(**given)
        with suppress(NotLoaded):
            accepted.append(reserve(sale_id=sale.pk, order_id=501, user_id=ada.pk).order_id)
        return contents

    monkeypatch.setattr(rebuild, "_collect_contents", collect_and_order)
    load_sale(sale_id=sale.pk)

    assert accepted == ([] if guarded else [501])
    assert held_order_ids(sale_id=sale.pk, user_id=ada.pk) == []


@pytest.mark.django_db
def test_ledger_of_an_earlier_release_is_rebuilt_without_junk(ledger: Any) -> None:
    running = RunningSale()
    lose_state(running.pk)
    ledger.hset(running.keys.buyers, "epoch", "1:0")

    load_sale(sale_id=running.pk)

    running.check_contents()
    assert not ledger.exists(running.keys.junk)


def pause(sale: SeckillVoucher) -> None:
    """Keep units from being given to waiting buyers."""
    SeckillVoucher.objects.filter(pk=sale.pk).update(paused=True)


def given_and_pending(sale: SeckillVoucher, user: User) -> None:
    """Give the unit, with no row yet."""
    reserve(sale_id=sale.pk, order_id=501, user_id=user.pk)


def given_and_only_among_the_buyers(sale: SeckillVoucher, user: User) -> None:
    """Give the unit, with no row yet and the pending entry lost."""
    given_and_pending(sale, user)
    ledger_connection().unlink(LedgerKeys(sale.pk).pending)


def given_and_ordered(sale: SeckillVoucher, user: User) -> None:
    make_order(sale, user, order_id=501)


def given_and_cancelled(sale: SeckillVoucher, user: User) -> None:
    make_order(sale, user, order_id=501, status=OrderStatus.CANCELLED)


def given_and_refused(sale: SeckillVoucher, user: User) -> None:
    make_order(sale, user, order_id=501, status=OrderStatus.REFUSED, reason="sold_out")


@pytest.mark.django_db
@pytest.mark.parametrize(
    "given",
    slow_after(
        1,
        [
            given_and_pending,
            given_and_only_among_the_buyers,
            given_and_ordered,
            given_and_cancelled,
            given_and_refused,
        ],
    ),
    ids=lambda given: given.__name__,
)
def test_buyer_given_a_unit_is_not_restored_to_list(
    ledger: Any, given: Callable[[SeckillVoucher, User], None]
) -> None:
    """The waiting entry's row may not be closed yet."""
    sale, ada, bob = make_loaded_sale(stock=1), make_user("ada"), make_user("bob")
    make_waiting(sale, ada, order_id=501)
    make_waiting(sale, bob, order_id=502)
    given(sale, ada)
    lose_state(sale.pk)
    ledger.unlink(LedgerKeys(sale.pk).waiting)
    pause(sale)

    load_sale(sale_id=sale.pk)

    assert [member for member, _ in read_waiting(ledger, sale)] == [f"502:{bob.pk}"]


@pytest.mark.django_db
def test_lost_given_unit_is_waited_for_again(ledger: Any) -> None:
    sale, ada, bob = make_loaded_sale(stock=1), make_user("ada"), make_user("bob")
    make_waiting(sale, ada, order_id=501)
    make_waiting(sale, bob, order_id=502, joined_at=timezone.now() + HOUR)
    given_and_pending(sale, ada)
    ledger.flushall()
    pause(sale)

    load_sale(sale_id=sale.pk)

    members = [member for member, _ in read_waiting(ledger, sale)]
    assert members == [f"501:{ada.pk}", f"502:{bob.pk}"]


@pytest.mark.django_db
def test_rebuilt_ended_ids_have_full_retention(ledger: Any) -> None:
    running = RunningSale()
    ledger.flushall()

    before_ms = redis_now_ms()
    load_sale(sale_id=running.pk)

    elapsed_ms = redis_now_ms() - before_ms
    ends_at_ms = LedgerTerms.from_sale(running.sale).ends_at_ms
    kept_until_ms = ledger.pexpiretime(running.keys.ended)
    assert abs(kept_until_ms - (ends_at_ms + ENDED_RETENTION_MS)) <= elapsed_ms + 1


@pytest.mark.django_db
@pytest.mark.parametrize("name", slow_after(1, CONTENTS))
def test_load_repairs_key_of_wrong_type(ledger: Any, name: str) -> None:
    running = RunningSale()
    key = getattr(running.keys, name)
    ledger.delete(key)
    ledger.set(key, "of a wrong type")
    with pytest.raises(NotLoaded):
        snapshot(sale_id=running.pk)

    load_sale(sale_id=running.pk)

    running.check_contents()
    reserve(sale_id=running.pk, order_id=504, user_id=running.eve.pk)


@pytest.mark.django_db
@pytest.mark.parametrize("word", slow_after(1, WORDS))
def test_load_repairs_lost_word(word: str) -> None:
    running = RunningSale()
    change_state(running.pk, **{word: ""})

    load_sale(sale_id=running.pk)

    running.check_contents()
    assert snapshot(sale_id=running.pk).terms == LedgerTerms.from_sale(running.sale)


class Crash(Exception):
    """The process ends between two steps."""


@pytest.mark.django_db(transaction=True)
def test_fence_rises_before_ledger_is_built(ledger: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    sale = make_loaded_sale()
    earlier_token = (sale.epoch << FENCE_BITS) + 7
    ledger.flushall()

    def crash(**kwargs: Any) -> None:
        raise Crash("by the test")

    monkeypatch.setattr(rebuild, "_build_ledger", crash)
    with pytest.raises(Crash):
        load_sale(sale_id=sale.pk)

    sale.refresh_from_db()
    assert sale.fence > earlier_token
    with pytest.raises(NotLoaded):
        snapshot(sale_id=sale.pk)


# --- load.lua -------------------------------------------------------------------------------------


SIDE = ("buyers", "pending", "ended", "barred", "waiting")


def run_load(keys: LedgerKeys, *, lose: Callable[[], None] = lambda: None) -> object:
    """Run ``load.lua`` on the side keys of build ``b``; ``lose`` may delete parts of them first."""
    side = [keys.side(name, "b") for name in SIDE]
    client = ledger_connection()
    counts = [
        client.zcard(key) if name in ("pending", "waiting") else client.hlen(key)
        for name, key in zip(SIDE, side, strict=True)
    ]
    lose()
    terms = [9, 0, redis_now_ms() + 60_000, 1, 1, 1, 9]  # paused: no waiting buyer is given a unit
    line = (0, 0, "")
    return LOAD.run(
        client,
        keys=[*keys.contents, keys.kick, keys.trying, keys.sale, keys.room, *side, keys.price],
        args=[2, *terms, "", ENDED_RETENTION_MS, 0, "run", *line, *counts, "", 8_000],
    )


def test_loaded_ledger_is_not_replaced(ledger: Any, dump: Dump) -> None:
    keys = open_ledger(1)
    reserve(sale_id=1, order_id=501, user_id=7)
    before = dump()
    ledger.hset(keys.side("buyers", "b"), "8:1", 502)
    ledger.zadd(keys.side("pending", "b"), {"502:8:1": 1})
    ledger.hset(keys.side("ended", "b"), mapping={"503": "9:sold_out"})
    ledger.hset(keys.side("barred", "b"), "9", "504")
    ledger.zadd(keys.side("waiting", "b"), {"505:9": 1})

    assert run_load(keys) == "ALREADY_LOADED"

    assert dump() == before


def test_build_with_expired_side_keys_is_built_again(
    monkeypatch: pytest.MonkeyPatch, ledger: Any, db: None
) -> None:
    sale = make_sale()
    make_order(sale, make_user("ada"), order_id=501)
    write = rebuild._write_side_key

    def write_and_lose(key: str, part: dict[str, Any]) -> None:
        write(key, part)
        ledger.unlink(key)

    monkeypatch.setattr(rebuild, "_write_side_key", write_and_lose)
    with pytest.raises(LedgerUnavailable):
        load_sale(sale_id=sale.pk)
    monkeypatch.undo()

    load_sale(sale_id=sale.pk)

    sale.refresh_from_db()
    assert snapshot(sale_id=sale.pk).epoch == sale.epoch == 2, "no epoch is given twice"


def test_installed_ledger_replaces_keys_without_expiry(ledger: Any) -> None:
    keys = LedgerKeys(1)
    ledger.hset(keys.buyers, STATE, "1:0")  # not a whole state
    ledger.set(keys.kick, "1")
    ledger.hset(keys.ended, "500", "1:sold_out")
    ledger.hset(keys.barred, "1", "500")
    ledger.zadd(keys.waiting, {"506:1": 1})
    ledger.hset(keys.side("buyers", "b"), mapping={"8:1": 502})
    ledger.zadd(keys.side("pending", "b"), {"502:8:1": 1})
    ledger.hset(keys.side("ended", "b"), "503", "9:sold_out")
    ledger.hset(keys.side("barred", "b"), "9", "504")
    ledger.zadd(keys.side("waiting", "b"), {"505:9": 1})
    for name in SIDE:
        ledger.expire(keys.side(name, "b"), 60)

    assert run_load(keys) == "LOADED"

    lasting = {keys.sale, keys.buyers, keys.pending, keys.barred, keys.waiting, keys.price}
    assert set(ledger.scan_iter("seckill:{*")) == {*lasting, keys.ended}
    assert {ledger.ttl(key) for key in lasting} == {-1}
    assert ledger.hgetall(keys.barred) == {"9": "504"}
    assert ledger.zrange(keys.waiting, 0, -1) == ["505:9"]
    assert ledger.hgetall(keys.ended) == {"503": "9:sold_out"}
    assert ledger.ttl(keys.ended) > 60
    assert read_pending(sale_id=1) == {Holding(502, 8, 1)}


# --- other ways to load ---------------------------------------------------------------------------


@pytest.mark.django_db
def test_exclusive_load_allows_the_next_load(ledger: Any) -> None:
    sale = make_sale()

    load_sale_exclusively(sale_id=sale.pk)
    lose_state(sale.pk)
    load_sale_exclusively(sale_id=sale.pk)

    assert snapshot(sale_id=sale.pk).epoch == 2


@pytest.mark.django_db
def test_concurrent_load_is_unavailable_without_queries(
    ledger: Any, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    sale = make_sale()
    ledger.set(LedgerKeys(sale.pk).loading, "1")

    with django_assert_num_queries(0), pytest.raises(LedgerUnavailable):
        load_sale_exclusively(sale_id=sale.pk)


@pytest.mark.django_db
def test_exclusive_load_expires_after_three_seconds(
    ledger: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    sale = make_sale()
    ttls_ms = []

    def read_ttl(**kwargs: Any) -> None:
        ttls_ms.append(ledger.pttl(LedgerKeys(sale.pk).loading))

    monkeypatch.setattr(rebuild, "load_sale", read_ttl)

    load_sale_exclusively(sale_id=sale.pk)

    assert 0 < ttls_ms[0] <= 3_000


@pytest.mark.django_db
def test_failed_load_allows_the_next_load(ledger: Any) -> None:
    with pytest.raises(SeckillVoucher.DoesNotExist):
        load_sale_exclusively(sale_id=404)

    assert not list(ledger.scan_iter("seckill:{*"))


@pytest.mark.django_db
def test_snapshot_loads_a_missing_ledger_once(
    django_assert_num_queries: DjangoAssertNumQueries,
) -> None:
    sale = make_sale(stock=5)

    assert snapshot_or_load(sale_id=sale.pk).remaining == 5
    with django_assert_num_queries(0):
        assert snapshot_or_load(sale_id=sale.pk).epoch == 1


@pytest.mark.django_db
def test_load_after_commit_without_redis_only_warns(
    redis_gone: RedisGone, caplog: pytest.LogCaptureFixture
) -> None:
    sale = make_sale()

    with redis_gone():
        load_after_commit(sale_ids=[sale.pk])

    assert f"sale {sale.pk} is saved but not loaded" in caplog.text


@pytest.mark.django_db(transaction=True)
def test_load_after_commit_with_locked_row_only_warns(
    row_locks: None, caplog: pytest.LogCaptureFixture
) -> None:
    sale = make_sale()
    with connection.cursor() as cursor:
        cursor.execute("SET SESSION innodb_lock_wait_timeout = 1")
    with another_session() as holder:
        hold_row(holder, sale)
        load_after_commit(sale_ids=[sale.pk])
    connection.close()  # its timeout goes with it

    assert f"sale {sale.pk} is saved but not loaded" in caplog.text


# --- two at once ----------------------------------------------------------------------------------


@pytest.mark.django_db(transaction=True)
def test_orders_are_fulfilled_after_concurrent_loads(row_locks: None, ledger: Any) -> None:
    """One of them may have raised the epoch after another's ledger was installed."""
    sale, user = make_sale(), make_user("ada")
    keys = LedgerKeys(sale.pk)

    assert at_once(*[lambda: load_sale(sale_id=sale.pk)] * 4) == [None] * 4
    assert set(ledger.scan_iter("seckill:{*")) == {keys.sale, keys.buyers, keys.price}
    reserve(sale_id=sale.pk, order_id=501, user_id=user.pk)

    for _ in range(2):  # the second is the sweep's
        fulfil_sale(sale_id=sale.pk)

    assert all_pending(sale_id=sale.pk) == []
    assert sale.orders.get().pk == 501


@pytest.mark.django_db(transaction=True)
def test_second_load_keeps_ledger_and_buyers_of_first(monkeypatch: pytest.MonkeyPatch) -> None:
    sale = make_sale(stock=5)
    build = rebuild._build_ledger

    def build_after_another_load(**kwargs: Any) -> None:
        monkeypatch.undo()
        load_sale(sale_id=sale.pk)
        reserve(sale_id=sale.pk, order_id=501, user_id=7)
        build(**kwargs)

    monkeypatch.setattr(rebuild, "_build_ledger", build_after_another_load)

    load_sale(sale_id=sale.pk)

    assert read_buyers(sale_id=sale.pk) == read_pending(sale_id=sale.pk) == {Holding(501, 7, 1)}


@pytest.mark.django_db(transaction=True)
def test_loads_among_reservations_lose_no_buyer(row_locks: None, ledger: Any) -> None:
    sale = make_loaded_sale(stock=100)
    accepted: list[int] = []

    def buy(first: int) -> None:
        for user_id in range(first, first + 30):
            with suppress(NotLoaded):
                reserve(sale_id=sale.pk, order_id=1_000 + user_id, user_id=user_id)
                accepted.append(1_000 + user_id)

    def lose_and_load() -> None:
        for _ in range(5):
            ledger.hdel(LedgerKeys(sale.pk).buyers, STATE)
            load_sale(sale_id=sale.pk)

    runs = at_once(lambda: buy(1), lambda: buy(101), lose_and_load, lose_and_load)

    assert runs == [None] * 4
    load_sale(sale_id=sale.pk)
    held = {holding.order_id for holding in read_buyers(sale_id=sale.pk)}
    assert held == set(accepted)
    assert {entry.order_id for entry in all_pending(sale_id=sale.pk)} == held


def unlocked(*, sale_id: int) -> SeckillVoucher:
    sale = SeckillVoucher.objects.get(pk=sale_id)
    sale.locked_at = database_now()
    return sale


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("guarded", [True, False], ids=["guard", "control"])
def test_row_is_locked_from_reading_orders_to_install(
    row_locks: None, monkeypatch: pytest.MonkeyPatch, guarded: bool
) -> None:
    sale, raised = make_sale(), []
    install = rebuild._install
    if not guarded:
        monkeypatch.setattr(rebuild, "lock_seckill_voucher", unlocked)

    def lock_and_install(*args: Any) -> LoadCode:
        try:
            with another_session() as session:
                hold_row(session, sale, how="NOWAIT")
        except OperationalError as error:
            raised.append(error)
        return install(*args)

    monkeypatch.setattr(rebuild, "_install", lock_and_install)
    load_sale(sale_id=sale.pk)

    assert len(raised) == guarded


@pytest.mark.django_db
def test_build_with_overtaken_epoch_starts_again(
    ledger: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is for an older loss: a worker that started in between would not be refused."""
    sale = make_sale()
    real, raised = rebuild._raise_epoch, list[int]()

    def raise_and_overtake(*, sale_id: int) -> int:
        raised.append(real(sale_id=sale_id))
        if len(raised) == 1:
            raised.append(real(sale_id=sale_id))
            return raised[0]
        return raised[-1]

    monkeypatch.setattr(rebuild, "_raise_epoch", raise_and_overtake)
    load_sale(sale_id=sale.pk)
    assert raised == [1, 2, 3]
    assert snapshot(sale_id=sale.pk).epoch == 3


@pytest.mark.django_db
def test_overtaken_load_retries_with_random_pauses(
    ledger: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    sale = make_sale()
    real, raised, paused = rebuild._raise_epoch, list[int](), list[float]()
    here, sleep = threading.get_ident(), time.sleep

    def raise_and_overtake(*, sale_id: int) -> int:
        raised.append(real(sale_id=sale_id))
        return raised[-1] if len(raised) == len(rebuild.LOAD_PAUSES_S) else raised[-1] - 1

    def pause(seconds: float) -> None:
        (paused.append if threading.get_ident() == here else sleep)(seconds)

    monkeypatch.setattr(rebuild, "_raise_epoch", raise_and_overtake)
    monkeypatch.setattr(time, "sleep", pause)
    load_sale(sale_id=sale.pk)
    assert snapshot(sale_id=sale.pk).epoch == len(raised) == len(rebuild.LOAD_PAUSES_S)
    assert all(0 <= it <= most for it, most in zip(paused, rebuild.LOAD_PAUSES_S, strict=True))
    assert paused[0] == 0 < paused[-1]


@pytest.mark.parametrize("part", SIDE)
def test_partly_lost_side_keys_install_nothing(ledger: Any, part: str) -> None:
    keys = LedgerKeys(1)
    ledger.hset(keys.side("buyers", "b"), mapping={"8:1": 502})
    ledger.zadd(keys.side("pending", "b"), {"502:8:1": 1, "503:9:1": 2})
    ledger.hset(keys.side("ended", "b"), mapping={"504": "9:sold_out", "505": "9:sold_out"})
    ledger.hset(keys.side("barred", "b"), mapping={"10": "506", "11": "507"})
    ledger.zadd(keys.side("waiting", "b"), {"508:12": 1, "509:13": 2})
    lost = {
        "buyers": ("hdel", "8:1"),
        "pending": ("zrem", "503:9:1"),
        "ended": ("hdel", "505"),
        "barred": ("hdel", "11"),
        "waiting": ("zrem", "509:13"),
    }

    def lose() -> None:
        command, field = lost[part]
        getattr(ledger, command)(keys.side(part, "b"), field)

    assert run_load(keys, lose=lose) == "SIDE_KEYS_LOST"
    assert list(ledger.scan_iter()) == []


# --- The ledger of another sale -------------------------------------------------------------------


def sale_with_a_reused_id(ledger: Any) -> SeckillVoucher:
    """Return a sale whose id had a ledger with a buyer, as after an older backup was restored."""
    sale = make_loaded_sale(stock=5)
    reserve(sale_id=sale.pk, order_id=501, user_id=7)
    sale.identity += 1
    sale.epoch = 0
    sale.save()
    return sale


@pytest.mark.django_db
def test_reused_id_does_not_inherit_the_old_ledger(ledger: Any) -> None:
    sale = sale_with_a_reused_id(ledger)
    keys = LedgerKeys(sale.pk)

    load_sale(sale_id=sale.pk)

    found = snapshot(sale_id=sale.pk)
    assert (found.taken, found.pending) == (0, 0)
    assert found.terms == LedgerTerms.from_sale(sale)
    assert ledger.hget(f"{keys.buyers}:foreign", "7:1") == "501"
    assert 0 < ledger.pttl(f"{keys.pending}:foreign") <= FOREIGN_KEPT_MS


@pytest.mark.django_db
@pytest.mark.parametrize("lost", ["sale", "buyers"])
def test_half_of_an_old_ledger_is_not_inherited(ledger: Any, lost: str) -> None:
    sale = sale_with_a_reused_id(ledger)
    ledger.delete(getattr(LedgerKeys(sale.pk), lost))

    load_sale(sale_id=sale.pk)

    assert snapshot(sale_id=sale.pk).taken == 0


@pytest.mark.django_db
def test_rebuild_of_a_reused_id_inherits_nothing_without_buyers(ledger: Any) -> None:
    """A rebuild deletes the terms: the last key that says whose entries are pending."""
    sale = sale_with_a_reused_id(ledger)
    ledger.delete(LedgerKeys(sale.pk).buyers)

    rebuild_sale(sale_id=sale.pk)

    assert snapshot(sale_id=sale.pk).taken == 0


@pytest.mark.django_db
def test_control_without_identity_strangers_are_inherited(
    ledger: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    sale = sale_with_a_reused_id(ledger)
    monkeypatch.setattr(rebuild, "put_foreign_aside", lambda **_: None)
    lose_state(sale.pk)

    load_sale(sale_id=sale.pk)

    assert snapshot(sale_id=sale.pk).taken == 1
