"""Rehearsals of sales, and what they found."""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.db.models import Q
from django.utils.translation import gettext_lazy as _

from vouchers.models import SeckillVoucher


class RehearsalPhase(models.TextChoices):
    """Where a rehearsal is; the last two are the end of one."""

    PREPARING = "preparing", _("preparing")
    BUYING = "buying", _("buying")
    DRAINING = "draining", _("writing orders")
    CLEARING = "clearing", _("cleaning up")
    DONE = "done", _("done")
    FAILED = "failed", _("failed")


OVER = (RehearsalPhase.DONE, RehearsalPhase.FAILED)


class Rehearsal(models.Model):
    """One rehearsal: a shadow copy of a sale, bought by a crowd of its own, and the verdict.

    ``shadow_id`` is the id of the copy until it has been cleared up; it is no foreign key, because
    the copy goes and this row stays. ``crowd`` is what the crowd was told so far, and ``verdict``
    holds the figures that were found. ``running`` is true until the end and null afterwards, so
    that the unique key over it allows one at a time. ``turn`` rises with each step that is noted:
    of two processes at the same step one notes it, and the other stops.
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
    duplicates = models.PositiveSmallIntegerField(_("percentage of double clicks"), default=0)
    connections = models.PositiveSmallIntegerField(_("connections"), default=100)
    url = models.CharField(_("address"), max_length=200, default="")
    phase = models.CharField(
        _("phase"), max_length=16, choices=RehearsalPhase, default=RehearsalPhase.PREPARING
    )
    running = models.BooleanField(null=True, default=True, editable=False)
    turn = models.PositiveIntegerField(default=0, editable=False)
    done = models.PositiveIntegerField(_("done"), default=0)
    crowd = models.JSONField(default=dict, editable=False)
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
        constraints = [
            models.UniqueConstraint(name="rehearsal_one_at_a_time", fields=("running",)),
            models.CheckConstraint(
                name="rehearsal_runs_until_it_is_over",
                condition=Q(running__isnull=False, running=True) & ~Q(phase__in=OVER)
                | Q(running__isnull=True, phase__in=OVER),
            ),
        ]

    def __str__(self) -> str:
        return f"{_('rehearsal')} #{self.pk}"
