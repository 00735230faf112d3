"""Loading: a new sale, a lost or broken ledger, two loads at once."""

from __future__ import annotations

import re
import threading
from contextlib import suppress

import pytest
from django.db import OperationalError, connection, transaction
from django.utils import timezone

from orders.fulfilment.worker import fulfill_sale
from orders.models import OrderStatus, RefusalReason
from seckill_site.clock import epoch_ms
from tests.support.sales import (
    HOUR,
    all_pending,
    make_loaded_sale,
    make_order,
    make_sale,
    make_user,
    make_waiting,
    open_ledger,
    redis_now_ms,
    reserve_entry,
    why_ended,
)
from vouchers.inventory import rebuild
from vouchers.inventory.audit import read_buyers, read_pending
from vouchers.inventory.keys import Holding, LedgerKeys, LedgerUnavailable, NotLoaded, ledger_script
from vouchers.inventory.rebuild import (
    FENCE_BITS,
    load_after_commit,
    load_sale,
    load_sale_exclusively,
    snapshot_or_load,
)
from vouchers.inventory.reservations import (
    ENDED_RETENTION_MS,
    AlreadyOrdered,
    SoldOut,
    confirm,
    held_order_ids,
    reserve,
)
from vouchers.inventory.sale_state import LedgerTerms, snapshot
from vouchers.inventory.waiting_list import join_waiting, waiting_order_ids
from vouchers.models import SeckillVoucher

LOAD = ledger_script("load")
CONTENTS = ("sale", "buyers", "pending", "ended", "tries", "barred", "waiting")
FIELDS = (
    *("epoch", "total", "limit", "paused", "rebuy", "begins_at_ms", "ends_at_ms"),
    "loaded_at_ms",
)


# --- a new sale ----------------------------------------------------------------------------------


@pytest.mark.django_db
def test_a_new_sale_is_loaded_with_the_figures_of_its_row(ledger):
    sale = make_sale(stock=5, limit=2, paused=True, rebuy=False)

    load_sale(sale_id=sale.pk)

    found = snapshot(sale_id=sale.pk)
    assert found.terms == LedgerTerms.from_sale(sale)
    assert (found.epoch, found.taken, found.pending) == (1, 0, 0)
    assert ledger.hgetall(LedgerKeys(sale.pk).buyers) == {"epoch": "1"}


@pytest.mark.django_db
def test_a_loaded_ledger_stays_and_its_side_keys_are_gone(ledger):
    sale = make_sale(paused=True)  # so that nobody in line is given a unit
    user = make_user("ada")
    make_order(sale, user, order_id=501)
    make_order(sale, user, order_id=502, status=OrderStatus.CANCELLED)
    make_waiting(sale, make_user("bob"), order_id=503)

    load_sale(sale_id=sale.pk)

    keys = LedgerKeys(sale.pk)
    lasting = {keys.sale, keys.buyers, keys.barred, keys.waiting}
    assert set(ledger.scan_iter()) == {*lasting, keys.ended}
    assert {ledger.ttl(key) for key in lasting} == {-1}
    assert ledger.ttl(keys.ended) > 3_600


@pytest.mark.django_db
def test_loading_raises_epoch_and_fence_of_the_row():
    sale = make_loaded_sale()

    assert (sale.epoch, sale.fence) == (1, 1 << FENCE_BITS)


@pytest.mark.django_db
def test_loading_a_loaded_sale_copies_the_figures_and_nothing_else():
    sale = make_loaded_sale(stock=5)
    reserve(sale_id=sale.pk, order_id=501, user_id=7)
    SeckillVoucher.objects.filter(pk=sale.pk).update(stock=9, paused=True)

    load_sale(sale_id=sale.pk)

    sale.refresh_from_db()
    found = snapshot(sale_id=sale.pk)
    assert found.terms == LedgerTerms.from_sale(sale)
    assert (found.epoch, found.taken, sale.epoch) == (1, 1, 1)


@pytest.mark.django_db
def test_a_sale_that_there_is_not_is_not_loaded(ledger):
    with pytest.raises(SeckillVoucher.DoesNotExist):
        load_sale(sale_id=404)

    assert not list(ledger.scan_iter())


