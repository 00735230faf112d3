"""The admin of sales, through its real pages."""

from __future__ import annotations

import datetime as dt
import re
from functools import partial
from io import BytesIO
from unittest.mock import Mock
from urllib.parse import quote

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Permission
from django.contrib.messages import get_messages
from django.core.files.uploadedfile import SimpleUploadedFile
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from PIL import Image

from orders.models import OrderRefusal
from seckill_site.web.admin_forms import CarryingForm
from tests.support.draws import make_draw
from tests.support.html_forms import filled
from tests.support.inspection import sale_keys
from tests.support.orders import at_once
from tests.support.sales import (
    HOUR,
    lose_state,
    make_loaded_sale,
    make_order,
    make_sale,
    make_user,
    make_voucher,
    reserve,
)
from tests.support.tiers import slow_after
from tests.vouchers.forms.test_sale import ENTRIES as FORM_ENTRIES
from tests.vouchers.forms.test_sale import as_sent, form_class
from vouchers.admin import sale as vouchers_admin
from vouchers.catalogue.history import history_text
from vouchers.catalogue.live_changes import extend_sale, pause_sale, resize_sale
from vouchers.catalogue.sales import (
    LimitLowered,
    SaleHasBuyers,
    StaysPublic,
    VoucherOnSale,
    edit_sale,
    terms_of,
)
from vouchers.inventory.keys import LedgerKeys, LedgerUnavailable, NotLoaded
from vouchers.inventory.sale_state import BelowTaken, snapshot
from vouchers.models import Merchant, SaleStage, SeckillVoucher, Voucher

ADD = "/admin/vouchers/seckillvoucher/add/"
LIST = "/admin/vouchers/seckillvoucher/"
CHECK = f"{LIST}check/"
WINDOW = ("begins_at_0", "begins_at_1", "ends_at_0", "ends_at_1")

# Pages with messages after the commit need a real one; the others do without.
committing = pytest.mark.django_db(transaction=True)

ENTRIES = as_sent(FORM_ENTRIES)


def change_url(sale):
    return f"{LIST}{sale.pk}/change/"


def delete_url(sale):
    return f"{LIST}{sale.pk}/delete/"


def last_change() -> str:
    """Return the newest entry of the admin's history."""
    entry = LogEntry.objects.first()
    assert entry
    return history_text(entry)


def stored(sale):
    return SeckillVoucher.objects.select_related("voucher").get(pk=sale.pk)


def said(response):
    return [str(message) for message in get_messages(response.wsgi_request)]


def errors(response):
    return response.context["adminform"].form.errors


def typed(response, field):
    """Return the value of a field on the returned page."""
    return response.context["adminform"].form[field].value()


def as_typed(moment):
    local = timezone.localtime(moment)
    return [f"{local:%Y-%m-%d}", f"{local:%H:%M:%S}"]


def entries_of(sale, **changes):
    """Return what the change page of this sale sends with only these changes."""
    begins, ends = as_typed(sale.begins_at), as_typed(sale.ends_at)
    return {
        **ENTRIES,
        "price": f"{stored(sale).voucher.price_cents / 100:g}",
        "stock": sale.stock,
        "limit": sale.limit,
        "pay_within_s": f"{sale.pay_within_s / 60:g}",
        "extendable": "on",
        "begins_at_0": begins[0],
        "begins_at_1": begins[1],
        "ends_at_0": ends[0],
        "ends_at_1": ends[1],
        "made_from": form_class(stored(sale))(instance=stored(sale)).made_from,
        **changes,
    }


# --- creating a sale ------------------------------------------------------------------------------


@committing
def test_form_creates_and_loads_voucher_and_sale(shop):
    response = shop.post(ADD, ENTRIES)

    sale = SeckillVoucher.objects.get()
    assert response.status_code == 302
    assert (sale.voucher.title, sale.voucher.rules) == ("Noodles", "One bowl.")
    assert (sale.voucher.price_cents, sale.voucher.face_value_cents) == (7_990, 10_000)
    assert (sale.stock, sale.limit, sale.sold, sale.paused) == (5, 1, 0, False)
    assert (sale.pay_within_s, sale.rebuy, sale.refundable) == (900, True, True)
    assert snapshot(sale_id=sale.pk).remaining == 5
    assert not any("Ready" in text for text in said(response)), "a draft sells nothing"


@committing
def test_existing_voucher_is_put_on_sale_again(shop):
    voucher = make_voucher()
    nothing = dict.fromkeys(("title", "rules", "price", "face_value"), "")

    shop.post(ADD, {**ENTRIES, **nothing, "existing_voucher": voucher.pk})

    assert SeckillVoucher.objects.get().voucher == voucher
    assert Voucher.objects.count() == 1


@committing
def test_sale_saved_without_redis_gets_a_warning(shop, redis_gone):
    with redis_gone():
        response = shop.post(ADD, ENTRIES)

    assert SeckillVoucher.objects.count() == 1
    assert any("not ready yet" in text for text in said(response))


