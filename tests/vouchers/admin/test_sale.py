"""The shop's side, through its real pages."""

from __future__ import annotations

import datetime as dt
import re
from io import BytesIO
from urllib.parse import quote

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Permission
from django.contrib.messages import get_messages
from django.core.files.uploadedfile import SimpleUploadedFile
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from PIL import Image

from orders.fulfilment.worker import fulfill_sale
from tests.support.sales import (
    HOUR,
    make_loaded_sale,
    make_order,
    make_sale,
    make_user,
    make_voucher,
)
from vouchers.admin import sale as vouchers_admin
from vouchers.catalogue.sales import terms_of
from vouchers.inventory.keys import LedgerKeys, LedgerUnavailable, NotLoaded
from vouchers.inventory.reservations import SalePaused, SoldOut, reserve
from vouchers.inventory.sale_state import BelowTaken, snapshot
from vouchers.models import SaleStage, SeckillVoucher, Voucher

ADD = "/admin/vouchers/seckillvoucher/add/"
LIST = "/admin/vouchers/seckillvoucher/"
CHECK = f"{LIST}check/"
WINDOW = ("begins_at_0", "begins_at_1", "ends_at_0", "ends_at_1")

# Pages that say something after the commit need a real one; the others go without.
committing = pytest.mark.django_db(transaction=True)

ENTRIES = {
    "title": "Noodles",
    "rules": "One bowl.",
    "price": "79.90",
    "face_value": "100",
    "stock": "5",
    "begins_at_0": "2030-01-01",
    "begins_at_1": "10:00:00",
    "ends_at_0": "2030-01-01",
    "ends_at_1": "12:00:00",
    "limit": "1",
    "pay_within_s": "900",
    "rebuy": "on",
    "refundable": "on",
}


def change_url(sale):
    return f"{LIST}{sale.pk}/change/"


def delete_url(sale):
    return f"{LIST}{sale.pk}/delete/"


def stored(sale):
    return SeckillVoucher.objects.select_related("voucher").get(pk=sale.pk)


def said(response):
    return [str(message) for message in get_messages(response.wsgi_request)]


def errors(response):
    return response.context["adminform"].form.errors


def refused(response):
    """What the form says of an edit that was right and could not be: it keeps what was typed."""
    assert response.status_code == 200
    return errors(response).get("__all__", [])


def typed(response, field):
    """What stands in a field of the page that came back."""
    return response.context["adminform"].form[field].value()


def as_typed(moment):
    local = timezone.localtime(moment)
    return [f"{local:%Y-%m-%d}", f"{local:%H:%M:%S}"]


def entries_of(sale, **changes):
    """What the change page of this sale sends back when nothing else is typed."""
    begins, ends = as_typed(sale.begins_at), as_typed(sale.ends_at)
    return {
        **ENTRIES,
        "stock": sale.stock,
        "limit": sale.limit,
        "pay_within_s": sale.pay_within_s,
        "begins_at_0": begins[0],
        "begins_at_1": begins[1],
        "ends_at_0": ends[0],
        "ends_at_1": ends[1],
        **changes,
    }


# --- making a sale -------------------------------------------------------------------------------


@committing
def test_one_form_makes_a_voucher_and_its_sale_and_loads_it(shop):
    response = shop.post(ADD, ENTRIES)

    sale = SeckillVoucher.objects.get()
    assert response.status_code == 302
    assert (sale.voucher.title, sale.voucher.rules) == ("Noodles", "One bowl.")
    assert (sale.voucher.price_cents, sale.voucher.face_value_cents) == (7_990, 10_000)
    assert (sale.stock, sale.limit, sale.sold, sale.paused) == (5, 1, 0, False)
    assert (sale.pay_within_s, sale.rebuy, sale.refundable) == (900, True, True)
    assert snapshot(sale_id=sale.pk).remaining == 5
    assert "Loaded into Redis: 5 of 5 units are left." in said(response)


@committing
def test_times_are_typed_in_the_shops_time_zone_and_stored_in_utc(shop):
    shop.post(ADD, ENTRIES)

    with connection.cursor() as cursor:
        cursor.execute("SELECT begins_at, ends_at FROM vouchers_seckillvoucher")
        row = cursor.fetchone()
    assert row == (dt.datetime(2030, 1, 1, 2), dt.datetime(2030, 1, 1, 4))


@committing
def test_an_existing_voucher_is_put_on_sale_again(shop):
    voucher = make_voucher()
    nothing = dict.fromkeys(("title", "rules", "price", "face_value"), "")

    shop.post(ADD, {**ENTRIES, **nothing, "existing_voucher": voucher.pk})

    assert SeckillVoucher.objects.get().voucher == voucher
    assert Voucher.objects.count() == 1


@committing
def test_a_sale_saved_while_redis_is_gone_is_told_with_a_warning(shop, redis_gone):
    with redis_gone():
        response = shop.post(ADD, ENTRIES)

    assert SeckillVoucher.objects.count() == 1
    assert any("not in Redis yet" in text for text in said(response))


