"""The forms of accounts that differ from allauth's."""

from __future__ import annotations

from typing import Any

from allauth.account import forms
from django.contrib.auth.models import User
from django.core.validators import MaxLengthValidator
from django.db import IntegrityError, transaction
from django.http import HttpRequest, HttpResponse, QueryDict
from django.utils.translation import gettext, gettext_lazy

from accounts.usernames import as_username

LONGEST_LOGIN = 254


class LoginForm(forms.LoginForm):  # type: ignore[misc]
    """allauth's form; its field keeps the name that clients know, and bounds what they send."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Take what is sent as ``login`` for the username."""
        super().__init__(*args, **kwargs)
        sent: QueryDict | dict[str, Any] = self.data
        if "login" in sent and "username" not in sent:
            self.data: Any = {**sent.dict(), "username": sent["login"]}  # type: ignore[union-attr]
        login = self.fields["login"]
        login.label = gettext_lazy("Username")
        login.widget.attrs |= {"autocomplete": "username", "autofocus": True, "placeholder": ""}
        login.validators.append(MaxLengthValidator(LONGEST_LOGIN))

    def add_prefix(self, field_name: str) -> str:
        """Return the name of a field in HTML."""
        return "username" if field_name == "login" else field_name

    def clean_login(self) -> str:
        """Return the login as names are stored."""
        return as_username(self.cleaned_data["login"])


class SignUpForm(forms.SignupForm):  # type: ignore[misc]
    """allauth's form, with a name that somebody else may just have taken."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        email = self.fields["email"]
        email.label = gettext_lazy("Email address (optional)")
        email.help_text = gettext_lazy("We only email you about your orders.")
        for field in self.fields.values():
            field.widget.attrs.pop("placeholder", None)

    def try_save(self, request: HttpRequest) -> tuple[User | None, HttpResponse | None]:
        """Return the new account, or a page that says why there is none."""
        try:
            with transaction.atomic():
                return super().try_save(request)  # type: ignore[no-any-return]
        except IntegrityError:
            self.add_error("username", gettext("This username has just been taken."))
            return None, None
