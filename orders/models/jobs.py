"""What staff asked for that a worker does."""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.utils.translation import gettext_lazy as _


class JobStatus(models.TextChoices):
    """How far a job is."""

    RUNNING = "running", _("running")
    DONE = "done", _("done")


class OrderJob(models.Model):
    """One change that staff asked for on many orders, done by a worker one after the other.

    ``order_ids`` is what is still to be done; ``refusals`` is why an order was not changed.
    """

    class Kind(models.TextChoices):
        CANCEL = "cancel", _("cancel")
        REFUND = "refund", _("refund")

    kind = models.CharField(_("action"), max_length=16, choices=Kind)
    why = models.CharField(_("reason"), max_length=200, blank=True)
    actor = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        on_delete=models.SET_NULL,
        null=True,
        related_name="+",
        verbose_name=_("by"),
    )
    status = models.CharField(
        _("status"), max_length=16, choices=JobStatus, default=JobStatus.RUNNING
    )
    order_ids = models.JSONField(default=list)
    refusals = models.JSONField(_("not changed"), default=dict)
    total = models.PositiveIntegerField(_("orders"))
    done = models.PositiveIntegerField(_("done"), default=0)
    created_at = models.DateTimeField(_("created"), auto_now_add=True)
    changed_at = models.DateTimeField(_("changed"), auto_now=True)

    class Meta:
        verbose_name = _("job")
        verbose_name_plural = _("jobs")
        ordering = ("-pk",)

    def __str__(self) -> str:
        return f"{self.get_kind_display()} #{self.pk}"
