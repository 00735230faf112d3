"""The forms of accounts that differ from allauth's."""

from pathlib import Path
from typing import Any

from allauth.account import forms
from allauth.account.adapter import get_adapter
from allauth.core import context as core
from allauth.core import ratelimit
from allauth.core.exceptions import RateLimited
from allauth.mfa.base.forms import AuthenticateForm, ReauthenticateForm
from allauth.mfa.webauthn.forms import AddWebAuthnForm, EditWebAuthnForm
from django.contrib.auth.models import User
from django.core.exceptions import ValidationError
from django.core.validators import MaxLengthValidator
from django.db import IntegrityError, transaction
from django.forms import BooleanField, CharField, Form, ModelForm, PasswordInput
from django.http import HttpRequest, HttpResponse, QueryDict
from django.utils.html import format_html
from django.utils.translation import gettext, gettext_lazy
from django_redis import get_redis_connection
from redis import RedisError

from accounts.adapter import count_text
from accounts.codes import CODE_INPUT, SentCodeForm, has_just_entered, ways_of_codes
from accounts.models import Agreement
from accounts.sessions import limit_staff_session
from accounts.usernames import as_username
from seckill_site.face.site_face import site_face, terms_version
from seckill_site.web.clients import client_network
from seckill_site.web.request_rates import RATE_LIMITED_TEXT
from seckill_site.web.text_files import read_texts

LONGEST_LOGIN = 254

_TEXTS = read_texts(Path(__file__).with_name("form_texts.toml"))


class LoginForm(forms.LoginForm):  # type: ignore[misc]
    """allauth's form; its field keeps the name that clients know, and bounds what they send."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Take what is sent as ``login`` for the username."""
        super().__init__(*args, **kwargs)
        sent: QueryDict | dict[str, Any] = self.data
        if "login" in sent and "username" not in sent:
            self.data: Any = {**sent.dict(), "username": sent["login"]}  # type: ignore[union-attr]
        login = self.fields["login"]
        login.label = gettext_lazy("Username, email or phone")
        login.widget.attrs |= {"autocomplete": "username", "autofocus": True, "placeholder": ""}
        login.validators.append(MaxLengthValidator(LONGEST_LOGIN))

    def add_prefix(self, field_name: str) -> str:
        """Return the name of a field in HTML."""
        return "username" if field_name == "login" else field_name

    def clean_login(self) -> str:
        """Return the login as names are stored."""
        return as_username(self.cleaned_data["login"])

    def login(self, request: HttpRequest, redirect_url: str | None = None) -> HttpResponse:
        """Sign in; allauth makes the session a long one, also of staff."""
        response: HttpResponse = super().login(request, redirect_url)
        limit_staff_session(request, self.user)
        return response


def count_code(kind: str, name: str) -> None:
    """Count a code or link that a client asks for, whether or not an account has this name.

    Strangers must not keep an account from its codes, so a client has a count of its own for each
    name; allauth counts the name over all clients, with a higher limit.

    :raises RateLimited: this is one too many.
    """
    client = client_network(core.request.META)
    if not client:  # a unix socket: it would be everybody's count
        return
    keys = {"code_of_client": f"{client}:{kind}:{name.lower()}", "codes_of_client": client}
    for action, key in keys.items():
        ratelimit.consume(core.request, action=action, key=key, raise_exception=True)


class LoginCodeForm(forms.RequestLoginCodeForm):  # type: ignore[misc]
    """allauth's form, which counts the codes of a client."""

    def clean_email(self) -> str:
        if email := self.cleaned_data["email"]:
            count_code("request_login_code", email)
        return str(super().clean_email())

    def clean_phone(self) -> str:
        if phone := self.cleaned_data["phone"]:
            count_code("request_login_code", phone)
        return str(super().clean_phone())

    def clean(self) -> dict[str, Any]:
        """Refuse a form without either, which allauth fails on."""
        cleaned: dict[str, Any] = super().clean()
        if not self.errors and not cleaned.get("email") and not cleaned.get("phone"):
            raise ValidationError(gettext("Enter your email address or your phone number."))
        return cleaned