@pytest.mark.django_db
def test_the_form_for_a_new_sale_offers_an_existing_voucher_from_its_link(shop):
    voucher = make_voucher()
    vouchers = shop.get("/admin/vouchers/voucher/").content.decode()
    link = re.search(r'href="([^"]*existing_voucher=\d+)"', vouchers).group(1)

    form = shop.get(link).context["adminform"].form

    assert form["existing_voucher"].value() == str(voucher.pk)


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("changes", "fields"),
    [
        ({"ends_at_0": "2029-12-31"}, {"ends_at"}),
        ({"ends_at_1": "10:00:00"}, {"ends_at"}),
        ({"stock": "-1"}, {"stock"}),
        ({"stock": "0"}, {"stock"}),
        ({"stock": str(10**30)}, {"stock"}),
        ({"stock": "1000001"}, {"stock"}),
        ({"limit": "21"}, {"limit"}),
        ({"pay_within_s": "59"}, {"pay_within_s"}),
        ({"price": "100.01"}, {"price"}),
        ({"begins_at_0": "someday"}, {"begins_at"}),
        ({"title": "", "price": "", "face_value": ""}, {"title", "price", "face_value"}),
    ],
)
def test_what_cannot_be_sold_is_said_at_its_field_and_makes_nothing(shop, ledger, changes, fields):
    response = shop.post(ADD, {**ENTRIES, **changes})

    assert response.status_code == 200
    assert set(errors(response)) == fields
    assert not Voucher.objects.exists()
    assert not SeckillVoucher.objects.exists()
    assert not list(ledger.scan_iter())


@pytest.mark.django_db
def test_an_existing_voucher_and_a_description_make_nothing(shop):
    response = shop.post(ADD, {**ENTRIES, "existing_voucher": make_voucher().pk})

    assert set(errors(response)) == {"existing_voucher"}
    assert not SeckillVoucher.objects.exists()


@committing
def test_what_buyers_did_cannot_be_posted(shop):
    posted = {"sold": "4", "epoch": "77", "fence": "77", "sold_units": "4", "id": "4242"}

    shop.post(ADD, {**ENTRIES, **posted})
    sale = SeckillVoucher.objects.get()
    assert (sale.sold, sale.epoch, sale.fence) == (0, 1, 1 << 32)
    assert sale.pk != 4242

    shop.post(change_url(sale), entries_of(sale, **posted))
    sale.refresh_from_db()
    assert (sale.sold, sale.epoch, sale.fence) == (0, 1, 1 << 32)


@pytest.mark.django_db
@pytest.mark.parametrize("url", [ADD, "change"])
def test_the_page_has_no_field_for_what_buyers_did(shop, url):
    page = shop.get(change_url(make_loaded_sale()) if url == "change" else url).content.decode()

    names = set(re.findall(r'name="([^"]+)"', page))
    assert {"stock", "limit", "title", "pay_within_s", "rebuy", "refundable"} <= names
    assert not {"sold", "epoch", "fence", "voucher"} & names


# --- editing a running sale ----------------------------------------------------------------------


@committing
def test_a_running_sale_gets_more_units(shop):
    sale = make_loaded_sale(stock=1)
    reserve(sale_id=sale.pk, order_id=501, user_id=1)
    with pytest.raises(SoldOut):
        reserve(sale_id=sale.pk, order_id=502, user_id=2)

    response = shop.post(change_url(sale), entries_of(sale, stock="3"))

    assert "Loaded into Redis: 2 of 3 units are left." in said(response)
    reserve(sale_id=sale.pk, order_id=502, user_id=2)
    assert stored(sale).stock == 3


@committing
def test_a_running_sale_gets_fewer_units(shop):
    sale = make_loaded_sale(stock=5)
    reserve(sale_id=sale.pk, order_id=501, user_id=1)

    response = shop.post(change_url(sale), entries_of(sale, stock="1"))

    assert "Loaded into Redis: 0 of 1 units are left." in said(response)
    with pytest.raises(SoldOut):
        reserve(sale_id=sale.pk, order_id=502, user_id=2)


@committing
def test_a_running_sale_is_paused_and_goes_on(shop):
    sale = make_loaded_sale()

    shop.post(change_url(sale), entries_of(sale, paused="on"))
    assert snapshot(sale_id=sale.pk).terms.paused

    shop.post(change_url(sale), entries_of(sale))
    assert not snapshot(sale_id=sale.pk).terms.paused


@committing
def test_an_edit_describes_the_voucher_anew(shop):
    sale = make_loaded_sale()

    shop.post(change_url(sale), entries_of(sale, title="Rice", price="1.50"))

    assert (stored(sale).voucher.title, stored(sale).voucher.price_cents) == ("Rice", 150)
    assert Voucher.objects.count() == 1


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"stock": "1"}, "stock"),
        ({"stock": "-1"}, "stock"),
        ({"stock": "1000001"}, "stock"),
        ({"limit": "1"}, "limit"),
        ({"ends_at_0": "2001-01-01"}, "ends_at"),
        ({"title": ""}, "title"),
    ],
)
def test_an_edit_that_cannot_be_is_said_at_its_field_and_changes_nothing(
    shop, dump, changes, field
):
    sale = make_loaded_sale(stock=5, limit=2)
    for n in (1, 2):
        reserve(sale_id=sale.pk, order_id=500 + n, user_id=n)
    before = dump()

    response = shop.post(change_url(sale), entries_of(sale, **changes))

    assert set(errors(response)) == {field}
    assert dump() == before
    assert terms_of(stored(sale)) == terms_of(sale)
    assert stored(sale).voucher.title == "Noodles"


