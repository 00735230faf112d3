"""Sums of orders, from which the report across sales is made."""

from django.db import models

from vouchers.models import SeckillVoucher


class DaySum(models.Model):
    """What the orders of a sale did on a day of the shop, as of the change ``event_id``.

    ``what`` is a state, for the orders that were accepted on the day, or the way of money.
    """

    RECEIVED, RETURNED = "received", "returned"

    seckill_voucher = models.ForeignKey(SeckillVoucher, on_delete=models.CASCADE, related_name="+")
    day = models.DateField()
    what = models.CharField(max_length=16)
    count = models.PositiveIntegerField()
    cents = models.BigIntegerField()
    event_id = models.BigIntegerField(db_index=True)

    class Meta:
        default_permissions = ()
        verbose_name = verbose_name_plural = "sums of a day"
        constraints = [
            models.UniqueConstraint(name="day_sum_once", fields=("seckill_voucher", "day", "what"))
        ]
        indexes = [models.Index(fields=("day",), name="day_sum_by_day")]

    def __str__(self) -> str:
        return f"{self.seckill_voucher_id} {self.day} {self.what}: {self.count}"
