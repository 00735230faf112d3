"""Series and copies of sales: planned, shown, then all or none created."""

from __future__ import annotations

import datetime as dt
import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from threading import Barrier
from zoneinfo import ZoneInfo

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Group
from django.db import connection
from django.utils import timezone

from orders.roles import make_roles
from seckill_site.formatting import timestamp
from tests.support.html_forms import Filled
from tests.support.patience import GENEROUS_S
from tests.support.sales import HOUR, make_sale, make_voucher, terms
from tests.vouchers.admin.test_sale import LIST, committing, errors, said, stored
from vouchers.catalogue import series as series_module
from vouchers.catalogue.sales import insert_sale, terms_of
from vouchers.catalogue.series import (
    MOST_SALES,
    Rhythm,
    SameStart,
    SeriesUnit,
    copy_terms,
    create_sales,
    digest,
    plan_copies,
    plan_series,
)
from vouchers.inventory import rebuild
from vouchers.inventory.sale_state import snapshot
from vouchers.models import (
    Draw,
    RoomKind,
    SaleMode,
    SaleStage,
    SeckillVoucher,
    Voucher,
    Work,
)

pytestmark = pytest.mark.quick

SERIES = f"{LIST}series/"
COPIES = f"{LIST}copies/"
DAY = dt.timedelta(days=1)
SHANGHAI, BERLIN = ZoneInfo("Asia/Shanghai"), ZoneInfo("Europe/Berlin")
FRIDAY = dt.datetime(2030, 3, 29, 20, tzinfo=BERLIN)
"""Two days before the clock change in Berlin, at 02:00 on 31 March 2030."""

SECOND = dt.datetime(2027, 11, 7, 6, 30, tzinfo=dt.UTC)
"""01:30 in New York for the second time, because the clocks have gone back."""

ENTRIES = {
    "begins_at_0": "2030-01-01",
    "begins_at_1": "20:00:00",
    "length": "30",
    "length_unit": "60",
    "sales": "3",
    "number": "1",
    "unit": "days",
    "stock": "5",
    "limit": "2",
    "pay_within_s": "15",
    "rebuy": "on",
}


def planned(first, number=1, unit=SeriesUnit.DAYS, weekdays=(), sales=3, zone=BERLIN):
    """Return the starts of a series of half-hour sales."""
    plan = plan_series(
        voucher=Voucher(pk=1),
        first=terms(begins_at=first, ends_at=first + HOUR / 2),
        rhythm=Rhythm(number, unit, frozenset(weekdays)),
        sales=sales,
        zone=zone,
    )
    assert all(it.terms.ends_at - it.terms.begins_at == HOUR / 2 for it in plan)
    return [it.terms.begins_at.astimezone(zone) for it in plan]


def clock(moments):
    return [f"{moment:%d %H:%M}" for moment in moments]


# --- When -----------------------------------------------------------------------------------------


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("number", "unit", "days"),
    [
        (1, SeriesUnit.DAYS, ["29 20:00", "30 20:00", "31 20:00"]),
        (2, SeriesUnit.DAYS, ["29 20:00", "31 20:00", "02 20:00"]),
        (1, SeriesUnit.WEEKS, ["29 20:00", "05 20:00", "12 20:00"]),
        (24, SeriesUnit.HOURS, ["29 20:00", "30 20:00", "31 21:00"]),
        (6, SeriesUnit.HOURS, ["29 20:00", "30 02:00", "30 08:00"]),
    ],
)
def test_days_keep_time_of_day_across_clock_change(number, unit, days):
    assert clock(planned(FRIDAY, number, unit)) == days


@pytest.mark.django_db
def test_weekdays_start_with_the_first_chosen_one():
    monday_and_saturday = planned(FRIDAY, unit=SeriesUnit.WEEKDAYS, weekdays=(0, 5), sales=4)

    assert clock(monday_and_saturday) == ["30 20:00", "01 20:00", "06 20:00", "08 20:00"]