@committing
def test_what_was_sold_while_the_page_was_open_is_not_overwritten(shop):
    sale = make_loaded_sale(stock=5)
    shop.get(change_url(sale))
    typed = entries_of(sale, stock="4")
    user = make_user("ada")
    reserve(sale_id=sale.pk, order_id=501, user_id=user.pk)
    fulfill_sale(sale_id=sale.pk)

    shop.post(change_url(sale), typed)

    assert (stored(sale).sold, stored(sale).stock) == (1, 4)
    assert snapshot(sale_id=sale.pk).remaining == 3


@committing
def test_a_buyer_who_is_faster_than_the_forms_check_is_told_and_nothing_is_changed(
    shop, monkeypatch
):
    sale = make_loaded_sale(stock=5)
    reserve(sale_id=sale.pk, order_id=501, user_id=1)
    edit = vouchers_admin.edit_sale

    def after_a_buyer(**kwargs):
        reserve(sale_id=sale.pk, order_id=502, user_id=2)
        return edit(**kwargs)

    monkeypatch.setattr(vouchers_admin, "edit_sale", after_a_buyer)

    response = shop.post(change_url(sale), entries_of(sale, stock="1", title="Rice"))

    assert refused(response) == ["Nothing was changed: 2 units are already taken."]
    assert typed(response, "title") == "Rice"
    assert (stored(sale).stock, stored(sale).voucher.title) == (5, "Noodles")
    assert snapshot(sale_id=sale.pk).terms.total == 5


@committing
def test_a_limit_that_was_raised_meanwhile_is_told(shop, monkeypatch):
    sale = make_loaded_sale(limit=1)
    edit = vouchers_admin.edit_sale

    def after_another_edit(**kwargs):
        SeckillVoucher.objects.filter(pk=sale.pk).update(limit=3)
        return edit(**kwargs)

    monkeypatch.setattr(vouchers_admin, "edit_sale", after_another_edit)

    response = shop.post(change_url(sale), entries_of(sale, limit="2"))

    assert refused(response) == ["Nothing was changed: the limit has been raised in the meantime."]


@committing
@pytest.mark.parametrize("stock", ["4", "6"])
def test_while_redis_is_gone_no_sale_is_edited_and_that_is_told(shop, redis_gone, stock):
    sale = make_loaded_sale(stock=5)

    with redis_gone():
        response = shop.post(change_url(sale), entries_of(sale, stock=stock))

    assert refused(response) == ["Nothing was changed: Redis did not respond. Try again."]
    assert typed(response, "stock") == stock
    assert stored(sale).stock == snapshot(sale_id=sale.pk).terms.total == 5


@committing
def test_a_sale_that_is_not_loaded_is_loaded_before_it_is_edited(shop, ledger):
    sale = make_loaded_sale(stock=5)
    for n in (1, 2):
        reserve(sale_id=sale.pk, order_id=500 + n, user_id=n)
    ledger.unlink(LedgerKeys(sale.pk).sale)

    response = shop.post(change_url(sale), entries_of(sale, stock="1"))

    assert set(errors(response)) == {"stock"}
    assert snapshot(sale_id=sale.pk).taken == 2


@committing
def test_a_sale_that_was_deleted_meanwhile_is_told(shop, monkeypatch):
    sale = make_loaded_sale()
    edit = vouchers_admin.edit_sale

    def after_a_delete(**kwargs):
        SeckillVoucher.objects.filter(pk=sale.pk).delete()
        return edit(**kwargs)

    monkeypatch.setattr(vouchers_admin, "edit_sale", after_a_delete)

    response = shop.post(change_url(sale), entries_of(sale, stock="9"))

    assert (response.status_code, response["Location"]) == (302, LIST)
    assert said(response) == ["The sale has been deleted."]


@committing
def test_a_redis_that_goes_after_the_forms_check_changes_nothing(shop, monkeypatch, redis_gone):
    sale = make_loaded_sale(stock=5)
    edit = vouchers_admin.edit_sale

    def when_redis_is_gone(**kwargs):
        with redis_gone():
            return edit(**kwargs)

    monkeypatch.setattr(vouchers_admin, "edit_sale", when_redis_is_gone)

    response = shop.post(change_url(sale), entries_of(sale, stock="4"))

    assert refused(response) == ["Nothing was changed: Redis did not respond. Try again."]
    assert stored(sale).stock == snapshot(sale_id=sale.pk).terms.total == 5


@committing
def test_the_history_names_what_was_changed_and_no_more(shop):
    sale = make_loaded_sale()
    sale.voucher.price_cents, sale.voucher.rules = 7_990, "One bowl."
    sale.voucher.save()

    shop.post(change_url(sale), entries_of(sale, stock="9"))

    change = LogEntry.objects.get().get_change_message()
    assert "Stock" in change
    assert "Price" not in change


