"""The form for a voucher on sale: every invalid entry has its message at its field."""

from __future__ import annotations

import datetime as dt
import re

import pytest
from django.contrib.admin import site
from django.contrib.auth.models import Group, User
from django.test import RequestFactory
from django.utils import timezone, translation

from tests.support.draws import entered_draw
from tests.support.orders import make_buyer
from tests.support.sales import (
    HOUR,
    make_loaded_sale,
    make_order,
    make_sale,
    make_user,
    make_voucher,
    reserve,
)
from vouchers.catalogue.audience import EVERYBODY, Audience, audience_of
from vouchers.catalogue.history import text_of
from vouchers.catalogue.sales import SaleTerms, VoucherDetails
from vouchers.models import (
    MAX_ACCOUNT_AGE_H,
    MAX_DRAW_WAIT_S,
    MAX_ROOM_RATE,
    MAX_STOCK,
    Merchant,
    RoomKind,
    SaleMode,
    SaleStage,
    SeckillVoucher,
    Work,
)

pytestmark = [pytest.mark.django_db, pytest.mark.quick]

ENTRIES = {
    "title": "Noodles",
    "rules": "One bowl.",
    "price": "79.90",
    "face_value": "100",
    "stock": "5",
    "begins_at": "2030-01-01 10:00:00",
    "ends_at": "2030-01-01 12:00:00",
    "limit": "1",
    "pay_within_s": "15",
    "extendable": "on",
    "rebuy": "on",
    "refundable": "on",
    "refund_unused": "on",
}


def form_class(instance=None):
    """Return the form that the admin builds for its superuser."""
    request = RequestFactory().get("/")
    request.user = User(is_staff=True, is_superuser=True)
    admin = site.get_model_admin(SeckillVoucher)
    return admin.get_form(request, instance, change=bool(instance))


def as_sent(entries):
    """Return entries as a browser sends them: a moment is two fields, its day and its time."""
    data = dict(entries)
    for name in {"begins_at", "ends_at"} & set(data):
        data[f"{name}_0"], _, data[f"{name}_1"] = data.pop(name).partition(" ")
    return data


def filled(instance=None, **changes):
    entries = {name: value for name, value in {**ENTRIES, **changes}.items() if value is not None}
    kind = form_class(instance)
    if instance:
        entries["made_from"] = kind(instance=instance).made_from
    return kind(as_sent(entries), instance=instance)


def test_valid_form_gives_terms_and_details():
    form = filled(paused="on", limit="2")

    assert form.is_valid(), form.errors
    shanghai = timezone.get_default_timezone()
    assert form.terms == SaleTerms(
        stock=5,
        begins_at=dt.datetime(2030, 1, 1, 10, tzinfo=shanghai),
        ends_at=dt.datetime(2030, 1, 1, 12, tzinfo=shanghai),
        limit=2,
        paused=True,
        pay_within_s=900,
        rebuy=True,
        refundable=True,
        stage=SaleStage.DRAFT,
    )
    assert form.details == VoucherDetails("Noodles", "One bowl.", 7_990, 10_000)


@pytest.mark.parametrize(
    ("minutes", "seconds"), [("1", 60), ("1.5", 90), ("2.25", 135), ("10080", 604_800)]
)
def test_form_sets_payment_and_refund_terms(minutes, seconds):
    form = filled(pay_within_s=minutes, rebuy=None, refundable=None)

    assert form.is_valid(), form.errors
    decided = (form.terms.pay_within_s, form.terms.rebuy, form.terms.refundable)
    assert decided == (seconds, False, False)


def test_time_is_read_in_shop_zone(in_shanghai):
    form = filled()

    assert form.is_valid()
    assert form.terms.begins_at.astimezone(dt.UTC) == dt.datetime(2030, 1, 1, 2, tzinfo=dt.UTC)