@pytest.mark.django_db
def test_new_sale_form_offers_voucher_of_link(shop):
    voucher = make_voucher()
    vouchers = shop.get("/admin/vouchers/voucher/").content.decode()
    link = re.search(r'href="([^"]*existing_voucher=\d+)"', vouchers)
    assert link

    form = shop.get(link[1]).context["adminform"].form

    assert form["existing_voucher"].value() == str(voucher.pk)


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("changes", "fields"),
    [
        ({"stock": "0"}, {"stock"}),
        ({"title": "", "price": "", "face_value": ""}, {"title", "price", "face_value"}),
    ],
)
def test_invalid_entry_is_reported_at_its_field(shop, changes, fields):
    response = shop.post(ADD, {**ENTRIES, **changes})

    assert response.status_code == 200
    assert set(errors(response)) == fields
    assert not Voucher.objects.exists()
    assert not SeckillVoucher.objects.exists()
    assert not sale_keys()


# --- editing a running sale -----------------------------------------------------------------------


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"stock": "1"}, "stock"),
        ({"title": ""}, "title"),
    ],
)
def test_invalid_edit_is_reported_at_its_field(shop, dump, changes, field):
    sale = make_loaded_sale(stock=5, limit=2)
    for n in (1, 2):
        reserve(sale_id=sale.pk, order_id=500 + n, user_id=n)
    before = dump()

    response = shop.post(change_url(sale), entries_of(sale, **changes))

    assert set(errors(response)) == {field}
    assert dump() == before
    assert terms_of(stored(sale)) == terms_of(sale)
    assert stored(sale).voucher.title == "Noodles"


@pytest.mark.django_db
def test_edit_without_redis_is_refused(shop, redis_gone):
    sale = make_loaded_sale(stock=5)

    with redis_gone():
        response = shop.post(change_url(sale), entries_of(sale, stock="6"))

    assert errors(response) == {"__all__": [NO_ANSWER]}
    assert typed(response, "stock") == "6"
    assert stored(sale).stock == 5


@committing
def test_unloaded_sale_is_loaded_before_edit(shop, ledger):
    sale = make_loaded_sale(stock=5)
    for n in (1, 2):
        reserve(sale_id=sale.pk, order_id=500 + n, user_id=n)
    lose_state(sale.pk)

    response = shop.post(change_url(sale), entries_of(sale, stock="1"))

    assert set(errors(response)) == {"stock"}
    assert snapshot(sale_id=sale.pk).taken == 2


@committing
def test_edit_of_deleted_sale_is_reported(shop, monkeypatch):
    sale = make_loaded_sale()

    def after_a_delete(**kwargs):
        SeckillVoucher.objects.filter(pk=sale.pk).delete()
        return edit_sale(**kwargs)

    monkeypatch.setattr(vouchers_admin, "edit_sale", after_a_delete)

    response = shop.post(change_url(sale), entries_of(sale, stock="9"))

    assert (response.status_code, response["Location"]) == (302, LIST)
    assert said(response) == ["The sale has been deleted."]


@pytest.mark.django_db
def test_change_page_shows_units_left(shop):
    sale = make_loaded_sale(stock=5)
    reserve(sale_id=sale.pk, order_id=501, user_id=1)

    page = shop.get(change_url(sale)).content.decode()

    for name, value in (("sold_units", 0), ("left", 4), ("pending", 1)):
        assert re.search(rf'field-{name}.*?<div class="readonly">{value}</div>', page, re.DOTALL)


@pytest.mark.django_db
def test_change_page_works_without_redis(shop, redis_gone):
    sale = make_loaded_sale()

    with redis_gone():
        assert shop.get(change_url(sale)).status_code == 200


# --- the list -------------------------------------------------------------------------------------


def cells(page):
    """Return the rows of the list, each as ``{column: text}``."""
    rows = re.findall(r"<tr>(.*?)</tr>", page.split("<tbody>")[1], re.DOTALL)
    cell = re.compile(r'class="[^"]*field-(\w+)[^"]*"[^>]*>(.*?)</t[dh]>', re.DOTALL)
    return [
        {name: re.sub(r"<[^>]+>", "", text).strip() for name, text in cell.findall(row)}
        for row in rows
    ]


@pytest.mark.django_db
def test_draw_has_nothing_left_in_the_list(shop):
    make_draw(stock=3)
    (draw,) = cells(shop.get(LIST).content.decode())
    assert (draw["total"], draw["left"]) == ("3", "–")


@pytest.mark.django_db
def test_list_shows_state_and_figures(shop):
    sale = make_loaded_sale(stock=5)
    make_order(sale, make_user("ada"), order_id=400)
    reserve(sale_id=sale.pk, order_id=501, user_id=1)
    make_sale(begins_at=timezone.now() - 9 * HOUR)

    loaded, unloaded = cells(shop.get(LIST).content.decode())

    columns = ("called", "state", "total", "sold_units", "left", "pending")
    assert [loaded[name] for name in columns] == ["Noodles", "on sale", "5", "1", "4", "1"]
    assert [unloaded[name] for name in columns] == [
        "Noodles", "on sale not ready yet", "5", "0", "–", "–",
    ]  # fmt: skip


