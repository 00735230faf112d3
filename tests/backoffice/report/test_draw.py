"""The draw in reports and on the board."""

from __future__ import annotations

import re

import pytest
from django.core.cache import cache
from django.test import Client
from django.utils import translation

from backoffice.board.snapshot import read_board
from backoffice.board.texts import board_json
from backoffice.report.draw import read_draw
from orders.draws.drawing import close_list, take_due_steps
from orders.draws.entries import store_entries, withdraw
from seckill_site.clocks.database import database_now
from tests.support.draws import draw_to_the_end, end, entered, entered_draw, make_draw
from tests.support.orders import make_buyers, make_sale
from tests.support.sales import redis_now_ms
from vouchers.models import Draw, SeckillVoucher

pytestmark = pytest.mark.django_db


def shown(sale: SeckillVoucher) -> str:
    cache.clear()
    with translation.override("en"):
        board = read_board(sale_id=sale.pk, now=database_now())
        return str(board_json(board, actions=[])["texts"]["draw"])


def test_board_follows_a_draw() -> None:
    sale, _ = entered_draw(make_buyers(3), stock=1)
    assert shown(sale) == "3 entries"
    end(sale)
    close_list(sale_id=sale.pk)
    assert shown(sale) == "closed with 3 entries, about to be drawn"
    take_due_steps(sale_id=sale.pk)
    assert shown(sale) == "drawn, 3 entries for 1 vouchers; orders are being written"
    draw_to_the_end(sale)
    assert shown(sale) == "drawn, 3 entries for 1 vouchers"


def test_board_of_another_sale_has_no_draw(admin_client: Client) -> None:
    assert shown(make_sale()) == "–"
    page = admin_client.get(f"/admin/vouchers/seckillvoucher/{make_sale().pk}/board/").text
    assert not re.search(r'data-text="draw"', page)
    page = admin_client.get(f"/admin/vouchers/seckillvoucher/{make_draw().pk}/board/").text
    assert re.search(r'data-text="draw"', page)
    assert not re.search(r'data-action="open-room"\s*>', page)


def test_report_has_figures_and_hashes_of_a_draw(admin_client: Client) -> None:
    sale, buyers = make_draw(stock=1), make_buyers(3)
    tokens = entered(sale, buyers)
    store_entries(sale_id=sale.pk)
    withdraw(
        sale_id=sale.pk,
        order_id=tokens[0].order_id,
        user_id=buyers[0].pk,
        now_ms=redis_now_ms(),
    )
    before = read_draw(sale=sale)
    assert before
    assert (before.entries, before.withdrawn, before.winners, before.seed) == (2, 1, None, "")
    end(sale)
    draw_to_the_end(sale)
    after = read_draw(sale=sale)
    assert after
    assert (after.entries, after.winners, after.draw.units) == (2, 1, 1)
    page = admin_client.get(f"/admin/vouchers/seckillvoucher/{sale.pk}/report/").text
    assert Draw.of(sale).seed in page
    assert read_draw(sale=make_sale()) is None
