"""What a buyer won: the order and the states of its life, its history, its payments; who waits."""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.db.models import Q
from django.utils.translation import gettext_lazy as _
from django.utils.translation import pgettext_lazy

from vouchers.models import MAX_LIMIT, SeckillVoucher

CODE_LENGTH = 16
"""Characters of a voucher code, five bits each."""


class OrderStatus(models.TextChoices):
    """The life of an order as its row tells it (``queued`` is told by the ledger alone)."""

    UNPAID = "unpaid", _("unpaid")
    PAID = "paid", _("paid")
    USED = "used", _("used")
    CANCELLED = "cancelled", _("cancelled")
    EXPIRED = "expired", _("expired")
    REFUNDING = "refunding", _("refunding")
    REFUNDED = "refunded", _("refunded")
    REFUSED = "refused", _("refused")


SOURCES: dict[OrderStatus, OrderStatus] = {
    OrderStatus.PAID: OrderStatus.UNPAID,
    OrderStatus.CANCELLED: OrderStatus.UNPAID,
    OrderStatus.EXPIRED: OrderStatus.UNPAID,
    OrderStatus.USED: OrderStatus.PAID,
    OrderStatus.REFUNDING: OrderStatus.PAID,
    OrderStatus.REFUNDED: OrderStatus.REFUNDING,
    OrderStatus.UNPAID: OrderStatus.REFUSED,
}
"""The state machine: each state has one that leads to it. New orders are unpaid or refused; from
refused leads only the second try of an order that was set aside."""

LIVE_STATUSES = (
    OrderStatus.UNPAID,
    OrderStatus.PAID,
    OrderStatus.USED,
    OrderStatus.REFUNDING,
)
"""The states that hold a unit of the stock."""


class RefusalReason(models.TextChoices):
    """Why an accepted order id became a refused row."""

    ALREADY_ORDERED = "already_ordered", _("the buyer has an order of this sale already")
    SOLD_OUT = "sold_out", _("no unit was left")
    INACTIVE_BUYER = "inactive_buyer", _("the buyer's account is closed")
    FAILED = "failed", _("the order could not be written and was set aside")
    LOST = "lost", _("the order was lost before it was written")


class VoucherOrder(models.Model):
    """One unit of a sale for one buyer, or the record of why there was none.

    ``live`` is true while the order holds a unit and null afterwards. As null is never equal to
    null, the unique key over it lets a buyer order again after a cancelled or refused order, on
    databases without partial indexes too.
    """

    id = models.BigIntegerField(primary_key=True)
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        on_delete=models.PROTECT,
        related_name="voucher_orders",
        verbose_name=_("buyer"),
        null=True,
        help_text="Null only in a refused row whose buyer's account was deleted before.",
    )
    seckill_voucher = models.ForeignKey(
        SeckillVoucher,
        on_delete=models.PROTECT,
        related_name="orders",
        verbose_name=_("seckill voucher"),
    )
    unit = models.PositiveSmallIntegerField(_("unit"))
    status = models.CharField(_("status"), max_length=16, choices=OrderStatus)
    live = models.BooleanField(_("live"), null=True, default=True, editable=False)
    reason = models.CharField(_("reason"), max_length=32, blank=True, choices=RefusalReason)
    price_cents = models.PositiveIntegerField(_("price in cents"))
    pay_by = models.DateTimeField(_("to be paid by"), null=True, blank=True)
    code = models.CharField(
        _("voucher code"),
        max_length=CODE_LENGTH,
        null=True,
        blank=True,
        unique=True,
    )
    accepted_at = models.DateTimeField(_("accepted at"))
    created_at = models.DateTimeField(_("written at"), auto_now_add=True)

    class Meta:
        verbose_name = _("order")
        verbose_name_plural = _("orders")
        ordering = ("-id",)
        constraints = [
            models.UniqueConstraint(
                name="order_one_live_per_buyer_unit",
                fields=("user", "seckill_voucher", "unit", "live"),
            ),
            models.CheckConstraint(
                name="order_unit_1_to_20", condition=Q(unit__gte=1, unit__lte=MAX_LIMIT)
            ),
            models.CheckConstraint(
                name="order_live_while_it_holds_a_unit",
                # A check lets null pass, and null AND true is null: hence "not null" in words.
                condition=Q(live__isnull=False, live=True, status__in=LIVE_STATUSES)
                | (Q(live__isnull=True) & ~Q(status__in=LIVE_STATUSES)),
            ),
            models.CheckConstraint(
                name="order_has_a_buyer_while_live",
                condition=Q(live__isnull=True) | Q(user__isnull=False),
            ),
            models.CheckConstraint(
                name="order_refused_with_a_reason",
                condition=~Q(status=OrderStatus.REFUSED) | ~Q(reason=""),
            ),
        ]
        indexes = [
            models.Index(fields=("seckill_voucher", "live"), name="order_by_sale_live"),
            models.Index(fields=("status", "pay_by"), name="order_by_status_pay_by"),
        ]
        permissions = [
            ("redeem_voucherorder", _("Can redeem vouchers")),
            ("end_voucherorder", _("Can cancel and refund orders")),
        ]

    def __str__(self) -> str:
        return str(self.pk)


