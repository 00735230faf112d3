"""Who waited how long in a waiting room: figures and file."""

from __future__ import annotations

import csv
import datetime as dt
import io

import pytest
from django.contrib.auth.models import User
from django.utils import timezone, translation
from pytest_django import DjangoAssertNumQueries

from backoffice.report import durations
from backoffice.report import room as reporting
from backoffice.report.durations import Durations
from backoffice.report.room import RoomFigures, read_room, room_csv
from orders.models import RoomVisit
from tests.support.orders import make_buyer, make_buyers, make_sale
from vouchers.models import RoomKind, SeckillVoucher

pytestmark = pytest.mark.django_db

NOON = dt.datetime(2026, 11, 11, 12, tzinfo=dt.UTC)


def seconds(number: float) -> dt.timedelta:
    return dt.timedelta(seconds=number)


def waited(count: int, median: float | None, p95: float | None) -> Durations:
    low, high = (None if it is None else seconds(it) for it in (median, p95))
    return Durations(count, low, high, is_sample=False)


def a_sale(kind: RoomKind = RoomKind.START) -> SeckillVoucher:
    """Return a sale that started at noon."""
    sale = make_sale(loaded=False, room=kind)
    sale.begins_at, sale.ends_at = NOON, NOON + dt.timedelta(hours=2)
    sale.save()
    return sale


def add(
    sale: SeckillVoucher,
    joined_s: float,
    let_in_s: float | None,
    *,
    buyer: User | None = None,
    opened_ms: int = 1,
) -> None:
    """Store a visit; times in seconds from noon."""
    RoomVisit.objects.create(
        seckill_voucher=sale,
        user=buyer or make_buyer(),
        opened_ms=opened_ms,
        given=RoomVisit.objects.count() + 1,
        joined_at=NOON + seconds(joined_s),
        let_in_at=None if let_in_s is None else NOON + seconds(let_in_s),
    )


def test_sale_that_nobody_waited_for_has_no_figures() -> None:
    add(a_sale(), 1, 2)

    assert read_room(sale=a_sale()) is None


def test_wait_is_counted_from_joining_or_from_the_start() -> None:
    sale = a_sale()
    add(sale, -3_600, 10)
    add(sale, 20, 50)

    assert read_room(sale=sale) == RoomFigures(2, 2, seconds(30), waited(2, 10, 30))


@pytest.mark.parametrize("kind", RoomKind)
def test_wait_stays_the_same_after_the_room_is_closed(kind: RoomKind) -> None:
    sale = a_sale(kind)
    add(sale, -3_600, 10)

    found = read_room(sale=sale)

    assert found
    assert found.longest == seconds(10)
    assert waits(sale) == ["10.0"]


def test_nobody_waited_less_than_nothing() -> None:
    """A room for busy times lets in before the start, too; and a start may be moved."""
    sale = a_sale(RoomKind.BUSY)
    add(sale, -100, -50)

    found = read_room(sale=sale)

    assert found
    assert found.longest == seconds(0)
    assert waits(sale) == ["0.0"]


def test_visitors_who_are_not_let_in_count_as_joined() -> None:
    sale = a_sale()
    add(sale, 1, None)
    add(sale, 1, None)

    assert read_room(sale=sale) == RoomFigures(2, 0, None, waited(0, None, None))


def test_quantiles_are_those_of_all_waits() -> None:
    sale = a_sale()
    for number in range(101):
        add(sale, 1, 1 + number)

    assert read_room(sale=sale) == RoomFigures(101, 101, seconds(100), waited(101, 50, 95))


def test_many_visits_are_sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(durations, "SAMPLE_SIZE", 10)
    sale = a_sale()
    for number in range(100):
        add(sale, 1, 1 + number)

    found = read_room(sale=sale)

    assert found
    assert found.longest == seconds(99)
    assert (found.waited.count, found.waited.is_sample) == (10, True)


def test_visits_to_all_openings_count() -> None:
    sale, buyer = a_sale(), make_buyer()
    add(sale, 1, 2, buyer=buyer, opened_ms=1)
    add(sale, 1, 5, buyer=buyer, opened_ms=2)

    found = read_room(sale=sale)

    assert found
    assert (found.joined, found.longest) == (2, seconds(4))


def test_figures_take_a_fixed_number_of_queries(
    django_assert_num_queries: DjangoAssertNumQueries,
) -> None:
    sale = a_sale()
    for number in range(20):
        add(sale, 1, 1 + number)

    with django_assert_num_queries(2):
        read_room(sale=sale)


# --- The file -------------------------------------------------------------------------------------


def rows_of(sale: SeckillVoucher) -> list[list[str]]:
    with translation.override("en"), timezone.override(dt.UTC):
        text = "".join(room_csv(sale=sale))
    assert text.startswith("\ufeff")
    return list(csv.reader(io.StringIO(text[1:], newline="")))


def waits(sale: SeckillVoucher) -> list[str]:
    return [row[-1] for row in rows_of(sale)[1:]]


def test_file_says_who_waited_how_long() -> None:
    sale, (ada, bob) = a_sale(), make_buyers(2)
    add(sale, -60, 7.25, buyer=ada)
    add(sale, 10, None, buyer=bob)
    add(a_sale(), 10, 20)

    assert rows_of(sale) == [
        ["buyer", "joined at", "number", "let in at", "waited, in seconds"],
        [ada.username, "2026-11-11 11:59:00", "1", "2026-11-11 12:00:07", "7.25"],
        [bob.username, "2026-11-11 12:00:10", "2", "", ""],
    ]


def test_file_is_read_in_parts(
    monkeypatch: pytest.MonkeyPatch, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    monkeypatch.setattr(reporting, "CHUNK", 3)
    sale = a_sale()
    for number in range(7):
        add(sale, number, None)

    with django_assert_num_queries(4):
        rows = rows_of(sale)

    assert [row[2] for row in rows[1:]] == [str(number) for number in range(1, 8)]