@pytest.mark.django_db
@pytest.mark.parametrize(("language", "title"), [("en", "Noodles"), ("zh-hans", "牛肉面")])
def test_list_has_titles_in_the_readers_language(shop, language, title):
    sale = make_sale()
    Voucher.objects.filter(pk=sale.voucher_id).update(title="牛肉面", title_en="Noodles")

    page = shop.get(LIST, headers={"Accept-Language": language}).content.decode()

    assert [it["called"] for it in cells(page)] == [title]
    assert len(cells(shop.get(LIST, {"q": title}).content.decode())) == 1


@pytest.mark.slow
@pytest.mark.django_db
def test_list_cost_does_not_depend_on_sales(shop, ledger_trips):
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
def test_list_works_without_redis(shop, redis_gone):
    make_loaded_sale()

    with redis_gone():
        [row] = cells(shop.get(LIST).content.decode())

    assert row["state"] == "on sale not ready yet"


@pytest.mark.django_db
def test_list_is_searched_by_title_id_and_time(shop):
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
def test_chosen_sales_are_loaded(shop, redis_gone):
    sales = [make_sale(), make_sale()]
    data = {"action": "load_into_redis", "_selected_action": [sale.pk for sale in sales]}

    with redis_gone():
        assert said(shop.post(LIST, data)) == ["Redis did not respond. Try again."]
    with pytest.raises(NotLoaded):
        snapshot(sale_id=sales[0].pk)

    assert "Ready to sell." in said(shop.post(LIST, data))
    assert [snapshot(sale_id=sale.pk).remaining for sale in sales] == [5, 5]


def sale_without_ledger():
    """Return a sale that was over long ago, and whose ledger has left Redis."""
    now = timezone.now().replace(microsecond=0)
    window = {"begins_at": now - 900 * HOUR, "ends_at": now - 800 * HOUR}
    return make_sale(**window, stock=5, epoch=1, ledger_removed_at=now - HOUR)


def is_back(sale):
    """Say whether row and Redis agree that the ledger is there."""
    try:
        snapshot(sale_id=sale.pk)
    except NotLoaded:
        assert stored(sale).ledger_removed_at
        return False
    return stored(sale).ledger_removed_at is None


@committing
def test_removed_ledger_comes_back_for_its_stock_and_not_for_a_title(shop):
    sale = sale_without_ledger()

    assert shop.post(change_url(sale), entries_of(sale, title="Soup")).status_code == 302
    assert (stored(sale).voucher.title, is_back(sale)) == ("Soup", False)

    edited = entries_of(sale, title="Soup", stock="9")
    assert shop.post(change_url(sale), edited).status_code == 302
    assert is_back(sale)
    assert snapshot(sale_id=sale.pk).remaining == 9


@committing
def test_chosen_removed_ledgers_come_back(shop):
    sale = sale_without_ledger()
    data = {"action": "load_into_redis", "_selected_action": [sale.pk]}

    assert "Ready to sell." in said(shop.post(LIST, data))
    assert is_back(sale)


@committing
def test_sale_with_a_removed_ledger_is_deleted(shop):
    sale = sale_without_ledger()

    shop.post(f"{LIST}{sale.pk}/delete/", {"post": "yes"})

    assert not SeckillVoucher.objects.exists()


# --- checks while a form is filled in -------------------------------------------------------------


def checked(shop, entries, sale=None, method="post"):
    url = CHECK if sale is None else f"{CHECK}?sale={sale.pk}"
    response = getattr(shop, method)(url, entries)
    assert response.status_code == 200
    return response.json()


def texts(hints):
    return [hint["text"] for hint in hints]


@pytest.mark.django_db
@pytest.mark.parametrize("method", ["get", "post"])
def test_check_saves_nothing(shop, method):
    answer = checked(shop, {**ENTRIES, "stock": "0", "ends_at_1": "10:30"}, method=method)

    assert set(answer) == {"errors", "hints"}
    assert list(answer["errors"]) == ["stock"]
    assert answer["hints"]["ends_at"] == [{"level": "info", "text": "Lasts 30 min."}]
    assert answer["hints"]["price"] == [{"level": "info", "text": "79.9% of the face value."}]
    assert not Voucher.objects.exists()
    assert not sale_keys()


@pytest.mark.django_db
def test_check_uses_language_of_page(shop):
    entries = {**ENTRIES, "stock": ""}

    chinese = shop.post(CHECK, entries, headers={"Accept-Language": "zh-hans"}).json()

    assert chinese["errors"]["stock"] != checked(shop, entries)["errors"]["stock"]


@pytest.mark.django_db
def test_check_names_overlapping_sales(shop, in_shanghai):
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
def test_check_of_stored_sale_knows_units_taken(shop):
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
def test_check_works_without_redis(shop, redis_gone):
    sale = make_loaded_sale(stock=5)

    with redis_gone():
        assert checked(shop, entries_of(sale), sale)["errors"] == {}


