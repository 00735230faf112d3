"""The chain of a first-come sale: a SHA-256 for each batch of orders, over all that came before.

A head is the SHA-256 of the head before it, a line break, and the lines that are added: one for
each order of a batch, in the order of writing, or a mark, which starts with ``!``. So nobody can
change, move, add or remove a line without changing every later head, of which buyers have copies
(``docs/proof.md``). Draws have a proof of their own, and rehearsals none.
"""

from collections.abc import Iterable
from enum import StrEnum
from hashlib import sha256
from itertools import repeat

from django.db import transaction

from seckill_site.clocks.database import database_now
from seckill_site.clocks.machine import epoch_ms
from vouchers.lock_objects import lock_seckill_voucher
from vouchers.models import ChainLink, SaleMode, SaleStage, SeckillVoucher

CHAIN_FIELDS = ("chain_head", "chain_links", "chain_entries")
"""The columns of a sale that change with its chain. Whoever adds to it has locked the row, and
saves them."""


class Mark(StrEnum):
    """What a chain notes beside orders; ``docs/proof.md`` says what each means."""

    EARLIER = "earlier"
    EPOCH = "epoch"
    STOCK = "stock"
    RETRY = "retry"
    ADOPT = "adopt"


def has_chain(sale: SeckillVoucher) -> bool:
    """Return whether the orders of a sale are chained."""
    return sale.mode == SaleMode.FIRST_COME and sale.stage != SaleStage.REHEARSAL


def first_head(*, sale_id: int) -> str:
    """Return the head before the first link."""
    return sha256(f"sale {sale_id}".encode()).hexdigest()


def next_head(head: str, lines: str) -> str:
    """Return the head after these lines."""
    return sha256(f"{head}\n{lines}".encode()).hexdigest()


def entry_line(order_id: int, accepted_at_ms: int, *, refused: bool) -> str:
    """Return the line of an order: its id, when Redis accepted it, and whether it was refused."""
    return f"{order_id} {accepted_at_ms} refused\n" if refused else f"{order_id} {accepted_at_ms}\n"


def add_entries(sale: SeckillVoucher, lines: list[str]) -> Iterable[int | None]:
    """Add a batch that is not written yet; return the positions of its orders, None without."""
    if not has_chain(sale):
        return repeat(None)
    _add(sale, "".join(lines), entries=len(lines))
    return range(sale.chain_entries - len(lines) + 1, sale.chain_entries + 1)


def add_mark(sale: SeckillVoucher, mark: Mark, *values: int) -> None:
    """Note something in a sale's chain, if it has one."""
    if has_chain(sale):
        words = " ".join(map(str, (mark, *values, epoch_ms(sale.locked_at))))
        _add(sale, f"! {words}\n", mark=words)


def note_stock(sale: SeckillVoucher, *, before: int) -> None:
    """Note that staff have changed the stock, if they have."""
    if sale.stock != before:
        add_mark(sale, Mark.STOCK, before, sale.stock)


def note_adoption() -> None:
    """Note in the chains that may still grow that this database takes over other ledgers."""
    growing = SeckillVoucher.objects.filter(SeckillVoucher.still_active(database_now()))
    for sale_id in growing.filter(chain_links__gt=0).order_by("pk").values_list("pk", flat=True):
        with transaction.atomic(durable=True):
            sale = lock_seckill_voucher(sale_id=sale_id)
            add_mark(sale, Mark.ADOPT)
            sale.save(update_fields=CHAIN_FIELDS)


def _add(sale: SeckillVoucher, lines: str, *, entries: int = 0, mark: str = "") -> None:
    if not sale.chain_head:
        sale.chain_head = first_head(sale_id=sale.pk)
        if earlier := sale.orders.count():
            add_mark(sale, Mark.EARLIER, earlier)
    sale.chain_head = next_head(sale.chain_head, lines)
    sale.chain_links += 1
    sale.chain_entries += entries
    ChainLink.objects.create(
        seckill_voucher=sale,
        number=sale.chain_links,
        last=sale.chain_entries,
        mark=mark,
        head=sale.chain_head,
    )
