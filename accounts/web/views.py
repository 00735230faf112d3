"""The views of accounts that differ from allauth's."""

from functools import partial
from typing import Any

from allauth.account import views
from allauth.account.adapter import get_adapter
from django.contrib import messages
from django.contrib.auth import logout as logout_here
from django.contrib.auth.decorators import login_required
from django.forms import Form
from django.http import HttpRequest, HttpResponseBase
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.translation import gettext

from accounts.backends import find_account
from accounts.contacts import confirmed_contact
from accounts.forms import ProfileForm, SignUpForm, UsernameTaken
from accounts.invitations import InvitationInvalid, accept_invitation, find_invitation
from accounts.models import Phone
from accounts.sessions import end_all_sessions, end_other_sessions, limit_staff_session, user_of
from accounts.way_back import way_back
from seckill_site.clocks.database import database_now
from seckill_site.web.responses import allow, for_owner, problem


class SignUpView(views.SignupView):  # type: ignore[misc]
    """allauth's view, which shows the form again if the name was taken meanwhile."""

    def form_valid(self, form: SignUpForm) -> HttpResponseBase:
        """Create the account; sign its owner in, or send the code that does."""
        try:
            return self._send_code(form) if form.by_code else super().form_valid(form)
        except UsernameTaken:
            return self.form_invalid(form)  # type: ignore[no-any-return]

    def _send_code(self, form: SignUpForm) -> HttpResponseBase:
        """Send a code to the account of this address, a new one if it has none.

        Nothing may show which it was. Whoever gets the code may sign in.
        """
        address = {it: form.cleaned_data[it] for it in ("email", "phone") if it in form.fields}
        user = find_account(**address) or form.try_save(self.request)[0]
        views.flows.login_by_code.LoginCodeVerificationProcess.initiate(
            request=self.request, user=user if user and user.is_active else None, **address
        )
        self.request.session["signing_up"] = "".join(address.values())
        return redirect(self.passthrough_next_url(reverse("account_confirm_login_code")))


class ConfirmLoginCodeView(views.ConfirmLoginCodeView):  # type: ignore[misc]
    """allauth's view, which cannot send a code again to a phone that nobody has."""

    def get_form_kwargs(self) -> dict[str, Any]:
        """Say whose code it is."""
        kwargs: dict[str, Any] = super().get_form_kwargs()
        if "code" in kwargs:  # else one is asked for again
            state, user = self._process.state, self._process.user
            is_known = user and user.last_login  # else each sign-up had a count of its own
            kwargs["account"] = user.pk if is_known else state.get("email") or state.get("phone")
        return kwargs

    def form_valid(self, form: Form) -> HttpResponseBase:
        """Sign in, or send the code again; the answer must not show who has an account."""
        process = self._process
        if (phone := process.state.get("phone")) and not process.user:
            process.generate_code = partial(get_adapter().send_unknown_account_sms, phone)
        if self.request.POST.get("action") == "resend":
            process.state["at"] = database_now().timestamp()  # the new code is as good as the first
        return super().form_valid(form)  # type: ignore[no-any-return]


@allow("GET", "HEAD", "POST")
def verify_phone(request: HttpRequest) -> HttpResponseBase:
    """Confirm a number by its code, and lead back to where it was needed."""
    known = Phone.objects.filter(pk=request.user.pk)
    before = str(known.first())
    response: HttpResponseBase = views.verify_phone(request)
    if response.headers.get("Location") == reverse("account_change_phone"):
        if str(known.first()) != before:
            return redirect(way_back(request) or "profile")
        messages.error(request, gettext("This code is not valid any more. Ask for a new one."))
    return response


@allow("GET", "HEAD", "POST")
@login_required
def profile(request: HttpRequest) -> HttpResponseBase:
    """Show an account with its settings, and change its name."""
    form = ProfileForm(request.POST or None, instance=user_of(request))
    if request.method == "POST" and form.is_valid():
        form.save()
        messages.success(request, gettext("Saved."))
        return redirect("profile")
    contact = confirmed_contact(user_of(request))
    return for_owner(render(request, "account/profile.html", {"form": form, "contact": contact}))


@allow("POST")
@login_required
def sign_out_everywhere(request: HttpRequest) -> HttpResponseBase:
    """End all sessions of the account, this one too."""
    end_all_sessions(user_of(request))
    logout_here(request)
    messages.success(request, gettext("You are signed out on all devices."))
    return _forgetting(redirect("login"))


@allow("GET", "HEAD", "POST")
def logout(request: HttpRequest) -> HttpResponseBase:
    """Sign out, by the form of each page."""
    response = views.logout(request)
    return response if request.user.is_authenticated else _forgetting(response)


def _forgetting(response: HttpResponseBase) -> HttpResponseBase:
    """Have the browser drop what pages have stored in it, such as codes for the counter."""
    response["Clear-Site-Data"] = '"storage"'
    return response


@allow("GET", "HEAD", "POST")
def invitation(request: HttpRequest, token: str) -> HttpResponseBase:
    """Show an invitation of staff; accept it for the account that is signed in."""
    try:
        if request.method == "POST" and request.user.is_authenticated:
            accept_invitation(token=token, user=user_of(request))
            # They were opened as a buyer's, for two weeks.
            end_other_sessions(user_of(request))
            limit_staff_session(request, user_of(request))
            return redirect("admin:index")
        valid = find_invitation(token)
    except InvitationInvalid:
        text = gettext("This invitation has expired or was accepted already. Ask for a new one.")
        return problem(request, status=410, code="ended", message=text)
    context = {"invitation": valid, "role": gettext(valid.role.name)}
    return for_owner(render(request, "account/invitation.html", context))


login = allow("GET", "HEAD", "POST")(views.login)
signup = allow("GET", "HEAD", "POST")(SignUpView.as_view())
confirm_login_code = allow("GET", "HEAD", "POST")(ConfirmLoginCodeView.as_view())
