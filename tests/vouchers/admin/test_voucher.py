"""The import of vouchers through the admin's pages: upload, preview, confirm."""

from __future__ import annotations

import datetime as dt
import re
from typing import Any

import pytest
from django.conf import settings as settings_of_site
from django.core.files.uploadedfile import SimpleUploadedFile
from django.db import OperationalError
from django.test import Client

from tests.support.html_forms import edit
from tests.support.sales import make_sale, make_voucher
from tests.support.spreadsheets import CHINESE, ENGLISH, HOTPOT, NOODLES, as_csv, as_xlsx
from tests.support.staff import staff_with
from tests.support.tiers import slow_after
from tests.vouchers.admin.test_sale import said
from vouchers.admin import voucher
from vouchers.imports.plan import RowOutcome
from vouchers.imports.spreadsheet import MOST_BYTES
from vouchers.lock_objects import lock_vouchers
from vouchers.models import Merchant, SeckillVoucher, Voucher

pytestmark = pytest.mark.django_db

LIST = "/admin/vouchers/voucher/"
IMPORT = f"{LIST}import/"
CONFIRM = f"{LIST}process_import/"
EXAMPLE = f"{LIST}import_example/"


def upload(client: Client, content: bytes, name: str = "spring.csv") -> Any:
    return client.post(IMPORT, {"file": SimpleUploadedFile(name, content)})


def key_in(response: Any) -> str:
    key = re.search(r'name="key" value="([^"]+)"', response.text)
    assert key, "the preview cannot be confirmed"
    return key[1]


def test_file_is_uploaded_previewed_and_imported(shop: Client) -> None:
    voucher = make_voucher()
    content = as_csv(ENGLISH, [voucher.pk, "", "", "79", *[""] * 5], NOODLES, HOTPOT)

    shown = upload(shop, content)

    assert shown.status_code == 200
    assert "What spring.csv would do. Nothing is written yet." in shown.text
    assert re.search(r"<del>¥80.00</del>\s*<span[^>]*>→</span>\s*<ins>¥79.00</ins>", shown.text)
    assert "500 vouchers, 2 per buyer" in shown.text
    assert "2030-01-01 10:00:00" in shown.text
    assert Voucher.objects.count() == 1

    done = shop.post(CONFIRM, {"key": key_in(shown)})

    assert (done.status_code, done["Location"]) == (302, LIST)
    assert said(done) == ["Imported: 2 new, 1 changed and 0 unchanged vouchers, and 1 draft sales."]
    assert (Voucher.objects.count(), SeckillVoucher.objects.count()) == (3, 1)


def test_list_links_to_import(shop: Client) -> None:
    assert f'href="{IMPORT}"' in shop.get(LIST).text
    page = shop.get(IMPORT).text
    assert f'href="{EXAMPLE}"' in page
    assert "开始时间 · begins at" in page


def test_new_last_day_is_in_twenty_years(shop: Client) -> None:
    voucher = make_voucher(valid_until=dt.date(9999, 12, 31))
    entries = {"title": "Noodles", "price_cents": "80", "face_value_cents": "100"}
    entries["valid_until"] = "9999-12-31"
    assert "years on, or leave it empty" in shop.post(f"{LIST}add/", entries).text
    saved = edit(shop, f"{LIST}{voucher.pk}/change/", {**entries, "title": "Rice"})
    assert saved.status_code == 302
    voucher.refresh_from_db()
    assert (voucher.title, str(voucher.valid_until)) == ("Rice", "9999-12-31")


def test_wrong_row_prevents_confirmation(shop: Client) -> None:
    shown = upload(shop, as_csv(ENGLISH, NOODLES, ["", "Bad <b>", "", "x", "100", *[""] * 4]))
    assert '<a href="#row-3">Row 3:</a>' in shown.text
    assert "price (售价), “x”: This is not an amount." in shown.text
    assert "Bad &lt;b&gt;" in shown.text
    assert 'name="key"' not in shown.text


def test_warnings_are_shown_in_their_row(shop: Client) -> None:
    there = make_voucher(title="牛肉面")
    shown = upload(shop, as_csv(CHINESE, NOODLES))
    assert f"There is already a voucher with this title: id {there.pk}." in shown.text
    assert key_in(shown)


