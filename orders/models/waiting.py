"""The waiting list: buyers who wait for a returned unit."""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.utils.translation import gettext_lazy as _
from django.utils.translation import pgettext_lazy

from vouchers.models import SeckillVoucher


class WaitingEntry(models.Model):
    """A buyer in the waiting list of a sale, under the order id that an offer will have.

    ``live`` is true while the buyer waits and null afterwards, so a buyer may join again.
    """

    class Outcome(models.TextChoices):
        """The outcome of waiting."""

        OFFERED = "offered", _("offered")
        LEFT = "left", pgettext_lazy("waiting list", "left")
        OVER = "over", _("the sale ended")

    seckill_voucher = models.ForeignKey(
        SeckillVoucher,
        on_delete=models.CASCADE,
        related_name="waiting_entries",
        verbose_name=_("seckill voucher"),
    )
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        on_delete=models.CASCADE,
        related_name="waiting_entries",
        verbose_name=_("buyer"),
    )
    order_id = models.BigIntegerField(_("order id"), unique=True)
    joined_at = models.DateTimeField(_("joined at"))
    live = models.BooleanField(_("waiting"), null=True, default=True)
    outcome = models.CharField(_("outcome"), max_length=16, blank=True, choices=Outcome)

    class Meta:
        verbose_name = _("waiting buyer")
        verbose_name_plural = _("waiting buyers")
        ordering = ("joined_at", "pk")
        constraints = [
            models.UniqueConstraint(
                name="waiting_once_per_buyer", fields=("user", "seckill_voucher", "live")
            ),
        ]

    def __str__(self) -> str:
        return str(self.order_id)
