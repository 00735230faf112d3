"""Entries in draws, copied from Redis moments after they were accepted."""

from django.conf import settings
from django.db import models
from django.utils.translation import gettext_lazy as _
from django.utils.translation import pgettext_lazy

from vouchers.models import SeckillVoucher


class DrawEntry(models.Model):
    """An account's entry in a draw, under the order id that a win will have.

    ``live`` is true while the entry is in the list and null if it is not; ``outcome`` says why. An
    entry stays in a closed list when its account is deleted.
    """

    class Outcome(models.TextChoices):
        """Why an entry is not in the list."""

        WITHDRAWN = "withdrawn", pgettext_lazy("entry", "withdrawn")
        SECOND = "already_ordered", _("second entry of an account")
        LATE = "ended", _("after the end")

    order_id = models.BigIntegerField(_("order id"), primary_key=True)
    seckill_voucher = models.ForeignKey(
        SeckillVoucher,
        on_delete=models.CASCADE,
        related_name="draw_entries",
        db_index=False,  # an index below begins with it
        verbose_name=_("sale"),
    )
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        on_delete=models.SET_NULL,
        null=True,
        related_name="draw_entries",
        db_index=False,  # the unique key begins with it
        verbose_name=_("buyer"),
    )
    entered_at = models.DateTimeField(_("entered at"))
    live = models.BooleanField(null=True, default=True)
    outcome = models.CharField(max_length=16, blank=True, choices=Outcome)

    class Meta:
        default_permissions = ()  # entries have no pages of their own in the admin
        verbose_name = _("entry in a draw")
        verbose_name_plural = _("entries in draws")
        constraints = [
            models.UniqueConstraint(
                name="draw_entry_one_per_buyer", fields=("user", "seckill_voucher", "live")
            ),
        ]
        indexes = [models.Index(fields=("seckill_voucher", "live"), name="entry_by_sale_live")]

    def __str__(self) -> str:
        return str(self.order_id)
