"""Six-digit codes that are sent to a phone or address."""

from typing import Any
from unicodedata import normalize

from allauth.account.adapter import get_adapter
from allauth.account.authentication import get_authentication_records
from allauth.core import context as core
from allauth.core import ratelimit
from django.conf import settings
from django.contrib.auth.models import User
from django.core.exceptions import ValidationError
from django.http import HttpRequest
from django.utils.translation import gettext, gettext_lazy

from accounts.contacts import confirmed_contact
from accounts.mails import has_mail_server
from seckill_site.clocks.database import database_now

PROOF_S = 600
"""How long after a sign-in by a code the password may be changed without the old one."""

CODE_INPUT = {"inputmode": "numeric", "placeholder": "", "autofocus": True}


def ways_of_codes() -> list[str]:
    """Return what this shop can send codes to, the quickest first; a console sends nothing."""
    texts = settings.SECKILL_SMS_BACKEND != "accounts.phones.ConsoleBackend"
    return ["phone"] * texts + ["email"] * has_mail_server()


def has_just_entered(request: HttpRequest) -> bool:
    """Return whether a code was the proof at a sign-in a moment ago."""
    since = database_now().timestamp() - PROOF_S
    records = get_authentication_records(request, request.user)
    return any(it["method"] == "code" and it["at"] > since for it in records)


class SentCodeForm:
    """A form of allauth for a code; the wrong ones of an account are counted by the day.

    Where it does not know its user, it is given the id, or the address that no account has.
    """

    def __init__(self, *args: Any, account: object = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        user = getattr(self, "user", None)
        self._account = str(user.pk if user else account)
        code = self.fields["code"]  # type: ignore[attr-defined]
        code.label = gettext_lazy("Six-digit code")
        code.widget.attrs |= CODE_INPUT

    def clean_code(self) -> str:
        """Return the code, unless too many were wrong today."""
        typed = self.cleaned_data["code"]  # type: ignore[has-type]
        self.cleaned_data = {"code": normalize("NFKC", typed)}  # as keyboards of China write it
        # Counted as wrong before it is compared: many at once must not all be the tenth.
        count = ratelimit._impl.consume(
            core.request, app="allauth.account", action="wrong_codes", key=self._account
        )
        if not count:
            text = gettext("Too many wrong codes today. Use another way, or try again tomorrow.")
            raise ValidationError(text)
        code = str(super().clean_code())  # type: ignore[misc]
        count.rollback()
        return code


# --- Codes that confirm one thing in one session --------------------------------------------------


def code_contact(user: User) -> tuple[str, str]:
    """Return the way in which this account gets codes, and where to; both empty if in none."""
    contact = confirmed_contact(user)
    found = {"phone": contact.phone, "email": contact.email}
    ways = [*ways_of_codes(), "email", "phone"]
    return next(((it, found[it]) for it in ways if found[it]), ("", ""))


def send_code(request: HttpRequest, user: User, *, purpose: str, text: str = "") -> None:
    """Send a code for a purpose: a mail of that name, or a text message, which may have words.

    :raises RateLimited: this is one too many.
    """
    adapter, (way, address) = get_adapter(), code_contact(user)
    if not way:
        return
    code = adapter.generate_login_code()
    if way == "phone":
        adapter.send_verification_code_sms(user, address, code, text=text)
    else:
        ratelimit.consume(request, action="code_of_client", key=address, raise_exception=True)
        adapter.send_mail(f"account/email/{purpose}_code", address, {"code": code})
    # A code that was not sent must not take the place of one that was.
    request.session[f"{purpose}_code"] = (code, database_now().timestamp())


def sent_code(request: HttpRequest, *, purpose: str) -> str:
    """Return the code that was sent for a purpose, while it is valid."""
    code, sent_at = request.session.get(f"{purpose}_code", ("", 0))
    age_s = database_now().timestamp() - sent_at
    return code if age_s < settings.ACCOUNT_LOGIN_BY_CODE_TIMEOUT else ""
