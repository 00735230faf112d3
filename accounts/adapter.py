"""What allauth asks the shop: names, addresses, and how a refusal looks."""

import logging
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

from allauth.account import app_settings
from allauth.account.adapter import DefaultAccountAdapter
from allauth.account.models import EmailAddress, EmailConfirmation
from allauth.core import context as core
from allauth.core import ratelimit
from allauth.core.exceptions import ImmediateHttpResponse
from django.contrib.auth.models import User
from django.core.exceptions import ValidationError
from django.core.validators import MaxLengthValidator
from django.db import IntegrityError, transaction
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.translation import get_language, gettext

from accounts.backends import find_account
from accounts.contacts import remember_language
from accounts.mails import MailNotSent, may_be_sent, send_mail
from accounts.models import Phone
from accounts.phones import PhoneNumberField, as_phone, send_text
from accounts.usernames import as_username, made_up_name, username_is_taken
from accounts.way_back import way_back, with_way_back
from seckill_site.face.site_face import shop_name, site_face
from seckill_site.web.clients import client_ip, client_network
from seckill_site.web.errors import login_locked
from seckill_site.web.redirects import is_same_site
from seckill_site.web.responses import absolute_url, problem

logger = logging.getLogger(__name__)

SITE = {"name": shop_name, "domain": ""}

UNKNOWN_ADDRESS = "0.0.0.0"
"""Stands for the address of a client of whom no address is known."""


def count_text(phone: str, *, dry_run: bool = False) -> None:
    """Count a text to a phone, or see whether one more may be sent.

    :raises RateLimited: this is one too many.
    """
    keys = {}
    if client := client_network(core.request.META):  # else a unix socket: everybody's count
        keys = {"texts_to_phone_of_client": f"{client}:{phone}", "texts_of_client": client}
    keys["texts_to_phone"] = phone  # the last: who may send no more must not use it up
    for action, key in keys.items():
        ratelimit.consume(
            core.request, action=action, key=key, dry_run=dry_run, raise_exception=True
        )


