"""Invitation codes in the admin: made, imported, downloaded and listed."""

from __future__ import annotations

import csv
import io
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client

from orders.lifecycle.invitations import MOST_CODES
from orders.models import CodeUse, InvitationCode
from tests.orders.audience.rules import give_code
from tests.support.orders import make_buyer, make_order, make_sale
from tests.support.staff import staff_with
from vouchers.catalogue.history import history_text
from vouchers.models import SeckillVoucher

pytestmark = [pytest.mark.django_db, pytest.mark.quick]

LIST = "/admin/orders/invitationcode/"


@pytest.fixture
def clerk() -> Client:
    return staff_with("view_seckillvoucher", "issue_invitationcode")


@pytest.fixture
def sale() -> SeckillVoucher:
    return make_sale(loaded=False, needs_code=True)


def page_url(sale: SeckillVoucher) -> str:
    return f"/admin/vouchers/seckillvoucher/{sale.pk}/codes/"


def post(clerk: Client, sale: SeckillVoucher, **fields: Any) -> Any:
    return clerk.post(page_url(sale), fields, follow=True)


def codes_of(sale: SeckillVoucher) -> set[str]:
    return set(InvitationCode.objects.filter(seckill_voucher=sale).values_list("code", flat=True))


def test_codes_are_made_and_noted(clerk: Client, sale: SeckillVoucher) -> None:
    page = post(clerk, sale, count="25").text
    assert "Made 25 invitation codes." in page
    assert "Codes: 25" in page
    assert len(codes_of(sale)) == 25
    assert history_text(LogEntry.objects.get()) == "Made 25 invitation codes."


def test_codes_are_imported_from_text_or_file(clerk: Client, sale: SeckillVoucher) -> None:
    page = post(clerk, sale, lines="welcome-1\r\n\r\nWELCOME2\n").text
    assert "Imported 2 invitation codes; 0 were there already." in page
    file = SimpleUploadedFile("codes.txt", b"\xef\xbb\xbfWELCOME2\nWELCOME3")
    page = post(clerk, sale, file=file).text
    assert "Imported 1 invitation codes; 1 were there already." in page
    assert codes_of(sale) == {"WELCOME1", "WELCOME2", "WELCOME3"}


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({}, "Fill in one of the three fields."),
        ({"count": "5", "lines": "WELCOME1"}, "Fill in one of the three fields."),
        ({"count": "0"}, "greater than or equal to 1"),
        ({"count": str(MOST_CODES + 1)}, "less than or equal to"),
        ({"count": "x"}, "Enter a whole number."),
        ({"lines": "WELCOME1\nno"}, "Line 2 is not a code. Nothing was imported."),
        ({"file": b"\xff\xfe\x00"}, "The file is not text in UTF-8."),
    ],
)
def test_wrong_entry_adds_nothing_and_says_why(
    clerk: Client, sale: SeckillVoucher, fields: dict[str, Any], words: str
) -> None:
    if "file" in fields:
        fields = {"file": SimpleUploadedFile("codes.txt", fields["file"])}
    answer = post(clerk, sale, **fields)
    assert answer.status_code == 200
    assert words in answer.text
    assert not codes_of(sale)


def test_file_says_who_used_each_code(clerk: Client, sale: SeckillVoucher) -> None:
    buyer = make_buyer()
    used, _ = give_code(sale, buyer, "0123456789AB"), give_code(sale, None, "WELCOME2")
    order = make_order(sale, buyer)
    CodeUse.objects.create(code=used, order_id=order.pk)
    answer = clerk.get(f"{page_url(sale)}csv/")
    assert "no-store" in answer["Cache-Control"]
    _, first, second = csv.reader(io.StringIO(answer.getvalue().decode("utf-8-sig"), newline=""))
    assert [it.strip() for it in (first[0], first[1], first[3])] == [
        "0123-4567-89AB", buyer.username, str(order.pk),
    ]  # fmt: skip
    assert second == ["WELCOME2", "", "", ""]


def test_list_is_searched_and_unused_codes_deleted(clerk: Client, sale: SeckillVoucher) -> None:
    used, free = give_code(sale, make_buyer(), "WELCOME1"), give_code(sale, None, "WELCOME2")
    CodeUse.objects.create(code=used, order_id=4711)
    for text in ("WELCOME1", used.user.username if used.user else ""):
        page = clerk.get(LIST, {"q": text}).text
        assert "WELCOME1" in page
        assert "WELCOME2" not in page
    for code in (used, free):
        clerk.post(f"{LIST}{code.pk}/delete/", {"post": "yes"})
    assert codes_of(sale) == {"WELCOME1"}


def test_codes_need_their_permission(sale: SeckillVoucher) -> None:
    give_code(sale, None)
    reader = staff_with("view_seckillvoucher", "view_voucherorder")
    for url in (page_url(sale), f"{page_url(sale)}csv/", LIST):
        assert reader.get(url).status_code == 403
    assert "/codes/" not in reader.get(f"/admin/vouchers/seckillvoucher/{sale.pk}/change/").text


def test_missing_sale_returns_404(clerk: Client) -> None:
    assert clerk.get(page_url(SeckillVoucher(pk=4711))).status_code == 404