@pytest.mark.parametrize(
    ("content", "why"),
    slow_after(
        2,
        [
            (b"", "The submitted file is empty."),
            (b"a" * (MOST_BYTES + 1), "The file is larger than 5 MB. Split it."),
            (b"\xd0\xcf\x11\xe0" + b"\0" * 99, "Save it as .xlsx or CSV instead."),
            (b"title;price\r\nx;1\r\n", "These columns are missing: face value (面值)."),
        ],
    ),
    ids=["empty", "large", "old", "columns"],
)
def test_unreadable_file_is_reported_at_the_field(shop: Client, content: bytes, why: str) -> None:
    response = upload(shop, content)
    assert response.status_code == 200
    assert why in response.text


def test_missing_file_is_reported_at_the_field(shop: Client) -> None:
    assert "This field is required." in shop.post(IMPORT).text


def test_second_confirmation_imports_nothing(shop: Client) -> None:
    key = key_in(upload(shop, as_xlsx(ENGLISH, NOODLES)))
    shop.post(CONFIRM, {"key": key})
    again = shop.post(CONFIRM, {"key": key})
    assert said(again)[-1].startswith("This preview has already been confirmed or is more")
    assert Voucher.objects.count() == 1


def test_changed_vouchers_return_409_and_new_preview(shop: Client) -> None:
    voucher = make_voucher()
    shown = upload(shop, as_csv(ENGLISH, [voucher.pk, "", "", "79", *[""] * 5]))
    Voucher.objects.update(price_cents=7_000)

    again = shop.post(CONFIRM, {"key": key_in(shown)})

    assert again.status_code == 409
    assert "Nothing was imported: vouchers or sales have changed" in again.text
    assert "<del>¥70.00</del>" in again.text
    assert shop.post(CONFIRM, {"key": key_in(again)}).status_code == 302
    voucher.refresh_from_db()
    assert voucher.price_cents == 7_900


def test_confirmation_needs_post(shop: Client) -> None:
    key = key_in(upload(shop, as_csv(ENGLISH, NOODLES)))
    assert shop.get(CONFIRM, {"key": key})["Location"] == IMPORT
    assert Voucher.objects.count() == 0