@committing
def test_the_row_is_locked_before_a_page_writes_to_it(shop, steps):
    sale = make_loaded_sale()
    steps.clear()

    shop.post(change_url(sale), entries_of(sale, stock="9"))

    writes = [step for step in steps if "vouchers_" in step]
    assert steps.index("FOR UPDATE") < steps.index(writes[0])


@pytest.mark.django_db
def test_the_change_page_shows_what_is_left_now(shop):
    sale = make_loaded_sale(stock=5)
    reserve(sale_id=sale.pk, order_id=501, user_id=1)

    page = shop.get(change_url(sale)).content.decode()

    for name, value in (("sold_units", 0), ("left", 4), ("pending", 1)):
        assert re.search(rf'field-{name}.*?<div class="readonly">{value}</div>', page, re.DOTALL)


@pytest.mark.django_db
def test_the_change_page_stands_while_redis_is_gone(shop, redis_gone):
    sale = make_loaded_sale()

    with redis_gone():
        assert shop.get(change_url(sale)).status_code == 200


# --- the list ------------------------------------------------------------------------------------


def cells(page):
    """Return the rows of the list, each as ``{column: text}``."""
    rows = re.findall(r"<tr>(.*?)</tr>", page.split("<tbody>")[1], re.DOTALL)
    cell = r'class="[^"]*field-(\w+)[^"]*"[^>]*>(?:<a [^>]*>)?([^<]*)'
    return [dict(re.findall(cell, row)) for row in rows]


@pytest.mark.django_db
def test_the_list_shows_state_total_sold_left_and_pending(shop):
    sale = make_loaded_sale(stock=5)
    make_order(sale, make_user("ada"), order_id=400)
    reserve(sale_id=sale.pk, order_id=501, user_id=1)
    make_sale(begins_at=timezone.now() - 9 * HOUR)

    loaded, unloaded = cells(shop.get(LIST).content.decode())

    columns = ("title", "state", "total", "sold_units", "left", "pending")
    assert [loaded[name] for name in columns] == ["Noodles", "on sale", "5", "1", "4", "1"]
    assert [unloaded[name] for name in columns] == [
        "Noodles", "on sale (not loaded)", "5", "0", "–", "–",
    ]  # fmt: skip


@pytest.mark.django_db
def test_the_list_costs_the_same_for_three_sales_as_for_thirty(shop, ledger_trips):
    def cost(count):
        for _ in range(count):
            make_loaded_sale()
        shop.get(LIST)
        ledger_trips.clear()
        with CaptureQueriesContext(connection) as queries:
            page = shop.get(LIST).content.decode()
        return len(cells(page)), len(queries), len(ledger_trips)

    three = cost(3)
    thirty = cost(27)

    assert (three[0], thirty[0]) == (3, 30)
    assert three[1] == thirty[1]
    assert three[2] == thirty[2] == 1


@pytest.mark.django_db
def test_the_list_stands_while_redis_is_gone(shop, redis_gone):
    make_loaded_sale()

    with redis_gone():
        [row] = cells(shop.get(LIST).content.decode())

    assert row["state"] == "on sale (not loaded)"


@pytest.mark.django_db
def test_sales_are_found_by_title_id_and_time(shop):
    now = timezone.now()
    soon = make_sale(begins_at=now + HOUR, ends_at=now + 2 * HOUR)
    running = make_sale(voucher=make_voucher(title="Rice"))
    over = make_sale(begins_at=now - 2 * HOUR, ends_at=now - HOUR)

    def found(query):
        return [row.pk for row in shop.get(f"{LIST}?{query}").context["cl"].result_list]

    assert found("q=Rice") == [running.pk]
    assert found(f"q={over.pk}") == [over.pk]
    assert found("when=coming") == [soon.pk]
    assert found("when=running") == [running.pk]
    assert found("when=over") == [over.pk]
    assert len(found("when=never")) == 3


@committing
def test_chosen_sales_are_loaded_by_hand(shop, redis_gone):
    sales = [make_sale(), make_sale()]
    data = {"action": "load_into_redis", "_selected_action": [sale.pk for sale in sales]}

    with redis_gone():
        assert said(shop.post(LIST, data)) == ["Redis did not respond. Try again."]
    with pytest.raises(NotLoaded):
        snapshot(sale_id=sales[0].pk)

    assert "Loaded." in said(shop.post(LIST, data))
    assert [snapshot(sale_id=sale.pk).remaining for sale in sales] == [5, 5]


@pytest.mark.django_db
def test_who_may_only_look_cannot_load(client):
    clerk = make_user("clerk", is_staff=True)
    clerk.user_permissions.add(Permission.objects.get(codename="view_seckillvoucher"))
    client.force_login(clerk, backend="django.contrib.auth.backends.ModelBackend")
    sale = make_sale()

    client.post(LIST, {"action": "load_into_redis", "_selected_action": [sale.pk]})

    with pytest.raises(NotLoaded):
        snapshot(sale_id=sale.pk)
    assert client.get(LIST).status_code == 200
    assert client.get(change_url(sale)).status_code == 200
    assert client.post(change_url(sale), entries_of(sale)).status_code == 403


# --- what is said while a form is typed -----------------------------------------------------------


def checked(shop, entries, sale=None, method="post"):
    url = CHECK if sale is None else f"{CHECK}?sale={sale.pk}"
    response = getattr(shop, method)(url, entries)
    assert response.status_code == 200
    return response.json()


