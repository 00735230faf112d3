"""Where one order stands, at one look: by the contracts above the scripts, on a real Redis."""

from __future__ import annotations

import pytest

from tests.vouchers.factories import all_pending, open_ledger
from vouchers.ledger import LedgerKeys, LedgerUnavailable
from vouchers.reservations import confirm, reserve
from vouchers.whereabouts import (
    CHANGING_MS,
    COPY_MS,
    Whereabouts,
    forget_rows,
    keep_row,
    whereabouts,
)

ROW = "7:1:unpaid::100:1:2"
WRITTEN = LedgerKeys(1).written(501)


def look(*, order_id: int = 501, user_id: int = 7) -> Whereabouts:
    return whereabouts(sale_id=1, order_id=order_id, user_id=user_id)


def test_an_order_that_waits_has_its_place_also_where_it_is_not_the_first_unit_of_its_buyer():
    open_ledger(1, limit=3)
    for order_id, user_id in ((501, 7), (502, 8), (503, 7)):
        reserve(sale_id=1, order_id=order_id, user_id=user_id)

    assert look() == Whereabouts(place=1)
    assert look(order_id=503) == Whereabouts(place=3)


@pytest.mark.parametrize(("order_id", "user_id"), [(501, 8), (502, 7), (9, 9)])
def test_of_anybody_elses_order_and_of_none_it_knows_nothing(order_id: int, user_id: int):
    open_ledger(1)
    reserve(sale_id=1, order_id=501, user_id=7)

    assert look(order_id=order_id, user_id=user_id) == Whereabouts()


def test_where_there_is_no_ledger_it_knows_nothing():
    assert look() == Whereabouts()


def test_the_copy_of_a_row_is_kept_with_its_confirmation_and_not_for_long(ledger):
    open_ledger(1)
    for order_id, user_id in ((501, 7), (502, 8)):
        reserve(sale_id=1, order_id=order_id, user_id=user_id)

    confirm(sale_id=1, entries=all_pending(sale_id=1), rows={501: ROW})

    assert look() == Whereabouts(row=ROW)
    assert look(order_id=502, user_id=8) == Whereabouts()
    assert COPY_MS - 5_000 < ledger.pttl(WRITTEN) <= COPY_MS
    assert not ledger.exists(LedgerKeys(1).written(502))


def test_who_has_read_a_row_keeps_its_copy_for_the_next(ledger):
    keep_row(sale_id=1, order_id=501, row=ROW)

    assert look() == Whereabouts(row=ROW)
    assert COPY_MS - 5_000 < ledger.pttl(WRITTEN) <= COPY_MS


def test_from_before_a_change_until_long_after_it_no_copy_is_kept(ledger):
    open_ledger(1)
    reserve(sale_id=1, order_id=501, user_id=7)
    entries = all_pending(sale_id=1)
    keep_row(sale_id=1, order_id=501, row=ROW)

    forget_rows(sale_id=1, order_ids=[501, 502])
    keep_row(sale_id=1, order_id=501, row=ROW)  # read before the change, and late
    confirm(sale_id=1, entries=entries, rows={501: ROW})  # a worker that stood still since

    assert look() == Whereabouts()
    for order_id in (501, 502):
        assert CHANGING_MS - 5_000 < ledger.pttl(LedgerKeys(1).written(order_id)) <= CHANGING_MS


@pytest.mark.parametrize(("order_ids", "trips"), [([], 0), ([501], 1), ([501, 502, 503], 1)])
def test_a_change_of_however_many_orders_is_one_round_trip(
    order_ids: list[int], trips: int, ledger_trips: list[int]
):
    forget_rows(sale_id=1, order_ids=order_ids)
    assert len(ledger_trips) == trips


def test_with_redis_away_a_look_says_so_and_a_change_goes_on(redis_gone, caplog):
    with redis_gone():
        with pytest.raises(LedgerUnavailable):
            look()
        with pytest.raises(LedgerUnavailable):
            keep_row(sale_id=1, order_id=501, row=ROW)

        forget_rows(sale_id=1, order_ids=[501])

    assert "may be told for a while" in caplog.text


def test_looking_writes_nothing(dump):
    open_ledger(1)
    reserve(sale_id=1, order_id=501, user_id=7)
    before = dump()

    look()

    assert dump() == before
