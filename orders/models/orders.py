"""Orders with their states and history, and the buyers who wait for one."""

import datetime as dt
from typing import Any, Self

from django.conf import settings
from django.db import models
from django.db.models import ExpressionWrapper, F, Q, QuerySet
from django.db.models.lookups import GreaterThan
from django.utils.translation import gettext, pgettext_lazy
from django.utils.translation import gettext_lazy as _

from vouchers.inventory.purchases import BLOCK_SIZE
from vouchers.models import MAX_LIMIT, SeckillVoucher

CODE_LENGTH = 16
"""Characters of a voucher code, five bits each."""

CODE_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
"""Digits and letters that cannot be mistaken for one another, without I, L, O and U."""


class OrderStatus(models.TextChoices):
    """The state of an order with a row; ``queued`` exists only in the ledger."""

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
"""The state machine: each state and the one that leads to it. New orders are unpaid or refused.
Only the retry of an order that was set aside leads from refused to unpaid."""

UNDOES: dict[OrderStatus, OrderStatus] = {OrderStatus.PAID: OrderStatus.USED}
"""What can be undone: the state that an order returns to, and the one that it was in by mistake."""

LIVE_STATUSES = (
    OrderStatus.UNPAID,
    OrderStatus.PAID,
    OrderStatus.USED,
    OrderStatus.REFUNDING,
)
"""The states that hold a unit of the stock."""

TOLD_STATUSES = (
    OrderStatus.PAID,
    OrderStatus.USED,
    OrderStatus.CANCELLED,
    OrderStatus.EXPIRED,
    OrderStatus.REFUNDED,
)
"""The states that webhooks may tell (``api/webhooks/``)."""

# Note [Units of a buyer]
# ~~~~~~~~~~~~~~~~~~~~~~~
# A buyer's orders of a sale are numbered: unit 1 to the limit. The numbers enforce that limit:
#
# - the ledger gives out the lowest free number, or refuses: ``lua/include/check_buyer.lua`` when a
#   buyer orders or joins the waiting list, ``lua/include/give_units.lua`` when its turn comes;
# - the worker and the retry by staff refuse a number that is taken (``orders/fulfilment/batch.py``,
#   ``retry.py``);
# - the database allows one live order per number (``order_one_live_per_buyer_unit``).
#
# A limit can only rise (``catalogue/sales.py``), so no number is ever above it.

# Note [Ended orders]
# ~~~~~~~~~~~~~~~~~~~
# A sale may forbid buying again (``rebuy`` is false). An ended order then bars its buyer from
# another one of that sale, so nobody keeps units from others by taking them again and again without
# paying. Cancelled, expired and refunded orders bar: their buyers had a unit. A refused order does
# not: its buyer never had one. The rule is applied
#
# - in the ledger, by ``lua/include/barring_order.lua``, from the hash ``barred`` that is filled by
#   ``release.lua`` (argument ``had_order``) and by a rebuild;
# - in the database, by ``orders/fulfilment/batch.py``, which has the last word;
# - on the purchase page, by ``orders/receipts/purchase_page.py``.
BARRING_STATUSES = (OrderStatus.CANCELLED, OrderStatus.EXPIRED, OrderStatus.REFUNDED)
"""The ended states that bar another order of the sale (Note [Ended orders])."""


class RefusalReason(models.TextChoices):
    """The reason why an accepted order id was refused."""

    ALREADY_ORDERED = "already_ordered", _("the buyer already has an order in this sale")
    SOLD_OUT = "sold_out", _("no vouchers were left")
    INACTIVE_BUYER = "inactive_buyer", _("the buyer's account is closed")
    CODE_USED = "code_used", _("the buyer's invitation code was used for another order")
    NOT_FIRST_ORDER = "not_first_order", _("the buyer has another order")
    FAILED = "failed", _("the order could not be written")
    LOST = "lost", _("the order was lost before it was written")


class VoucherOrder(models.Model):
    """One unit of a sale for one buyer, or the record of why there was none.

    ``live`` is true while the order holds a unit and null afterwards. Null never equals null, so
    the unique key over it allows an order after a cancelled or refused one, also on databases
    without partial indexes. ``extended_at`` is when the buyer took more time to pay. ``position``
    is that in the chain of the sale, from 1 (``vouchers/chain.py``).
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
        verbose_name=_("sale"),
    )
    unit = models.PositiveSmallIntegerField(_("voucher number"))
    status = models.CharField(_("status"), max_length=16, choices=OrderStatus)
    live = models.BooleanField(_("live"), null=True, default=True, editable=False)
    reason = models.CharField(_("reason"), max_length=32, blank=True, choices=RefusalReason)
    price_cents = models.PositiveIntegerField(_("price in cents"))
    pay_by = models.DateTimeField(_("payment due"), null=True, blank=True)
    extended_at = models.DateTimeField(null=True, editable=False)
    code = models.CharField(
        _("voucher code"),
        max_length=CODE_LENGTH,
        null=True,
        blank=True,
        unique=True,
    )
    accepted_at = models.DateTimeField(_("accepted at"))
    created_at = models.DateTimeField(_("written at"), auto_now_add=True)
    position = models.PositiveIntegerField(null=True, editable=False)

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
                # A check passes on null, and null AND true is null: so "not null" is spelled out.
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
            models.Index(
                fields=("seckill_voucher", "live", "status"), name="order_by_sale_live_status"
            ),
            models.Index(fields=("status", "pay_by"), name="order_by_status_pay_by"),
            models.Index(fields=("accepted_at",), name="order_by_accepted_at"),
            models.Index(fields=("status", "id"), name="order_by_status_id"),
            models.Index(fields=("reason", "id"), name="order_by_reason_id"),
            models.Index(fields=("seckill_voucher", "id"), name="order_by_sale_id"),
        ]
        permissions = [
            ("redeem_voucherorder", _("Can redeem vouchers")),
            ("end_voucherorder", _("Can cancel and refund orders")),
            ("export_voucherorder", _("Can export orders")),
            ("see_customers", _("Can see customers with their contacts, orders and attempts")),
        ]

    def __str__(self) -> str:
        return str(self.pk)


class ActorKind(models.TextChoices):
    """The kind of actor that changes an order."""

    BUYER = "buyer", _("buyer")
    STAFF = "staff", _("staff")
    PROVIDER = "provider", _("payment provider")
    SYSTEM = "system", _("system")


class EventCode(models.TextChoices):
    """Why the system changed an order, and the sentence about it, in the reader's language."""

    RETRIED = "retried", _("retried")
    EXTENDED = "extended", _("The buyer has taken more time to pay.")
    LAPSED = "lapsed", _("The voucher was not used by its last day.")
    LATE_PAYMENT = "late_payment", _("The payment arrived too late and is being refunded.")
    WRONG_AMOUNT = (
        "wrong_amount",
        _("The payment was not the price of this order and is being refunded."),
    )


