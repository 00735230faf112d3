"""The authentication backend: allauth's, as the last word."""

from __future__ import annotations

from typing import Any

from allauth.account.auth_backends import AuthenticationBackend
from django.contrib.auth.models import User
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest


class AccountBackend(AuthenticationBackend):  # type: ignore[misc]
    """allauth's backend; after its refusal no other hashes the password again.

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