@pytest.mark.parametrize("field", ["stock", "begins_at", "ends_at", "limit", "pay_within_s"])
def test_missing_entries_are_required(field):
    assert list(filled(**{field: None}).errors) == [field]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *[("stock", value) for value in ("-1", "0", str(MAX_STOCK + 1), str(10**30), "5.5", "x")],
        *[("stock", value) for value in ("NaN", "9" * 5_000)],
        *[("limit", value) for value in ("0", "-1", "21", str(10**30), "x")],
        *[("pay_within_s", value) for value in ("0.9", "10080.1", "-1", "1.555", str(10**30), "x")],
        *[("begins_at", value) for value in ("tomorrow", "2030-02-30 10:00", "0000-01-01 00:00")],
        *[("begins_at", value) for value in ("1999-12-31 23:59", "0203-01-01 10:00")],
        *[("ends_at", value) for value in ("2101-01-01 00:00", "20300-01-01 10:00")],
        *[("title", value) for value in ("", "   ", "x" * 121, "nul \x00")],
        *[("rules", value) for value in ("x" * 4_001,)],
        *[("price", value) for value in ("", "-1", "1.005", "NaN", "Infinity", "1e30", "x")],
        *[("face_value", value) for value in ("", "-1", "1000000.01")],
        ("price", "100.01"),
        ("ends_at", "2030-01-01 10:00"),
        ("ends_at", "2030-01-01 09:59"),
    ],
)
def test_invalid_entry_has_message_at_its_field_only(field, value):
    assert list(filled(**{field: value}).errors) == [field]


@pytest.mark.parametrize(
    ("typed", "cents"),
    [("0", 0), ("0.01", 1), ("80", 8_000), ("79.9", 7_990), ("64.35", 6_435), ("1e2", 10_000)],
)
def test_yuan_become_exact_cents(typed, cents):
    form = filled(price=typed)

    assert form.is_valid(), form.errors
    assert form.details.price_cents == cents


def test_existing_voucher_replaces_description():
    voucher = make_voucher()

    form = filled(existing_voucher=voucher.pk, title=None, rules=None, price=None, face_value=None)

    assert form.is_valid(), form.errors
    assert form.details is None
    assert form.cleaned_data["existing_voucher"] == voucher


def test_voucher_or_description_is_required():
    form = filled(title=None, rules=None, price=None, face_value=None)

    assert sorted(form.errors) == ["face_value", "price", "title"]


@pytest.mark.parametrize("typed", ["title", "rules", "price", "face_value"])
def test_voucher_and_description_together_are_refused(typed):
    nothing = dict.fromkeys(("title", "rules", "price", "face_value"))
    form = filled(existing_voucher=make_voucher().pk, **{**nothing, typed: ENTRIES[typed]})

    assert list(form.errors) == ["existing_voucher"]


@pytest.mark.parametrize("unknown", ["404", "x", str(10**30), "-1"])
def test_missing_voucher_is_refused(unknown):
    form = filled(existing_voucher=unknown, title=None, rules=None, price=None, face_value=None)

    assert "existing_voucher" in form.errors


# --- editing --------------------------------------------------------------------------------------


def edited(sale, **changes):
    return filled(instance=SeckillVoucher.objects.get(pk=sale.pk), **changes)


def test_edit_form_shows_voucher_in_yuan():
    sale = make_sale(voucher=make_voucher(title="Rice", price_cents=7_990))

    form = form_class(sale)(instance=sale)

    assert form["title"].value() == "Rice"
    assert str(form["price"].value()) == "79.9"
    assert str(form["face_value"].value()) == "100"
    assert form["stock"].value() == 5
    assert str(form["pay_within_s"].value()) == "15"


@pytest.mark.servers
def test_stock_may_be_lowered_to_units_taken():
    assert edited(make_loaded_sale(), stock="0").is_valid()


@pytest.mark.servers
def test_stock_below_units_taken_is_refused():
    sale = make_loaded_sale(stock=5)
    for n in (1, 2):
        reserve(sale_id=sale.pk, order_id=500 + n, user_id=n)

    form = edited(sale, stock="1")

    assert list(form.errors) == ["stock"]
    assert "2" in form.errors["stock"][0]
    assert edited(sale, stock="2").is_valid()


def test_stock_below_sold_is_refused_when_not_loaded():
    sale = make_sale(stock=5)
    make_order(sale, make_user("ada"), order_id=501)

    assert list(edited(sale, stock="0").errors) == ["stock"]


@pytest.mark.servers
def test_stock_may_only_rise_without_redis(redis_gone):
    sale = make_loaded_sale(stock=5)

    with redis_gone():
        assert list(edited(sale, stock="4").errors) == ["stock"]
        assert edited(sale, stock="5").is_valid()
        assert edited(sale, stock="6").is_valid()


def test_lowered_limit_is_refused():
    sale = make_sale(limit=3)

    form = edited(sale, limit="2")

    assert list(form.errors) == ["limit"]
    assert "3" in form.errors["limit"][0]
    assert edited(sale, limit="3").is_valid()
    assert edited(sale, limit="4").is_valid()