@pytest.mark.django_db(transaction=True)
def test_the_row_is_held_whenever_row_or_ledger_is_written(steps):
    sale = make_sale()
    steps.clear()

    load_sale(sale_id=sale.pk)

    assert steps == [
        *("FOR UPDATE", "write_terms", "COMMIT"),
        *("FOR UPDATE", "UPDATE vouchers_seckillvoucher", "COMMIT"),
        *("FOR UPDATE", "snapshot", "load", "COMMIT"),
    ]


@pytest.mark.django_db(transaction=True)
def test_figures_are_copied_while_the_row_is_held(steps):
    sale = make_loaded_sale()
    steps.clear()

    load_sale(sale_id=sale.pk)

    assert steps == ["FOR UPDATE", "write_terms", "COMMIT"]


@pytest.mark.django_db(transaction=True)
def test_a_load_cannot_be_part_of_a_transaction_that_may_be_rolled_back():
    sale = make_sale()

    with transaction.atomic(), pytest.raises(RuntimeError, match="durable"):
        load_sale(sale_id=sale.pk)


@pytest.mark.django_db
def test_where_redis_does_not_answer_the_epoch_stays(redis_gone):
    sale = make_sale()

    with redis_gone(), pytest.raises(LedgerUnavailable):
        load_sale(sale_id=sale.pk)

    sale.refresh_from_db()
    assert (sale.epoch, sale.fence) == (0, 0)


@pytest.mark.django_db
def test_many_buyers_go_in_piece_by_piece(ledger, monkeypatch):
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


# --- a lost ledger -------------------------------------------------------------------------------


class Running:
    """A sale in its middle: one live order, one promise pending, one order refused."""

    def __init__(self, *, stock=5):
        self.sale = make_loaded_sale(stock=stock)
        self.pk, self.keys = self.sale.pk, LedgerKeys(self.sale.pk)
        self.ada, self.bob, self.eve = (make_user(name) for name in ("ada", "bob", "eve"))
        done = reserve_entry(sale_id=self.pk, order_id=501, user_id=self.ada.pk)
        make_order(self.sale, self.ada, order_id=501)
        confirm(sale_id=self.pk, entries=[done])
        reserve(sale_id=self.pk, order_id=502, user_id=self.bob.pk)
        refused = {"status": OrderStatus.REFUSED, "reason": RefusalReason.ALREADY_ORDERED}
        make_order(self.sale, self.eve, order_id=503, **refused)

    @property
    def ordered(self):
        return Holding(501, self.ada.pk, 1)

    @property
    def promised(self):
        return Holding(502, self.bob.pk, 1)

    def is_whole(self):
        return read_buyers(sale_id=self.pk) == {self.ordered, self.promised} and read_pending(
            sale_id=self.pk
        ) == {self.promised}


@pytest.mark.django_db
def test_after_flushall_the_live_orders_are_back_and_nobody_else(ledger):
    running = Running()
    ledger.flushall()

    load_sale(sale_id=running.pk)

    assert read_buyers(sale_id=running.pk) == {running.ordered}
    assert all_pending(sale_id=running.pk) == []
    assert snapshot(sale_id=running.pk).remaining == 4


@pytest.mark.django_db
def test_after_a_loss_epoch_and_fence_rise(ledger):
    running = Running()
    ledger.flushall()

    load_sale(sale_id=running.pk)

    running.sale.refresh_from_db()
    assert (running.sale.epoch, running.sale.fence) == (2, 2 << FENCE_BITS)
    assert snapshot(sale_id=running.pk).epoch == 2


@pytest.mark.django_db
def test_a_fence_that_stands_higher_is_never_lowered():
    sale = make_sale(fence=99 << FENCE_BITS)

    load_sale(sale_id=sale.pk)

    sale.refresh_from_db()
    assert sale.fence == 99 << FENCE_BITS


@pytest.mark.django_db
def test_a_sold_out_sale_is_sold_out_again_after_a_loss(ledger):
    running = Running(stock=1 + 1)
    make_order(running.sale, running.bob, order_id=502)
    ledger.flushall()

    load_sale(sale_id=running.pk)

    with pytest.raises(SoldOut):
        reserve(sale_id=running.pk, order_id=504, user_id=running.eve.pk)


@pytest.mark.django_db
def test_lost_buyers_are_rebuilt_from_the_orders_and_from_pending(ledger):
    running = Running()
    ledger.unlink(running.keys.buyers)

    load_sale(sale_id=running.pk)

    assert running.is_whole()