@pytest.mark.django_db
@pytest.mark.parametrize("odd", slow_after(1, ["0", "x", "²", "-1", "9" * 5_000]))
def test_check_of_missing_sale_returns_404(shop, odd):
    assert shop.post(CHECK, ENTRIES, query_params={"sale": odd}).status_code == 404


@pytest.mark.django_db
def test_form_names_shop_time_zone(shop, in_shanghai):
    page = shop.get(ADD).content.decode()

    assert page.count("Shop time: Asia/Shanghai, now UTC+8.") == 2


@committing
def test_warnings_are_shown_after_saving(shop):
    now = timezone.now()
    begins, ends = as_typed(now - HOUR), as_typed(now + HOUR)
    window = dict(zip(WINDOW, begins + ends, strict=True))

    response = shop.post(ADD, {**ENTRIES, **window})

    assert "Started 1 h ago: buyers can buy as soon as the sale is published." in said(response)
    assert not any("Lasts" in text for text in said(response))


# --- drafts ---------------------------------------------------------------------------------------


@committing
@pytest.mark.parametrize(
    "entries", slow_after(1, [{}, {"_save": ""}, {"stage": "public"}, {"_addanother": ""}])
)
def test_new_sale_is_a_draft_whatever_was_pressed(shop, entries):
    shop.post(ADD, {**ENTRIES, **entries})
    assert SeckillVoucher.objects.get().stage == SaleStage.DRAFT
    [row] = cells(shop.get(LIST).content.decode())
    assert row["state"] == "draft"


@committing
def test_publish_button_saves_a_draft_and_asks_first(shop):
    answer = shop.post(ADD, {**ENTRIES, "_publish": ""})

    sale = SeckillVoucher.objects.get()
    assert (sale.stage, answer["Location"]) == (SaleStage.DRAFT, f"{LIST}publish/?ids={sale.pk}")
    answer = shop.post(change_url(sale), entries_of(sale, stock="9", _publish=""))
    assert (stored(sale).stage, stored(sale).stock) == (SaleStage.DRAFT, 9)
    assert answer["Location"] == f"{LIST}publish/?ids={sale.pk}"


@committing
def test_second_press_of_publish_leads_to_the_question_too(shop):
    sent = {**ENTRIES, "_publish": "", "form_key": "one form"}
    asked, again = shop.post(ADD, sent), shop.post(ADD, sent)
    sale = SeckillVoucher.objects.get()
    assert asked["Location"] == again["Location"] == f"{LIST}publish/?ids={sale.pk}"


def buttons(page):
    """Return the buttons of a form in their order."""
    found = re.findall(r'<input type="submit"\s+value="([^"]+)"[^>]*name="(_\w+)"', page.text)
    return [(name, value) for value, name in found]


@pytest.mark.django_db
def test_draft_has_two_buttons_and_enter_saves(shop):
    draft, public = make_loaded_sale(stage=SaleStage.DRAFT), make_loaded_sale()

    two = [("_save", "Save as draft"), ("_publish", "Publish")]
    assert buttons(shop.get(ADD)) == two
    assert buttons(shop.get(change_url(draft))) == two
    page = shop.get(change_url(public))
    assert buttons(page) == [("_save", "Save")]
    assert f'href="{LIST}withdraw/?ids={public.pk}"' in page.text


@committing
def test_edit_of_a_public_sale_neither_hides_nor_publishes(shop):
    public, draft = make_loaded_sale(), make_loaded_sale(stage=SaleStage.DRAFT)

    shop.post(change_url(public), entries_of(public, stage="draft", stock="9"))
    shop.post(change_url(draft), entries_of(draft, stage="public", stock="9"))

    assert (stored(public).stage, stored(public).stock) == (SaleStage.PUBLIC, 9)
    assert (stored(draft).stage, stored(draft).stock) == (SaleStage.DRAFT, 9)


# --- what is shown, and what is folded ------------------------------------------------------------


def shown(page):
    """Return the fields that a form shows, and those that it folds away, by heading."""
    open_fields, folded = [], {}
    for part in page.context["adminform"]:
        names = [
            it.field["name"] if it.is_readonly else it.field.name for line in part for it in line
        ]
        if part.is_collapsible:
            folded[str(part.name)] = names
        else:
            open_fields += names
    return open_fields, folded


NEEDED = [
    *("title", "price", "face_value", "valid_until", "picture"),
    *("stock", "begins_at", "ends_at"),
]


@pytest.mark.slow
@pytest.mark.django_db
def test_new_sale_shows_eight_fields_and_folds_the_rest(shop):
    fields, folded = shown(shop.get(ADD))
    assert fields == NEEDED
    assert sum(map(len, folded.values())) == 25
    draft = make_sale(stage=SaleStage.DRAFT)
    assert [it for it in shown(shop.get(change_url(draft)))[0] if it in NEEDED] == NEEDED


@pytest.mark.django_db
def test_sale_of_a_voucher_that_exists_shows_no_description(shop):
    voucher, sale = make_voucher(), make_sale()
    for url in (f"{ADD}?existing_voucher={voucher.pk}", f"{LIST}{sale.pk}/copy/"):
        assert shown(shop.get(url))[0] == ["existing_voucher", "stock", "begins_at", "ends_at"]


