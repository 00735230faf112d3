"""The standing of entries in the list of a buyer's orders, and what it costs."""

from __future__ import annotations

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from orders.draws.standing import Stage, entries_of
from orders.models import WaitingEntry
from tests.support.draws import draw_to_the_end, end, entered_draw, make_draw
from tests.support.orders import make_buyer, make_buyers
from vouchers.models import Draw

pytestmark = pytest.mark.django_db

HTML = {"Accept": "text/html"}


@pytest.mark.parametrize("draws", [1, 4])
def test_entries_cost_the_same_queries_however_many(draws: int) -> None:
    buyer = make_buyer()
    while len(entries_of(user_id=buyer.pk)) < draws:  # a draw that the buyer wins adds an order
        sale, _ = entered_draw([*make_buyers(3), buyer], stock=1, draw_wait_s=3600)
        end(sale)
        draw_to_the_end(sale)
        WaitingEntry.objects.filter(user=buyer, seckill_voucher=sale, live=True).update(outcome="")

    with CaptureQueriesContext(connection) as queries:
        found = entries_of(user_id=buyer.pk)

    assert {it.stage for it in found} <= {Stage.WAITING}
    assert len(queries) == 2


@pytest.mark.parametrize("path", ["", "form/", "draw/"])
def test_pages_read_a_draw_once_and_write_nothing(path: str) -> None:
    sale = make_draw()
    with CaptureQueriesContext(connection) as queries:
        assert Client(headers=HTML).get(f"/vouchers/{sale.pk}/{path}").status_code == 200

    said = [it["sql"] for it in queries if Draw._meta.db_table in it["sql"]]
    assert len(said) == 1
    assert said[0].startswith("SELECT")
