"""What allauth asks the shop: names, addresses, and how a refusal looks."""

from __future__ import annotations

from typing import Any

from allauth.account import app_settings
from allauth.account.adapter import DefaultAccountAdapter
from allauth.core import context
from allauth.core.exceptions import ImmediateHttpResponse
from django.contrib.auth.models import User
from django.core.exceptions import ValidationError
from django.core.validators import MaxLengthValidator
from django.http import HttpRequest

from accounts.usernames import as_username, username_is_taken
from seckill_site.web.errors import login_locked
from seckill_site.web.redirects import is_of_this_site

UNKNOWN_ADDRESS = "0.0.0.0"
"""Stands for the address of a client behind a unix socket without a trusted proxy."""


class AccountAdapter(DefaultAccountAdapter):  # type: ignore[misc]
    """The account adapter of the shop."""

    def clean_username(self, username: str, shallow: bool = False) -> str:
        """Return the name as it is stored.

        :raises django.core.exceptions.ValidationError: it is malformed or taken.
        """
        username = as_username(username)
        for validator in app_settings.USERNAME_VALIDATORS:
            validator(username)
        if not shallow and username_is_taken(username):
            raise self.validation_error("username_taken")
        return username

    def clean_email(self, email: str) -> str:
        """Return the address.

        :raises django.core.exceptions.ValidationError: it is too long to be stored.
        """
        MaxLengthValidator(app_settings.EMAIL_MAX_LENGTH)(email)
        return email

    def is_safe_url(self, url: str | None) -> bool:
        """Return whether a redirect may go there: to this site only."""
        return is_of_this_site(url, context.request)

    def get_client_ip(self, request: HttpRequest) -> str:
        """Return the client's address; trusted proxies were asked for it by the server."""
        return request.META.get("REMOTE_ADDR") or UNKNOWN_ADDRESS

    def pre_authenticate(self, request: HttpRequest, **credentials: Any) -> None:
        """Refuse after too many failures, before a password is hashed.

        :raises ImmediateHttpResponse: too many attempts failed.
        """
        try:
            super().pre_authenticate(request, **credentials)
        except ValidationError as error:
            raise ImmediateHttpResponse(login_locked(request)) from error

    def authenticate(self, request: HttpRequest, **credentials: Any) -> User | None:
        """Return the account with these credentials, whose failures are then forgotten."""
        user: User | None = super().authenticate(request, **credentials)
        if user:
            self._delete_login_attempts_cached_email(request, **credentials)
        return user

    def _get_login_attempts_cache_key(self, request: HttpRequest, **credentials: Any) -> str:
        """Count the failures of a name by address: nobody can lock somebody else out."""
        names = [credentials.get(it) for it in ("email", "phone", "username")]
        name = next((it for it in names if it), "")
        return f"{self.get_client_ip(request)}:{as_username(name).lower()}"
