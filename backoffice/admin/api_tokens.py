"""API tokens in the admin: create one, which is shown once, and revoke it."""

import datetime as dt
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.contrib.auth.models import User
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.utils.translation import gettext, ngettext, pgettext
from django.utils.translation import gettext_lazy as _

from api.models import ApiToken, Scope
from api.tokens import create_token, revoke_tokens, text_for
from backoffice.admin.pages import (
    ReadOnlyAdmin,
    is_owner,
    labels,
    merchant_names,
    merchants_field,
    office,
    timestamp_column,
)
from seckill_site.clocks.database import database_now
from seckill_site.web.admin_lists import column
from seckill_site.web.form_keys import key_of

LIFETIMES_DAYS = {30: _("30 days"), 90: _("90 days"), 365: _("one year")}


class TokenForm(forms.ModelForm):  # type: ignore[type-arg]
    """A new token."""

    scopes = forms.MultipleChoiceField(
        label=_("Allowed"), choices=Scope.choices, widget=forms.CheckboxSelectMultiple
    )
    days = forms.TypedChoiceField(
        label=_("Valid for"), choices=list(LIFETIMES_DAYS.items()), coerce=int, initial=90
    )

    merchants = merchants_field()

    class Meta:
        model = ApiToken
        fields = ("name", "owner")


@admin.register(ApiToken)
class ApiTokenAdmin(ReadOnlyAdmin):
    """Tokens; a token's text is on the page after its creation and nowhere else."""

    form = TokenForm
    list_display = ("name", "starts", "owner", "may", "state", "used", "expires")
    list_select_related = ("owner",)
    search_fields = ("name", "prefix", "owner__username")
    search_help_text = _("Name, first characters or member of staff")
    readonly_fields = (
        "starts", "may", "redeems_for", "state", "created", "used", "expires", "revoked",
    )  # fmt: skip
    actions = ("revoke",)
    starts = column(_("starts with"), lambda it: f"{it.prefix}…")
    may = column(_("allowed"), lambda it: labels(it.scopes, Scope))
    redeems_for = column(_("Redeems for"), lambda it: merchant_names(it.merchant_ids))
    created = timestamp_column("created_at", _("created"))
    used = timestamp_column("last_used_at", _("last used"))
    expires = timestamp_column("expires_at", _("expires"))
    revoked = timestamp_column("revoked_at", _("revoked"))

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return super(ReadOnlyAdmin, self).has_add_permission(request)

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return super(ReadOnlyAdmin, self).has_delete_permission(request, obj)

    def get_fields(self, request: HttpRequest, obj: ApiToken | None = None) -> Any:
        if obj is None:
            return ("name", "owner", "scopes", "merchants", "days")
        return ("name", "owner", *self.readonly_fields)

    def get_queryset(self, request: HttpRequest) -> QuerySet[ApiToken]:
        """Return all tokens for an owner of the shop, else one's own."""
        tokens = super().get_queryset(request)
        # A page that is forbidden says so, whether there is such a token or not.
        sees_all = is_owner(request) or not self.has_view_permission(request)
        return tokens if sees_all else tokens.filter(owner_id=request.user.pk)

    def formfield_for_foreignkey(self, db_field: Any, request: Any, **kwargs: Any) -> Any:
        """Offer the members of staff; whoever is not a superuser makes tokens of their own."""
        if db_field.name == "owner":
            staff = User.objects.filter(is_active=True, is_staff=True).order_by("username")
            if not is_owner(request):
                staff = staff.filter(pk=request.user.pk)
            kwargs |= {"queryset": staff, "initial": request.user.pk}
        return super().formfield_for_foreignkey(db_field, request, **kwargs)

    def save_form(self, request: Any, form: Any, change: bool) -> ApiToken:
        """Create the token; its text is only in this request."""
        data, now = form.cleaned_data, database_now()
        token, request.new_token = create_token(
            owner=data["owner"],
            name=data["name"],
            scopes=data["scopes"],
            expires_at=now + dt.timedelta(days=data["days"]),
            now=now,
            text=text_for(key_of(request)),
            merchants=data["merchants"],
        )
        form.save_m2m = lambda: None
        return token

    def save_model(self, request: Any, obj: ApiToken, form: Any, change: bool) -> None:
        """Do nothing: the token is saved."""

    def response_add(self, request: Any, obj: Any, post_url_continue: Any = None) -> HttpResponse:
        request.looked_at = f"token:{obj.pk}" if obj else ""
        return office.show(
            request,
            "api/secret.html",
            opts=self.opts,
            title=gettext("Your new token"),
            secret=request.new_token,
            about=gettext("Copy this token now. It is not shown again."),
        )

    def response_again(self, request: Any, made: str) -> HttpResponse:
        """Show the text again: a browser shows only the answer to the second press."""
        request.new_token = text_for(key_of(request))
        return self.response_add(request, None)

    @admin.action(description=_("Revoke the selected tokens"), permissions=["add"])
    def revoke(self, request: HttpRequest, tokens: QuerySet[ApiToken]) -> None:
        chosen = list(tokens)
        count = revoke_tokens(chosen, now=database_now())
        for token in chosen:
            self.log_change(request, token, gettext("Revoked."))
        text = ngettext("%(count)s token was revoked.", "%(count)s tokens were revoked.", count)
        self.message_user(request, text % {"count": count}, messages.SUCCESS)

    @admin.display(description=_("state"))
    def state(self, token: ApiToken) -> str:
        if token.revoked_at:
            return gettext("revoked")
        if token.expires_at <= database_now():
            return pgettext("a token", "expired")
        return gettext("valid") if token.owner.is_active else gettext("account closed")
