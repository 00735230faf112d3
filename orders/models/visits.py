"""Visits to waiting rooms: who joined the line of a sale, and when they were let in."""

from django.conf import settings
from django.db import models
from django.utils.translation import gettext_lazy as _

from vouchers.models import SeckillVoucher


class RoomVisit(models.Model):
    """A buyer's place in the waiting room of a sale, copied from Redis moments later.

    ``opened_ms`` tells openings of the room apart; ``given`` is the number that the buyer got.
    """

    seckill_voucher = models.ForeignKey(
        SeckillVoucher, on_delete=models.CASCADE, related_name="room_visits"
    )
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="room_visits"
    )
    opened_ms = models.PositiveBigIntegerField()
    given = models.PositiveBigIntegerField()
    joined_at = models.DateTimeField()
    let_in_at = models.DateTimeField(null=True)

    class Meta:
        default_permissions = ()  # it is part of a report, and has no pages of its own
        verbose_name = _("visit to a waiting room")
        verbose_name_plural = _("visits to waiting rooms")
        constraints = [
            models.UniqueConstraint(
                name="room_visit_once", fields=("seckill_voucher", "opened_ms", "user")
            ),
        ]

    def __str__(self) -> str:
        return f"{self.seckill_voucher_id} {self.user_id}: {self.given}"
