"""Paid, unused vouchers that a change makes due: refunded, or refunded earlier than without it."""

import datetime as dt
from typing import NamedTuple

from django.db.models import Count, Q, Sum
from django.utils.translation import gettext, ngettext

from seckill_site.formatting import grouped, money
from vouchers.models import SaleStage, SeckillVoucher, Voucher


class FallsDue(NamedTuple):
    """How many vouchers, and what was paid for them."""

    number: int
    cents: int

    @property
    def size(self) -> int:
        """The digits of the number. Buyers pay and use meanwhile, which asks nothing anew."""
        return len(str(self.number))

    def __str__(self) -> str:
        text = ngettext("%(count)s voucher, %(sum)s", "%(count)s vouchers, %(sum)s", self.number)
        return text % {"count": grouped(self.number), "sum": money(self.cents)}

    def after(self, last_day: dt.date, *, today: dt.date) -> str:
        """Return how many are refunded, for how much, and when."""
        if last_day < today:
            return gettext("%(vouchers)s, within an hour") % {"vouchers": self}
        return gettext("%(vouchers)s, after %(day)s") % {"vouchers": self, "day": last_day}


def falls_due(sales: Q) -> dict[int, FallsDue]:
    """Return what is paid and not used in these sales, by the id of the voucher."""
    paid = Q(orders__live=True, orders__status="paid", orders__price_cents__gt=0)
    found = SeckillVoucher.objects.filter(sales, paid).exclude(stage=SaleStage.REHEARSAL)
    sums = found.order_by().values_list("voucher").annotate(Count("pk"), Sum("orders__price_cents"))
    return {voucher_id: FallsDue(*of_voucher) for voucher_id, *of_voucher in sums}


def is_earlier(voucher: Voucher, last_day: dt.date | None) -> bool:
    """Return whether a new last day is earlier than the stored one, or the first one."""
    return last_day is not None and (voucher.valid_until is None or last_day < voucher.valid_until)


def due_after_edit(
    voucher: Voucher, last_day: dt.date, sale: SeckillVoucher | None, refund_unused: bool | None
) -> FallsDue | None:
    """Return what falls due by a new last day of a voucher, and a new switch of one of its sales.

    None if that is nothing. The rows are as they are stored.
    """
    has_moved = is_earlier(voucher, last_day)
    sales = Q(voucher=voucher, refund_unused=True) if has_moved else Q(pk__in=())
    if sale and not refund_unused:
        sales &= ~Q(pk=sale.pk)
    elif sale and (has_moved or not sale.refund_unused):
        sales |= Q(pk=sale.pk)
    return falls_due(sales).get(voucher.pk)
