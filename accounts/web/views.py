"""The views of accounts that differ from allauth's."""

from __future__ import annotations

from allauth.account import views
from allauth.account.internal.flows.signup import complete_signup
from django.http import HttpResponseBase

from accounts.forms import SignUpForm
from seckill_site.web.responses import allow


class SignUpView(views.SignupView):  # type: ignore[misc]
    """allauth's view, which shows the form again if the name was taken meanwhile."""

    def form_valid(self, form: SignUpForm) -> HttpResponseBase:
        """Create the account and sign its owner in."""
        self.user, response = form.try_save(self.request)
        if form.errors:
            return self.form_invalid(form)  # type: ignore[no-any-return]
        if response:
            return response
        return complete_signup(  # type: ignore[no-any-return]
            self.request, user=self.user, redirect_url=self.get_success_url()
        )


login = allow("GET", "HEAD", "POST")(views.login)
logout = allow("GET", "HEAD", "POST")(views.logout)
signup = allow("GET", "HEAD", "POST")(SignUpView.as_view())
