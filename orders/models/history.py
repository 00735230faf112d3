"""The history of orders."""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.utils.translation import gettext_lazy as _

from orders.models.orders import OrderStatus, VoucherOrder


class ActorKind(models.TextChoices):
    """The kind of actor that changes an order."""

    BUYER = "buyer", _("buyer")
    STAFF = "staff", _("staff")
    PROVIDER = "provider", _("payment provider")
    SYSTEM = "system", _("system")


class OrderEvent(models.Model):
    """One change of an order's state: when, by whom and why. Rows are only ever added.

    ``told_at`` is when the buyer was notified, or was found to have no address. ``tell_at`` is when
    to try again, if the mail server did not accept the mail.
    """

    order = models.ForeignKey(
        VoucherOrder, on_delete=models.CASCADE, related_name="events", verbose_name=_("order")
    )
    before = models.CharField(_("before"), max_length=16, blank=True, choices=OrderStatus)
    after = models.CharField(_("after"), max_length=16, choices=OrderStatus)
    at = models.DateTimeField(_("at"))
    actor_kind = models.CharField(_("by"), max_length=16, choices=ActorKind)
    actor = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        on_delete=models.SET_NULL,
        related_name="+",
        null=True,
        verbose_name=_("user"),
    )
    reason = models.CharField(_("reason"), max_length=200, blank=True)
    told_at = models.DateTimeField(_("notified at"), null=True)
    tell_at = models.DateTimeField(_("notify again at"), null=True)

    class Meta:
        verbose_name = _("order change")
        verbose_name_plural = _("order changes")
        ordering = ("pk",)
        indexes = [models.Index(fields=("told_at", "id"), name="event_by_told")]

    def __str__(self) -> str:
        return f"{self.order_id}: {self.before or '–'} → {self.after}"