PROGRAM = "API "
"""Begins the reason of what a program did; the first characters of its token follow."""


UNUSED = "unused"
"""The name of an undone use in mails and webhooks: its order is paid again, and nobody paid."""


class OrderEvent(models.Model):
    """One change of an order's state: when, by whom and why. Rows are only ever added.

    What the system says is a ``code`` with its ``values``; what a person typed is the ``reason``,
    as are the sentences of rows from before there were codes. ``text`` has either. ``notified_at``
    is when the buyer was notified, or was found to have no address. ``notify_at`` is when to try
    again, if the mail server did not accept the mail. ``webhooks_due`` is true
    until the deliveries to webhooks are planned, and null for changes that no webhook tells.
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
    code = models.CharField(
        _("code"), max_length=32, blank=True, default="", db_default="", choices=EventCode
    )
    values = models.JSONField(_("values"), null=True)
    notified_at = models.DateTimeField(_("notified at"), null=True)
    notify_at = models.DateTimeField(_("notify again at"), null=True)
    webhooks_due = models.BooleanField(null=True, editable=False)

    class Meta:
        verbose_name = _("order change")
        verbose_name_plural = _("order changes")
        ordering = ("pk",)
        indexes = [
            models.Index(fields=("notified_at", "id"), name="event_by_notified"),
            models.Index(fields=("after", "at"), name="event_by_after_at"),
            models.Index(fields=("webhooks_due", "id"), name="event_by_webhooks_due"),
        ]

    def __str__(self) -> str:
        return f"{self.order_id}: {self.before or '–'} → {self.after}"

    @classmethod
    def to_tell(cls, *, now: dt.datetime) -> QuerySet["OrderEvent"]:
        """Return the changes whose mails are due."""
        return cls.objects.filter(Q(notify_at=None) | Q(notify_at__lte=now), notified_at=None)

    @property
    def text(self) -> str:
        """The reason in the reader's language, or an empty string; programs are nobody's reason."""
        if self.code in EventCode.values:
            return str(EventCode(self.code).label) % (self.values or {})
        if self.reason.startswith(PROGRAM):
            return ""
        return gettext(self.reason) or self.code


class WaitingEntry(models.Model):
    """A buyer in the waiting list of a sale, under the order id that an offer will have.

    ``live`` is true while the buyer waits and null afterwards, so a buyer may join again. For a
    ``quantity`` above one, ``order_id`` is the first of as many blocks: Note [Several units in
    line] in ``vouchers/inventory/waiting_list.py``.
    """

    class Outcome(models.TextChoices):
        """The outcome of waiting."""

        OFFERED = "offered", _("offered")
        LEFT = "left", pgettext_lazy("waiting list", "left")
        OVER = "over", _("the sale ended")

    seckill_voucher = models.ForeignKey(
        SeckillVoucher,
        on_delete=models.CASCADE,
        related_name="waiting_entries",
        verbose_name=_("sale"),
    )
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        on_delete=models.CASCADE,
        related_name="waiting_entries",
        verbose_name=_("buyer"),
    )
    order_id = models.BigIntegerField(_("order id"), unique=True)
    joined_at = models.DateTimeField(_("joined at"))
    price_cents = models.PositiveIntegerField(
        _("price when joining, in cents"), null=True, editable=False
    )
    quantity = models.PositiveSmallIntegerField(_("quantity"), default=1, db_default=1)
    all_or_none = models.BooleanField(_("all or none"), default=False, db_default=False)
    live = models.BooleanField(_("waiting"), null=True, default=True)
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

    @classmethod
    def of_order(cls, order_id: Any) -> QuerySet[Self]:
        """Return the entry from which this order came, if any; the id may be a query's column."""
        lowest = order_id - (MAX_LIMIT * BLOCK_SIZE)
        near = cls.objects.filter(order_id__gt=lowest, order_id__lte=order_id)
        # By itself the sum would be compared as a small integer, which no id is below.
        past = ExpressionWrapper(
            F("order_id") + F("quantity") * BLOCK_SIZE, output_field=models.BigIntegerField()
        )
        is_of_several = Q(GreaterThan(past, order_id), quantity__gt=1)
        return near.filter(Q(order_id=order_id) | is_of_several)