@pytest.mark.django_db
def test_skipped_time_moves_an_hour_that_day_only():
    first = dt.datetime(2030, 3, 30, 2, 30, tzinfo=BERLIN)

    assert clock(planned(first)) == ["30 02:30", "31 03:30", "01 02:30"]


@pytest.mark.django_db
@pytest.mark.parametrize("unit", [SeriesUnit.HOURS, SeriesUnit.DAYS, SeriesUnit.WEEKDAYS])
def test_first_start_stays_in_the_second_of_two_hours(unit):
    starts = planned(SECOND, unit=unit, weekdays=range(7), zone=ZoneInfo("America/New_York"))
    assert starts[0].astimezone(dt.UTC) == SECOND


def test_series_without_weekday_is_empty():
    assert planned(FRIDAY, unit=SeriesUnit.WEEKDAYS) == []


# --- Copies ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("now", "begins"),
    [
        (dt.datetime(2030, 1, 1, 12), dt.datetime(2030, 1, 11, 20)),
        (dt.datetime(2030, 1, 11, 19, 59), dt.datetime(2030, 1, 11, 20)),
        (dt.datetime(2030, 1, 11, 20), dt.datetime(2030, 1, 12, 20)),
        (dt.datetime(2030, 2, 1, 21), dt.datetime(2030, 2, 2, 20)),
        (dt.datetime(2030, 2, 1, 19), dt.datetime(2030, 2, 1, 20)),
    ],
)
def test_copy_is_draft_at_same_time_of_day(now, begins):
    begins_at = dt.datetime(2030, 1, 10, 20, tzinfo=SHANGHAI)
    sale = SeckillVoucher(
        begins_at=begins_at, ends_at=begins_at + 2 * DAY, stock=7, limit=3, paused=True,
        rebuy=False, refundable=False, pay_within_s=60,
    )  # fmt: skip

    copy = copy_terms(sale=sale, now=now.replace(tzinfo=SHANGHAI), zone=SHANGHAI)

    begins = begins.replace(tzinfo=SHANGHAI)
    window = {"begins_at": begins, "ends_at": begins + 2 * DAY}
    assert copy == replace(terms_of(sale), **window, stage=SaleStage.DRAFT, paused=False)


@pytest.mark.django_db
def test_copy_moves_to_first_free_day():
    sale = make_sale(begins_at=FRIDAY, ends_at=FRIDAY + HOUR)
    next_day = FRIDAY + DAY
    make_sale(voucher=sale.voucher, begins_at=next_day, ends_at=next_day + HOUR)
    make_sale(begins_at=FRIDAY + 2 * DAY, ends_at=FRIDAY + 2 * DAY + HOUR)

    [copy] = plan_copies(sales=[sale], now=timezone.now(), zone=BERLIN)

    assert clock([copy.terms.begins_at.astimezone(BERLIN)]) == ["31 20:00"]
    assert not copy.same_start


@pytest.mark.django_db
def test_copies_of_one_voucher_take_successive_days():
    voucher, other = make_voucher(), make_voucher()
    begins_at = timezone.now() - 10 * DAY
    sales = [
        make_sale(voucher=it, begins_at=begins_at + n * DAY, ends_at=begins_at + n * DAY + HOUR)
        for it, n in ((voucher, 0), (voucher, 1), (other, 0))
    ]

    plan = plan_copies(sales=sales, now=timezone.now(), zone=SHANGHAI)

    first, second = (it.terms.begins_at for it in plan if it.voucher == voucher)
    [third] = [it.terms.begins_at for it in plan if it.voucher == other]
    assert (second - first, third) == (DAY, first)


# --- Overlaps, and making it ----------------------------------------------------------------------


