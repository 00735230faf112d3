"""The chain of the orders in the database, and tampering that ``verify_sale ID`` finds out."""

from __future__ import annotations

import datetime as dt
import io
from collections.abc import Callable

import pytest
from django.contrib.auth.models import User
from django.core.management import call_command
from django.core.management.base import CommandError
from django.utils import timezone

from orders.fulfilment.retry import retry_order
from orders.models import OrderEvent, OrderStatus, VoucherOrder
from orders.proof.chain_list import ChainList
from orders.proof.rows import check_rows, read_chain
from tests.support.draws import make_draw
from tests.support.orders import make_buyer, make_buyers, make_order, make_sale, written_orders
from tests.support.tiers import slow_after
from vouchers.chain import next_head
from vouchers.inventory.rebuild import load_sale
from vouchers.models import ChainLink, SeckillVoucher

pytestmark = pytest.mark.django_db


def sold(*sizes: int, stock: int = 20) -> SeckillVoucher:
    """Return a sale with batches of these sizes in its chain."""
    sale = make_sale(stock=stock)
    for size in sizes:
        written_orders(sale, make_buyers(size))
    return stored(sale)


def stored(sale: SeckillVoucher) -> SeckillVoucher:
    return SeckillVoucher.objects.get(pk=sale.pk)


def make_inactive_buyer() -> User:
    buyer = make_buyer()
    buyer.is_active = False
    buyer.save()
    return buyer


def order_at(sale: SeckillVoucher, position: int) -> VoucherOrder:
    return VoucherOrder.objects.get(seckill_voucher=sale, position=position)


def problems_of(sale: SeckillVoucher, *old_heads: str) -> list[str]:
    chain, problems = check_rows(stored(sale))
    return [*problems, *chain.problems(old_heads=old_heads)]


def verified(sale: SeckillVoucher, *old_heads: str) -> ChainList:
    assert problems_of(sale, *old_heads) == []
    return read_chain(stored(sale))


def test_each_batch_has_a_link_in_the_order_of_writing() -> None:
    sale = sold(3, 2)
    chain = verified(sale)
    assert [link.entries for link in chain.links] == [0, 3, 2]  # the first build of the ledger
    orders = VoucherOrder.objects.filter(seckill_voucher=sale).order_by("created_at", "pk")
    assert sorted(it.position or 0 for it in orders) == [1, 2, 3, 4, 5]
    assert [order_at(sale, it).accepted_at for it in (1, 2, 3)] == sorted(
        order_at(sale, it).accepted_at for it in (1, 2, 3)
    )
    assert (chain.entries, chain.head) == (sale.chain_entries, sale.chain_head)


def test_refused_orders_are_in_the_chain_and_marked() -> None:
    sale = make_sale(stock=5)
    tokens = written_orders(sale, make_buyers(1))
    [refused] = written_orders(sale, [make_inactive_buyer()])
    text = read_chain(stored(sale)).text()
    assert f"{refused.order_id} " in text
    lines = {line.split()[0]: line for line in text.splitlines()}
    assert lines[str(refused.order_id)].endswith(" refused")
    assert not lines[str(tokens[0].order_id)].endswith(" refused")


def test_order_given_by_staff_is_named() -> None:
    sale, buyer = sold(1), make_inactive_buyer()
    [token] = written_orders(sale, [buyer])
    VoucherOrder.objects.filter(pk=token.order_id).update(reason="failed")
    buyer.is_active = True
    buyer.save()
    retry_order(order_id=token.order_id, now=timezone.now())
    assert VoucherOrder.objects.get(pk=token.order_id).status == OrderStatus.UNPAID
    out = io.StringIO()
    call_command("verify_sale", str(sale.pk), stdout=out, stderr=io.StringIO())
    assert out.getvalue().split() == [str(token.order_id)]


def test_later_life_of_an_order_leaves_the_chain_alone() -> None:
    sale = sold(3)
    VoucherOrder.objects.filter(position=1).update(status=OrderStatus.EXPIRED, live=None)
    VoucherOrder.objects.filter(position=2).update(status=OrderStatus.PAID)
    verified(sale, sale.chain_head)


# --- Tampering ------------------------------------------------------------------------------------


def remove(sale: SeckillVoucher) -> None:
    order = order_at(sale, 2)
    OrderEvent.objects.filter(order=order).delete()
    order.delete()


def add(sale: SeckillVoucher) -> None:
    make_order(sale, make_buyer())


def add_at(position: int) -> Callable[[SeckillVoucher], None]:
    def tamper(sale: SeckillVoucher) -> None:
        order = make_order(sale, make_buyer())
        VoucherOrder.objects.filter(pk=order.pk).update(position=position)

    return tamper


def move(sale: SeckillVoucher) -> None:
    one, two = order_at(sale, 1), order_at(sale, 3)
    VoucherOrder.objects.filter(pk=one.pk).update(position=3)
    VoucherOrder.objects.filter(pk=two.pk).update(position=1)


