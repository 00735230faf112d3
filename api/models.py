"""Tokens of staff programs, and webhooks: their endpoints and deliveries."""

from django.conf import settings
from django.db import models
from django.utils.translation import gettext_lazy as _
from django.utils.translation import pgettext_lazy

from orders.models import UNDOES, UNUSED, OrderEvent, OrderStatus, VoucherOrder


class Scope(models.TextChoices):
    """What a token may do, if its owner may."""

    READ_SALES = "read:sales", _("read sales")
    READ_ORDERS = "read:orders", _("read orders")
    REDEEM = "redeem", _("redeem vouchers")


class ApiToken(models.Model):
    """A token with which a program acts for a member of staff.

    Only the digest is stored. ``prefix`` is the part by which people recognise a token.
    ``merchant_ids`` are those whose vouchers alone it redeems; null: it redeems all.
    """

    name = models.CharField(_("name"), max_length=80, help_text=_("What the program is for."))
    owner = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        on_delete=models.CASCADE,
        related_name="api_tokens",
        verbose_name=_("member of staff"),
        help_text=_("The token can never do more than this account, and ends with it."),
    )
    prefix = models.CharField(_("starts with"), max_length=16, unique=True, editable=False)
    digest = models.CharField(max_length=64, unique=True, editable=False)
    scopes = models.JSONField(_("allowed"), default=list)
    merchant_ids = models.JSONField(null=True)
    created_at = models.DateTimeField(_("created"), editable=False)
    expires_at = models.DateTimeField(_("expires"))
    last_used_at = models.DateTimeField(_("last used"), null=True, editable=False)
    revoked_at = models.DateTimeField(_("revoked"), null=True, editable=False)

    class Meta:
        verbose_name = _("API token")
        verbose_name_plural = _("API tokens")
        ordering = ("-pk",)

    def __str__(self) -> str:
        return f"{self.name} ({self.prefix}…)"


class Topic(models.TextChoices):
    """An event that a webhook tells: ``order.`` and the state reached, or that a use was undone."""

    PAID = "order.paid", _("order paid")
    USED = "order.used", _("voucher used")
    UNUSED = f"order.{UNUSED}", _("use undone")
    REFUNDED = "order.refunded", _("order refunded")
    CANCELLED = "order.cancelled", _("order cancelled")
    EXPIRED = "order.expired", _("order expired")

    @classmethod
    def of(cls, before: str, after: str) -> str:
        status = OrderStatus(after)
        return f"order.{UNUSED if UNDOES.get(status) == before else status.value}"


class WebhookEndpoint(models.Model):
    """An address that is told of events.

    ``failing_since`` is the first failure after the last success. ``disabled_at`` is when the shop
    gave up and made the endpoint inactive. No delivery is tried before ``paused_until``.
    """

    url = models.URLField(_("address"), max_length=500)
    topics = models.JSONField(_("events"), default=list)
    active = models.BooleanField(pgettext_lazy("a switch", "active"), default=True)
    secret = models.CharField(max_length=64, editable=False)
    old_secret = models.CharField(max_length=64, blank=True, editable=False)
    old_secret_until = models.DateTimeField(null=True, editable=False)
    created_at = models.DateTimeField(_("created"), editable=False)
    failing_since = models.DateTimeField(_("failing since"), null=True, editable=False)
    failures = models.PositiveIntegerField(default=0, editable=False)
    paused_until = models.DateTimeField(null=True, editable=False)
    disabled_at = models.DateTimeField(_("disabled"), null=True, editable=False)

    class Meta:
        verbose_name = _("webhook")
        verbose_name_plural = _("webhooks")
        ordering = ("pk",)

    def __str__(self) -> str:
        return self.url


class WebhookDelivery(models.Model):
    """One event for one endpoint, with the last attempt to deliver it."""

    class State(models.TextChoices):
        """The state of a delivery."""

        WAITING = "waiting", pgettext_lazy("a message", "waiting")
        DELIVERED = "delivered", _("delivered")
        FAILED = "failed", _("failed")

    endpoint = models.ForeignKey(
        WebhookEndpoint,
        on_delete=models.CASCADE,
        related_name="deliveries",
        verbose_name=_("webhook"),
    )
    event = models.ForeignKey(
        OrderEvent, on_delete=models.CASCADE, related_name="+", verbose_name=_("order change")
    )
    order = models.ForeignKey(
        VoucherOrder, on_delete=models.CASCADE, related_name="+", verbose_name=_("order")
    )
    topic = models.CharField(_("event"), max_length=32, choices=Topic)
    state = models.CharField(_("state"), max_length=16, choices=State, default=State.WAITING)
    created_at = models.DateTimeField(_("created"))
    next_at = models.DateTimeField(_("next attempt"), null=True)
    tries = models.PositiveSmallIntegerField(_("attempts"), default=0)
    tried_at = models.DateTimeField(_("last attempt"), null=True)
    took_ms = models.PositiveIntegerField(_("took (ms)"), null=True)
    status = models.PositiveSmallIntegerField(_("HTTP status"), null=True)
    error = models.CharField(_("error"), max_length=200, blank=True)
    answer = models.CharField(_("answer"), max_length=500, blank=True)

    class Meta:
        verbose_name = _("webhook delivery")
        verbose_name_plural = _("webhook deliveries")
        ordering = ("-pk",)
        constraints = [
            models.UniqueConstraint(
                name="webhook_delivery_once_per_event", fields=("endpoint", "event")
            )
        ]
        indexes = [
            models.Index(fields=("state", "endpoint", "next_at"), name="webhook_delivery_due"),
            models.Index(fields=("state", "tried_at"), name="webhook_delivery_by_age"),
        ]

    def __str__(self) -> str:
        return self.message_id

    @property
    def message_id(self) -> str:
        """The same for every attempt, and for every endpoint."""
        return f"event_{self.event_id}"
