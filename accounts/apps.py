"""Accounts as an app."""

from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _


class AccountsConfig(AppConfig):
    """Who buys and who works here: sign-up, sign-in, contacts, sessions."""

    name = "accounts"
    verbose_name = _("accounts")
