"""What only the row of a sale says of it; a process asks for that once a second."""

from collections.abc import Collection
from hashlib import blake2b
from time import monotonic
from typing import Any, NamedTuple

from seckill_site.clocks.machine import epoch_ms
from seckill_site.process_memory import Memory
from vouchers.catalogue.audience import EVERYBODY, Audience, audience_of
from vouchers.models import SaleStage, SeckillVoucher

KNOWN_S = 1.0
"""How long a process remembers the row of a sale."""

MISSING_S = 0.25
"""How long it remembers that a sale is not public: one published a moment ago is soon shown."""


class KnownSale(NamedTuple):
    """Whether a sale is public, the work that its tokens ask for, who gets one, and at what price.

    The ``revision`` is that of what a buyer agrees to.
    """

    is_public: bool
    work: int = 0
    audience: Audience = EVERYBODY
    price_cents: int | None = None
    revision: str = ""

    def check_public(self) -> None:
        """Hide a sale that is not public.

        :raises SeckillVoucher.DoesNotExist: it is not.
        """
        if not self.is_public:
            raise SeckillVoucher.DoesNotExist("the sale is not public")


_NOT_PUBLIC = KnownSale(is_public=False)

_known = Memory[int, KnownSale](most=1_000, for_s=KNOWN_S)

_missing = Memory[int, KnownSale](most=10_000, for_s=MISSING_S)
"""Apart from those that are public, which a crowd of made-up ids does not push out."""


def recall_sale(*, sale_id: int) -> KnownSale | None:
    """Return the sale as this process knows it; None if it has to ask."""
    return _missing.recall(sale_id) or _known.recall(sale_id)


def last_public(*, sale_id: int) -> KnownSale | None:
    """Return the sale, however old, if it was public when this process last asked the database."""
    return _known.last(sale_id)


def revision_of(sale: SeckillVoucher) -> str:
    """Return a short text that is another one once anything differs that a buyer agrees to.

    Every process has the same one, so a page knows by it that it is out of date.
    """
    it = sale.voucher
    agreed: tuple[Any, ...] = (
        it.price_cents, it.face_value_cents, it.title, it.title_en, it.rules, it.rules_en,
        it.valid_where, it.valid_until, it.merchant_id, sale.limit, sale.refundable, sale.mode,
        epoch_ms(sale.begins_at), epoch_ms(sale.ends_at), audience_of(sale),
    )  # fmt: skip
    if sale.refund_unused:  # of other sales it stays what the release before says
        agreed += ("refund_unused",)
    return blake2b(repr(agreed).encode(), digest_size=8).hexdigest()


def learn_sale(*, sale_id: int) -> KnownSale:
    """Ask the database for the sale, and remember it."""
    return learn_sales(sale_ids=[sale_id])[sale_id]


def learn_sales(*, sale_ids: Collection[int]) -> dict[int, KnownSale]:
    """Ask the database for several sales at once, and remember each."""
    read_at = monotonic()
    public = SeckillVoucher.objects.filter(pk__in=sale_ids, stage=SaleStage.PUBLIC)
    found = {
        it.pk: KnownSale(True, it.work, audience_of(it), it.voucher.price_cents, revision_of(it))
        for it in public.select_related("voucher")
    }
    for sale_id in sale_ids:
        if sale_id in found:
            _missing.drop(sale_id)
            _known.keep(sale_id, found[sale_id], until=read_at + _known.for_s)
        else:
            _known.drop(sale_id)
            _missing.keep(sale_id, _NOT_PUBLIC, until=read_at + _missing.for_s)
    return {sale_id: found.get(sale_id, _NOT_PUBLIC) for sale_id in sale_ids}
