"""Notices: what a reader asked to be told about a sale, results of draws, and last days."""

from django.conf import settings
from django.db import models
from django.utils.translation import gettext_lazy as _

from vouchers.models import SeckillVoucher


class Notice(models.Model):
    """A reader's request to be told of a sale's start, or that a unit is free again.

    Nobody asks for the kinds in ``UNASKED``: a ``RESULT`` is for each entry of a draw that did not
    win, a ``LAST_DAY`` for each buyer with vouchers that can be used for a few days only.

    ``live`` is true until the reader was told or has stopped it; asking again makes it true again.
    ``told_at`` is when the reader was last told. ``notify_at`` is when to try again, if the server
    did not accept the message.
    """

    class Kind(models.TextChoices):
        """What the reader is told of."""

        START = "start", _("the start")
        BACK = "back", _("a voucher that is available again")
        RESULT = "result", _("the result of a draw")
        LAST_DAY = "last_day", _("the last day of a voucher")

    UNASKED = (Kind.RESULT, Kind.LAST_DAY)

    seckill_voucher = models.ForeignKey(
        SeckillVoucher, on_delete=models.CASCADE, related_name="notices"
    )
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="notices"
    )
    kind = models.CharField(max_length=8, choices=Kind)
    live = models.BooleanField(default=True)
    asked_at = models.DateTimeField()
    told_at = models.DateTimeField(null=True)
    notify_at = models.DateTimeField(null=True)

    class Meta:
        default_permissions = ()  # it has no pages in the admin; the board counts it
        verbose_name = _("notice")
        verbose_name_plural = _("notices")
        constraints = [
            models.UniqueConstraint(
                name="notice_once_per_kind", fields=("user", "seckill_voucher", "kind")
            ),
        ]
        indexes = [
            models.Index(fields=("seckill_voucher", "kind", "live"), name="notice_by_sale_live"),
            models.Index(fields=("live", "told_at"), name="notice_by_live_told"),
        ]

    def __str__(self) -> str:
        return f"{self.seckill_voucher_id} {self.user_id}: {self.kind}"