@pytest.mark.django_db
def test_with_pending_lost_a_buyer_without_a_row_goes_to_pending_not_to_release(ledger):
    running = Running()
    ledger.unlink(running.keys.pending)
    # Only a key of the pair that makes the ledger count as loaded starts a build.
    ledger.unlink(running.keys.sale)
    before_ms = redis_now_ms()

    load_sale(sale_id=running.pk)

    assert running.is_whole()
    [entry] = all_pending(sale_id=running.pk)
    assert before_ms <= entry.accepted_at_ms <= redis_now_ms()


@pytest.mark.django_db
def test_what_survived_in_pending_keeps_the_time_it_was_accepted_at(ledger):
    running = Running()
    [before] = all_pending(sale_id=running.pk)
    ledger.unlink(running.keys.sale)

    load_sale(sale_id=running.pk)

    assert all_pending(sale_id=running.pk) == [before]


@pytest.mark.django_db
def test_a_promise_that_became_a_row_meanwhile_is_pending_no_more(ledger):
    running = Running()
    make_order(running.sale, running.bob, order_id=502)
    ledger.unlink(running.keys.sale)

    load_sale(sale_id=running.pk)

    assert read_buyers(sale_id=running.pk) == {running.ordered, running.promised}
    assert all_pending(sale_id=running.pk) == []


@pytest.mark.django_db
def test_a_live_order_stands_before_a_survivor_of_the_same_unit(ledger):
    running = Running()
    make_order(running.sale, running.bob, order_id=400)
    ledger.unlink(running.keys.sale)

    load_sale(sale_id=running.pk)

    assert held_order_ids(sale_id=running.pk, user_id=running.bob.pk, limit=1) == [400]
    assert [entry.order_id for entry in all_pending(sale_id=running.pk)] == [502]


@pytest.mark.django_db
def test_orders_that_are_over_land_in_ended_with_their_reason(ledger):
    running = Running()
    make_order(running.sale, running.bob, order_id=504, status=OrderStatus.CANCELLED)
    ledger.flushall()

    load_sale(sale_id=running.pk)

    assert why_ended(sale_id=running.pk, order_id=503) == f"{running.eve.pk}:already_ordered"
    assert why_ended(sale_id=running.pk, order_id=504) == f"{running.bob.pk}:cancelled"
    assert why_ended(sale_id=running.pk, order_id=501) is None


OVER = (OrderStatus.CANCELLED, OrderStatus.EXPIRED, OrderStatus.REFUNDED)


@pytest.mark.django_db
def test_who_has_had_an_order_is_barred_again_and_who_was_only_refused_is_not(ledger):
    running = Running()
    for n, status in enumerate(OVER):
        user = make_user(status.value)
        make_order(running.sale, user, order_id=600 + n, status=status)
    had = [running.sale.orders.get(pk=600 + n) for n in range(len(OVER))]
    ledger.flushall()

    load_sale(sale_id=running.pk)

    expected = {str(order.user_id): str(order.pk) for order in had}
    assert ledger.hgetall(running.keys.barred) == expected


@pytest.mark.django_db
@pytest.mark.parametrize("rebuy", [False, True])
def test_after_a_loss_the_sale_still_knows_who_may_not_buy_again(ledger, rebuy):
    sale, ada = make_loaded_sale(rebuy=rebuy), make_user("ada")
    make_order(sale, ada, order_id=501, status=OrderStatus.CANCELLED)
    ledger.flushall()
    load_sale(sale_id=sale.pk)

    if rebuy:
        reserve(sale_id=sale.pk, order_id=502, user_id=ada.pk)
        return
    with pytest.raises(AlreadyOrdered) as refused:
        reserve(sale_id=sale.pk, order_id=502, user_id=ada.pk)
    assert refused.value.order_id == 501


def waiting_line(ledger, sale):
    """Return ``<order id>:<user>`` of all who wait, first in line first, with their times."""
    return ledger.zrange(LedgerKeys(sale.pk).waiting, 0, -1, withscores=True)


