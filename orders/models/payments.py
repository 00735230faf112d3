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


class Payment(models.Model):
    """One attempt to pay an order at a provider, known there by its ``reference``.

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
        indexes = [models.Index(fields=("status", "ask_at"), name="payment_by_ask_at")]

    def __str__(self) -> str:
        return self.reference

    @property
    def paid_cents(self) -> int:
        """What was paid, and may have to go back."""
        return self.amount_cents if self.received_cents is None else self.received_cents

    @property
    def refund_number(self) -> str:
        """The provider's idempotency key of a refund: the reference, unless one had failed."""
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
