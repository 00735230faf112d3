"""Payments of orders at providers, and the books of the payment sandbox."""

from django.db import models
from django.utils.translation import gettext_lazy as _

from orders.models.orders import VoucherOrder
from seckill_site.clocks.database import database_now


class PaymentStatus(models.TextChoices):
    """The life of one payment: open → paid → refunding → refunded, or open → closed.

    A refused one was never opened by its provider; the next click opens it under a new reference.
    What others do at the provider leads to one of ``FOR_STAFF``.
    """

    OPEN = "open", _("open")
    PAID = "paid", _("paid")
    REFUNDING = "refunding", _("refunding")
    REFUNDED = "refunded", _("refunded")
    CLOSED = "closed", _("closed")
    REFUSED = "refused", _("refused by the provider")
    PARTLY_REFUNDED = "partly_refunded", _("partly refunded")
    DISPUTED = "disputed", _("disputed")
    REFUND_FAILED = "refund_failed", _("refund failed")


FOR_STAFF = (
    PaymentStatus.PARTLY_REFUNDED,
    PaymentStatus.DISPUTED,
    PaymentStatus.REFUND_FAILED,
)
"""The states in which staff decide: refund the rest, or count the payment as refunded."""

GOING_BACK = (PaymentStatus.REFUNDING, PaymentStatus.REFUNDED, *FOR_STAFF)
"""The states of money that goes back, has gone back, or should have."""


class Payment(models.Model):
    """One attempt to pay an order at a provider: the order's share of a charge there.

    Note [Shares of a charge]
    ~~~~~~~~~~~~~~~~~~~~~~~~~
    The units of a purchase are paid together, by one charge of ``total_cents``, and each is
    refunded alone. Every order has a payment of its own price. The provider knows the first one by
    its ``reference``; the others name it as their ``charge``, and their own references are only
    the numbers of their refunds. What a provider says of the charge is written to all its shares,
    but only the first has the ``ask_at`` of an open charge. The payment of an order that is paid
    alone, and each of a release before, has neither ``charge`` nor ``total_cents``.

    ``ask_at`` is when the provider is next asked for the payment's state, or told again to refund
    it. ``silent_since`` is when the provider first did not respond, until it does.
    ``returned_at`` is when the buyer last came back from the provider's page, ``found_open_at``
    when the provider last said that the charge is still open.
    ``received_cents`` and ``received_currency`` are set only if something else was paid than asked
    for. ``client`` is set if a charge for a phone cannot be paid at a desk. ``pay_url`` can be used
    until ``link_ends_at``, or as long as the charge is open.
    ``refunded_cents`` is what has gone back, as far as the provider has said. ``refund_round``
    counts the refunds that had to be made anew, because one had failed.
    """

    order = models.ForeignKey(
        VoucherOrder, on_delete=models.PROTECT, related_name="payments", verbose_name=_("order")
    )
    reference = models.CharField(_("reference"), max_length=64, unique=True)
    charge = models.ForeignKey(
        "self",
        on_delete=models.DO_NOTHING,
        null=True,
        related_name="+",
        db_constraint=False,
        verbose_name=_("charge"),
    )
    total_cents = models.PositiveIntegerField(_("charge's total in cents"), null=True)
    provider = models.CharField(_("provider"), max_length=32)
    client = models.CharField(max_length=8, blank=True, default="", db_default="")
    provider_reference = models.CharField(_("provider's reference"), max_length=255, blank=True)
    amount_cents = models.PositiveIntegerField(_("amount in cents"))
    received_cents = models.PositiveIntegerField(_("paid instead, in cents"), null=True)
    received_currency = models.CharField(
        _("paid in"), max_length=3, blank=True, default="", db_default=""
    )
    refunded_cents = models.PositiveIntegerField(_("gone back, in cents"), default=0, db_default=0)
    refund_round = models.PositiveSmallIntegerField(default=0, db_default=0)
    status = models.CharField(
        _("status"), max_length=16, choices=PaymentStatus, default=PaymentStatus.OPEN
    )
    settles = models.BooleanField(_("paid the order"), default=False)
    pay_url = models.URLField(_("payment page"), max_length=4000, blank=True)
    link_ends_at = models.DateTimeField(null=True)
    problem = models.CharField(_("problem"), max_length=200, blank=True)
    ask_at = models.DateTimeField(_("next check at"), null=True)
    silent_since = models.DateTimeField(_("not responding since"), null=True)
    returned_at = models.DateTimeField(_("buyer came back at"), null=True)
    found_open_at = models.DateTimeField(_("last found unpaid at"), null=True)
    asked = models.PositiveIntegerField(_("number of checks"), default=0)
    created_at = models.DateTimeField(_("created"), default=database_now)
    paid_at = models.DateTimeField(_("paid at"), null=True)
    refunded_at = models.DateTimeField(_("refunded at"), null=True)
    changed_at = models.DateTimeField(_("changed"), auto_now=True)

    class Meta:
        verbose_name = _("payment")
        verbose_name_plural = _("payments")
        ordering = ("pk",)
        indexes = [
            models.Index(fields=("status", "ask_at"), name="payment_by_ask_at"),
            models.Index(fields=("status", "provider", "ask_at"), name="payment_by_provider"),
            models.Index(fields=("provider_reference",), name="payment_by_provider_reference"),
            models.Index(fields=("status", "id"), name="payment_by_status_id"),
            models.Index(fields=("provider", "id"), name="payment_by_provider_id"),
            models.Index(fields=("problem",), name="payment_by_problem"),
        ]

    def __str__(self) -> str:
        return self.reference

    @property
    def shares(self) -> models.QuerySet["Payment"]:
        """The payments by the same charge, this one among them, in the order of their orders."""
        if self.total_cents is None:
            return Payment.objects.filter(pk=self.pk)
        first = self.charge_id or self.pk
        several = Payment.objects.filter(models.Q(pk=first) | models.Q(charge=first))
        return several.order_by("order_id")

    def list_shares(self) -> list["Payment"]:
        """Read the shares of a charge; no statement for a payment that is alone."""
        return [self] if self.total_cents is None else list(self.shares.select_related("order"))

    @property
    def charged_cents(self) -> int:
        """What the whole charge has brought, or is to bring."""
        total = self.amount_cents if self.total_cents is None else self.total_cents
        return total if self.received_cents is None else self.received_cents

    @property
    def paid_cents(self) -> int:
        """What was paid, and may have to go back."""
        return self.amount_cents if self.received_cents is None else self.received_cents

    @property
    def refund_number(self) -> str:
        """The provider's idempotency key of a refund: the share's reference, unless one failed."""
        return f"{self.reference}-{self.refund_round}" if self.refund_round else self.reference


class HandledNotification(models.Model):
    """A provider's notification that was handled, so that a copy of it is not handled again."""

    provider = models.CharField(max_length=32)
    notification_id = models.CharField(max_length=128)
    handled_at = models.DateTimeField(auto_now_add=True, db_index=True)

    class Meta:
        verbose_name = _("handled notification")
        verbose_name_plural = _("handled notifications")
        constraints = [
            models.UniqueConstraint(
                fields=("provider", "notification_id"), name="notification_handled_once"
            )
        ]

    def __str__(self) -> str:
        return self.notification_id


class SandboxTrade(models.Model):
    """A charge in the sandbox's books, which the shop itself never reads.

    ``refunds`` has the cents of each refund by its number. It is null for a refunded charge that an
    earlier release gave back at once.
    """

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
    refunds = models.JSONField(null=True)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        verbose_name = _("sandbox charge")
        verbose_name_plural = _("sandbox charges")

    def __str__(self) -> str:
        return self.reference