@pytest.mark.django_db
def test_after_a_loss_those_who_wait_are_in_line_as_they_were(ledger):
    sale, other = make_loaded_sale(stock=0), make_loaded_sale(stock=0)
    joined_at = timezone.now().replace(microsecond=123_000)
    for n, name in enumerate(("ada", "bob", "eve")):
        times = {"joined_at": joined_at - n * HOUR}
        make_waiting(sale, make_user(name), order_id=501 + n, **times)
    make_waiting(sale, make_user("who left"), order_id=504, live=None, outcome="left")
    make_waiting(other, make_user("elsewhere"), order_id=505)
    users = dict(sale.waiting_entries.values_list("order_id", "user_id"))
    ledger.flushall()

    load_sale(sale_id=sale.pk)

    assert waiting_line(ledger, sale) == [
        (f"{order_id}:{users[order_id]}", epoch_ms(joined_at - hours * HOUR))
        for order_id, hours in ((503, 2), (502, 1), (501, 0))
    ]


@pytest.mark.django_db
def test_who_joined_before_a_loss_and_asks_again_keeps_the_place(ledger):
    sale, ada, bob = make_loaded_sale(stock=0), make_user("ada"), make_user("bob")
    for order_id, user in ((501, ada), (502, bob)):
        entry = make_waiting(sale, user, order_id=order_id)
        joined_at_ms = epoch_ms(entry.joined_at)
        place = {"order_id": order_id, "user_id": user.pk, "joined_at_ms": joined_at_ms}
        join_waiting(sale_id=sale.pk, **place)
    before = waiting_line(ledger, sale)
    ledger.flushall()

    load_sale(sale_id=sale.pk)

    assert waiting_line(ledger, sale) == before
    assert join_waiting(sale_id=sale.pk, **place) == 2


def pause(sale):
    """Let nobody in line be given a unit while one looks."""
    SeckillVoucher.objects.filter(pk=sale.pk).update(paused=True)


def given_and_pending(sale, user):
    """The unit was given and no row is written yet."""
    reserve(sale_id=sale.pk, order_id=501, user_id=user.pk)


def given_and_only_among_the_buyers(sale, user):
    """The same, and of the promise only the buyer is left."""
    given_and_pending(sale, user)
    rebuild.ledger_connection().unlink(LedgerKeys(sale.pk).pending)


def given_and_ordered(sale, user):
    make_order(sale, user, order_id=501)


def given_and_cancelled(sale, user):
    make_order(sale, user, order_id=501, status=OrderStatus.CANCELLED)


def given_and_refused(sale, user):
    make_order(sale, user, order_id=501, status=OrderStatus.REFUSED, reason="sold_out")


@pytest.mark.django_db
@pytest.mark.parametrize(
    "given",
    [
        given_and_pending,
        given_and_only_among_the_buyers,
        given_and_ordered,
        given_and_cancelled,
        given_and_refused,
    ],
    ids=lambda given: given.__name__,
)
def test_who_has_been_given_a_unit_is_not_put_in_line_again(ledger, given):
    """The row of who waits may not have heard of it yet."""
    sale, ada, bob = make_loaded_sale(stock=1), make_user("ada"), make_user("bob")
    make_waiting(sale, ada, order_id=501)
    make_waiting(sale, bob, order_id=502)
    given(sale, ada)
    ledger.unlink(LedgerKeys(sale.pk).sale, LedgerKeys(sale.pk).waiting)
    pause(sale)

    load_sale(sale_id=sale.pk)

    assert [member for member, _ in waiting_line(ledger, sale)] == [f"502:{bob.pk}"]


@pytest.mark.django_db
def test_a_unit_that_was_given_and_lost_with_redis_is_waited_for_in_the_old_place(ledger):
    sale, ada, bob = make_loaded_sale(stock=1), make_user("ada"), make_user("bob")
    make_waiting(sale, ada, order_id=501)
    make_waiting(sale, bob, order_id=502, joined_at=timezone.now() + HOUR)
    given_and_pending(sale, ada)
    ledger.flushall()
    pause(sale)

    load_sale(sale_id=sale.pk)

    members = [member for member, _ in waiting_line(ledger, sale)]
    assert members == [f"501:{ada.pk}", f"502:{bob.pk}"]