def texts(hints):
    return [hint["text"] for hint in hints]


@pytest.mark.django_db
@pytest.mark.parametrize("method", ["get", "post"])
def test_entries_are_checked_without_being_saved(shop, ledger, method):
    answer = checked(shop, {**ENTRIES, "stock": "0", "ends_at_1": "10:30"}, method=method)

    assert set(answer) == {"errors", "hints"}
    assert list(answer["errors"]) == ["stock"]
    assert answer["hints"]["ends_at"] == [{"level": "info", "text": "Lasts 30 min."}]
    assert answer["hints"]["price"] == [{"level": "info", "text": "79.9 % of the face value."}]
    assert not Voucher.objects.exists()
    assert not list(ledger.scan_iter())


@pytest.mark.django_db
def test_nothing_typed_yet_has_its_errors_and_no_hints(shop):
    answer = checked(shop, {})

    assert {"stock", "begins_at", "ends_at", "title"} <= set(answer["errors"])
    assert answer["hints"] == {}


@pytest.mark.django_db
def test_a_check_speaks_the_language_of_the_page(shop):
    entries = {**ENTRIES, "stock": ""}

    chinese = shop.post(CHECK, entries, headers={"Accept-Language": "zh-hans"}).json()

    assert chinese["errors"]["stock"] != checked(shop, entries)["errors"]["stock"]


@pytest.mark.django_db
def test_a_check_names_the_other_sales_of_an_existing_voucher(shop):
    voucher = make_voucher()
    begins_at = dt.datetime(2030, 1, 1, 1, tzinfo=dt.UTC)
    window = {"voucher": voucher, "begins_at": begins_at, "ends_at": begins_at + 2 * HOUR}
    there = make_sale(**window)
    make_sale(**window, stage=SaleStage.REHEARSAL)
    nothing = dict.fromkeys(("title", "rules", "price", "face_value"), "")

    hints = checked(shop, {**ENTRIES, **nothing, "existing_voucher": voucher.pk})["hints"]

    assert hints["begins_at"][1:] == [
        {
            "level": "warning",
            "text": f"Overlaps with another sale of this voucher: #{there.pk}, 09:00 to 11:00.",
        }
    ]


@pytest.mark.django_db
def test_a_check_of_a_sale_leaves_itself_out_and_knows_what_is_taken(shop):
    sale = make_loaded_sale(stock=5)
    reserve(sale_id=sale.pk, order_id=501, user_id=1)

    answer = checked(shop, entries_of(sale), sale)

    assert answer["errors"] == {}
    assert texts(answer["hints"]["stock"])[-1] == "Taken so far: 1. Left: 4."
    assert len(answer["hints"]["begins_at"]) == 1
    lower = checked(shop, entries_of(sale, stock="0"), sale)
    assert list(lower["errors"]) == ["stock"]
    assert terms_of(stored(sale)) == terms_of(sale)


@pytest.mark.django_db
def test_a_check_stands_while_redis_is_gone(shop, redis_gone):
    sale = make_loaded_sale(stock=5)

    with redis_gone():
        assert checked(shop, entries_of(sale), sale)["errors"] == {}


@pytest.mark.django_db
@pytest.mark.parametrize("odd", ["0", "x", "²", "-1", "9" * 5_000])
def test_a_check_of_a_sale_that_there_is_not_is_not_found(shop, odd):
    assert shop.post(CHECK, ENTRIES, query_params={"sale": odd}).status_code == 404


@pytest.mark.django_db
def test_who_may_not_save_may_not_check(client):
    sale = make_sale()
    clerk(client, "view_seckillvoucher", "add_seckillvoucher")

    assert client.post(CHECK, ENTRIES).status_code == 200
    assert client.post(f"{CHECK}?sale={sale.pk}", ENTRIES).status_code == 403


@pytest.mark.django_db
def test_the_form_names_the_shops_time_zone(shop):
    page = shop.get(ADD).content.decode()

    assert page.count("Shop time: Asia/Shanghai, now UTC+8.") == 2


@committing
def test_without_a_script_the_warnings_are_said_after_saving(shop):
    now = timezone.now()
    begins, ends = as_typed(now - HOUR), as_typed(now + HOUR)
    window = dict(zip(WINDOW, begins + ends, strict=True))

    response = shop.post(ADD, {**ENTRIES, **window})

    assert "The sale started 1 h ago: buyers can buy now." in said(response)
    assert not any("Lasts" in text for text in said(response))


# --- drafts ---------------------------------------------------------------------------------------


@committing
def test_a_draft_is_made_shown_as_one_and_published(shop):
    shop.post(ADD, {**ENTRIES, "stage": "draft"})
    sale = SeckillVoucher.objects.get()
    assert sale.stage == SaleStage.DRAFT
    [row] = cells(shop.get(LIST).content.decode())
    assert row["state"] == "draft"

    chosen = {"action": "publish", "_selected_action": [sale.pk]}
    assert said(shop.post(LIST, chosen)) == ["1 sale was published."]

    assert stored(sale).stage == SaleStage.PUBLIC
    assert not snapshot(sale_id=sale.pk).terms.paused
    line = LogEntry.objects.first().get_change_message()
    assert line == "Stage: draft → public"
    assert said(shop.post(LIST, chosen))[-1] == "None of these sales is a draft."