class ResetPasswordForm(forms.ResetPasswordForm):  # type: ignore[misc]
    """allauth's form, which counts the links of a client."""

    def clean_email(self) -> str:
        count_code("reset_password", self.cleaned_data["email"])
        return str(super().clean_email())


class ChangePhoneForm(forms.ChangePhoneForm):  # type: ignore[misc]
    """allauth's form, which counts the codes of a client."""

    def clean_phone(self) -> str:
        phone = str(super().clean_phone())
        count_code("verify_phone", phone)
        return phone


class ConfirmCodeForm(SentCodeForm, forms.ConfirmLoginCodeForm):  # type: ignore[misc]
    """The code of a sign-in, of a sign-up, or of the end of an account."""


class VerifyPhoneForm(SentCodeForm, forms.VerifyPhoneForm):  # type: ignore[misc]
    """The code of a number that an account wants to have."""


class ChangePasswordForm(forms.ChangePasswordForm):  # type: ignore[misc]
    """allauth's form, without the old password for who forgot it and signed in by a code."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if has_just_entered(core.request):
            del self.fields["oldpassword"]


class _CodeForm:
    """allauth's form, which says so if codes of an app cannot be checked without the cache."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["code"].widget.attrs |= CODE_INPUT  # type: ignore[attr-defined]

    def clean_code(self) -> str:
        """Return the code; without the cache, a wrong one may have been right."""
        try:
            return str(super().clean_code())  # type: ignore[misc]
        except ValidationError:
            if _cache_answers():
                raise
            raise ValidationError(_TEXTS["no_app_codes"]) from None


def _cache_answers() -> bool:
    try:
        return bool(get_redis_connection("default").ping())
    except RedisError:
        return False


class SecondFactorForm(_CodeForm, AuthenticateForm):  # type: ignore[misc]
    """The second step of a sign-in."""


class SecondFactorAgainForm(_CodeForm, ReauthenticateForm):  # type: ignore[misc]
    """The second factor once more, before a change of the account."""


class AddKeyForm(AddWebAuthnForm):  # type: ignore[misc]
    name = CharField(label=gettext_lazy("Name of the key"), required=False)


class EditKeyForm(EditWebAuthnForm):  # type: ignore[misc]
    name = CharField(label=gettext_lazy("Name of the key"))


class UsernameTaken(Exception):
    """Somebody else has just taken the name."""


