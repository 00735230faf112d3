"""The books of the payment sandbox."""

from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_lazy as _


class SandboxTrade(models.Model):
    """A charge in the sandbox's books, which the shop itself never reads."""

    class State(models.TextChoices):
        OPEN = "open", _("open")
        PAID = "paid", _("paid")
        REFUNDED = "refunded", _("refunded")
        CLOSED = "closed", _("closed")

    reference = models.CharField(max_length=64, unique=True)
    amount_cents = models.PositiveIntegerField()
    subject = models.CharField(max_length=200)
    pay_by = models.DateTimeField()
    return_url = models.CharField(max_length=500)
    notify_url = models.CharField(max_length=500)
    state = models.CharField(max_length=16, choices=State, default=State.OPEN)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        verbose_name = _("sandbox charge")
        verbose_name_plural = _("sandbox charges")

    def __str__(self) -> str:
        return self.reference
