"""Background work that staff starts: jobs on orders, and rehearsals."""

from typing import ClassVar

from django.conf import settings
from django.db import models
from django.db.models import Q
from django.utils.translation import gettext_lazy as _

from vouchers.models import SeckillVoucher


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
    """The status of a job on orders."""

    RUNNING = "running", _("running")
    DONE = "done", _("done")


class OrderJob(BackgroundJob):
    """One change to many orders.

    ``order_ids`` are the orders still to be changed; ``refusals`` has the reason for each order
    that was not changed. A month after the end both are emptied, and ``sums`` has the number of
    orders by reason; null before.
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
    sums = models.JSONField(null=True, editable=False)
    total = models.PositiveIntegerField(_("orders"))

    class Meta(BackgroundJob.Meta):
        verbose_name = _("job")
        verbose_name_plural = _("jobs")

    def __str__(self) -> str:
        return f"{self.get_kind_display()} #{self.pk}"


class RehearsalPhase(models.TextChoices):
    """The phases of a rehearsal; the last two end it."""

    PREPARING = "preparing", _("preparing")
    BUYING = "buying", _("buying")
    DRAINING = "draining", _("writing orders")
    CLEARING = "clearing", _("cleaning up")
    DONE = "done", _("done")
    FAILED = "failed", _("failed")


OVER = (RehearsalPhase.DONE, RehearsalPhase.FAILED)


class Rehearsal(BackgroundJob):
    """One rehearsal: a shadow copy of a sale, the crowd that buys from it, and the verdict.

    ``shadow_id`` is the id of the copy until it is cleaned up. It is not a foreign key, because
    this row outlives the copy. ``crowd`` has the answers that the crowd got so far, ``verdict`` the
    figures that were found. ``running`` is true until the end and null afterwards, so that its
    unique key allows one rehearsal at a time.
    """

    RUNNING = Q(running=True)

    seckill_voucher = models.ForeignKey(
        SeckillVoucher,
        on_delete=models.CASCADE,
        related_name="rehearsals",
        verbose_name=_("sale"),
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
    crowd = models.JSONField(default=dict, editable=False)
    verdict = models.JSONField(_("verdict"), default=dict)
    problem = models.CharField(_("problem"), max_length=200, blank=True)

    class Meta(BackgroundJob.Meta):
        verbose_name = _("rehearsal")
        verbose_name_plural = _("rehearsals")
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