@pytest.mark.django_db
def test_part_with_an_error_is_unfolded(shop):
    fields, folded = shown(shop.post(ADD, {**ENTRIES, "limit": "21"}))
    assert "limit" in fields
    assert "Limit and pause" not in folded


@pytest.mark.django_db
def test_reader_sees_every_part_unfolded(client):
    clerk(client, "view_seckillvoucher")
    client.defaults["HTTP_ACCEPT_LANGUAGE"] = "en"
    assert shown(client.get(change_url(make_loaded_sale())))[1] == {}


@committing
def test_form_without_stage_keeps_it(shop):
    sale = make_loaded_sale(stage=SaleStage.DRAFT)

    shop.post(change_url(sale), entries_of(sale, stock="9"))

    assert (stored(sale).stage, stored(sale).stock) == (SaleStage.DRAFT, 9)
    assert "Stage" not in last_change()


@pytest.mark.slow
@pytest.mark.django_db
def test_list_is_filtered_by_state(shop):
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
def test_rehearsal_is_hidden_from_list(shop):
    rehearsal = make_sale(stage=SaleStage.REHEARSAL)

    assert not shop.get(LIST).context["cl"].result_list
    assert shop.get(change_url(rehearsal)).status_code == 302
    assert shop.get(f"{LIST}{rehearsal.pk}/copy/").status_code == 302


# --- copying --------------------------------------------------------------------------------------


@pytest.mark.django_db
def test_copy_opens_form_with_terms_of_sale(shop):
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
    assert f'action="{ADD}"' in response.content.decode()


@pytest.mark.django_db
def test_copy_needs_a_sale(shop):
    assert shop.get(f"{LIST}4242/copy/")["Location"] == LIST
    assert shop.post(f"{LIST}{make_sale().pk}/copy/").status_code == 405


@pytest.mark.django_db
@pytest.mark.parametrize("value", slow_after(1, ["", "x", "-1", "9" * 500, "²"]))
def test_odd_form_link_is_no_server_error(shop, value):
    fields = ("begins_at", "stock", "limit", "existing_voucher", "stage")
    assert shop.get(ADD, dict.fromkeys(fields, value)).status_code == 200


# --- pictures -------------------------------------------------------------------------------------


def picture(colour="tomato"):
    drawn = BytesIO()
    Image.new("RGB", (64, 36), colour).save(drawn, "PNG")
    return SimpleUploadedFile("noodles.png", drawn.getvalue(), content_type="image/png")


@pytest.mark.slow
@committing
def test_picture_is_added_kept_and_removed(shop):
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
    assert "Remove the picture" in last_change()


@pytest.mark.django_db
def test_invalid_picture_is_reported_at_its_field(shop):
    upload = SimpleUploadedFile("noodles.png", b"no picture")

    response = shop.post(ADD, {**ENTRIES, "picture": upload})

    assert list(errors(response)) == ["picture"]
    assert not Voucher.objects.exists()


NO_ANSWER = "The change was not saved: Redis did not respond. Try again."


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("error", "text"),
    slow_after(
        2,
        [
            (BelowTaken(2), "Nothing was changed: 2 vouchers are already taken."),
            (LimitLowered(), "Nothing was changed: the limit has been raised in the meantime."),
            (StaysPublic(), "The sale has orders, so it has to stay public. Pause it instead."),
            (LedgerUnavailable(), NO_ANSWER),
        ],
    ),
)
def test_edit_refused_at_the_last_moment_keeps_entries_and_picture(shop, monkeypatch, error, text):
    sale = make_loaded_sale()
    monkeypatch.setattr(vouchers_admin, "edit_sale", Mock(side_effect=error))

    response = shop.post(change_url(sale), entries_of(sale, title="Rice", picture=picture()))

    assert response.status_code == 200
    assert errors(response) == {"__all__": [text]}
    assert typed(response, "title") == "Rice"


# --- history --------------------------------------------------------------------------------------


@committing
def test_history_shows_before_after_and_reason(shop, in_shanghai):
    begins_at = dt.datetime(2030, 1, 1, 2, tzinfo=dt.UTC)
    sale = make_loaded_sale(begins_at=begins_at, ends_at=begins_at + 2 * HOUR)
    sale.voucher.price_cents, sale.voucher.rules = 7_990, "One bowl."
    sale.voucher.save()
    changes = {
        "stock": "9",
        "limit": "2",
        "ends_at_1": "13:00:00",
        "paused": "on",
        "price": "80",
        "rules": "Two bowls.",
        "why": "Much asked for.",
    }

    shop.post(change_url(sale), entries_of(sale, **changes))

    line = last_change()
    assert set(line.removesuffix(". Reason: Much asked for.").split("; ")) == {
        "Stock: 5 → 9",
        "Limit per buyer: 1 → 2",
        "Ends at: 2030-01-01 12:00:00 → 2030-01-01 13:00:00",
        "Paused: no → yes",
        "Price: ¥79.90 → ¥80.00",
        "Rules",
    }


