"""Every row lock of this app, and the order in which rows are locked.

Every flow locks the seckill voucher's row first, then orders by id. Inserting an order before its
sale is locked deadlocks on the foreign key.
"""

from collections.abc import Iterable

from django.db.models import Exists

from seckill_site.clocks.database import DatabaseNow
from seckill_site.installation import check_mark, mark
from vouchers.models import SeckillVoucher, Voucher


def lock_seckill_voucher(*, sale_id: int) -> SeckillVoucher:
    """Lock the row of a sale until the transaction ends, and return its current state.

    Its ``locked_at`` is the database's time, so what follows depends on no other machine's clock.

    :raises SeckillVoucher.DoesNotExist: there is no such sale.
    :raises RestoredDatabase: Note [Restored databases] in ``seckill_site/installation.py``.
    """
    sales = SeckillVoucher.objects.select_for_update()
    sales = sales.annotate(locked_at=DatabaseNow(), is_marked=Exists(mark()))  # type: ignore[no-redef]
    sale = sales.get(pk=sale_id)
    check_mark(sale.is_marked)
    return sale


def lock_sales(*, voucher_ids: Iterable[int]) -> list[SeckillVoucher]:
    """Lock the sales of vouchers as ``lock_seckill_voucher`` does, in the order of their ids."""
    rows = SeckillVoucher.objects.select_for_update().filter(voucher__in=set(voucher_ids))
    return list(rows.annotate(locked_at=DatabaseNow()).order_by("pk"))  # type: ignore[no-redef]


def lock_vouchers(*, voucher_ids: Iterable[int]) -> list[Voucher]:
    """Lock the rows of vouchers until the transaction ends, so that nobody else puts them on sale.

    The caller must not lock an existing sale after that: an edit locks a sale, then its voucher.
    """
    rows = Voucher.objects.select_for_update().filter(pk__in=set(voucher_ids))
    return list(rows.order_by("pk"))
