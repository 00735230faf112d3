"""Settlement: the providers' lists of money, and where they differ from our payments."""

from django.db import models
from django.utils.translation import gettext_lazy as _


class MoneyDirection(models.TextChoices):
    """Money that came in, or went back."""

    PAYMENT = "payment", _("payment")
    REFUND = "refund", _("refund")


class ProviderLine(models.Model):
    """The money that a provider lists for one charge on one day, as its own list says."""

    provider = models.CharField(max_length=32)
    day = models.DateField()
    direction = models.CharField(max_length=8, choices=MoneyDirection)
    reference = models.CharField(max_length=64)
    amount_cents = models.BigIntegerField()
    currency = models.CharField(max_length=3)

    class Meta:
        verbose_name = _("provider's line")
        verbose_name_plural = _("provider's lines")
        constraints = [
            models.UniqueConstraint(
                fields=("provider", "reference", "direction", "day"), name="provider_line_unique"
            )
        ]
        indexes = [models.Index(fields=("provider", "day"), name="provider_line_by_day")]

    def __str__(self) -> str:
        return f"{self.provider} {self.day} {self.reference}"


class SettlementRun(models.Model):
    """A day of a provider that was compared."""

    provider = models.CharField(_("provider"), max_length=32)
    day = models.DateField(_("day"))
    done_at = models.DateTimeField(_("compared at"))

    class Meta:
        verbose_name = _("settlement")
        verbose_name_plural = _("settlements")
        constraints = [
            models.UniqueConstraint(fields=("provider", "day"), name="settlement_once_a_day")
        ]

    def __str__(self) -> str:
        return f"{self.provider} {self.day}"


class SettlementDifference(models.Model):
    """A difference between a provider's list and our payments, until neither shows it any more."""

    class Kind(models.TextChoices):
        MISSING_HERE = "missing_here", _("the provider lists it, we do not")
        MISSING_THERE = "missing_there", _("we have it, the provider does not list it")
        AMOUNT = "amount", _("the amounts differ")

    provider = models.CharField(_("provider"), max_length=32)
    day = models.DateField(_("day"))
    direction = models.CharField(_("money"), max_length=8, choices=MoneyDirection)
    kind = models.CharField(_("difference"), max_length=16, choices=Kind)
    reference = models.CharField(_("reference"), max_length=64)
    payment = models.ForeignKey(
        "orders.Payment",
        on_delete=models.SET_NULL,
        null=True,
        related_name="+",
        verbose_name=_("payment"),
    )
    our_cents = models.BigIntegerField(_("our amount"), null=True)
    their_cents = models.BigIntegerField(_("the provider's amount"), null=True)
    their_currency = models.CharField(_("currency"), max_length=3, blank=True)
    found_at = models.DateTimeField(_("found at"))
    resolved_at = models.DateTimeField(_("resolved at"), null=True)

    class Meta:
        verbose_name = _("payment difference")
        verbose_name_plural = _("payment differences")
        ordering = ("-day", "pk")
        constraints = [
            models.UniqueConstraint(
                fields=("provider", "reference", "direction", "day"), name="difference_unique"
            )
        ]
        indexes = [models.Index(fields=("resolved_at", "provider"), name="difference_open")]

    def __str__(self) -> str:
        return f"{self.provider} {self.day} {self.reference}"
