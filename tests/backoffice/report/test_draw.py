"""The draw in reports and on the board."""

from __future__ import annotations

import re
from typing import Any

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
from tests.support.staff import words
from vouchers.models import Draw, SeckillVoucher

pytestmark = pytest.mark.django_db


def shown(sale: SeckillVoucher) -> str:
    cache.clear()
    with translation.override("en"):
        board = read_board(sale_id=sale.pk, now=database_now())
        return str(board_json(board, actions=[])["texts"]["draw"])


def test_board_follows_a_draw() -> None:
    sale, _ = entered_draw(make_buyers(3), stock=1)
    assert shown(sale) == "takes entries, 3 so far"
    end(sale)
    close_list(sale_id=sale.pk)
    assert shown(sale) == "closed with 3 entries, about to be drawn"
    take_due_steps(sale_id=sale.pk)
    assert shown(sale) == "drawn; 3 entries, vouchers to win: 1; orders are being written"
    draw_to_the_end(sale)
    assert shown(sale) == "drawn; 3 entries, vouchers to win: 1"


def test_board_of_a_draw_counts_entries_and_winners(admin_client: Client) -> None:
    sale, _ = entered_draw(make_buyers(3), stock=1)

    def board() -> tuple[dict[str, Any], str]:
        cache.clear()
        url = f"/admin/vouchers/seckillvoucher/{sale.pk}/board/"
        page, data = (
            admin_client.get(it, headers={"Accept-Language": "en"}) for it in (url, f"{url}data/")
        )
        return data.json(), words(page.text)

    data, page = board()
    assert data["state"]["text"] == "Takes entries"
    assert (data["left"], data["texts"]["left"], data["texts"]["pending"]) == (3, "3", "–")
    assert "Entries 3 vouchers to win: 1 Winners – with an order: 0 Entries accepted" in page
    assert "Entries, since this page was opened" in page
    assert "already entered" in page
    for word in ("Left", "Sold", "sold", "Queued", "Orders accepted", "already had one"):
        assert word not in page.partition("Sale history")[0].partition("Buyers refused")[0], word
    end(sale)
    draw_to_the_end(sale)
    data, _page = board()
    assert (data["left"], data["texts"]["pending"], data["texts"]["oldest"][-1]) == (3, "1", "1")


@pytest.mark.slow
def test_today_counts_the_entries_of_a_running_draw(admin_client: Client) -> None:
    entered_draw(make_buyers(3), stock=1)
    page = words(admin_client.get("/admin/", headers={"Accept-Language": "en"}).text)
    assert re.search(r"3 entries, vouchers to win: 1 \S+ entries/s", page)


@pytest.mark.slow
def test_report_of_a_draw_speaks_of_entries_and_drawing(admin_client: Client) -> None:
    sale, _ = entered_draw(make_buyers(3), stock=1)
    store_entries(sale_id=sale.pk)
    url = f"/admin/vouchers/seckillvoucher/{sale.pk}/report/"
    for ends in (False, True):
        if ends:
            end(sale)
            draw_to_the_end(sale)
        page = words(admin_client.get(url, headers={"Accept-Language": "en"}).text)
        winners = "1" if ends else "–"
        assert f"Entries 3 Withdrawn 0 Vouchers to win 1 Winners {winners} Gross" in page
        for word in ("Sold", "Queued", "Vouchers offered", "Already had one"):
            assert word not in page, word


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
