"""Opening, closing and changing a waiting room: the number whose turn it is never jumps."""

from __future__ import annotations

import datetime as dt
from copy import copy
from typing import Any

import pytest

from seckill_site.clocks.machine import from_epoch_ms
from vouchers.catalogue.rooms import OPENING_MS, date_room
from vouchers.inventory.waiting_room import RoomTerms
from vouchers.models import RoomKind, SaleStage, SeckillVoucher

pytestmark = pytest.mark.quick

START_MS = 1_800_000_000_000
MINUTE_MS = 60_000


def a_sale(**fields: Any) -> SeckillVoucher:
    """Return a sale that starts at START_MS and lasts an hour; it is not saved."""
    begins_at = from_epoch_ms(START_MS)
    window = {"begins_at": begins_at, "ends_at": begins_at + dt.timedelta(hours=1)}
    return SeckillVoucher(**{**window, "room": RoomKind.BUSY, "room_rate": 10, **fields})


def opened(now_ms: int, **fields: Any) -> SeckillVoucher:
    sale = a_sale(**fields)
    date_room(sale, before=None, now_ms=now_ms)
    return sale


def changed(before: SeckillVoucher, now_ms: int, **fields: Any) -> SeckillVoucher:
    """Return the sale after an edit at that moment."""
    sale = copy(before)
    for name, value in fields.items():
        setattr(sale, name, value)
    date_room(sale, before=before, now_ms=now_ms)
    return sale


def terms(sale: SeckillVoucher) -> RoomTerms:
    found = RoomTerms.from_sale(sale)
    assert found
    return found


def line_of(sale: SeckillVoucher) -> tuple[int, int, int]:
    return sale.room_opened_ms, sale.room_base, sale.room_since_ms


def test_sale_without_a_room_has_no_dates() -> None:
    assert line_of(opened(START_MS, room=RoomKind.OFF)) == (0, 0, 0)


def test_opening_is_dated_ahead() -> None:
    assert line_of(opened(START_MS + 5)) == (START_MS + 5 + OPENING_MS, 0, START_MS + 5)


def test_closing_forgets_the_line() -> None:
    sale = changed(opened(START_MS), START_MS + MINUTE_MS, room=RoomKind.OFF)

    assert line_of(sale) == (0, 0, 0)


def test_second_opening_is_another_one() -> None:
    first = opened(START_MS)
    closed = changed(first, START_MS + MINUTE_MS, room=RoomKind.OFF)
    second = changed(closed, START_MS + 2 * MINUTE_MS, room=RoomKind.BUSY)

    assert second.room_opened_ms > first.room_opened_ms
    assert (second.room_base, second.room_since_ms) == (0, START_MS + 2 * MINUTE_MS)


def test_edit_of_something_else_moves_nothing() -> None:
    before = opened(START_MS)

    assert line_of(changed(before, START_MS + MINUTE_MS, stock=99)) == line_of(before)


CHANGES: list[dict[str, Any]] = [
    {"room_rate": 1},
    {"room_rate": 100_000},
    {"paused": True},
    {"stage": SaleStage.DRAFT},
    {"room": RoomKind.START},
    {"begins_at": from_epoch_ms(START_MS + 3 * MINUTE_MS)},
]


@pytest.mark.parametrize("kind", [RoomKind.BUSY, RoomKind.START])
@pytest.mark.parametrize("change", CHANGES)
def test_number_whose_turn_it_is_does_not_jump(change: dict[str, Any], kind: RoomKind) -> None:
    before, now_ms = opened(START_MS, room=kind), START_MS + MINUTE_MS + 37

    after = changed(before, now_ms, **change)

    assert terms(after).passed(now_ms) == terms(before).passed(now_ms) == 600
    assert after.room_opened_ms == before.room_opened_ms


def test_pause_stops_the_line_and_resuming_goes_on() -> None:
    before = opened(START_MS)
    paused = changed(before, START_MS + MINUTE_MS, paused=True)
    resumed = changed(paused, START_MS + 10 * MINUTE_MS, paused=False)

    assert terms(paused).passed(START_MS + 10 * MINUTE_MS) == 600
    assert terms(resumed).passed(START_MS + 10 * MINUTE_MS) == 600
    assert terms(resumed).passed(START_MS + 11 * MINUTE_MS) == 1_200


def test_changes_before_the_start_let_nobody_in() -> None:
    sale = opened(START_MS - 60 * MINUTE_MS, room=RoomKind.START)
    for minute, rate in enumerate([500, 20, 10], start=1):
        sale = changed(sale, START_MS - (60 - minute) * MINUTE_MS, room_rate=rate)

    assert terms(sale).passed(START_MS) == 0
    assert terms(sale).passed(START_MS + 1_000) == 10


def test_later_start_holds_the_line_back() -> None:
    before = opened(START_MS - MINUTE_MS, room=RoomKind.START)
    after = changed(before, START_MS - 1_000, begins_at=from_epoch_ms(START_MS + 5 * MINUTE_MS))

    assert terms(after).head(START_MS + 5 * MINUTE_MS - 1) == 0
    assert terms(after).head(START_MS + 5 * MINUTE_MS) == 10


def test_clock_that_was_set_back_lets_nobody_in_early() -> None:
    before = opened(START_MS)
    after = changed(before, START_MS - MINUTE_MS, room_rate=20)

    assert terms(after).passed(START_MS - MINUTE_MS) == 0
