"""The chain of a sale as the rows of the database have it."""

from collections.abc import Iterator

from django.db.models import F

from orders.models import OrderStatus, VoucherOrder
from orders.proof.chain_list import ChainList, Link
from seckill_site.clocks.machine import epoch_ms
from vouchers.chain import Mark, entry_line, first_head
from vouchers.models import ChainLink, SeckillVoucher

_Row = tuple[int, int, str]
"""The position of an order, its id, and its line."""


class NoChain(Exception):
    """The sale has no chain (it is a draw, or older), or the list is not published yet."""


def read_chain(sale: SeckillVoucher) -> ChainList:
    """Return a sale's chain up to the links of this row, made from its orders."""
    return _chain(sale, *_read(sale))


def check_rows(sale: SeckillVoucher) -> tuple[ChainList, list[str]]:
    """Return a sale's chain, and how the orders in the database differ from it.

    :raises NoChain: the sale has none.
    """
    if not sale.chain_links:
        raise NoChain(f"sale {sale.pk} has no chain: it is a draw, a rehearsal or older")
    rows, links = _read(sale)
    return _chain(sale, rows, links), list(_problems(sale, rows, links))


def _read(sale: SeckillVoucher) -> tuple[list[_Row], list[ChainLink]]:
    orders = VoucherOrder.objects.filter(seckill_voucher=sale, position__isnull=False)
    orders = orders.order_by("position", "pk")
    found = list(orders.values_list("position", "pk", "accepted_at", "status"))
    # After the orders: each that is live by a retry then has its mark.
    links = list(ChainLink.objects.filter(seckill_voucher=sale).order_by("number"))
    refused = set(_marked(links, Mark.RETRY))
    refused |= {pk for _, pk, _, status in found if status == OrderStatus.REFUSED}
    rows = [
        (position or 0, pk, entry_line(pk, epoch_ms(at), refused=pk in refused))
        for position, pk, at, _ in found
    ]
    return rows, links[: sale.chain_links]


def _marked(links: list[ChainLink], mark: Mark) -> list[int]:
    """Return the first values of these marks."""
    return [int(it.mark.split()[1]) for it in links if it.mark.startswith(f"{mark} ")]


def _chain(sale: SeckillVoucher, rows: list[_Row], links: list[ChainLink]) -> ChainList:
    chain, index = ChainList(sale.pk, 1, first_head(sale_id=sale.pk)), 0
    for link in links:
        lines = [f"! {link.mark}\n"] if link.mark else []
        while index < len(rows) and rows[index][0] <= link.last:
            lines.append(rows[index][2])
            index += 1
        chain.links.append(Link("".join(lines), link.head))
    return chain


def _problems(sale: SeckillVoucher, rows: list[_Row], links: list[ChainLink]) -> Iterator[str]:
    if [it.number for it in links] != list(range(1, sale.chain_links + 1)):
        yield "a link of the chain was added or removed"
    elif (links[-1].last, links[-1].head) != (sale.chain_entries, sale.chain_head):
        yield "the last link is not the one in the row of the sale"
    found: dict[int, int] = {}
    for position, order_id, _ in rows:
        if position in found:
            yield f"orders {found[position]} and {order_id} have the same position"
        found.setdefault(position, order_id)
    missing = sorted(set(range(1, sale.chain_entries + 1)) - found.keys())
    yield from (f"the order at position {position} was removed" for position in missing)
    newest = VoucherOrder.objects.filter(seckill_voucher=sale).order_by("-created_at", "-pk")
    # By the row as it is now: a sale that runs has grown since it was read.
    behind = newest.filter(position__gt=F("seckill_voucher__chain_entries"))
    for order_id in behind.values_list("pk", flat=True):
        yield f"order {order_id} was added behind the end of the chain"
    outside = list(newest.filter(position=None).values_list("pk", flat=True))
    if (more := len(outside) - sum(_marked(links, Mark.EARLIER))) > 0:
        yield (
            f"{more} orders are in no chain: added past it, or written by the release before "
            f"while an update ran: {', '.join(map(str, outside[: min(more, 20)]))}"
        )
    elif more < 0:
        yield f"{-more} orders that are older than the chain were removed"
