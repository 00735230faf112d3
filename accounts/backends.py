"""The authentication backend: allauth's, as the last word."""

from typing import Any

from allauth.account.adapter import get_adapter
from allauth.account.auth_backends import AuthenticationBackend
from allauth.account.models import EmailAddress
from django.contrib.auth.models import User
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest

from accounts.usernames import find_by_username


class AccountBackend(AuthenticationBackend):  # type: ignore[misc]
    """allauth's backend, which hashes a password once; after its refusal no other hashes it again.

    Django's own stays listed for the sessions that it once opened.
    """

    def authenticate(self, request: HttpRequest | None, **credentials: Any) -> User:
        """Return the account with these credentials.

        :raises PermissionDenied: no account has this name, or the account is inactive.
        """
        user: User | None = super().authenticate(request, **credentials)
        if user is None:
            raise PermissionDenied
        return user

    def _authenticate(self, request: HttpRequest | None, **credentials: Any) -> User | None:
        """Check the password of one account."""
        user = find_account(**credentials)
        owner: User | None = self._check_password(user, credentials["password"])
        return owner


def find_account(**credentials: Any) -> User | None:
    """Return the account that these name: a confirmed address or number goes before a name."""
    phone = credentials.get("phone", "")
    return (
        _owner_of_email(credentials.get("email", ""))
        or (get_adapter().get_user_by_phone(phone) if phone else None)
        or find_by_username(credentials.get("username", ""))
    )


def _owner_of_email(email: str) -> User | None:
    if not email:
        return None
    addresses = EmailAddress.objects.filter(email=email.lower(), verified=True)
    # A collation may find other letters as well.
    exact = (it.user for it in addresses.select_related("user") if it.email == email.lower())
    return next(exact, None)