@committing
def test_a_public_sale_becomes_a_draft_again_while_nobody_has_ordered(shop):
    sale = make_loaded_sale()

    shop.post(change_url(sale), entries_of(sale, stage="draft"))

    assert stored(sale).stage == SaleStage.DRAFT
    with pytest.raises(SalePaused):
        reserve(sale_id=sale.pk, order_id=501, user_id=1)


@committing
def test_a_sale_with_a_promise_stays_public_and_says_so_at_its_field(shop):
    sale = make_loaded_sale()
    reserve(sale_id=sale.pk, order_id=501, user_id=1)

    response = shop.post(change_url(sale), entries_of(sale, stage="draft"))

    assert list(errors(response)) == ["stage"]
    reserve(sale_id=sale.pk, order_id=502, user_id=2)


@committing
def test_a_buyer_who_comes_at_the_last_moment_keeps_the_sale_public(shop, monkeypatch):
    sale = make_loaded_sale()
    edit = vouchers_admin.edit_sale

    def after_a_buyer(**kwargs):
        reserve(sale_id=sale.pk, order_id=501, user_id=1)
        return edit(**kwargs)

    monkeypatch.setattr(vouchers_admin, "edit_sale", after_a_buyer)

    response = shop.post(change_url(sale), entries_of(sale, stage="draft", title="Rice"))

    assert refused(response) == ["The sale has orders, so it has to stay public. Pause it instead."]
    assert (stored(sale).stage, stored(sale).voucher.title) == (SaleStage.PUBLIC, "Noodles")
    reserve(sale_id=sale.pk, order_id=502, user_id=2)


@committing
def test_a_form_that_says_nothing_of_the_stage_leaves_it(shop):
    sale = make_loaded_sale(stage=SaleStage.DRAFT)

    shop.post(change_url(sale), entries_of(sale, stock="9"))

    assert (stored(sale).stage, stored(sale).stock) == (SaleStage.DRAFT, 9)
    assert "Stage" not in LogEntry.objects.get().get_change_message()


@pytest.mark.django_db
def test_sales_are_found_by_their_state(shop):
    now = timezone.now()
    sales = {
        "draft": make_sale(stage=SaleStage.DRAFT),
        "scheduled": make_sale(begins_at=now + HOUR, ends_at=now + 2 * HOUR),
        "open": make_sale(),
        "sold_out": make_sale(stock=5, sold=5),
        "paused": make_sale(paused=True),
        "ended": make_sale(begins_at=now - 2 * HOUR, ends_at=now - HOUR),
    }
    for state, sale in sales.items():
        found = shop.get(LIST, {"state": state}).context["cl"].result_list
        assert [row.pk for row in found] == [sale.pk], state
    assert len(shop.get(LIST, {"state": "never"}).context["cl"].result_list) == len(sales)


@pytest.mark.django_db
def test_a_rehearsal_is_no_sale_of_the_shops(shop):
    rehearsal = make_sale(stage=SaleStage.REHEARSAL)

    assert not shop.get(LIST).context["cl"].result_list
    assert shop.get(change_url(rehearsal)).status_code == 302
    assert shop.get(f"{LIST}{rehearsal.pk}/copy/").status_code == 302


# --- copying --------------------------------------------------------------------------------------


@pytest.mark.django_db
def test_a_copy_is_the_form_for_a_new_sale_with_everything_of_the_other(shop):
    begins_at = dt.datetime(2030, 1, 1, 12, tzinfo=dt.UTC)
    sale = make_sale(
        begins_at=begins_at, ends_at=begins_at + HOUR, stock=7, limit=3, refundable=False
    )

    response = shop.get(f"{LIST}{sale.pk}/copy/")

    assert (response.status_code, SeckillVoucher.objects.count()) == (200, 1)
    wanted = {"existing_voucher": sale.voucher_id, "stock": 7, "limit": 3, "refundable": False}
    assert {name: typed(response, name) for name in wanted} == wanted
    day = dt.timedelta(days=1)
    assert typed(response, "begins_at") == begins_at + day
    assert typed(response, "ends_at") == begins_at + day + HOUR
    assert typed(response, "stage") == SaleStage.DRAFT
    assert f'action="{ADD}"' in response.content.decode()


@pytest.mark.django_db
def test_there_is_no_copy_of_nothing_and_none_for_who_may_not_add(shop, client):
    assert shop.get(f"{LIST}4242/copy/")["Location"] == LIST
    assert shop.post(f"{LIST}{make_sale().pk}/copy/").status_code == 405
    clerk(client, "view_seckillvoucher")
    assert client.get(f"{LIST}{make_sale().pk}/copy/").status_code == 403


@pytest.mark.django_db
@pytest.mark.parametrize("field", ["begins_at", "stock", "limit", "existing_voucher", "stage"])
@pytest.mark.parametrize("value", ["", "x", "-1", "9" * 500, "²"])
def test_an_odd_link_to_the_form_is_no_error_of_ours(shop, field, value):
    assert shop.get(ADD, {field: value}).status_code == 200


