"""Sign-up, login forms and the choice of the language."""

from __future__ import annotations

from django.conf import settings
from django.contrib.admin.forms import AdminAuthenticationForm
from django.contrib.auth import login
from django.contrib.auth.forms import AuthenticationForm, UserCreationForm, UsernameField
from django.contrib.auth.models import User
from django.db import IntegrityError, transaction
from django.forms import EmailInput, TextInput
from django.http import Http404, HttpRequest, HttpResponseBase, HttpResponseRedirect
from django.shortcuts import render, resolve_url
from django.utils.http import url_has_allowed_host_and_scheme
from django.utils.translation import gettext, gettext_lazy

from seckill_site.web.responses import YEAR_SECONDS, allow, for_owner


class BoundedLoginForm(AuthenticationForm):
    """A login form that refuses a name longer than any account's before anything stores it."""

    username = UsernameField(max_length=150, widget=TextInput(attrs={"autofocus": True}))


class BoundedAdminLoginForm(BoundedLoginForm, AdminAuthenticationForm):
    """The admin's login form, with the same bound."""


class SignUpForm(UserCreationForm):  # type: ignore[type-arg]
    """Django's own form, with an optional e-mail address."""

    class Meta:
        model = User
        fields = ("username", "email")
        widgets = {"email": EmailInput(attrs={"autocomplete": "email"})}
        labels = {"email": gettext_lazy("Email address (optional)")}
        help_texts = {"email": gettext_lazy("We only email you about your orders.")}

    def save_unless_taken(self) -> User | None:
        """Create the account; None, with an error at the name, if it was taken meanwhile."""
        try:
            with transaction.atomic():
                user: User = self.save()
                return user
        except IntegrityError:
            self.add_error("username", gettext("This username has just been taken."))
            return None


@allow("GET", "HEAD", "POST")
def signup(request: HttpRequest) -> HttpResponseBase:
    """Create an account, sign its owner in and redirect to ``next``."""
    form = SignUpForm(request.POST if request.method == "POST" else None)
    if request.method == "POST" and form.is_valid() and (user := form.save_unless_taken()):
        login(request, user, backend="django.contrib.auth.backends.ModelBackend")
        return HttpResponseRedirect(_next_url(request))
    context = {"form": form, "next": request.GET.get("next", "")}
    return for_owner(render(request, "registration/signup.html", context))


@allow("GET", "HEAD")
def set_language(request: HttpRequest, code: str) -> HttpResponseBase:
    """Remember the language in a cookie and go back to the page."""
    if code not in dict(settings.LANGUAGES):
        raise Http404
    response = HttpResponseRedirect(_next_url(request))
    response.set_cookie(
        settings.LANGUAGE_COOKIE_NAME,
        code,
        max_age=YEAR_SECONDS,
        samesite="Lax",
        secure=settings.HTTPS_ONLY,
    )
    return response


def _next_url(request: HttpRequest) -> str:
    """Return the ``next`` of the request if it is on this site, else the front page."""
    target = request.POST.get("next") or request.GET.get("next", "")
    safe = url_has_allowed_host_and_scheme(
        target, allowed_hosts={request.get_host()}, require_https=request.is_secure()
    )
    return target if safe else resolve_url(settings.LOGIN_REDIRECT_URL)
