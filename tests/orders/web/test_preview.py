"""The buyers' page of a draft, for staff who may see sales, and for nobody else."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.test import Client

from tests.support.browsers import HTML, browser_of
from tests.support.orders import make_buyer, make_sale
from tests.support.staff import staff_with
from tests.support.tiers import slow_after
from vouchers.catalogue.sales import stage_sale
from vouchers.models import SaleStage, SeckillVoucher

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def reader() -> Client:
    return staff_with("view_seckillvoucher")


def path_of(sale: SeckillVoucher) -> str:
    return f"/vouchers/{sale.pk}/preview/"


def body_of(page: Any, *paths: str) -> str:
    """Return a page without what differs by its address."""
    return re.sub(rf"{'|'.join(paths)}|<base [^>]+>|\s+", "", page.text)


@pytest.mark.parametrize(
    "fields", slow_after(1, [{}, {"begins_in_s": 3_600, "ends_in_s": 7_200}, {"mode": "draw"}])
)
def test_preview_is_the_page_that_buyers_get_once_it_is_public(
    reader: Client, fields: dict[str, Any]
) -> None:
    draft = make_sale(stage=SaleStage.DRAFT, **fields)
    shown = reader.get(path_of(draft))
    assert shown.status_code == 200
    stage_sale(sale_id=draft.pk, stage=SaleStage.PUBLIC)

    real = reader.get(f"/vouchers/{draft.pk}/")

    ids = (f"/vouchers/{draft.pk}/live/", rf"/me/\?sale={draft.pk}", f"/vouchers/{draft.pk}/")
    own = (path_of(draft), *ids)
    assert body_of(shown, *own) == body_of(real, *own)


def test_preview_of_a_paused_draft_is_paused(reader: Client) -> None:
    page = reader.get(path_of(make_sale(stage=SaleStage.DRAFT, paused=True)))
    assert 'data-sale-state="paused"' in page.text


def test_script_of_the_preview_gets_figures_as_if_public(reader: Client) -> None:
    draft = make_sale(stage=SaleStage.DRAFT, stock=7)
    figures = reader.get(path_of(draft), headers={"Accept": "application/json"}).json()
    assert (figures["state"], figures["remaining"]) == ("open", 7)
    assert path_of(draft) in reader.get(path_of(draft)).text


def test_preview_is_for_nobody_but_staff_who_may_see_sales() -> None:
    draft = make_sale(stage=SaleStage.DRAFT)
    for accept in (HTML["Accept"], "application/json"):
        headers = {"Accept": accept}
        for client in (Client(), browser_of(make_buyer()), staff_with(name=accept)):
            assert client.get(path_of(draft), headers=headers).status_code == 404


def test_preview_is_kept_by_nobody_and_framed_by_this_site_alone(reader: Client) -> None:
    draft = make_sale(stage=SaleStage.DRAFT)
    page = reader.get(path_of(draft))
    assert page["Cache-Control"] == "private, no-store"
    assert page["X-Frame-Options"] == "SAMEORIGIN"
    assert "frame-ancestors 'self'" in page["Content-Security-Policy"]
    public = reader.get(f"/vouchers/{make_sale().pk}/")
    assert "frame-ancestors 'none'" in public["Content-Security-Policy"]


def test_preview_without_redis_shows_what_the_row_says(reader: Client, redis_gone: Any) -> None:
    draft = make_sale(stage=SaleStage.DRAFT)
    with redis_gone():
        page = reader.get(path_of(draft))
    assert 'data-sale-state="open"' in page.text


def test_draft_shown_to_staff_stays_hidden_from_buyers(reader: Client) -> None:
    draft, buyer = make_sale(stage=SaleStage.DRAFT), browser_of(make_buyer())
    reader.get(path_of(draft))
    for path in (f"/vouchers/{draft.pk}/", f"/vouchers/{draft.pk}/live/"):
        assert buyer.get(path).status_code == 404
