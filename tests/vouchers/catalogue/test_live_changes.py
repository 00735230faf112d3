"""Changes of a running sale: their effects, the order of the two writes, and the refusals."""

from __future__ import annotations

import datetime as dt
from contextlib import suppress
from dataclasses import replace

import pytest
from django.db import transaction

from orders.fulfilment.worker import fulfil_sale
from orders.models import VoucherOrder
from seckill_site.clocks.machine import epoch_ms
from tests.support.sales import (
    HOUR,
    all_pending,
    make_loaded_sale,
    make_sale,
    make_user,
    redis_now_ms,
    reserve,
    reserve_entry,
)
from tests.support.tiers import slow_after
from vouchers.catalogue import live_changes
from vouchers.catalogue.live_changes import (
    NotLater,
    SaleNotStarted,
    SaleOver,
    TermsChanged,
    end_sale,
    extend_sale,
    pause_sale,
    resize_sale,
    resume_sale,
)
from vouchers.catalogue.sales import edit_sale, terms_of
from vouchers.inventory.keys import LedgerUnavailable
from vouchers.inventory.rebuild import load_sale
from vouchers.inventory.reservations import AlreadyOrdered, SaleEnded, SalePaused
from vouchers.inventory.sale_state import LedgerTerms, snapshot
from vouchers.models import SaleState, SeckillVoucher

pytestmark = pytest.mark.django_db

MINUTE = dt.timedelta(minutes=1)


def stored(sale):
    return SeckillVoucher.objects.get(pk=sale.pk)


def state_of(sale):
    return snapshot(sale_id=sale.pk).state


ACTIONS = {
    "pause": lambda sale: pause_sale(sale_id=sale.pk),
    "resume": lambda sale: resume_sale(sale_id=sale.pk),
    "extend": lambda sale: extend_sale(
        sale_id=sale.pk, ends_at=sale.ends_at + MINUTE, seen=sale.ends_at
    ),
    "resize": lambda sale: resize_sale(sale_id=sale.pk, stock=9, seen=sale.stock),
    "end": lambda sale: end_sale(sale_id=sale.pk, seen=sale.ends_at),
}


class Crash(Exception):
    """The end of a process between two writes."""


# --- effects --------------------------------------------------------------------------------------


def test_paused_sale_refuses_and_resumed_sale_accepts(committed):
    sale = make_loaded_sale()

    with committed():
        pause_sale(sale_id=sale.pk)
    with pytest.raises(SalePaused):
        reserve(sale_id=sale.pk, order_id=501, user_id=1)
    with committed():
        resume_sale(sale_id=sale.pk)

    reserve(sale_id=sale.pk, order_id=501, user_id=1)
    assert terms_of(stored(sale)) == terms_of(sale)


def test_sale_ends_by_clock_of_redis(committed):
    sale = make_loaded_sale()
    before = redis_now_ms()

    with committed():
        ended = end_sale(sale_id=sale.pk, seen=sale.ends_at)

    assert before < epoch_ms(ended.ends_at) <= redis_now_ms() + 1
    assert state_of(sale) is SaleState.ENDED
    with pytest.raises(SaleEnded):
        reserve(sale_id=sale.pk, order_id=501, user_id=1)
    assert snapshot(sale_id=sale.pk).terms == LedgerTerms.from_sale(stored(sale))


@pytest.mark.slow
def test_ending_keeps_pause_as_it_was(committed):
    for paused in (False, True):
        sale = make_loaded_sale(paused=paused)
        with committed():
            end_sale(sale_id=sale.pk, seen=sale.ends_at)
        assert stored(sale).paused is paused


def test_pending_entries_of_ended_sale_become_orders(committed):
    sale, buyer = make_loaded_sale(), make_user("ada")
    entry = reserve_entry(sale_id=sale.pk, order_id=501, user_id=buyer.pk)

    with committed():
        end_sale(sale_id=sale.pk, seen=sale.ends_at)
    fulfil_sale(sale_id=sale.pk)

    order = VoucherOrder.objects.get()
    assert (order.pk, order.live) == (501, True)
    assert entry.accepted_at_ms < epoch_ms(stored(sale).ends_at)


# --- order of the writes --------------------------------------------------------------------------


@pytest.mark.django_db(transaction=True)
def test_end_closes_ledger_before_reading_clock(steps):
    sale = make_loaded_sale()
    steps.clear()

    end_sale(sale_id=sale.pk, seen=sale.ends_at)

    assert steps == [
        "FOR UPDATE", "snapshot", "snapshot",
        "FOR UPDATE", "write_terms", "UPDATE vouchers_seckillvoucher", "snapshot",
        "FOR UPDATE", "write_terms", "UPDATE vouchers_seckillvoucher",
        "COMMIT",
        "check_format", "FOR UPDATE", "write_terms", "COMMIT",
        "check_format", "FOR UPDATE", "write_terms", "COMMIT",
    ]  # fmt: skip


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("name", ["pause", "end"])
def test_crash_before_commit_leaves_narrower_sale(name):
    sale = make_loaded_sale()

    with suppress(Crash), transaction.atomic():
        ACTIONS[name](sale)
        raise Crash

    assert terms_of(stored(sale)) == terms_of(sale)
    assert state_of(sale) in (SaleState.PAUSED, SaleState.ENDED)
    load_sale(sale_id=sale.pk)
    assert state_of(sale) is SaleState.OPEN