@committing
def test_unchanged_save_is_recorded_as_such(shop):
    sale = make_loaded_sale()
    sale.voucher.price_cents, sale.voucher.rules = 7_990, "One bowl."
    sale.voucher.save()

    shop.post(change_url(sale), entries_of(sale))

    assert last_change() == "No fields changed."


# --- deleting -------------------------------------------------------------------------------------


@committing
def test_sale_without_buyers_is_deleted_by_admin(shop, ledger):
    sale = make_loaded_sale()

    response = shop.post(delete_url(sale), {"post": "yes"})

    assert response.status_code == 302
    assert not SeckillVoucher.objects.exists()
    assert not ledger.exists(LedgerKeys(sale.pk).sale)


@committing
def test_deleting_a_sale_lists_no_refused_crowd(shop):
    sale, buyer = make_loaded_sale(), make_user("early")
    OrderRefusal.objects.create(
        seckill_voucher=sale, reason="not_started", user=buyer, refused_at=timezone.now()
    )
    assert "efused attempt" not in shop.get(delete_url(sale)).text
    shop.post(delete_url(sale), {"post": "yes"})
    assert not SeckillVoucher.objects.exists()


@pytest.mark.django_db
def test_sale_with_reservation_cannot_be_deleted(shop):
    sale = make_loaded_sale()
    reserve(sale_id=sale.pk, order_id=501, user_id=1)

    assert shop.post(delete_url(sale), {"post": "yes"}).status_code == 403

    assert stored(sale)
    reserve(sale_id=sale.pk, order_id=502, user_id=2)


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("error", "text"),
    slow_after(1, [(SaleHasBuyers(), "cannot be deleted"), (LedgerUnavailable(), NO_ANSWER)]),
)
def test_delete_refused_at_the_last_moment_is_said(shop, monkeypatch, error, text):
    sale = make_loaded_sale()
    monkeypatch.setattr(vouchers_admin, "delete_sale", Mock(side_effect=error))

    response = shop.post(delete_url(sale), {"post": "yes"})

    assert response.status_code == 302
    assert text in said(response)[0]


@pytest.mark.django_db
def test_voucher_with_sale_is_not_deleted(shop):
    sale = make_sale()

    shop.post(f"/admin/vouchers/voucher/{sale.voucher_id}/delete/", {"post": "yes"})

    assert stored(sale).voucher.title == "Noodles"


@committing
def test_unloaded_sale_is_deleted(shop):
    sale = make_sale()

    shop.post(delete_url(sale), {"post": "yes"})

    assert not SeckillVoucher.objects.exists()
    assert not sale_keys()


@pytest.mark.django_db
@pytest.mark.parametrize(
    "odd", slow_after(1, ["404", "9" * 5_000, "_5F", "²"]), ids=lambda odd: odd[:20]
)
@pytest.mark.parametrize("view", slow_after(1, ["change", "delete", "history"]))
def test_missing_sale_is_no_server_error(shop, odd, view):
    for ask in (shop.get, shop.post):
        response = ask(f"{LIST}{quote(odd)}/{view}/", {"post": "yes"})
        assert response.status_code in (302, 404)


# --- permissions ----------------------------------------------------------------------------------


def clerk(client, *codenames):
    """Sign in a member of staff who has these permissions and no other."""
    user = make_user("clerk", is_staff=True)
    user.user_permissions.add(*Permission.objects.filter(codename__in=codenames))
    client.force_login(user, backend="django.contrib.auth.backends.ModelBackend")


PREPARE = ("view_seckillvoucher", "add_seckillvoucher", "change_seckillvoucher")
BEGUN = "This sale has started. Only staff who can run sales may change it now."


@pytest.mark.slow
@committing
def test_preparing_staff_edits_sales_until_start(client):
    now = timezone.now()
    clerk(client, *PREPARE)
    scheduled = make_loaded_sale(begins_at=now + HOUR, ends_at=now + 2 * HOUR)
    draft = make_loaded_sale(stage=SaleStage.DRAFT)
    running = make_loaded_sale()

    for sale in (scheduled, draft, running):
        client.post(change_url(sale), entries_of(sale, stock="9"))

    assert [stored(sale).stock for sale in (scheduled, draft, running)] == [9, 9, 5]
    assert client.post(change_url(running), entries_of(running)).status_code == 403


@pytest.mark.slow
@committing
def test_draft_is_no_way_to_the_price_of_a_running_sale(client):
    clerk(client, *PREPARE)
    client.defaults["HTTP_ACCEPT_LANGUAGE"] = "en"
    running = make_loaded_sale(voucher=make_voucher(rules="One bowl."))
    draft = make_loaded_sale(
        voucher=running.voucher, stage=SaleStage.DRAFT, begins_at=timezone.now()
    )

    refused = client.post(change_url(draft), entries_of(draft, price="0.01", stock="9"))

    assert errors(refused)["__all__"] == [str(VoucherOnSale())]
    assert (stored(running).voucher.price_cents, stored(draft).stock) == (8_000, 5)
    client.post(change_url(draft), entries_of(draft, price="80", stock="9"))
    assert stored(draft).stock == 9
    SeckillVoucher.objects.filter(pk=running.pk).update(ends_at=timezone.now())
    client.post(change_url(draft), entries_of(draft, price="79"))
    assert stored(draft).voucher.price_cents == 7_900


