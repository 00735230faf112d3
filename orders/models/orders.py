"""What a buyer won: the order and the states of its life."""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.db.models import Q
from django.utils.translation import gettext_lazy as _

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

    ALREADY_ORDERED = "already_ordered", _("the buyer already has an order in this sale")
    SOLD_OUT = "sold_out", _("no units were left")
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
    pay_by = models.DateTimeField(_("payment due"), null=True, blank=True)
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
            ("export_voucherorder", _("Can export orders")),
        ]

    def __str__(self) -> str:
        return str(self.pk)
