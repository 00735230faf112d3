"""The chain of a sale: its heads, its marks, and the sales that have none."""

from __future__ import annotations

from dataclasses import replace
from hashlib import sha256

import pytest
from django.core.management import call_command

from seckill_site.clocks.machine import epoch_ms
from seckill_site.redis.ledger_connection import ledger_connection
from tests.support.draws import make_draw
from tests.support.orders import make_buyer, make_order, make_sale
from vouchers import chain
from vouchers.catalogue.sales import edit_sale, terms_of
from vouchers.inventory.rebuild import rebuild_sale
from vouchers.lock_objects import lock_seckill_voucher
from vouchers.models import ChainLink, SaleMode, SaleStage, SeckillVoucher

pytestmark = pytest.mark.django_db


def marks_of(sale: SeckillVoucher) -> list[str]:
    """Return the marks of a sale's chain without their times."""
    links = ChainLink.objects.filter(seckill_voucher=sale).exclude(mark="").order_by("number")
    return [mark.rpartition(" ")[0] for mark in links.values_list("mark", flat=True)]


def restocked(sale: SeckillVoucher, stock: int) -> None:
    sale.refresh_from_db()
    edit_sale(sale_id=sale.pk, terms=replace(terms_of(sale), stock=stock))


def test_head_is_a_sha256_over_all_before_it() -> None:
    sale = make_sale(loaded=False)
    sale = lock_seckill_voucher(sale_id=sale.pk)
    two = ["77 1790000000123\n", "78 1790000000124 refused\n"]
    assert chain.add_entries(sale, two) == range(1, 3)
    assert chain.add_entries(sale, ["79 1790000000125\n"]) == range(3, 4)
    head = sha256(f"sale {sale.pk}".encode()).hexdigest()
    head = sha256(f"{head}\n77 1790000000123\n78 1790000000124 refused\n".encode()).hexdigest()
    assert sale.chain_head == sha256(f"{head}\n79 1790000000125\n".encode()).hexdigest()
    found = ChainLink.objects.filter(seckill_voucher=sale).values_list("number", "last", "head")
    assert list(found) == [(1, 2, head), (2, 3, sale.chain_head)]


def test_line_says_whether_the_order_was_refused() -> None:
    assert chain.entry_line(7, 5, refused=False) == "7 5\n"
    assert chain.entry_line(7, 5, refused=True) == "7 5 refused\n"


def test_each_build_of_the_ledger_is_marked() -> None:
    sale = make_sale()
    rebuild_sale(sale_id=sale.pk)
    assert marks_of(sale) == ["epoch 1", "epoch 2"]


def test_edits_of_the_stock_are_marked_and_no_others() -> None:
    sale = make_sale(stock=5)
    restocked(sale, 9)
    restocked(sale, 9)
    assert marks_of(sale) == ["epoch 1", "stock 5 9"]
    sale.refresh_from_db()
    assert sale.chain_entries == 0
    assert sale.chain_head == sale.links.get(number=2).head


def test_mark_tells_its_time() -> None:
    sale = lock_seckill_voucher(sale_id=make_sale(loaded=False).pk)
    chain.add_mark(sale, chain.Mark.STOCK, 5, 9)
    assert sale.links.get().mark == f"stock 5 9 {epoch_ms(sale.locked_at)}"


def test_adopted_ledgers_are_marked_in_growing_chains() -> None:
    growing, over = make_sale(), make_sale(begins_in_s=-40 * 86_400, ends_in_s=-30 * 86_400)
    ledger_connection().set("seckill:installation", "another")
    call_command("adopt_ledger", "--yes")
    assert marks_of(growing) == ["epoch 1", "adopt"]
    assert "adopt" not in marks_of(over)


def test_orders_older_than_the_chain_are_counted_first() -> None:
    sale = make_sale(loaded=False)
    make_order(sale, make_buyer())
    sale = lock_seckill_voucher(sale_id=sale.pk)
    assert chain.add_entries(sale, ["77 1790000000123\n"]) == range(1, 2)
    assert marks_of(sale) == ["earlier 1"]


@pytest.mark.parametrize("kind", ["draw", "rehearsal"])
def test_draws_and_rehearsals_have_no_chain(kind: str) -> None:
    sale = make_draw() if kind == "draw" else make_sale(stage=SaleStage.REHEARSAL)
    rebuild_sale(sale_id=sale.pk)
    restocked(sale, 20)
    sale = lock_seckill_voucher(sale_id=sale.pk)
    assert next(iter(chain.add_entries(sale, ["77 1790000000123\n"]))) is None
    assert (sale.chain_head, sale.chain_links, sale.links.count()) == ("", 0, 0)
    assert (sale.mode == SaleMode.DRAW) == (kind == "draw")