class AccountAdapter(DefaultAccountAdapter):  # type: ignore[misc]
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

    def populate_username(self, request: HttpRequest, user: User) -> None:
        """Give an account without a name one that says nothing of its owner."""
        if not user.username:
            user.username = made_up_name()

    def clean_email(self, email: str) -> str:
        """Return the address.

        :raises django.core.exceptions.ValidationError: it is too long to be stored.
        """
        MaxLengthValidator(app_settings.EMAIL_MAX_LENGTH)(email)
        return email

    def is_safe_url(self, url: str | None) -> bool:
        """Return whether a redirect may go there: to this site only."""
        return is_same_site(url, core.request)

    def get_client_ip(self, request: HttpRequest) -> str:
        """Return the client's address; trusted proxies were asked for it by the server."""
        return client_ip(request.META) or UNKNOWN_ADDRESS

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
        """Count an account's failures by address: nobody can lock somebody else out.

        Each of an account's names, in any spelling, is a way to the same password.
        """
        address = client_network(request.META) or UNKNOWN_ADDRESS
        if account := find_account(**credentials):
            return f"{address}:account {account.pk}"
        phone = as_phone(credentials.get("phone") or "")
        name = credentials.get("email") or phone or credentials.get("username") or ""
        return f"{address}:{as_username(name).lower()}"

    def reauthenticate(self, user: User, password: str) -> bool:
        """Return whether this is the account's password; failures count as those of a sign-in."""
        owner = self.authenticate(core.request, username=user.username, password=password)
        return owner is not None and owner.pk == user.pk

    # --- Mails ------------------------------------------------------------------------------------

    def get_reset_password_from_key_url(self, key: str) -> str:
        """Return the link of a reset on the site's own address, whatever host was asked."""
        path = urlsplit(super().get_reset_password_from_key_url(key)).path
        return with_way_back(absolute_url(path), core.request)

    def get_email_confirmation_url(
        self, request: HttpRequest, emailconfirmation: EmailConfirmation
    ) -> str:
        """Return the link that confirms an address, on the site's own address."""
        path = urlsplit(super().get_email_confirmation_url(request, emailconfirmation)).path
        return with_way_back(absolute_url(path), request)

    def get_from_email(self) -> str:
        return site_face().mail_from

    def send_mail(self, template_prefix: str, email: str, context: dict[str, Any]) -> None:
        """Send a mail if this address may get it.

        A mail that is not sent fails nothing: what it tells of is done already, an owner can ask
        for another, and the answer must not show whether this address has an account.
        """
        if not may_be_sent(template_prefix, email):
            return
        context = {"request": core.request, "email": email, "current_site": SITE, **context}
        with suppress(MailNotSent):
            send_mail(email, lambda: self.render_mail(template_prefix, email, context))

    # --- Phones -----------------------------------------------------------------------------------

    def phone_form_field(self, **kwargs: Any) -> PhoneNumberField:
        return PhoneNumberField(**kwargs)

    def set_phone(self, user: User, phone: str, verified: bool) -> None:
        """Store a confirmed number; keep another for the rest of this request."""
        if verified:
            self.set_phone_verified(user, phone)
        else:
            user.unconfirmed_phone = phone  # type: ignore[attr-defined]

    def set_phone_verified(self, user: User, phone: str) -> None:
        """Store a number that was confirmed by a code.

        :raises ImmediateHttpResponse: another account has just confirmed it.
        """
        try:
            with transaction.atomic():
                Phone.objects.update_or_create(user=user, defaults={"number": phone})
        except IntegrityError as error:
            message = str(self.error_messages["phone_taken"])
            refusal = problem(core.request, status=409, code="wrong_state", message=message)
            raise ImmediateHttpResponse(refusal) from error

    def get_phone(self, user: User) -> tuple[str, bool] | None:
        """Return the number of an account and whether it is confirmed."""
        unconfirmed = getattr(user, "unconfirmed_phone", None)
        number = Phone.objects.filter(user=user).values_list("number", flat=True).first()
        if unconfirmed and unconfirmed != number:
            return unconfirmed, False
        return (number, True) if number else None

    def get_user_by_phone(self, phone: str) -> User | None:
        """Return the account that confirmed this number."""
        return User.objects.filter(phone__number=as_phone(phone), is_active=True).first()

    def send_verification_code_sms(self, user: User, phone: str, code: str, **kwargs: Any) -> None:
        """Send a code to a phone.

        While it cannot be sent, the answer is the same: it must not show who has an account.

        :raises RateLimited: this is one too many.
        """
        count_text(phone)
        text = kwargs.get("text") or gettext("%(code)s is your code. Do not share it with anyone.")
        try:
            send_text(phone, text % {"code": code})
        except OSError as error:
            logger.warning("a code was not sent to a phone: %r", error)

    def send_unknown_account_sms(self, phone: str, **kwargs: Any) -> None:
        """Send nothing, but count it: the limits must not show who has an account.

        :raises RateLimited: this is one too many.
        """
        count_text(phone)

    # --- Signing in -------------------------------------------------------------------------------

    def post_login(self, request: HttpRequest, user: User, **kwargs: Any) -> HttpResponse:
        """Remember the language of who has signed in; staff goes to the back office."""
        remember_language(user, get_language() or "")
        response: HttpResponse = super().post_login(request, user, **kwargs)
        if user.is_staff and response.headers.get("Location") == reverse("voucher-list"):
            # They came to work, and asked for no other page.
            response["Location"] = reverse("admin:index")
        return response

    # --- Where it leads ---------------------------------------------------------------------------

    def get_login_redirect_url(self, request: HttpRequest) -> str:
        return way_back(request) or str(super().get_login_redirect_url(request))

    def get_signup_redirect_url(self, request: HttpRequest) -> str:
        return way_back(request) or str(super().get_signup_redirect_url(request))

    def get_password_change_redirect_url(self, request: HttpRequest) -> str:
        return way_back(request) or reverse("profile")

    def get_email_verification_redirect_url(self, email_address: EmailAddress) -> str:
        """Return where the link of a mail leads: its reader may not be signed in here."""
        home = "profile" if core.request.user.is_authenticated else "login"
        return way_back(core.request) or reverse(home)
