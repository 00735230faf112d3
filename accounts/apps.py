"""Accounts as an app."""

from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _


class AccountsConfig(AppConfig):
    """Accounts of buyers and staff: sign-up, sign-in, contacts, sessions."""

    name = "accounts"
    verbose_name = _("accounts")

    def ready(self) -> None:
        """Listen to what happens to accounts."""
        from django.contrib.auth.signals import user_logged_in

        from accounts.contacts import on_language_chosen  # models exist from now on
        from accounts.sessions import limit_staff_session
        from seckill_site.web.language import language_chosen

        language_chosen.connect(on_language_chosen)
        user_logged_in.connect(limit_staff_session)