@pytest.mark.django_db
def test_preparing_staff_views_started_sale_with_reason(client):
    clerk(client, *PREPARE)
    client.defaults["HTTP_ACCEPT_LANGUAGE"] = "en"
    sale = make_loaded_sale()

    page = client.get(change_url(sale)).content.decode()

    assert BEGUN in page
    assert 'name="stock"' not in page
    assert 'name="_save"' not in page
    assert "data-check-url" not in page


@pytest.mark.django_db
def test_viewer_sees_no_reason(client):
    clerk(client, "view_seckillvoucher")
    client.defaults["HTTP_ACCEPT_LANGUAGE"] = "en"

    assert BEGUN not in client.get(change_url(make_loaded_sale())).content.decode()


@pytest.mark.django_db
def test_form_error_keeps_coming_sale_editable(client):
    """The permission depends on the stored start, not on the one in the form."""
    now = timezone.now()
    clerk(client, *PREPARE)
    sale = make_loaded_sale(begins_at=now + HOUR, ends_at=now + 2 * HOUR)

    typed_in = entries_of(sale, begins_at_0="2020-01-01", stock="0x")
    response = client.post(change_url(sale), typed_in)

    assert list(errors(response)) == ["stock"]
    assert typed(response, "stock") == "0x"
    assert 'name="_save"' in response.content.decode()


def test_list_is_filtered_by_merchant(shop):
    tea = Merchant.objects.create(name="Tea")
    make_sale(voucher=make_voucher(title="Oolong", merchant=tea))
    make_sale(voucher=make_voucher(title="Noodles"))

    page = shop.get(f"{LIST}?voucher__merchant__id__exact={tea.pk}").text
    assert "Oolong" in page
    assert "Noodles" not in page


# --- stale forms ----------------------------------------------------------------------------------


@committing
def test_title_saved_from_a_stale_form_undoes_nothing(shop):
    """As it happened: one opens a running sale, another pauses, extends and enlarges it."""
    sale = make_loaded_sale(stock=5)
    opened = filled(shop.get(change_url(sale)))
    end = sale.ends_at
    pause_sale(sale_id=sale.pk)
    resize_sale(sale_id=sale.pk, stock=9, seen=5)
    extend_sale(sale_id=sale.pk, ends_at=end + HOUR, seen=end)

    response = shop.post(change_url(sale), {**opened, "title": "Rice"})

    now = stored(sale)
    assert (now.voucher.title, now.paused, now.stock, now.ends_at) == ("Rice", True, 9, end + HOUR)
    assert snapshot(sale_id=sale.pk).state == "paused"
    kept = next(text for text in said(response) if text.startswith("Others have changed this"))
    assert "Stock: 5 → 9" in kept
    assert "Paused: no → yes" in kept
    assert f"→ {' '.join(as_typed(end + HOUR))}" in kept
    assert last_change() == "Title: Noodles → Rice"


@committing
@pytest.mark.parametrize("end", slow_after(1, ["\n", "\r\n"]))
def test_line_ends_of_a_browser_change_no_rules(shop, end):
    rules = f"One each.{end}No cash."
    sale = make_loaded_sale(voucher=make_voucher(rules=rules))
    opened = filled(shop.get(change_url(sale)))

    sent = {**opened, "title": "Rice", "rules": "One each.\r\nNo cash."}
    shop.post(change_url(sale), sent)

    assert stored(sale).voucher.rules == rules
    assert last_change() == "Title: Noodles → Rice"


@committing
@pytest.mark.parametrize("later", slow_after(1, ["zh-hans", "en"]))
def test_stale_form_in_chinese_keeps_a_new_end(shop, later):
    """Its dates are written otherwise, and the language may change before it is saved."""
    sale = make_loaded_sale()
    opened = filled(shop.get(change_url(sale), headers={"Accept-Language": "zh-hans"}))
    end = sale.ends_at
    extend_sale(sale_id=sale.pk, ends_at=end + HOUR, seen=end)
    if later == "en":  # English knows no such date
        opened |= {f"begins_at_{n}": it for n, it in enumerate(as_typed(sale.begins_at))}

    response = shop.post(
        change_url(sale), {**opened, "title": "Rice"}, headers={"Accept-Language": later}
    )

    assert response.status_code == 302, errors(response)
    assert (stored(sale).ends_at, stored(sale).begins_at) == (end + HOUR, sale.begins_at)
    assert stored(sale).voucher.title == "Rice"


@committing
def test_pause_from_the_board_is_named_with_its_author(shop):
    sale = make_loaded_sale()
    opened = filled(shop.get(change_url(sale)))
    shop.post(f"{LIST}{sale.pk}/board/pause/", {"reason": "a mistake"})
    response = shop.post(change_url(sale), {**opened, "title": "Rice"})
    assert stored(sale).paused
    assert any("Paused: no → yes (shop)." in text for text in said(response))