def half_hours(voucher, first, number=1, sales=3, **changes):
    """Return a series of half-hour sales with this many hours between their starts."""
    return plan_series(
        voucher=voucher,
        first=terms(begins_at=first, ends_at=first + HOUR / 2, **changes),
        rhythm=Rhythm(number, SeriesUnit.HOURS),
        sales=sales,
        zone=SHANGHAI,
    )


@pytest.mark.django_db
def test_plan_marks_overlaps_of_each_sale(django_assert_num_queries):
    voucher, first = make_voucher(), FRIDAY
    begins_at = first + HOUR
    there = make_sale(voucher=voucher, begins_at=begins_at, ends_at=begins_at + HOUR)
    make_sale(voucher=make_voucher(), begins_at=first, ends_at=first + HOUR)
    make_sale(voucher=voucher, begins_at=first, ends_at=first + HOUR, stage=SaleStage.REHEARSAL)

    with django_assert_num_queries(1):
        plan = half_hours(voucher, first + HOUR / 2)

    assert [[sale.pk for sale in it.overlaps] for it in plan] == [[], [there.pk], []]
    assert [it.overlaps_planned for it in plan] == [(), (), ()]
    assert not any(it.same_start for it in plan)
    again = half_hours(voucher, first + HOUR)
    assert [it.same_start for it in again] == [there, None, None]


@pytest.mark.django_db
def test_long_sales_of_a_series_overlap():
    plan = plan_series(
        voucher=make_voucher(),
        first=terms(begins_at=FRIDAY, ends_at=FRIDAY + 2 * HOUR),
        rhythm=Rhythm(1, SeriesUnit.HOURS),
        sales=3,
        zone=SHANGHAI,
    )

    assert [it.overlaps_planned for it in plan] == [(2,), (1, 3), (2,)]


@pytest.mark.servers
@committing
def test_series_is_created_and_loaded():
    plan = half_hours(make_voucher(), FRIDAY, stock=7)

    sales = create_sales(plan=plan)

    assert [terms_of(stored(sale)) for sale in sales] == [it.terms for it in plan]
    assert [snapshot(sale_id=sale.pk).remaining for sale in sales] == [7, 7, 7]


@committing
def test_series_with_taken_start_creates_nothing():
    voucher = make_voucher()
    make_sale(voucher=voucher, begins_at=FRIDAY + HOUR, ends_at=FRIDAY + 2 * HOUR)

    with pytest.raises(SameStart, match=timestamp(FRIDAY + HOUR)):
        create_sales(plan=half_hours(voucher, FRIDAY))

    assert SeckillVoucher.objects.count() == 1


@committing
def test_series_failing_at_last_sale_creates_nothing(monkeypatch):
    made: list[SeckillVoucher] = []

    def failing(**wanted):
        if len(made) == 2:
            raise RuntimeError("the third")
        made.append(insert_sale(**wanted))
        return made[-1]

    monkeypatch.setattr(series_module, "insert_sale", failing)

    with pytest.raises(RuntimeError):
        create_sales(plan=half_hours(make_voucher(), FRIDAY))

    assert len(made) == 2
    assert not SeckillVoucher.objects.exists()


@pytest.mark.servers
@committing
def test_series_locks_vouchers_before_writing(steps):
    plan = half_hours(make_voucher(), FRIDAY)
    steps.clear()

    create_sales(plan=plan)

    assert steps.index("FOR UPDATE") < steps.index("INSERT vouchers_seckillvoucher")


@committing
def test_series_without_redis_waits_once(redis_gone, monkeypatch):
    load, tried = rebuild.load_sale, []

    def counted(**sale):
        tried.append(sale)
        load(**sale)

    monkeypatch.setattr(rebuild, "load_sale", counted)

    with redis_gone():
        create_sales(plan=half_hours(make_voucher(), FRIDAY))

    assert len(tried) == 1
    assert SeckillVoucher.objects.count() == 3


def both(call):
    """Call a function in two threads at once and return both results."""
    start = Barrier(2)

    def one(_):
        try:
            start.wait(GENEROUS_S)
            return call()
        except SameStart as refusal:
            return refusal
        finally:
            connection.close()

    with ThreadPoolExecutor(2) as threads:
        return list(threads.map(one, range(2)))


