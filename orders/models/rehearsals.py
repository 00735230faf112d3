"""Rehearsals of sales, and what they found."""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.utils.translation import gettext_lazy as _

from vouchers.models import SeckillVoucher


class RehearsalPhase(models.TextChoices):
    """Where a rehearsal is; the last two are the end of one."""

    PREPARING = "preparing", _("preparing")
    BUYING = "buying", _("buying")
    DRAINING = "draining", _("writing orders")
    CLEARING = "clearing", _("clearing up")
    DONE = "done", _("done")
    FAILED = "failed", _("failed")


class Rehearsal(models.Model):
    """One rehearsal: a shadow copy of a sale, bought by a crowd of its own, and the verdict.

    ``shadow_id`` is the id of the copy until it has been cleared up; it is no foreign key, because
    the copy goes and this row stays. ``verdict`` holds the figures that were found.
    """

    seckill_voucher = models.ForeignKey(
        SeckillVoucher,
        on_delete=models.CASCADE,
        related_name="rehearsals",
        verbose_name=_("seckill voucher"),
    )
    shadow_id = models.BigIntegerField(null=True, editable=False)
    buyers = models.PositiveIntegerField(_("buyers"))
    stock = models.PositiveIntegerField(_("stock"))
    phase = models.CharField(
        _("phase"), max_length=16, choices=RehearsalPhase, default=RehearsalPhase.PREPARING
    )
    done = models.PositiveIntegerField(_("done"), default=0)
    verdict = models.JSONField(_("verdict"), default=dict)
    problem = models.CharField(_("problem"), max_length=200, blank=True)
    actor = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        on_delete=models.SET_NULL,
        null=True,
        related_name="+",
        verbose_name=_("by"),
    )
    created_at = models.DateTimeField(_("created"), auto_now_add=True)
    changed_at = models.DateTimeField(_("changed"), auto_now=True)

    class Meta:
        verbose_name = _("rehearsal")
        verbose_name_plural = _("rehearsals")
        ordering = ("-pk",)

    def __str__(self) -> str:
        return f"{_('rehearsal')} #{self.pk}"