# --- pictures -------------------------------------------------------------------------------------


def picture():
    drawn = BytesIO()
    Image.new("RGB", (64, 36), "tomato").save(drawn, "PNG")
    return SimpleUploadedFile("noodles.png", drawn.getvalue(), content_type="image/png")


@committing
def test_a_voucher_gets_a_picture_keeps_it_and_loses_it(shop):
    shop.post(ADD, {**ENTRIES, "picture": picture()})
    sale = SeckillVoucher.objects.get()
    digest = stored(sale).voucher.picture_id
    page = shop.get(change_url(sale)).content.decode()
    assert f'src="/pictures/{digest}.webp"' in page
    assert 'name="remove_picture"' in page

    shop.post(change_url(sale), entries_of(sale, title="Rice"))
    assert stored(sale).voucher.picture_id == digest

    shop.post(change_url(sale), entries_of(sale, remove_picture="on"))
    assert stored(sale).voucher.picture_id is None
    assert "Remove the picture" in LogEntry.objects.first().get_change_message()


@pytest.mark.django_db
def test_a_file_that_is_no_picture_is_said_at_its_field(shop):
    upload = SimpleUploadedFile("noodles.png", b"no picture")

    response = shop.post(ADD, {**ENTRIES, "picture": upload})

    assert list(errors(response)) == ["picture"]
    assert not Voucher.objects.exists()


@committing
def test_a_picture_is_looked_at_again_where_a_buyer_was_faster(shop, monkeypatch):
    sale = make_loaded_sale(stock=5)

    def too_late(**kwargs):
        raise BelowTaken(2)

    monkeypatch.setattr(vouchers_admin, "edit_sale", too_late)

    response = shop.post(change_url(sale), entries_of(sale, stock="1", picture=picture()))

    assert list(errors(response)) == ["__all__"]


# --- history --------------------------------------------------------------------------------------


@committing
def test_the_history_says_what_was_before_what_is_after_and_why(shop):
    begins_at = dt.datetime(2030, 1, 1, 2, tzinfo=dt.UTC)
    sale = make_loaded_sale(begins_at=begins_at, ends_at=begins_at + 2 * HOUR)
    sale.voucher.price_cents, sale.voucher.rules = 7_990, "One bowl."
    sale.voucher.save()
    changes = {
        "stock": "9",
        "limit": "2",
        "ends_at_1": "13:00:00",
        "stage": "draft",
        "paused": "on",
        "price": "80",
        "rules": "Two bowls.",
        "why": "Much asked for.",
    }

    shop.post(change_url(sale), entries_of(sale, **changes))

    line = LogEntry.objects.get().get_change_message()
    assert set(line.removesuffix(". Reason: Much asked for.").split("; ")) == {
        "Stock: 5 → 9",
        "Limit per buyer: 1 → 2",
        "Ends at: 2030-01-01 12:00:00 → 2030-01-01 13:00:00",
        "Stage: public → draft",
        "Paused: no → yes",
        "Price: ¥79.90 → ¥80.00",
        "Rules",
    }


@committing
def test_a_save_that_changes_nothing_says_so(shop):
    sale = make_loaded_sale()
    sale.voucher.price_cents, sale.voucher.rules = 7_990, "One bowl."
    sale.voucher.save()

    shop.post(change_url(sale), entries_of(sale))

    assert LogEntry.objects.get().get_change_message() == "No fields changed."


# --- deleting ------------------------------------------------------------------------------------


@committing
def test_a_sale_without_buyers_is_deleted(shop, ledger):
    sale = make_loaded_sale()

    response = shop.post(delete_url(sale), {"post": "yes"})

    assert response.status_code == 302
    assert not SeckillVoucher.objects.exists()
    assert not ledger.exists(LedgerKeys(sale.pk).sale)


@pytest.mark.django_db
def test_a_sale_with_a_promise_cannot_be_deleted(shop):
    sale = make_loaded_sale()
    reserve(sale_id=sale.pk, order_id=501, user_id=1)

    assert shop.post(delete_url(sale), {"post": "yes"}).status_code == 403

    assert stored(sale)
    reserve(sale_id=sale.pk, order_id=502, user_id=2)


@pytest.mark.django_db
def test_a_sale_with_an_order_cannot_be_deleted(shop):
    sale = make_loaded_sale()
    make_order(sale, make_user("ada"), order_id=501)

    assert shop.post(delete_url(sale), {"post": "yes"}).status_code == 403
    assert stored(sale)


@committing
def test_a_buyer_who_comes_at_the_last_moment_stops_the_delete(shop, monkeypatch):
    sale = make_loaded_sale()
    delete = vouchers_admin.delete_sale

    def after_a_buyer(**kwargs):
        reserve(sale_id=sale.pk, order_id=501, user_id=1)
        delete(**kwargs)

    monkeypatch.setattr(vouchers_admin, "delete_sale", after_a_buyer)

    response = shop.post(delete_url(sale), {"post": "yes"})

    assert response.status_code == 302
    assert any("cannot be deleted" in text for text in said(response))
    assert stored(sale)
    reserve(sale_id=sale.pk, order_id=502, user_id=2)