@pytest.mark.servers
@committing
@pytest.mark.concurrency
def test_simultaneous_series_is_created_once(row_locks):
    plan = half_hours(make_voucher(), FRIDAY)

    came_of_it = both(lambda: create_sales(plan=plan))

    assert sorted(type(it).__name__ for it in came_of_it) == ["SameStart", "list"]
    assert SeckillVoucher.objects.count() == 3


@pytest.mark.servers
@committing
@pytest.mark.concurrency
def test_control_without_lock_series_is_created_twice(row_locks, monkeypatch):
    plan = half_hours(make_voucher(), FRIDAY)
    looked, refuse = Barrier(2), series_module._refuse_same_start

    def both_have_looked(planned):
        refuse(planned)
        looked.wait(GENEROUS_S)

    monkeypatch.setattr(series_module, "lock_vouchers", lambda **vouchers: None)
    monkeypatch.setattr(series_module, "_refuse_same_start", both_have_looked)

    both(lambda: create_sales(plan=plan))

    assert SeckillVoucher.objects.count() == 6


# --- The page -------------------------------------------------------------------------------------


def filled(**changes):
    voucher = changes.pop("voucher", None) or make_voucher()
    return {**ENTRIES, "voucher": voucher.pk, **changes}


def looked_at(page):
    found = re.search(r'name="looked_at" value="(\w+)"', page.content.decode())
    assert found
    return found[1]


def create(shop, entries, url=SERIES):
    """Show the sales, then create them."""
    found = looked_at(shop.post(url, entries))
    return shop.post(url, {**entries, "_create": "", "looked_at": found})


@pytest.mark.django_db
def test_series_preview_uses_shop_time(shop, in_shanghai):
    page = shop.post(SERIES, filled()).content.decode()

    begins = re.findall(r"2030-01-\d\d 20:00:00", page)
    assert begins == ["2030-01-01 20:00:00", "2030-01-02 20:00:00", "2030-01-03 20:00:00"]
    assert "All times are in shop time: Asia/Shanghai." in page
    assert "Create 3 drafts" in page
    assert "They are created as drafts" in page
    assert not SeckillVoucher.objects.exists()


@committing
@pytest.mark.parametrize("stage", [{}, {"stage": "public"}])
def test_confirmed_series_is_created_as_drafts_with_history(shop, stage):
    response = create(shop, filled(**stage))

    assert "3 drafts were created." in said(response)
    sales = SeckillVoucher.objects.order_by("begins_at")
    assert [(it.stock, it.limit, it.stage, it.refundable) for it in sales] == [
        (5, 2, "draft", False)
    ] * 3
    begins = [timezone.localtime(it.begins_at) for it in sales]
    assert clock(begins) == ["01 20:00", "02 20:00", "03 20:00"]
    assert {entry.object_id for entry in LogEntry.objects.all()} == {str(it.pk) for it in sales}


@committing
def test_series_sent_twice_is_created_once(shop):
    entries = filled()
    found = looked_at(shop.post(SERIES, entries))
    sent = {**entries, "_create": "", "looked_at": found}
    shop.post(SERIES, sent)

    again = shop.post(SERIES, sent)

    assert SeckillVoucher.objects.count() == 3
    assert any(
        "already has a sale that starts at 2030-01-01 20:00:00" in text for text in said(again)
    )
    assert "starts at the same time" in again.content.decode()
    assert 'name="_create"' not in again.content.decode()