def change_time(sale: SeckillVoucher) -> None:
    order = order_at(sale, 2)
    earlier = order.accepted_at - dt.timedelta(milliseconds=1)
    VoucherOrder.objects.filter(pk=order.pk).update(accepted_at=earlier)


def refuse_accepted(sale: SeckillVoucher) -> None:
    VoucherOrder.objects.filter(pk=order_at(sale, 2).pk).update(
        status=OrderStatus.REFUSED, live=None, reason="failed"
    )


def accept_refused(sale: SeckillVoucher) -> None:
    refused = order_at(sale, 6)
    assert refused.status == OrderStatus.REFUSED
    VoucherOrder.objects.filter(pk=refused.pk).update(status=OrderStatus.UNPAID, live=1, reason="")


def cut_off(sale: SeckillVoucher) -> None:
    ChainLink.objects.filter(seckill_voucher=sale).order_by("-number")[0].delete()


def change_the_row(sale: SeckillVoucher) -> None:
    SeckillVoucher.objects.filter(pk=sale.pk).update(chain_head="0" * 64)


TAMPERING: dict[str, tuple[Callable[[SeckillVoucher], None], str]] = {
    "removed": (remove, "the order at position 2 was removed"),
    "added": (add, "1 orders are in no chain: added past it, or written by the release before"),
    "added at a taken position": (add_at(2), "have the same position"),
    "added behind the end": (add_at(7), "was added behind the end of the chain"),
    "moved": (move, "positions 1 to 3: a line was changed, moved, added or removed"),
    "another time": (change_time, "positions 1 to 3: a line was changed"),
    "a verdict": (refuse_accepted, "positions 1 to 3: a line was changed"),
    "a verdict taken back": (accept_refused, "positions 6 to 6: a line was changed"),
    "a link removed": (cut_off, "a link of the chain was added or removed"),
    "another head": (change_the_row, "the last link is not the one in the row of the sale"),
}


@pytest.mark.parametrize(("tamper", "words"), slow_after(2, TAMPERING.values()), ids=TAMPERING)
def test_tampering_is_found_out(tamper: Callable[[SeckillVoucher], None], words: str) -> None:
    sale = sold(3, 2)
    written_orders(sale, [make_inactive_buyer()])
    verified(sale)
    tamper(sale)
    with pytest.raises(CommandError, match=words):
        call_command("verify_sale", str(sale.pk))


def test_only_the_links_that_were_touched_are_named() -> None:
    sale = sold(3, 2)
    change_time(sale)
    assert len(problems_of(sale)) == 1


def compute_anew(sale: SeckillVoucher) -> None:
    """Give each link the head that follows from the orders as they are now."""
    chain = read_chain(stored(sale))
    head = chain.start
    for number, link in enumerate(chain.links, start=1):
        head = next_head(head, link.text)
        ChainLink.objects.filter(seckill_voucher=sale, number=number).update(head=head)
    SeckillVoucher.objects.filter(pk=sale.pk).update(chain_head=head)


def test_chain_computed_anew_is_found_out_by_a_kept_head() -> None:
    sale = sold(3, 2)
    kept = sale.chain_head
    change_time(sale)
    compute_anew(sale)
    verified(sale)
    assert problems_of(sale, kept) == [f"the head {kept} is not in this chain"]


def test_orders_older_than_the_chain_are_no_tampering() -> None:
    sale = make_sale(stock=20, loaded=False)
    make_order(sale, make_buyer())
    load_sale(sale_id=sale.pk)
    written_orders(sale, make_buyers(2))
    verified(sale)
    add(sale)
    newest = VoucherOrder.objects.filter(seckill_voucher=sale, position=None).latest("created_at")
    [problem] = problems_of(sale)
    assert problem.startswith("1 orders are in no chain")
    assert problem.endswith(f": {newest.pk}")


def test_removal_of_an_order_older_than_the_chain_is_found() -> None:
    sale = make_sale(stock=20, loaded=False)
    older = make_order(sale, make_buyer())
    load_sale(sale_id=sale.pk)
    OrderEvent.objects.filter(order=older).delete()
    older.delete()
    assert problems_of(sale) == ["1 orders that are older than the chain were removed"]


def test_sale_that_grows_meanwhile_is_no_tampering() -> None:
    sale = sold(3)
    written_orders(sale, make_buyers(2))
    chain, problems = check_rows(sale)  # as it was read before
    assert [*problems, *chain.problems()] == []
    assert chain.head == sale.chain_head


@pytest.mark.parametrize("which", ["none", "a draw"])
def test_sale_without_a_chain_is_refused(which: str) -> None:
    sale_id, words = 999_999, "there is no sale 999999"
    if which == "a draw":
        sale_id, words = make_draw().pk, "has no chain: it is a draw"
    with pytest.raises(CommandError, match=words):
        call_command("verify_sale", str(sale_id))