@pytest.mark.django_db
def test_rebuilt_ended_ids_are_kept_as_long_as_released_ones(ledger):
    running = Running()
    ledger.flushall()

    load_sale(sale_id=running.pk)

    ends_at_ms = LedgerTerms.from_sale(running.sale).ends_at_ms
    kept_until_ms = redis_now_ms() + ledger.pttl(running.keys.ended)
    assert abs(kept_until_ms - (ends_at_ms + ENDED_RETENTION_MS)) < 100


@pytest.mark.django_db
def test_every_accepted_id_is_accepted_again_after_a_rebuild(ledger):
    running = Running()
    ledger.unlink(running.keys.sale)
    load_sale(sale_id=running.pk)

    for order_id, user in ((501, running.ada), (502, running.bob), (503, running.eve)):
        again = reserve(sale_id=running.pk, order_id=order_id, user_id=user.pk)
        assert again.order_id == order_id
    assert running.is_whole()


@pytest.mark.django_db
def test_a_promise_lost_with_redis_is_accepted_again_under_the_same_id(ledger):
    running = Running()
    ledger.flushall()
    load_sale(sale_id=running.pk)

    reserve(sale_id=running.pk, order_id=502, user_id=running.bob.pk)

    assert running.is_whole()


@pytest.mark.django_db
@pytest.mark.parametrize("name", CONTENTS)
def test_after_a_key_became_of_a_wrong_type_a_load_reopens_with_everybody(ledger, name):
    running = Running()
    key = getattr(running.keys, name)
    ledger.delete(key)
    ledger.set(key, "of a wrong type")
    with pytest.raises(NotLoaded):
        reserve(sale_id=running.pk, order_id=504, user_id=running.eve.pk)

    load_sale(sale_id=running.pk)

    assert running.is_whole()
    reserve(sale_id=running.pk, order_id=504, user_id=running.eve.pk)


@pytest.mark.django_db
@pytest.mark.parametrize("field", FIELDS)
def test_after_a_field_was_lost_a_load_reopens_with_everybody(ledger, field):
    running = Running()
    ledger.hdel(running.keys.sale, field)

    load_sale(sale_id=running.pk)

    assert running.is_whole()
    assert snapshot(sale_id=running.pk).terms == LedgerTerms.from_sale(running.sale)


class Crash(Exception):
    """Whatever ends a process between two steps."""


@pytest.mark.django_db(transaction=True)
def test_before_anything_is_built_the_fence_refuses_who_began_on_the_lost_ledger(
    ledger, monkeypatch
):
    sale = make_loaded_sale()
    token_of_before = (sale.epoch << FENCE_BITS) + 7
    ledger.flushall()

    def crash(**kwargs):
        raise Crash

    monkeypatch.setattr(rebuild, "_build_ledger", crash)
    with pytest.raises(Crash):
        load_sale(sale_id=sale.pk)

    sale.refresh_from_db()
    assert sale.fence > token_of_before
    with pytest.raises(NotLoaded):
        snapshot(sale_id=sale.pk)


# --- load.lua ------------------------------------------------------------------------------------


SIDE = ("buyers", "pending", "ended", "barred", "waiting")


def run_load(keys, build, *, epoch=2, before=lambda: None):
    side = [keys.side(name, build) for name in SIDE]
    client = rebuild.ledger_connection()
    counts = [
        client.zcard(key) if name in ("pending", "waiting") else client.hlen(key)
        for name, key in zip(SIDE, side, strict=True)
    ]
    before()
    figures = [9, 0, redis_now_ms() + 60_000, 1, 1, 1]  # paused: nobody is given a unit
    return LOAD.run(
        client,
        keys=[*keys.contents, keys.kick, keys.trying, *side],
        args=[epoch, *figures, ENDED_RETENTION_MS, 0, "run", counts[0] or 1, *counts[1:]],
    )


def test_a_ledger_that_stands_is_not_replaced_and_the_side_keys_go(ledger, dump):
    keys = open_ledger(1)
    reserve(sale_id=1, order_id=501, user_id=7)
    before = dump()
    ledger.hset(keys.side("buyers", "b"), mapping={"epoch": 2})
    ledger.zadd(keys.side("pending", "b"), {"502:8:1": 1})
    ledger.hset(keys.side("ended", "b"), mapping={"503": "9:sold_out"})
    ledger.hset(keys.side("barred", "b"), "9", "504")
    ledger.zadd(keys.side("waiting", "b"), {"505:9": 1})

    assert run_load(keys, "b") == "ALREADY_LOADED"

    assert dump() == before