class SignUpForm(forms.SignupForm):  # type: ignore[misc]
    """allauth's form, which asks for a phone number or an address, whichever gets codes here.

    The first code completes the sign-up. A shop that can send none asks for a name and a password,
    which programs may send to any shop.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Ask for what this shop needs, and for what was sent."""
        super().__init__(*args, **kwargs)
        fields, ways = self.fields, ways_of_codes()
        chosen = core.request.GET.get("by")
        self.way = chosen if chosen in ways else next(iter(ways), "")
        self.other_way = next((it for it in ways if it != self.way), "")
        self.by_code = False
        names = {"username", "email", "phone"}
        for name in names - {self.way, *self.data} if self.way else ():
            del fields[name]
        if self.way:
            labels = {"email": gettext_lazy("Email address"), "phone": gettext_lazy("Phone number")}
            fields[self.way].label = labels[self.way]
            fields[self.way].required = not names & {*self.data} - {self.way}
            fields["password1"].label = gettext_lazy("Password (optional)")
            if "password2" not in self.data:
                del fields["password2"]
        else:
            fields["email"].label = gettext_lazy("Email address (optional)")
            fields["email"].help_text = _TEXTS["why_email"]
            fields["phone"].label = gettext_lazy("Phone number (optional)")
        for field in fields.values():
            field.widget.attrs.pop("placeholder", None)
        if url := site_face().terms_url:
            fields["terms"] = _terms_field(url)

    def validate_unique_email(self, value: str) -> str:
        """Return the address: it belongs to whoever confirms it first."""
        return str(value)

    def _clean_phone(self) -> None:
        """Accept the number: it, too, belongs to whoever confirms it first."""

    def clean(self) -> dict[str, Any]:
        """Refuse an account that nobody could sign in to, or too many codes to one address."""
        cleaned: dict[str, Any] = super().clean()
        has_password = any(self.data.get(it) for it in ("password1", "password2"))
        if not has_password or not cleaned.get("username"):
            if not self.errors:
                self._clean_way_of_codes(cleaned.get("email", ""), cleaned.get("phone", ""))
        elif not cleaned.get("password1") and "password1" not in self.errors:
            self.add_error("password1", gettext("Enter the password twice."))
        elif (phone := cleaned.get("phone")) and not self.errors:
            # Once the account is saved, allauth counts it.
            self._limit_codes("phone", phone, action="verify_phone", dry_run=True)
        return cleaned

    def _clean_way_of_codes(self, email: str, phone: str) -> None:
        if email and phone:  # the code would confirm one of them, and the other be lost
            self.add_error("phone", _TEXTS["only_one_way"])
        elif not (email or phone):
            self.add_error("password1", _TEXTS["no_way"])
        else:
            self.by_code = True
            field = "email" if email else "phone"
            self._limit_codes(field, email or phone, action="request_login_code")

    def _limit_codes(self, field: str, address: str, *, action: str, dry_run: bool = False) -> None:
        try:
            count_code(action, address)
            if field == "phone":  # the adapter counts it, once the account is saved
                count_text(address, dry_run=True)
            ratelimit.consume(
                core.request, action=action, key=address, dry_run=dry_run, raise_exception=True
            )
        except RateLimited:
            self.add_error(field, gettext(RATE_LIMITED_TEXT))

    def try_save(self, request: HttpRequest) -> tuple[User | None, HttpResponse | None]:
        """Return the new account, or a page that says why none was created.

        :raises UsernameTaken: the form says so, too.
        """
        try:
            with transaction.atomic():
                return super().try_save(request)  # type: ignore[no-any-return]
        except IntegrityError as error:
            self.add_error("username", gettext("This username has just been taken."))
            raise UsernameTaken from error

    def custom_signup(self, request: HttpRequest, user: User) -> None:
        """Keep what the owner of the new account agreed to."""
        super().custom_signup(request, user)
        if "terms" in self.fields:
            Agreement.objects.create(user=user, version=terms_version())


def _terms_field(url: str) -> BooleanField:
    link = format_html('<a href="{}" target="_blank" rel="noopener">{}</a>', url, gettext("terms"))
    return BooleanField(
        label=format_html(gettext("I agree to the {terms}."), terms=link),
        error_messages={"required": gettext("To sign up, agree to the terms.")},
    )


class ProfileForm(ModelForm):  # type: ignore[type-arg]
    """What an account says of itself."""

    class Meta:
        model = User
        fields = ("first_name",)
        labels = {"first_name": gettext_lazy("Name (optional)")}


class DeletionForm(Form):
    """Deletion of an account, confirmed by its password, if it has one."""

    password = CharField(
        label=gettext_lazy("Password"),
        strip=False,
        widget=PasswordInput(attrs={"autocomplete": "current-password"}),
    )

    def __init__(self, *args: Any, user: User, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.user = user
        if not user.has_usable_password():
            del self.fields["password"]

    def clean_password(self) -> str:
        """Return the password, which is checked as at a sign-in."""
        password: str = self.cleaned_data["password"]
        if not get_adapter().reauthenticate(self.user, password):
            raise get_adapter().validation_error("incorrect_password")
        return password