@committing
def test_a_redis_that_goes_at_the_last_moment_stops_the_delete(shop, monkeypatch):
    sale = make_loaded_sale()

    def unavailable(**kwargs):
        raise LedgerUnavailable

    monkeypatch.setattr(vouchers_admin, "delete_sale", unavailable)

    response = shop.post(delete_url(sale), {"post": "yes"})

    assert said(response) == ["Nothing was changed: Redis did not respond. Try again."]
    assert stored(sale)


@pytest.mark.django_db
def test_sales_are_not_deleted_by_the_dozen(shop):
    sale = make_loaded_sale()
    data = {"action": "delete_selected", "_selected_action": [sale.pk], "post": "yes"}

    shop.post(LIST, data)

    assert stored(sale)


@pytest.mark.django_db
def test_a_voucher_that_was_on_sale_is_not_deleted(shop):
    sale = make_sale()

    shop.post(f"/admin/vouchers/voucher/{sale.voucher_id}/delete/", {"post": "yes"})

    assert stored(sale).voucher.title == "Noodles"


@committing
def test_a_sale_that_was_never_loaded_is_deleted(shop, ledger):
    sale = make_sale()

    shop.post(delete_url(sale), {"post": "yes"})

    assert not SeckillVoucher.objects.exists()
    assert not list(ledger.scan_iter())


ODD_IDS = ["404", "9223372036854775808", str(10**30), "9" * 5_000, "x", "_5F", "²", "٣", "-1"]


@pytest.mark.django_db
@pytest.mark.parametrize("odd", ODD_IDS, ids=lambda odd: odd[:20])
@pytest.mark.parametrize("view", ["change", "delete", "history"])
@pytest.mark.parametrize("method", ["get", "post"])
def test_a_sale_that_there_is_not_is_no_error_of_ours(shop, odd, view, method):
    shop.raise_request_exception = False

    response = getattr(shop, method)(f"{LIST}{quote(odd)}/{view}/", {"post": "yes"})

    assert response.status_code in (302, 404)


# --- who may -------------------------------------------------------------------------------------


@pytest.mark.django_db
def test_the_admin_is_for_staff(client):
    client.force_login(make_user("ada"), backend="django.contrib.auth.backends.ModelBackend")

    response = client.post(ADD, ENTRIES)

    assert response.status_code == 302
    assert response["Location"].startswith("/admin/login/")
    assert not SeckillVoucher.objects.exists()


def clerk(client, *codenames):
    """Sign in a member of staff who has these permissions and no other."""
    user = make_user("clerk", is_staff=True)
    user.user_permissions.add(*Permission.objects.filter(codename__in=codenames))
    client.force_login(user, backend="django.contrib.auth.backends.ModelBackend")


PREPARE = ("view_seckillvoucher", "add_seckillvoucher", "change_seckillvoucher")
BEGUN = "This sale has started. Only staff who can run sales may change it now."


@committing
def test_who_prepares_sales_changes_them_until_they_begin(client):
    now = timezone.now()
    clerk(client, *PREPARE)
    scheduled = make_loaded_sale(begins_at=now + HOUR, ends_at=now + 2 * HOUR)
    draft = make_loaded_sale(stage=SaleStage.DRAFT)
    running = make_loaded_sale()

    for sale in (scheduled, draft, running):
        client.post(change_url(sale), entries_of(sale, stock="9"))

    assert [stored(sale).stock for sale in (scheduled, draft, running)] == [9, 9, 5]
    assert client.post(change_url(running), entries_of(running)).status_code == 403


@pytest.mark.django_db
def test_a_sale_that_has_begun_is_shown_to_them_with_the_reason(client):
    clerk(client, *PREPARE)
    client.defaults["HTTP_ACCEPT_LANGUAGE"] = "en"
    sale = make_loaded_sale()

    page = client.get(change_url(sale)).content.decode()

    assert BEGUN in page
    assert 'name="stock"' not in page
    assert 'name="_save"' not in page
    assert "data-check-url" not in page


@pytest.mark.django_db
def test_who_may_only_look_is_not_told_what_others_may(client):
    clerk(client, "view_seckillvoucher")
    client.defaults["HTTP_ACCEPT_LANGUAGE"] = "en"

    assert BEGUN not in client.get(change_url(make_loaded_sale())).content.decode()


@committing
def test_who_runs_sales_changes_one_that_has_begun(client):
    clerk(client, *PREPARE, "run_seckillvoucher")
    sale = make_loaded_sale()

    client.post(change_url(sale), entries_of(sale, stock="9"))

    assert stored(sale).stock == 9


@pytest.mark.django_db
def test_an_error_on_the_page_of_a_coming_sale_leaves_it_to_who_prepares_it(client):
    """What is typed does not decide who may type: a begin in the past is no sale that has begun."""
    now = timezone.now()
    clerk(client, *PREPARE)
    sale = make_loaded_sale(begins_at=now + HOUR, ends_at=now + 2 * HOUR)

    typed_in = entries_of(sale, begins_at_0="2020-01-01", stock="0x")
    response = client.post(change_url(sale), typed_in)

    assert list(errors(response)) == ["stock"]
    assert typed(response, "stock") == "0x"
    assert 'name="_save"' in response.content.decode()