# --- refusals -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", slow_after(1, ACTIONS))
def test_sale_that_is_over_is_not_changed(dump, name):
    sale = make_loaded_sale(begins_at=dt.datetime(2026, 1, 1, tzinfo=dt.UTC),
                            ends_at=dt.datetime(2026, 1, 2, tzinfo=dt.UTC),
                            paused=name == "resume")  # fmt: skip
    before = dump()

    with pytest.raises(SaleOver):
        ACTIONS[name](sale)

    assert (terms_of(stored(sale)), dump()) == (terms_of(sale), before)


@pytest.mark.parametrize("name", slow_after(1, ACTIONS))
def test_repeated_change_is_refused(committed, dump, name):
    sale = make_loaded_sale(paused=name == "resume")
    with committed():
        ACTIONS[name](sale)
    before, terms = dump(), terms_of(stored(sale))

    with pytest.raises(SaleOver if name == "end" else TermsChanged):
        ACTIONS[name](sale)

    assert (terms_of(stored(sale)), dump()) == (terms, before)


@pytest.mark.parametrize("name", slow_after(1, ACTIONS))
def test_change_without_redis_is_refused(committed, redis_gone, name):
    sale = make_loaded_sale(paused=name == "resume")

    with committed() as waiting, redis_gone(), pytest.raises(LedgerUnavailable):
        ACTIONS[name](sale)

    assert waiting == []
    assert terms_of(stored(sale)) == terms_of(sale)


@pytest.mark.parametrize("name", ACTIONS)
def test_unloaded_sale_is_not_changed(name):
    sale = make_sale(paused=name == "resume")

    with pytest.raises(LedgerUnavailable):
        ACTIONS[name](sale)

    assert terms_of(stored(sale)) == terms_of(sale)


@pytest.mark.parametrize("name", slow_after(1, ACTIONS))
def test_missing_sale_is_reported(name):
    sale = make_loaded_sale(paused=name == "resume")
    stored(sale).delete()

    with pytest.raises(SeckillVoucher.DoesNotExist):
        ACTIONS[name](sale)


def test_sale_before_its_start_is_not_ended(dump):
    sale = make_loaded_sale(begins_at=dt.datetime.now(dt.UTC) + HOUR / 2)
    before = dump()

    with pytest.raises(SaleNotStarted):
        end_sale(sale_id=sale.pk, seen=sale.ends_at)

    assert dump() == before


@pytest.mark.parametrize("later", [dt.timedelta(0), -MINUTE])
def test_extension_needs_a_later_end(dump, later):
    sale = make_loaded_sale()
    before = dump()

    with pytest.raises(NotLater):
        extend_sale(sale_id=sale.pk, ends_at=sale.ends_at + later, seen=sale.ends_at)

    assert dump() == before


@pytest.mark.parametrize("is_closed_first", [True, False])
def test_nobody_is_accepted_after_clock_is_read(monkeypatch, is_closed_first):
    """With its control: left open while the clock is read, a sale sells after its own end."""
    sale, read_clock = make_loaded_sale(), live_changes._ledger_now
    if not is_closed_first:
        monkeypatch.setattr(live_changes, "edit_sale", _edit_but_never_pause)

    def read_clock_while_a_buyer_comes(sale_id):
        moment = read_clock(sale_id)
        while redis_now_ms() <= epoch_ms(moment):
            pass  # so that the buyer comes in another millisecond
        with suppress(SalePaused, AlreadyOrdered):
            reserve(sale_id=sale_id, order_id=501, user_id=1)
        return moment

    # The first reading is of an open sale in both cases.
    readings = iter([read_clock, read_clock])
    monkeypatch.setattr(
        live_changes,
        "_ledger_now",
        lambda sale_id: next(readings, read_clock_while_a_buyer_comes)(sale_id),
    )
    ended = end_sale(sale_id=sale.pk, seen=sale.ends_at)

    late = [it for it in all_pending(sale_id=sale.pk)
            if it.accepted_at_ms >= epoch_ms(ended.ends_at)]  # fmt: skip
    assert len(late) == (0 if is_closed_first else 1)


def _edit_but_never_pause(*, sale_id, terms):
    return edit_sale(sale_id=sale_id, terms=replace(terms, paused=False))