class ActorKind(models.TextChoices):
    """Who changes an order."""

    BUYER = "buyer", _("buyer")
    STAFF = "staff", _("staff")
    PROVIDER = "provider", _("payment provider")
    SYSTEM = "system", _("system")


class OrderEvent(models.Model):
    """One change of an order's state: when, by whom and why; rows are only ever added.

    ``told_at`` says when the buyer was sent word of it, or that there was nobody to write to;
    ``tell_at`` when to try again where the mail server did not take it.
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
    told_at = models.DateTimeField(_("told at"), null=True)
    tell_at = models.DateTimeField(_("tell at"), null=True)

    class Meta:
        verbose_name = _("change of an order")
        verbose_name_plural = _("changes of orders")
        ordering = ("at", "pk")
        indexes = [models.Index(fields=("told_at", "id"), name="event_by_told")]

    def __str__(self) -> str:
        return f"{self.order_id}: {self.before or '–'} → {self.after}"


class PaymentStatus(models.TextChoices):
    """The life of one payment: open → paid → refunding → refunded, or open → closed."""

    OPEN = "open", _("open")
    PAID = "paid", _("paid")
    REFUNDING = "refunding", _("refunding")
    REFUNDED = "refunded", _("refunded")
    CLOSED = "closed", _("closed")


class Payment(models.Model):
    """One try to pay an order at a provider, known there by its ``reference``.

    ``ask_at`` is when the provider is asked next what became of it, or told again to refund it;
    ``silent_since`` when it first did not answer, until it does.
    """

    order = models.ForeignKey(
        VoucherOrder, on_delete=models.PROTECT, related_name="payments", verbose_name=_("order")
    )
    reference = models.CharField(_("reference"), max_length=64, unique=True)
    provider = models.CharField(_("provider"), max_length=32)
    provider_reference = models.CharField(_("provider's reference"), max_length=64, blank=True)
    amount_cents = models.PositiveIntegerField(_("amount in cents"))
    status = models.CharField(
        _("status"), max_length=16, choices=PaymentStatus, default=PaymentStatus.OPEN
    )
    settles = models.BooleanField(_("paid the order"), default=False)
    pay_url = models.URLField(_("where to pay"), max_length=500, blank=True)
    problem = models.CharField(_("problem"), max_length=200, blank=True)
    ask_at = models.DateTimeField(_("ask at"), null=True)
    silent_since = models.DateTimeField(_("silent since"), null=True)
    asked = models.PositiveIntegerField(_("times asked"), default=0)
    created_at = models.DateTimeField(_("created"), auto_now_add=True)
    changed_at = models.DateTimeField(_("changed"), auto_now=True)

    class Meta:
        verbose_name = _("payment")
        verbose_name_plural = _("payments")
        ordering = ("pk",)
        indexes = [models.Index(fields=("status", "ask_at"), name="payment_by_ask_at")]

    def __str__(self) -> str:
        return self.reference


class WaitingEntry(models.Model):
    """A buyer in the waiting list of a sale, under the order id that an offer will have.

    ``live`` is true while the buyer waits and null afterwards, so that one may wait again.
    """

    class Outcome(models.TextChoices):
        """How the waiting ended."""

        OFFERED = "offered", _("offered")
        LEFT = "left", pgettext_lazy("waiting list", "left")
        OVER = "over", _("the sale ended")

    seckill_voucher = models.ForeignKey(
        SeckillVoucher,
        on_delete=models.CASCADE,
        related_name="waiting_entries",
        verbose_name=_("seckill voucher"),
    )
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        on_delete=models.CASCADE,
        related_name="waiting_entries",
        verbose_name=_("buyer"),
    )
    order_id = models.BigIntegerField(_("order id"), unique=True)
    joined_at = models.DateTimeField(_("joined at"))
    live = models.BooleanField(_("waits"), null=True, default=True)
    outcome = models.CharField(_("outcome"), max_length=16, blank=True, choices=Outcome)

    class Meta:
        verbose_name = _("waiting buyer")
        verbose_name_plural = _("waiting buyers")
        ordering = ("joined_at", "pk")
        constraints = [
            models.UniqueConstraint(
                name="waiting_once_per_buyer", fields=("user", "seckill_voucher", "live")
            ),
        ]

    def __str__(self) -> str:
        return str(self.order_id)


class SandboxTrade(models.Model):
    """A charge in the sandbox's own books, which are no business of the shop's."""

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

    kind = models.CharField(_("what"), max_length=16, choices=Kind)
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