@committing
@pytest.mark.usefixtures("row_locks")
def test_edit_between_comparison_and_lock_is_compared_too(shop, monkeypatch):
    sale = make_loaded_sale(stock=5)
    opened = filled(shop.get(change_url(sale)))
    overtake(monkeypatch, sale)

    shop.post(change_url(sale), {**opened, "title": "Rice"})

    assert (stored(sale).voucher.title, stored(sale).stock) == ("Rice", 9)
    assert snapshot(sale_id=sale.pk).terms.total == 9


@committing
@pytest.mark.usefixtures("row_locks")
def test_without_the_check_such_an_edit_is_undone(shop, monkeypatch):
    sale = make_loaded_sale(stock=5)
    opened = filled(shop.get(change_url(sale)))
    overtake(monkeypatch, sale)
    monkeypatch.setattr(CarryingForm, "check", lambda form, row: None)

    shop.post(change_url(sale), {**opened, "title": "Rice"})

    assert stored(sale).stock == 5


def overtake(monkeypatch, sale):
    """Let a colleague change the stock just before an edit locks the sale."""
    waiting = [lambda: resize_sale(sale_id=sale.pk, stock=9, seen=5)]

    def late(**kwargs):
        if waiting:
            at_once(waiting.pop())
        return edit_sale(**kwargs)

    monkeypatch.setattr(vouchers_admin, "edit_sale", late)


@committing
@pytest.mark.usefixtures("row_locks")
def test_fields_saved_at_once_all_stay(shop):
    sale = make_loaded_sale(stock=5)
    changes = {"title": "Rice", "stock": "9", "rules": "Two bowls.", "pay_within_s": "20"}
    opened = filled(shop.get(change_url(sale)))
    others = [twin(shop) for _ in changes]

    answers = at_once(
        *(
            partial(it.post, change_url(sale), {**opened, name: value})
            for it, (name, value) in zip(others, changes.items(), strict=True)
        )
    )

    assert [it.status_code for it in answers] == [302] * 4
    now = stored(sale)
    assert (now.voucher.title, now.stock, now.voucher.rules) == ("Rice", 9, "Two bowls.")
    assert now.pay_within_s == 1_200


@committing
@pytest.mark.usefixtures("row_locks")
def test_one_of_two_numbers_saved_at_once_is_refused(shop):
    sale = make_loaded_sale(stock=5)
    opened, others = filled(shop.get(change_url(sale))), [twin(shop), twin(shop)]

    answers = at_once(
        partial(others[0].post, change_url(sale), {**opened, "stock": "8"}),
        partial(others[1].post, change_url(sale), {**opened, "stock": "9"}),
    )

    assert sorted(it.status_code for it in answers) == [200, 302]
    refused = next(it for it in answers if it.status_code == 200)
    assert set(errors(refused)) == {"stock"}
    assert f"shop changed this to “{stored(sale).stock}”" in refused.text


def twin(client):
    """Return another window of the same browser."""
    other = Client(headers={"Accept": "text/html", "Accept-Language": "en"})
    other.cookies = client.cookies
    return other


@pytest.mark.slow
@pytest.mark.django_db
def test_picture_that_others_replaced_is_not_removed_unseen(shop):
    sale = make_sale()
    shop.post(change_url(sale), entries_of(sale, picture=picture()))
    opened = filled(shop.get(change_url(sale)))
    shop.post(change_url(sale), entries_of(sale, picture=picture("blue")))
    digest = stored(sale).voucher.picture_id

    response = shop.post(change_url(sale), {**opened, "remove_picture": "on"})

    assert set(errors(response)) == {"remove_picture"}
    assert stored(sale).voucher.picture_id == digest
    shop.post(change_url(sale), filled(response))
    assert stored(sale).voucher.picture_id is None


@pytest.mark.slow
@pytest.mark.django_db
def test_two_pictures_are_a_clash(shop):
    sale = make_sale()
    opened = filled(shop.get(change_url(sale)))
    shop.post(change_url(sale), entries_of(sale, picture=picture()))
    response = shop.post(change_url(sale), {**opened, "picture": picture("blue")})
    assert set(errors(response)) == {"picture"}
    response = shop.post(change_url(sale), {**filled(response), "picture": picture("blue")})
    assert response.status_code == 302


@pytest.mark.slow
@pytest.mark.django_db
def test_typing_shows_what_others_changed(shop):
    sale = make_sale(stock=5)
    opened = filled(shop.get(change_url(sale)))
    SeckillVoucher.objects.update(stock=9)
    answer = shop.post(f"{CHECK}?sale={sale.pk}", {**opened, "stock": "8"}).json()
    assert "somebody changed this to “9”" in answer["errors"]["stock"][0]
    assert shop.post(f"{CHECK}?sale={sale.pk}", opened).json()["errors"] == {}
    assert said(shop.get(LIST)) == []
