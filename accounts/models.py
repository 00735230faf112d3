"""What the shop knows of an account beside Django's user and allauth's addresses."""

from django.conf import settings
from django.db import models
from django.utils.translation import gettext_lazy as _


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
