"""Pausing and resuming several sales at once: what to do first when in doubt."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.test import Client
from django.utils import timezone

from tests.support.html_forms import Filled
from tests.support.sales import HOUR, make_loaded_sale
from tests.support.staff import said, staff_with
from vouchers.catalogue.history import history_text
from vouchers.inventory.sale_state import snapshot
from vouchers.models import SeckillVoucher

pytestmark = pytest.mark.django_db(transaction=True)

LIST = "/admin/vouchers/seckillvoucher/"


@pytest.fixture
def owner() -> Client:
    return staff_with(name="owner", is_owner=True)


def confirm(client: Client, step: str, *sales: SeckillVoucher, **entries: str) -> Any:
    url = f"{LIST}{step}/?ids={','.join(str(it.pk) for it in sales)}"
    return client.post(url, {**Filled(client.get(url).text).fields, **entries})


def paused(*sales: SeckillVoucher) -> list[tuple[bool, bool]]:
    """Return whether each is paused in its row and in its ledger."""
    rows = [SeckillVoucher.objects.get(pk=it.pk).paused for it in sales]
    return [
        (row, snapshot(sale_id=it.pk).terms.paused) for it, row in zip(sales, rows, strict=True)
    ]


def history(sale: SeckillVoucher) -> list[str]:
    return [history_text(it) for it in LogEntry.objects.filter(object_id=str(sale.pk))]


def test_chosen_sales_are_paused_and_resumed_with_the_reason(owner: Client) -> None:
    sales = make_loaded_sale(), make_loaded_sale()

    confirm(owner, "pause", *sales, reason="orders are late")
    assert paused(*sales) == [(True, True)] * 2
    assert all("orders are late" in text for sale in sales for text in history(sale))

    confirm(owner, "resume", *sales, reason="over")
    assert paused(*sales) == [(False, False)] * 2
    assert [len(history(it)) for it in sales] == [2, 2]


def test_pause_wants_a_reason(owner: Client) -> None:
    sale = make_loaded_sale()
    answer = confirm(owner, "pause", sale)
    assert answer.context["form"].errors["reason"]
    assert paused(sale) == [(False, False)]


def test_sale_that_is_over_is_named_and_stops_no_other(owner: Client) -> None:
    now = timezone.now()
    over = make_loaded_sale(begins_at=now - 3 * HOUR, ends_at=now - 2 * HOUR)
    running, stopped = make_loaded_sale(), make_loaded_sale(paused=True)
    texts = said(confirm(owner, "pause", over, stopped, running, reason="late"))
    assert paused(running) == [(True, True)]
    assert history(over) == history(stopped) == []
    assert sorted(text.partition(":")[0] for text in texts) == ["error", "success", "warning"]
    assert any("was paused before" in text for text in texts)
