"""What anybody may see of a draw."""

import datetime as dt
import gzip
import hashlib
from dataclasses import dataclass

from orders.draws.record import DrawRecord
from orders.draws.rules import commitment_of, drawn_order
from orders.models import DrawEntry
from orders.published_files import CompressedFiles
from vouchers.catalogue.listing import public_sale
from vouchers.inventory.keys import LedgerUnavailable
from vouchers.inventory.sale_state import snapshots
from vouchers.models import SeckillVoucher


class NoDraw(Exception):
    """The sale is not a draw."""


class ListOpen(Exception):
    """The list of entries is not closed yet."""


@dataclass(frozen=True)
class PublishedDraw:
    """A draw as it is published; ``entries`` is None if it is not known now.

    ``digest`` and ``units`` are settled when the list is closed; ``seed`` is empty before the draw.
    """

    sale: SeckillVoucher
    commitment: str
    entries: int | None
    units: int
    digest: str
    seed: str
    closed_at: dt.datetime | None
    drawn_at: dt.datetime | None

    @property
    def record_tag(self) -> str:
        """What tells the record from any other; once the list is closed, only the seed is added."""
        known = (self.sale.pk, self.commitment, self.digest, self.units, self.seed)
        return hashlib.blake2b(repr(known).encode(), digest_size=16).hexdigest()


def find_draw(*, sale_id: int) -> PublishedDraw:
    """Return what anybody may see of a sale's draw.

    :raises SeckillVoucher.DoesNotExist: there is no such sale for buyers.
    :raises NoDraw: it is no draw.
    """
    sale = public_sale(sale_id=sale_id)
    if not sale.is_draw:
        raise NoDraw(f"sale {sale_id} is no draw")
    draw = sale.draw
    return PublishedDraw(
        sale=sale,
        commitment=commitment_of(draw.seed),
        entries=draw.entries if draw.closed_at else _entries_now(sale_id),
        units=sale.stock if draw.units is None else draw.units,
        digest=draw.digest,
        seed=draw.seed if draw.drawn_at else "",
        closed_at=draw.closed_at,
        drawn_at=draw.drawn_at,
    )


def _entries_now(sale_id: int) -> int | None:
    try:
        ledger = snapshots(sale_ids=[sale_id])[sale_id]
    except LedgerUnavailable:
        return None
    return ledger.entries if ledger else None


def closed_draw(*, sale_id: int) -> PublishedDraw:
    """Return a draw whose list is closed.

    :raises ListOpen: the list is not closed yet.
    :raises: what :func:`find_draw` raises.
    """
    published = find_draw(sale_id=sale_id)
    if not published.closed_at:
        raise ListOpen(f"the list of draw {sale_id} is open")
    return published


_records = CompressedFiles[bytes]()


def compressed_record(draw: PublishedDraw) -> bytes:
    """Return the record of a closed draw, compressed with gzip."""
    return _records.of(draw.record_tag, lambda: _compressed(draw))


def record_text(*, sale_id: int) -> str:
    """Return the record of a draw whose list is closed.

    :raises: what :func:`closed_draw` raises.
    """
    return gzip.decompress(compressed_record(closed_draw(sale_id=sale_id))).decode()


def _compressed(draw: PublishedDraw) -> bytes:
    rows = DrawEntry.objects.filter(seckill_voucher=draw.sale, live=True)
    ids = sorted(rows.values_list("order_id", flat=True))
    if draw.seed:
        ids = drawn_order(seed=draw.seed, digest=draw.digest, entry_ids=ids)
    record = DrawRecord(draw.sale.pk, draw.commitment, draw.digest, draw.units, draw.seed, ids)
    return gzip.compress("".join(record.lines()).encode(), 6, mtime=0)