def test_side_keys_that_ran_out_install_nothing(dump):
    assert run_load(LedgerKeys(1), "b") == "SIDE_KEYS_LOST"

    assert dump() == {}


def test_a_build_whose_side_keys_ran_out_is_unavailable_and_is_built_again(monkeypatch, ledger, db):
    sale = make_sale()
    write = rebuild._write_side_key

    def write_and_lose(key, part):
        write(key, part)
        ledger.unlink(key)

    monkeypatch.setattr(rebuild, "_write_side_key", write_and_lose)
    with pytest.raises(LedgerUnavailable):
        load_sale(sale_id=sale.pk)
    monkeypatch.undo()

    load_sale(sale_id=sale.pk)

    sale.refresh_from_db()
    assert snapshot(sale_id=sale.pk).epoch == sale.epoch == 2, "no epoch is given twice"


def test_an_installed_ledger_replaces_every_key_and_loses_its_time_limits(ledger):
    keys = LedgerKeys(1)
    ledger.hset(keys.sale, "epoch", 1)  # without its buyers: not whole
    ledger.set(keys.kick, "1")
    ledger.hset(keys.ended, "500", "1:sold_out")
    ledger.hset(keys.barred, "1", "500")
    ledger.zadd(keys.waiting, {"506:1": 1})
    for name, write in {
        "buyers": lambda key: ledger.hset(key, mapping={"epoch": 2, "8:1": 502}),
        "pending": lambda key: ledger.zadd(key, {"502:8:1": 1}),
        "ended": lambda key: ledger.hset(key, "503", "9:sold_out"),
        "barred": lambda key: ledger.hset(key, "9", "504"),
        "waiting": lambda key: ledger.zadd(key, {"505:9": 1}),
    }.items():
        write(keys.side(name, "b"))
        ledger.expire(keys.side(name, "b"), 5)

    assert run_load(keys, "b") == "LOADED"

    lasting = {keys.sale, keys.buyers, keys.pending, keys.barred, keys.waiting}
    assert set(ledger.scan_iter()) == {*lasting, keys.ended}
    assert {ledger.ttl(key) for key in lasting} == {-1}
    assert ledger.hgetall(keys.barred) == {"9": "504"}
    assert ledger.zrange(keys.waiting, 0, -1) == ["505:9"]
    assert ledger.hgetall(keys.ended) == {"503": "9:sold_out"}
    assert ledger.ttl(keys.ended) > 5
    assert read_pending(sale_id=1) == {Holding(502, 8, 1)}


def test_the_answers_of_the_script_are_those_of_its_wrapper():
    assert set(re.findall(r"return '([A-Z_]+)'", LOAD.source)) == set(rebuild.LoadCode)


# --- loading for a buyer and after a commit ------------------------------------------------------


@pytest.mark.django_db
def test_the_first_request_loads_and_lets_the_next_one_load(ledger):
    sale = make_sale()

    load_sale_exclusively(sale_id=sale.pk)
    ledger.unlink(LedgerKeys(sale.pk).sale)
    load_sale_exclusively(sale_id=sale.pk)

    assert snapshot(sale_id=sale.pk).epoch == 2


@pytest.mark.django_db
def test_while_one_process_loads_the_others_are_unavailable_and_ask_no_database(
    ledger, django_assert_num_queries
):
    sale = make_sale()
    ledger.set(LedgerKeys(sale.pk).loading, "1")

    with django_assert_num_queries(0), pytest.raises(LedgerUnavailable):
        load_sale_exclusively(sale_id=sale.pk)


@pytest.mark.django_db
def test_a_process_that_dies_while_it_loads_is_waited_for_three_seconds_only(ledger, monkeypatch):
    sale = make_sale()
    left_ms = []

    def look(**kwargs):
        left_ms.append(ledger.pttl(LedgerKeys(sale.pk).loading))

    monkeypatch.setattr(rebuild, "load_sale", look)

    load_sale_exclusively(sale_id=sale.pk)

    assert 0 < left_ms[0] <= 3_000


@pytest.mark.django_db
def test_a_load_that_fails_lets_the_next_one_try(ledger):
    with pytest.raises(SeckillVoucher.DoesNotExist):
        load_sale_exclusively(sale_id=404)

    assert not list(ledger.scan_iter())