@committing
def test_changed_series_is_shown_again(shop):
    entries = filled()
    found = looked_at(shop.post(SERIES, entries))

    again = shop.post(SERIES, {**entries, "sales": "4", "_create": "", "looked_at": found})

    assert not SeckillVoucher.objects.exists()
    assert said(again) == ["The sales have changed since your preview. Check them below once more."]
    assert "Create 4 drafts" in again.content.decode()


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"voucher": "0"}, "voucher"),
        ({"begins_at_0": "someday"}, "begins_at"),
        ({"begins_at_0": "2100-12-30"}, "begins_at"),
        ({"begins_at_0": "1999-12-31"}, "begins_at"),
        ({"number": "1000", "unit": "weeks", "sales": "100"}, "begins_at"),
        ({"length": "0"}, "length"),
        ({"length": "367", "length_unit": "86400"}, "length"),
        ({"length": "9" * 5_000}, "length"),
        ({"length_unit": "7"}, "length_unit"),
        ({"sales": "0"}, "sales"),
        ({"sales": str(MOST_SALES + 1)}, "sales"),
        ({"number": "0"}, "number"),
        ({"number": "1001"}, "number"),
        ({"unit": "moons"}, "unit"),
        ({"unit": "weekdays"}, "weekdays"),
        ({"weekdays": ["7"]}, "weekdays"),
        ({"stock": "0"}, "stock"),
        ({"mode": "draw"}, "limit"),
        ({"mode": "draw", "limit": "1", "room": "busy"}, "room"),
        ({"room_rate": "0"}, "room_rate"),
        ({"account_age_h": "-1"}, "account_age_h"),
        ({"group": "4711"}, "group"),
        ({"work": "15"}, "work"),
    ],
)
def test_invalid_series_entry_is_reported_at_its_field(shop, changes, field):
    response = shop.post(SERIES, filled() | changes)

    assert response.status_code == 200
    assert set(errors(response)) == {field}
    assert 'name="_create"' not in response.content.decode()


@pytest.mark.django_db
def test_series_form_starts_with_terms_of_sale(shop):
    begins_at = dt.datetime(2030, 1, 1, 20, tzinfo=SHANGHAI)
    sale = make_sale(begins_at=begins_at, ends_at=begins_at + 2 * HOUR, stock=9, limit=3)

    form = shop.get(f"{SERIES}?sale={sale.pk}").context["adminform"].form

    assert form["voucher"].value() == sale.voucher_id
    assert form["begins_at"].value() == begins_at + DAY
    assert (form["length"].value(), form["length_unit"].value()) == (2, 3_600)
    assert (form["stock"].value(), form["limit"].value()) == (9, 3)
    assert "stage" not in form.fields


FURTHER = {
    **{"needs_contact": True, "account_age_h": 24, "needs_code": True, "first_order_only": True},
    **{"mode": SaleMode.DRAW, "draw_wait_s": 3_600, "work": Work.LIGHT, "per_address": 3},
    **{"room_rate": 70, "room_shuffled": True},
}
ROOM = {"room": RoomKind.START, "room_rate": 70, "room_shuffled": True}


@pytest.mark.django_db
def test_series_offers_no_group_of_staff(shop):
    make_roles()
    members = Group.objects.create(name="members")
    [offered] = re.findall(r'name="group".*?</select>', shop.get(SERIES).text, re.DOTALL)
    assert re.findall(r'<option value="(\d+)"', offered) == [str(members.pk)]


@committing
@pytest.mark.parametrize("more", [FURTHER, ROOM], ids=["draw", "room"])
def test_series_has_the_audience_room_and_draw_of_its_sale(shop, more):
    group = Group.objects.create(name="members")
    begins_at = dt.datetime(2030, 1, 1, 20, tzinfo=SHANGHAI)
    window = {"begins_at": begins_at, "ends_at": begins_at + 2 * HOUR}
    sale = make_sale(**window, group=group, **more)
    url = f"{SERIES}?sale={sale.pk}"

    create(shop, Filled(shop.get(url).text).fields, url)

    made = SeckillVoucher.objects.exclude(pk=sale.pk)
    assert len(made) == 7
    kept = {name: getattr(terms_of(sale), name) for name in (*more, "group_id")}
    for it in made:
        assert {name: getattr(terms_of(it), name) for name in kept} == kept
        assert Draw.objects.filter(seckill_voucher=it).exists() == sale.is_draw
        assert (it.room_opened_ms > 0) == (sale.room == RoomKind.START)


