"""The rules of a sale in rows: its codes, what orders have used up, and the buyers it refused.

What two tokens of a buyer could both pass is decided again where their orders are written, by the
unique keys of :class:`CodeUse` and :class:`FirstOrder`. Neither has a foreign key to the order:
its row is written after them, in the same transaction.
"""

from django.conf import settings
from django.db import models
from django.utils.translation import gettext_lazy as _
from django.utils.translation import pgettext_lazy

from vouchers.catalogue.audience import RULES
from vouchers.models import SeckillVoucher

INVITATION_LENGTH = (6, 32)
"""The shortest and the longest invitation code."""


class InvitationCode(models.Model):
    """A code that allows one unit of a sale; it belongs to the account that entered it first."""

    seckill_voucher = models.ForeignKey(
        SeckillVoucher,
        on_delete=models.CASCADE,
        related_name="invitation_codes",
        verbose_name=_("sale"),
    )
    code = models.CharField(_("invitation code"), max_length=INVITATION_LENGTH[1])
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        on_delete=models.SET_NULL,
        related_name="invitation_codes",
        verbose_name=_("entered by"),
        null=True,
    )
    entered_at = models.DateTimeField(pgettext_lazy("a code", "entered at"), null=True)
    created_at = models.DateTimeField(_("created"), auto_now_add=True)

    class Meta:
        verbose_name = _("invitation code")
        verbose_name_plural = _("invitation codes")
        ordering = ("pk",)
        # Not "view": a read-only role must not see a code that somebody could still use.
        default_permissions = ()
        permissions = [("issue_invitationcode", _("Can issue, see and delete invitation codes"))]
        constraints = [
            models.UniqueConstraint(
                name="invitation_code_once_per_sale", fields=("seckill_voucher", "code")
            ),
        ]
        indexes = [models.Index(name="invitation_by_code", fields=("code",))]

    def __str__(self) -> str:
        return self.code


class CodeUse(models.Model):
    """An order that has used a code; deleted if the order ends and its buyer may buy again."""

    code = models.ForeignKey(InvitationCode, on_delete=models.PROTECT, related_name="uses")
    order_id = models.BigIntegerField()

    class Meta:
        default_permissions = ()
        verbose_name = _("use of an invitation code")
        verbose_name_plural = _("uses of invitation codes")
        constraints = [
            models.UniqueConstraint(name="code_used_once", fields=("code",)),
            models.UniqueConstraint(name="code_use_per_order", fields=("order_id",)),
        ]

    def __str__(self) -> str:
        return f"{self.code_id} {self.order_id}"


class FirstOrder(models.Model):
    """A buyer's order of a sale for first orders only; deleted when the order ends."""

    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+")
    order_id = models.BigIntegerField()

    class Meta:
        default_permissions = ()
        verbose_name = _("first order")
        verbose_name_plural = _("first orders")
        constraints = [
            models.UniqueConstraint(name="first_order_once_per_buyer", fields=("user",)),
            models.UniqueConstraint(name="first_order_per_order", fields=("order_id",)),
        ]

    def __str__(self) -> str:
        return f"{self.user_id} {self.order_id}"


class RuleRefusal(models.Model):
    """A buyer whom a rule has refused a purchase token of a sale, once or more often.

    ``refused_at`` is the first time; null in rows of the release before.
    """

    seckill_voucher = models.ForeignKey(
        SeckillVoucher, on_delete=models.CASCADE, related_name="rule_refusals"
    )
    rule = models.CharField(max_length=16, choices=[(it.name, it.label) for it in RULES.values()])
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+")
    refused_at = models.DateTimeField(null=True)

    class Meta:
        default_permissions = ()
        verbose_name = _("refusal by a rule")
        verbose_name_plural = _("refusals by rules")
        constraints = [
            models.UniqueConstraint(
                name="rule_refusal_once", fields=("seckill_voucher", "rule", "user")
            ),
        ]

    def __str__(self) -> str:
        return f"{self.seckill_voucher_id} {self.rule} {self.user_id}"


class OrderRefusal(models.Model):
    """A buyer whose order requests in a sale were refused: the answer's code, and the first time.

    ``orders/audience/refusal_log.py`` writes the rows of a crowd, without asking for its accounts.
    A sale is deleted without them: a page that lists what goes would list them all.
    """

    seckill_voucher = models.ForeignKey(
        SeckillVoucher,
        on_delete=models.DO_NOTHING,
        related_name="order_refusals",
        db_constraint=False,
        db_index=False,  # the unique key begins with it
    )
    reason = models.CharField(max_length=32)
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+", db_constraint=False
    )
    refused_at = models.DateTimeField()

    class Meta:
        default_permissions = ()
        permissions = [  # what support may do with a customer, beside looking at refusals
            ("export_customer", _("Can export what is stored about a customer")),
            ("delete_customer", _("Can delete a customer's data")),
            ("resend_voucher", _("Can send a customer's voucher again")),
        ]
        verbose_name = _("refused attempt")
        verbose_name_plural = _("refused attempts")
        constraints = [
            models.UniqueConstraint(
                name="order_refusal_once", fields=("seckill_voucher", "reason", "user")
            ),
        ]

    def __str__(self) -> str:
        return f"{self.seckill_voucher_id} {self.reason} {self.user_id}"