@pytest.mark.servers
def test_checks_use_the_stored_row():
    sale = make_loaded_sale(stock=5, limit=1)
    SeckillVoucher.objects.filter(pk=sale.pk).update(stock=9, sold=7, limit=2)

    form = filled(instance=sale, stock="6")

    assert sorted(form.errors) == ["limit", "stock"]


def test_sold_count_is_no_field():
    assert not {"id", "sold", "epoch", "fence", "voucher", "created_at"} & set(
        form_class()().fields
    )


def test_untouched_description_is_unchanged():
    """The admin's history lists the changed fields."""
    sale = make_sale(voucher=make_voucher(price_cents=7_990, rules="One bowl."))
    names = ("title", "rules", "price", "face_value")
    shown = form_class(sale)(instance=sale)

    form = filled(instance=sale, **{name: str(shown[name].value()) for name in names})

    assert not set(names) & set(form.changed_data)


@pytest.mark.parametrize("language", ["zh-hans", "en"])
def test_untouched_window_keeps_its_seconds(language):
    begins_at = dt.datetime(2030, 1, 1, 2, 3, 4, tzinfo=dt.UTC)
    sale = make_sale(begins_at=begins_at, ends_at=begins_at + HOUR)
    with translation.override(language):
        page = str(form_class(sale)(instance=sale)["begins_at"])
        day, second = re.findall(r'value="([^"]+)"', page)

        form = filled(instance=sale, begins_at=f"{day} {second}", ends_at="2030-01-02 00:00:00")

        assert form.is_valid(), form.errors
    assert form.cleaned_data["begins_at"] == begins_at


@pytest.mark.parametrize("hour", [5, 6], ids=["first", "second"])
def test_untouched_window_stays_in_the_repeated_hour(settings, hour):
    settings.TIME_ZONE = "America/New_York"
    begins_at = dt.datetime(2027, 11, 7, hour, 30, tzinfo=dt.UTC)
    sale = make_sale(begins_at=begins_at, ends_at=begins_at + 9 * HOUR)
    page = str(form_class(sale)(instance=sale)["begins_at"])
    day, second = re.findall(r'value="([^"]+)"', page)

    form = filled(instance=sale, begins_at=f"{day} {second}", ends_at="2027-11-07 20:00")

    assert form.is_valid(), form.errors
    assert form.terms.begins_at == begins_at
    assert "begins_at" not in form.changed_data


# --- waiting room, work, draw ---------------------------------------------------------------------

NO_ROOM = {"room": RoomKind.OFF, "room_rate": 200, "room_shuffled": False}
ROOM = {"room": RoomKind.START, "room_rate": 70, "room_shuffled": True}


@pytest.mark.parametrize(
    ("stored", "entries", "terms"),
    [
        (None, {}, {**NO_ROOM, "mode": SaleMode.FIRST_COME, "draw_wait_s": 0}),
        (None, {"room": "start", "room_rate": "70", "room_shuffled": "on"}, ROOM),
        (ROOM, {"room_shuffled": "on"}, ROOM),
        ({"work": Work.LIGHT}, {}, {"work": Work.LIGHT}),
        ({"work": Work.LIGHT}, {"work": ""}, {"work": Work.LIGHT}),
        ({"work": Work.LIGHT}, {"work": "0"}, {"work": 0}),
        ({"work": Work.LIGHT}, {"work": "18"}, {"work": 18}),
        (None, {"mode": "draw", "draw_wait_s": "60"}, {"mode": "draw", "draw_wait_s": 3_600}),
        ({"mode": "draw", "draw_wait_s": 60}, {}, {"mode": "draw", "draw_wait_s": 60}),
        ({"account_age_h": 24}, {}, {"account_age_h": 24}),
    ],
)
def test_term_is_what_was_entered_or_stored(stored, entries, terms):
    form = filled(None if stored is None else make_sale(**stored), **entries)

    assert form.is_valid(), form.errors
    assert {name: getattr(form.terms, name) for name in terms} == terms


@pytest.mark.parametrize(
    ("field", "entries"),
    [
        ("work", {"work": "15"}),
        ("work", {"work": "x"}),
        ("room", {"room": "always"}),
        *(("room_rate", {"room_rate": it}) for it in ("0", "-1", "x", str(MAX_ROOM_RATE + 1))),
        ("mode", {"mode": "lottery"}),
        *(("draw_wait_s", {"draw_wait_s": it}) for it in ("-1", str(MAX_DRAW_WAIT_S + 1))),
        ("limit", {"mode": "draw", "limit": "2"}),
        ("room", {"mode": "draw", "limit": "1", "room": "busy"}),
        *(("account_age_h", {"account_age_h": it}) for it in ("-1", "x")),
        ("account_age_h", {"account_age_h": str(MAX_ACCOUNT_AGE_H + 1)}),
        *(("group", {"group": it}) for it in ("4711", "x")),
    ],
)
def test_term_that_no_sale_has_is_refused_at_its_field(field, entries):
    assert field in filled(**entries).errors