@committing
def test_typed_audience_room_and_draw_are_in_every_sale(shop):
    group = Group.objects.create(name="members")
    typed = {"needs_code": "on", "group": group.pk, "room": "busy", "room_rate": "70"}

    create(shop, filled(**typed))

    made = SeckillVoucher.objects.values_list("needs_code", "group", "room", "room_rate")
    assert list(made) == [(True, group.pk, "busy", 70)] * 3


@committing
def test_series_is_then_listed_alone_to_be_handled_together(shop):
    alone = make_sale()

    page = shop.get(create(shop, filled())["Location"])

    made = SeckillVoucher.objects.exclude(pk=alone.pk).values_list("pk", flat=True).order_by("pk")
    assert {it.pk for it in page.context["cl"].result_list} == set(made)
    ids = "%2C".join(map(str, made))
    assert f'href="{LIST}publish/?ids={ids}"' in page.text
    assert f"{LIST}publish/" not in shop.get(LIST).text
    assert f"{LIST}withdraw/" not in page.text, "nothing is public"


@pytest.mark.django_db
@pytest.mark.parametrize("query", ["sale=0", "sale=x", "sale=" + "9" * 5_000, "sale=²"])
def test_series_form_without_sale_starts_empty(shop, query):
    assert shop.get(f"{SERIES}?{query}").status_code == 200


# --- Copying from the list ------------------------------------------------------------------------


def chosen(shop, sales):
    data = {"action": "copy", "_selected_action": [sale.pk for sale in sales]}
    return shop.post(LIST, data)["Location"]


@committing
def test_several_sales_are_previewed_and_copied(shop):
    sales = [make_sale(stock=3), make_sale(stock=4)]
    url = chosen(shop, sales)
    page = shop.get(url)
    assert "Create 2 drafts" in page.content.decode()
    assert SeckillVoucher.objects.count() == 2

    response = shop.post(url, {"_create": "", "looked_at": looked_at(page)})

    assert "2 drafts were created." in said(response)
    again = shop.post(url, {"_create": "", "looked_at": looked_at(page)})
    assert said(again)[-1].startswith("The sales have changed since your preview")
    copies = SeckillVoucher.objects.exclude(pk__in=[sale.pk for sale in sales])
    assert {(it.stock, it.stage) for it in copies} == {(3, "draft"), (4, "draft")}
    assert {it.voucher_id for it in copies} == {sale.voucher_id for sale in sales}


@committing
def test_second_press_of_copies_leads_to_what_the_first_made(shop):
    sales = [make_sale(stock=3), make_sale(stock=4)]
    url = chosen(shop, sales)
    sent = {**Filled(shop.get(url).text).fields, "_create": ""}

    first, second = shop.post(url, sent), shop.post(url, sent)

    assert SeckillVoucher.objects.count() == 4
    assert second["Location"] == first["Location"]
    assert LogEntry.objects.count() == 2


@pytest.mark.django_db
@pytest.mark.parametrize("ids", ["", "0", "x", "1,,x", "9" * 5_000, "²"])
def test_copies_of_no_sale_redirect_to_list(shop, ids):
    response = shop.get(COPIES, {"ids": ids})

    assert (response.status_code, response["Location"]) == (302, LIST)


@pytest.mark.django_db
def test_digest_differs_between_plans():
    voucher = make_voucher()
    plan = half_hours(voucher, FRIDAY)

    assert digest(plan) == digest(half_hours(voucher, FRIDAY))
    assert digest(plan) != digest(half_hours(voucher, FRIDAY, stock=6))
    assert digest(plan) != digest(half_hours(make_voucher(), FRIDAY))
