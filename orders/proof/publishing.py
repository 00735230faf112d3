"""What anybody may see of a chain, and what a buyer keeps of it."""

import gzip
from typing import NamedTuple

from django.db.models import OuterRef, Subquery

from orders.models import VoucherOrder
from orders.proof.rows import NoChain, read_chain
from orders.published_files import CompressedFiles
from seckill_site.clocks.machine import epoch_ms
from vouchers.catalogue.listing import public_sale
from vouchers.chain import has_chain
from vouchers.models import ChainLink, SeckillVoucher

PART_SIZE = 500
"""The positions of a part: at most 60 kB, if a batch has no more orders than that."""


class Evidence(NamedTuple):
    """The position of an order in its sale's chain, the head that covers it, its part."""

    position: int
    head: str
    part: int


def find_chain(*, sale_id: int) -> SeckillVoucher:
    """Return a sale that has a chain, of which anybody may see the head.

    :raises SeckillVoucher.DoesNotExist: there is no such sale for buyers.
    :raises NoChain: it has none.
    """
    sale = public_sale(sale_id=sale_id)
    if not (has_chain(sale) and sale.chain_links):
        raise NoChain(f"sale {sale_id} has no chain")
    return sale


def has_list(sale: SeckillVoucher, *, now_ms: int) -> bool:
    """Return whether the list of a sale is published: it is over."""
    return now_ms >= epoch_ms(sale.ends_at)


_lists = CompressedFiles[tuple[bytes, ...]]()


def compressed_list(sale: SeckillVoucher, *, part: int) -> bytes:
    """Return the list of a sale that is over or a part of it, from 1, compressed with gzip.

    :raises NoChain: there is no such part.
    """
    files = _lists.of(sale.chain_head, lambda: _compressed(sale))
    if part >= len(files):
        raise NoChain(f"the list of sale {sale.pk} has no part {part}")
    return files[part]


def _compressed(sale: SeckillVoucher) -> tuple[bytes, ...]:
    chain = read_chain(sale)
    files = (chain, *chain.parts(size=PART_SIZE))
    return tuple(gzip.compress(it.text().encode(), 6, mtime=0) for it in files)


def head_of_order(prefix: str = "") -> Subquery:
    """Return the expression of the head over an order; ``prefix`` leads to it from the row."""
    links = ChainLink.objects.filter(
        seckill_voucher=OuterRef(f"{prefix}seckill_voucher"),
        last__gte=OuterRef(f"{prefix}position"),
    )
    return Subquery(links.order_by("last", "number").values("head")[:1])


def evidence_of(*, order_id: int) -> Evidence | None:
    """Return the evidence about an order; None unless it has a row in a chain."""
    orders = VoucherOrder.objects.filter(pk=order_id, position__isnull=False)
    for position, head in orders.annotate(head=head_of_order()).values_list("position", "head"):
        return Evidence(position or 0, head, ((position or 0) - 1) // PART_SIZE + 1)
    return None