def test_database_error_leaves_outcome_open(shop: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(**_: object) -> None:
        raise OperationalError(2013, "lost connection")

    monkeypatch.setattr(voucher, "confirm_import", away)
    assert "may or may not have been imported" in said(shop.post(CONFIRM, {"key": "x"}))[0]


def test_voucher_put_on_sale_meanwhile_keeps_its_price(monkeypatch: pytest.MonkeyPatch) -> None:
    noodles = make_voucher()

    def put_on_sale_first(**ids: Any) -> Any:
        make_sale(voucher=noodles)
        return lock_vouchers(**ids)

    monkeypatch.setattr(voucher, "lock_vouchers", put_on_sale_first)
    entries = {
        "title": "Noodles", "price_cents": "0.01", "face_value_cents": "100",
        "merchant": Merchant.default().pk,
    }  # fmt: skip
    clerk = staff_with("view_voucher", "change_voucher")
    assert edit(clerk, f"{LIST}{noodles.pk}/change/", entries).status_code == 403
    noodles.refresh_from_db()
    assert noodles.price_cents == 8_000


@pytest.mark.parametrize(
    "permissions",
    slow_after(1, [["view_voucher"], ["view_voucher", "add_voucher"], ["change_voucher"]]),
)
def test_import_needs_both_voucher_permissions(permissions: list[str]) -> None:
    client = staff_with(*permissions)
    assert f'href="{IMPORT}"' not in client.get(LIST).text
    assert client.get(IMPORT).status_code == 403
    assert upload(client, as_csv(ENGLISH, NOODLES)).status_code == 403
    assert client.post(CONFIRM, {"key": "x"}).status_code == 403
    assert client.get(EXAMPLE).status_code == 403
    assert Voucher.objects.count() == 0


def test_preview_names_missing_sale_permission() -> None:
    client = staff_with("add_voucher", "change_voucher")
    assert (
        "You do not have permission to create sales."
        in upload(client, as_csv(ENGLISH, HOTPOT)).text
    )
    assert key_in(upload(client, as_csv(ENGLISH, NOODLES)))


@pytest.mark.parametrize(
    ("language", "heading"), slow_after(1, [("en", "face value"), ("zh-hans", "面值")])
)
def test_example_file_opens_in_excel_and_imports(shop: Client, language: str, heading: str) -> None:
    shop.defaults["HTTP_ACCEPT_LANGUAGE"] = language
    response = shop.get(EXAMPLE)
    assert response["Content-Disposition"] == 'attachment; filename="vouchers.csv"'
    content = response.getvalue()
    assert content.startswith(b"\xef\xbb\xbf")
    assert heading in content.decode()
    shop.post(CONFIRM, {"key": key_in(upload(shop, content))})
    assert (Voucher.objects.count(), SeckillVoucher.objects.count()) == (2, 1)


def test_example_of_guide_imports(shop: Client) -> None:
    guide = (settings_of_site.BASE_DIR / "docs" / "importing.md").read_text(encoding="utf-8")
    example = re.search(r"```csv\n(.*?)```", guide, re.DOTALL)
    assert example
    shop.post(CONFIRM, {"key": key_in(upload(shop, example[1].encode()))})
    assert (Voucher.objects.count(), SeckillVoucher.objects.count()) == (2, 1)


# --- Merchants that the shop does not have --------------------------------------------------------

MERCHANTS = ["title", "price", "face value", "merchant"]


def test_preview_offers_to_add_merchants(shop: Client) -> None:
    shown = upload(shop, as_csv(MERCHANTS, ["Noodles", "1", "2", "Tea <b>"]))
    assert 'name="merchant" value="Tea &lt;b&gt;" checked' in shown.text
    assert "Import everything" not in shown.text

    again = shop.post(CONFIRM, {"key": key_in(shown), "merchant": "Tea <b>", "_merchants": "1"})

    assert again.status_code == 200
    assert Merchant.objects.filter(name="Tea <b>").exists()
    assert "Import everything" in again.text
    assert shop.post(CONFIRM, {"key": key_in(again)})["Location"] == LIST
    assert Voucher.objects.get().merchant == Merchant.objects.get(name="Tea <b>")


def test_second_press_of_adding_merchants_says_so(shop: Client) -> None:
    shown = upload(shop, as_csv(MERCHANTS, ["Noodles", "1", "2", "Tea"]))
    sent = {"key": key_in(shown), "merchant": "Tea", "_merchants": "1"}
    shop.post(CONFIRM, sent)
    assert "has already been confirmed" in said(shop.post(CONFIRM, sent))[0]


def test_without_permission_no_merchant_is_offered_or_added() -> None:
    clerk = staff_with("add_voucher", "change_voucher")
    shown = upload(clerk, as_csv(MERCHANTS, ["Noodles", "1", "2", "Tea"]))
    assert "_merchants" not in shown.text
    assert "There is no merchant of this name." in shown.text


# --- The export -----------------------------------------------------------------------------------

EXPORT = f"{LIST}export/"


@pytest.mark.parametrize("language", ["en", "zh-hans"])
def test_export_imports_again_without_a_change(shop: Client, language: str) -> None:
    shop.defaults["HTTP_ACCEPT_LANGUAGE"] = language
    tea = Merchant.objects.create(name="Mar-1", name_en="Tea")
    for title in ("may88", "(80)", "=1+1", "'-1", "1205689618834327001"):
        make_voucher(title=title, rules="a\nb", merchant=tea, valid_until=dt.date(2030, 12, 31))
    make_voucher(title="Soup", valid_where="2F", price_cents=7_990)

    content = shop.get(EXPORT).getvalue()

    shown = upload(shop, content)
    assert {it.what for it in shown.context["preview"].plan.rows} == {RowOutcome.UNCHANGED}
    assert len(shown.context["preview"].plan.rows) == 6
    assert content.startswith(b"\xef\xbb\xbf")


def test_export_is_that_of_the_list_with_its_search(shop: Client) -> None:
    make_voucher(title="Noodles")
    make_voucher(title="Soup")
    assert f'href="{EXPORT}?q=sou"' in shop.get(LIST, {"q": "sou"}).text

    content = shop.get(EXPORT, {"q": "sou"}).getvalue().decode()

    assert ("Soup" in content, "Noodles" in content) == (True, False)
    assert shop.get(EXPORT, {"nothing": "x"})["Location"] == f"{LIST}?nothing=x"