@pytest.mark.django_db
def test_who_asks_for_figures_loads_a_sale_that_is_not_there():
    sale = make_sale(stock=5)

    assert snapshot_or_load(sale_id=sale.pk).remaining == 5
    assert snapshot(sale_id=sale.pk).epoch == 1


@pytest.mark.django_db
def test_who_asks_for_figures_of_a_loaded_sale_asks_no_database(django_assert_num_queries):
    sale = make_loaded_sale()

    with django_assert_num_queries(0):
        snapshot_or_load(sale_id=sale.pk)


@pytest.mark.django_db
def test_a_sale_saved_while_redis_is_gone_is_a_warning_not_an_error(redis_gone, caplog):
    sale = make_sale()

    with redis_gone():
        load_after_commit(sale_id=sale.pk)

    assert f"sale {sale.pk} is saved but not loaded" in caplog.text


@pytest.mark.django_db(transaction=True)
def test_a_sale_saved_whose_row_stays_locked_is_a_warning_not_an_error(row_locks, caplog):
    sale = make_sale()
    with connection.cursor() as cursor:
        cursor.execute("SET SESSION innodb_lock_wait_timeout = 1")
    held, done = threading.Event(), threading.Event()

    def hold():
        with transaction.atomic():
            SeckillVoucher.objects.select_for_update().get(pk=sale.pk)
            held.set()
            done.wait(10)
        connection.close()

    thread = threading.Thread(target=hold)
    thread.start()
    assert held.wait(5)
    load_after_commit(sale_id=sale.pk)
    done.set()
    thread.join(10)
    connection.close()

    assert f"sale {sale.pk} is saved but not loaded" in caplog.text


# --- two at once ---------------------------------------------------------------------------------