def test_change_of_the_room_is_in_the_history():
    form = filled(make_sale(room=RoomKind.BUSY, room_rate=70), room="off", room_rate="80")

    with translation.override("en"):
        assert form.is_valid(), form.errors
        text = text_of(form.history_entry())

    assert "only while more people come than it lets in → no waiting room" in text
    assert "70 → 80" in text


@pytest.mark.servers
def test_mode_is_settled_once_somebody_has_entered():
    sale, _ = entered_draw([make_buyer()])
    form = filled(sale, mode="first", limit="1")
    assert list(form.errors) == ["mode"]


AUDIENCE = {
    "needs_contact": "on",
    "account_age_h": "24",
    "needs_code": "on",
    "first_order_only": "on",
}


def test_sale_is_for_everybody_unless_the_form_says_who_may_buy():
    form, group = filled(), Group.objects.create(name="members")

    assert form.is_valid(), form.errors
    assert audience_of(form.instance) == EVERYBODY
    form = filled(**AUDIENCE, group=str(group.pk))
    assert form.is_valid(), form.errors
    assert audience_of(form.instance) == Audience(
        needs_contact=True,
        account_age_h=24,
        group_id=group.pk,
        needs_code=True,
        first_order_only=True,
    )


def test_change_of_the_rules_is_in_the_history():
    before, after = (Group.objects.create(name=name) for name in ("members", "friends"))
    form = filled(make_sale(group=before), **AUDIENCE, group=str(after.pk))

    with translation.override("en"):
        assert form.is_valid(), form.errors
        text = text_of(form.history_entry())

    assert "members → friends" in text
    assert "0 → 24" in text
    assert "no → yes" in text


# --- What buyers read of the voucher --------------------------------------------------------------


def test_form_gives_merchant_english_texts_place_and_last_day():
    tea = Merchant.objects.create(name="Tea")
    form = filled(
        merchant=str(tea.pk),
        title_en="Noodles, please",
        rules_en="One.",
        valid_where="2F",
        valid_until="2030-12-31",
    )

    assert form.is_valid(), form.errors
    assert form.details == VoucherDetails(
        "Noodles",
        "One bowl.",
        7_990,
        10_000,
        merchant=tea,
        title_en="Noodles, please",
        rules_en="One.",
        valid_where="2F",
        valid_until=dt.date(2030, 12, 31),
    )


def test_stored_merchant_and_last_day_are_shown_and_a_change_is_named():
    tea, soup = (Merchant.objects.create(name=name) for name in ("Tea", "Soup"))
    voucher = make_voucher(merchant=tea, valid_until=dt.date(2030, 1, 1))
    sale = make_sale(voucher=voucher)

    assert form_class(sale)(instance=sale).initial["merchant"] == tea.pk
    form = filled(sale, merchant=str(soup.pk), valid_until="2030-12-31")
    assert form.is_valid(), form.errors
    with translation.override("en"):
        assert "Merchant: Tea → Soup" in text_of(form.history_entry())
        assert "Valid until: 2030-01-01 → 2030-12-31" in text_of(form.history_entry())


TODAY = timezone.localdate()


@pytest.mark.parametrize(
    "day",
    ["0001-01-01", "9999-12-31", str(TODAY - dt.timedelta(days=1)), f"{TODAY.year + 21}-01-01"],
)
def test_last_day_is_in_twenty_years_unless_it_is_stored(day):
    sale = make_sale(voucher=make_voucher(valid_until=dt.date.fromisoformat(day)))
    shown = str(form_class(sale)(instance=sale)["valid_until"])

    assert list(filled(valid_until=day).errors) == ["valid_until"]
    assert f'value="{day}"' in shown
    form = filled(sale, valid_until=day)
    assert form.is_valid(), form.errors
    assert filled(valid_until=str(TODAY)).is_valid()


def test_existing_voucher_and_a_merchant_exclude_each_other():
    tea = Merchant.objects.create(name="Tea")
    described = dict.fromkeys(("title", "rules", "price", "face_value"))
    form = filled(**described, existing_voucher=str(make_voucher().pk), merchant=str(tea.pk))

    assert "existing_voucher" in form.errors
