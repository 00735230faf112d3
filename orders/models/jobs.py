"""Work that staff asks for and background processes do."""

from __future__ import annotations

from typing import ClassVar

from django.conf import settings
from django.db import models
from django.db.models import Q
from django.utils.translation import gettext_lazy as _


class BackgroundJob(models.Model):
    """One piece of background work, done step by step.

    ``turn`` rises with each recorded step. If two processes do the same step, one records it and
    the other stops.
    """

    RUNNING: ClassVar[Q]

    turn = models.PositiveIntegerField(default=0, editable=False)
    done = models.PositiveIntegerField(_("done"), default=0)
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
        abstract = True
        ordering = ("-pk",)


class JobStatus(models.TextChoices):
    """Whether a job on orders is running."""

    RUNNING = "running", _("running")
    DONE = "done", _("done")


class OrderJob(BackgroundJob):
    """One change to many orders.

    ``order_ids`` are the orders still to be changed; ``refusals`` has the reason for each order
    that was not changed.
    """

    class Kind(models.TextChoices):
        CANCEL = "cancel", _("cancel")
        REFUND = "refund", _("refund")

    RUNNING = Q(status=JobStatus.RUNNING)

    kind = models.CharField(_("action"), max_length=16, choices=Kind)
    why = models.CharField(_("reason"), max_length=200, blank=True)
    status = models.CharField(
        _("status"), max_length=16, choices=JobStatus, default=JobStatus.RUNNING
    )
    order_ids = models.JSONField(default=list)
    refusals = models.JSONField(_("not changed"), default=dict)
    total = models.PositiveIntegerField(_("orders"))

    class Meta(BackgroundJob.Meta):
        verbose_name = _("job")
        verbose_name_plural = _("jobs")

    def __str__(self) -> str:
        return f"{self.get_kind_display()} #{self.pk}"
