"""What the shop knows of an account beside Django's user and allauth's addresses."""

from django.conf import settings
from django.db import models
from django.utils.translation import gettext_lazy as _
from django.utils.translation import pgettext_lazy

from seckill_site.clocks.database import database_now


class Phone(models.Model):
    """A confirmed phone number. One that nobody confirmed yet is in a session only."""

    user = models.OneToOneField(
        settings.AUTH_USER_MODEL,
        on_delete=models.CASCADE,
        primary_key=True,
        related_name="phone",
        verbose_name=_("user"),
    )
    number = models.CharField(_("phone number"), max_length=16)

    class Meta:
        default_permissions = ()
        verbose_name = _("phone number")
        verbose_name_plural = _("phone numbers")
        constraints = [models.UniqueConstraint(name="phone_of_one_account", fields=("number",))]

    def __str__(self) -> str:
        return self.number


class Reader(models.Model):
    """The language in which an account last read the site: that of its mails."""

    user = models.OneToOneField(
        settings.AUTH_USER_MODEL,
        on_delete=models.CASCADE,
        primary_key=True,
        related_name="reader",
        verbose_name=_("user"),
    )
    language = models.CharField(_("language"), max_length=10)

    class Meta:
        default_permissions = ()
        verbose_name = _("reader")
        verbose_name_plural = _("readers")

    def __str__(self) -> str:
        return self.language


class Agreement(models.Model):
    """What the owner of an account agreed to at the sign-up; it stays, as the orders do."""

    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+")
    version = models.CharField(max_length=500)
    agreed_at = models.DateTimeField(default=database_now)

    class Meta:
        default_permissions = ()

    def __str__(self) -> str:
        return self.version


class Invitation(models.Model):
    """An invitation of staff: whoever holds the mailed link gets the role, once, within days."""

    name = models.CharField(
        pgettext_lazy("person", "name"),
        max_length=150,
        blank=True,
        default="",
        db_default="",
        help_text=_("As colleagues know them."),
    )
    email = models.EmailField(_("email address"), max_length=254)
    role = models.ForeignKey(
        "auth.Group", on_delete=models.CASCADE, related_name="+", verbose_name=_("role")
    )
    invited_by = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        on_delete=models.SET_NULL,
        related_name="+",
        null=True,
        editable=False,
        verbose_name=_("invited by"),
    )
    invited_at = models.DateTimeField(_("invited at"), default=database_now, editable=False)
    mailed_at = models.DateTimeField(_("mailed at"), null=True, editable=False)
    accepted_by = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        on_delete=models.SET_NULL,
        related_name="+",
        null=True,
        editable=False,
        verbose_name=_("accepted by"),
    )
    accepted_at = models.DateTimeField(
        pgettext_lazy("an invitation", "accepted at"), null=True, editable=False
    )

    class Meta:
        verbose_name = _("staff invitation")
        verbose_name_plural = _("staff invitations")
        ordering = ("-pk",)

    def __str__(self) -> str:
        return self.email
