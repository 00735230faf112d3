"""The end of an account: its rows stay for the orders, and nothing in them names anybody."""

from __future__ import annotations

from allauth.account.models import EmailAddress
from allauth.mfa.models import Authenticator
from django.contrib.auth.models import User
from django.db import transaction

from accounts.invitations import invitations_of
from accounts.models import Phone, Reader
from accounts.sessions import end_all_sessions


def anonymise(user: User) -> None:
    """Remove all that names the owner of an account, close it, and end its sessions."""
    with transaction.atomic():
        invitations_of(user).delete()
        for model in (EmailAddress, Phone, Reader, Authenticator):
            model.objects.filter(user=user).delete()
        user.username = f"deleted:{user.pk}"  # nobody can sign up with a colon
        user.first_name = user.last_name = user.email = ""
        user.is_active = user.is_staff = user.is_superuser = False
        user.last_login = None
        user.set_unusable_password()
        user.save()
        user.groups.clear()
        user.user_permissions.clear()
    end_all_sessions(user)