def in_threads(*functions):
    """Run these at the same moment, each with a database connection of its own."""
    barrier, errors = threading.Barrier(len(functions)), []

    def run(function):
        try:
            barrier.wait(5)
            function()
        except Exception as error:  # told to the test below
            errors.append(error)
        finally:
            connection.close()

    threads = [threading.Thread(target=run, args=[function]) for function in functions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert errors == []


@pytest.mark.django_db(transaction=True)
def test_two_loads_at_once_leave_one_ledger(row_locks, ledger):
    sale = make_sale()

    in_threads(*[lambda: load_sale(sale_id=sale.pk)] * 4)

    assert snapshot(sale_id=sale.pk).remaining == 5
    assert set(ledger.scan_iter()) == {LedgerKeys(sale.pk).sale, LedgerKeys(sale.pk).buyers}


@pytest.mark.django_db(transaction=True)
def test_after_two_loads_at_once_orders_are_fulfilled(row_locks):
    """One of them may have raised the epoch after the other's ledger stood."""
    sale, user = make_sale(), make_user("ada")
    in_threads(*[lambda: load_sale(sale_id=sale.pk)] * 4)
    reserve(sale_id=sale.pk, order_id=501, user_id=user.pk)

    for _ in range(2):  # the sweep's second look
        fulfill_sale(sale_id=sale.pk)

    assert all_pending(sale_id=sale.pk) == []
    assert sale.orders.get().pk == 501


@pytest.mark.django_db(transaction=True)
def test_a_load_that_comes_second_leaves_the_ledger_of_the_first_and_its_buyers(monkeypatch):
    sale = make_sale(stock=5)
    build = rebuild._build_ledger

    def when_another_was_faster(**kwargs):
        monkeypatch.undo()
        load_sale(sale_id=sale.pk)
        reserve(sale_id=sale.pk, order_id=501, user_id=7)
        build(**kwargs)

    monkeypatch.setattr(rebuild, "_build_ledger", when_another_was_faster)

    load_sale(sale_id=sale.pk)

    assert read_buyers(sale_id=sale.pk) == read_pending(sale_id=sale.pk) == {Holding(501, 7, 1)}


@pytest.mark.django_db(transaction=True)
def test_loads_among_reservations_forget_nobody(row_locks, ledger):
    sale = make_loaded_sale(stock=100)
    accepted = []

    def buy(first):
        for user_id in range(first, first + 30):
            with suppress(NotLoaded):
                reserve(sale_id=sale.pk, order_id=1_000 + user_id, user_id=user_id)
                accepted.append(1_000 + user_id)

    def lose_and_load():
        for _ in range(5):
            ledger.unlink(LedgerKeys(sale.pk).sale)
            load_sale(sale_id=sale.pk)

    in_threads(lambda: buy(1), lambda: buy(101), lose_and_load, lose_and_load)

    load_sale(sale_id=sale.pk)
    held = {holding.order_id for holding in read_buyers(sale_id=sale.pk)}
    assert held == set(accepted)
    assert {entry.order_id for entry in all_pending(sale_id=sale.pk)} == held


def lock_without_waiting(sale_id):
    """Take the row's lock from another connection; raise where somebody holds it."""
    try:
        with transaction.atomic():
            SeckillVoucher.objects.select_for_update(nowait=True).get(pk=sale_id)
    finally:
        connection.close()


def tried_in_the_middle_of_a_load(sale, monkeypatch):
    """Try to lock the row between reading the orders and installing; return what was raised."""
    raised = []
    install = rebuild._install

    def meanwhile(*args):
        def attempt():
            try:
                lock_without_waiting(sale.pk)
            except OperationalError as error:
                raised.append(error)

        thread = threading.Thread(target=attempt)
        thread.start()
        thread.join(10)
        return install(*args)

    monkeypatch.setattr(rebuild, "_install", meanwhile)
    load_sale(sale_id=sale.pk)
    return raised


@pytest.mark.django_db(transaction=True)
def test_no_order_can_be_committed_between_reading_the_orders_and_installing(
    row_locks, monkeypatch
):
    raised = tried_in_the_middle_of_a_load(make_sale(), monkeypatch)

    assert len(raised) == 1


@pytest.mark.django_db(transaction=True)
def test_without_the_row_lock_an_order_could_be_committed_in_between(row_locks, monkeypatch):
    """The control of the test above."""

    def read_only(*, sale_id):
        return SeckillVoucher.objects.get(pk=sale_id)

    monkeypatch.setattr(rebuild, "lock_seckill_voucher", read_only)

    assert tried_in_the_middle_of_a_load(make_sale(), monkeypatch) == []


@pytest.mark.django_db
def test_a_build_whose_epoch_another_process_has_raised_since_begins_again(ledger, monkeypatch):
    """It stands for an older loss: who began on the ledger in between would not be refused."""
    sale = make_sale()
    real, raised = rebuild._raise_epoch, []

    def overtaken(*, sale_id):
        raised.append(real(sale_id=sale_id))
        if len(raised) == 1:
            raised.append(real(sale_id=sale_id))
            return raised[0]
        return raised[-1]

    monkeypatch.setattr(rebuild, "_raise_epoch", overtaken)
    load_sale(sale_id=sale.pk)
    assert raised == [1, 2, 3]
    assert snapshot(sale_id=sale.pk).epoch == 3


@pytest.mark.django_db
def test_a_load_outlasts_others_that_overtake_it_and_gives_them_time(ledger, monkeypatch):
    sale = make_sale()
    real, raised, paused = rebuild._raise_epoch, [], []

    def overtaken(*, sale_id):
        raised.append(real(sale_id=sale_id))
        return raised[-1] if len(raised) == len(rebuild.LOAD_PAUSES_S) else raised[-1] - 1

    monkeypatch.setattr(rebuild, "_raise_epoch", overtaken)
    monkeypatch.setattr(rebuild.time, "sleep", paused.append)
    load_sale(sale_id=sale.pk)
    assert snapshot(sale_id=sale.pk).epoch == len(raised) == len(rebuild.LOAD_PAUSES_S)
    assert all(0 <= it <= most for it, most in zip(paused, rebuild.LOAD_PAUSES_S, strict=True))
    assert paused[0] == 0 < paused[-1]


@pytest.mark.parametrize("part", SIDE)
def test_side_keys_of_which_a_part_is_lost_install_nothing(ledger, part):
    keys = LedgerKeys(1)
    ledger.hset(keys.side("buyers", "b"), mapping={"epoch": 2, "8:1": 502})
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

    assert run_load(keys, "b", before=lose) == "SIDE_KEYS_LOST"
    assert list(ledger.scan_iter()) == []
