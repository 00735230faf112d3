"""Accounts in the admin; the names of groups are in the reader's language."""

from collections.abc import Iterator
from functools import partial
from typing import Any, cast

from allauth.account.admin import EmailAddress
from allauth.mfa.admin import Authenticator
from allauth.usersessions.admin import UserSession
from django.contrib import admin, messages
from django.contrib.auth.admin import GroupAdmin, UserAdmin
from django.contrib.auth.models import Group, Permission, User
from django.core.exceptions import PermissionDenied
from django.db.models import Q, QuerySet
from django.forms import ModelChoiceField, ModelForm, ModelMultipleChoiceField
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.utils.text import capfirst
from django.utils.translation import gettext, pgettext_lazy
from django.utils.translation import gettext_lazy as _

from accounts.deletion import forget_in_log
from accounts.invitations import (
    InvitationInvalid,
    invitation_url,
    pending_invitations,
    send_again,
    send_invitation,
    valid_since,
)
from accounts.models import Invitation
from accounts.sessions import end_all_sessions
from backoffice.admin.pages import (
    TEXTS,
    check_may,
    is_owner,
    log_change,
    merchants_field,
    office,
    timestamp_column,
)
from orders.roles import Role
from seckill_site.formatting import NO_VALUE, listed
from seckill_site.mysql.collations import AnyCase
from seckill_site.web.admin_lists import CheckedList, column, pill
from seckill_site.web.form_keys import make_once
from vouchers.admin.history import CodedHistory
from vouchers.catalogue.history import entry

admin.site.unregister([User, Group])
admin.site.unregister([EmailAddress, Authenticator, UserSession])  # their owner's alone


class NamesField(ModelMultipleChoiceField):  # type: ignore[type-arg]
    """Groups or permissions to choose from, whose English names in the database are translated."""

    def label_from_instance(self, obj: Group | Permission) -> str:
        if isinstance(obj, Group):
            return gettext(obj.name)
        verb, _, model = obj.codename.partition("_")
        is_usual = verb in VERBS and model == obj.content_type.model
        what = VERBS[verb] if is_usual else gettext(obj.name)
        return f"{capfirst(obj.content_type.name)} · {what}"


VERBS = {
    "view": pgettext_lazy("a permission", "view"),
    "add": pgettext_lazy("a permission", "add"),
    "change": pgettext_lazy("a permission", "change"),
    "delete": pgettext_lazy("a permission", "delete"),
}
APPS_OF_STAFF = ("vouchers", "orders", "locks", "accounts", "api", "auth")


def shop_roles() -> QuerySet[Group]:
    return Group.objects.filter(name__in=Role.values).order_by("pk")


class RoleField(ModelChoiceField):  # type: ignore[type-arg]
    """One of the shop's roles, by its translated name."""

    def label_from_instance(self, obj: Group) -> str:
        return gettext(obj.name)


class TranslatedNames(CheckedList):
    """An admin that offers groups and permissions by their names in the reader's language."""

    def formfield_for_manytomany(self, db_field: Any, request: Any, **kwargs: Any) -> Any:
        if db_field.name != "groups":
            ours = Q(content_type__app_label__in=APPS_OF_STAFF)
            given = ~Q(group=None) | ~Q(user=None)  # what is not offered would be taken away
            rows = Permission.objects.filter(ours | given).distinct()
            kwargs["queryset"] = rows.select_related("content_type")
        kwargs["form_class"] = NamesField
        return super().formfield_for_manytomany(db_field, request, **kwargs)


class StaffForm(ModelForm):  # type: ignore[type-arg]
    """A member of staff on one page: name, address, role. Everything else is under Advanced."""

    role = RoleField(shop_roles(), required=False, **TEXTS["role"])
    merchants = merchants_field()

    class Meta:
        model = User
        fields = ("username", "first_name", "email", "is_active")
        labels = {
            "username": _("Sign-in name"),
            "first_name": pgettext_lazy("person", "Name"),
            "email": _("Email"),
            "is_active": pgettext_lazy("a switch", "active"),
        }
        help_texts = {
            "username": "",
            "first_name": _("As colleagues know them."),
            "is_active": _("Untick this to lock somebody out instead of deleting the account."),
        }

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.initial["role"] = self.instance.groups.filter(name__in=Role.values).first()
        self.initial["merchants"] = self.instance.merchants.all()
        if self.instance.is_superuser:  # an owner may do everything
            self.fields.pop("role", None)
            self.fields.pop("merchants", None)

    def clean(self) -> dict[str, Any]:
        """Refuse to let somebody lock themselves out."""
        data = super().clean() or self.cleaned_data
        if self.is_own and not data.get("is_active", True):
            self.add_error("is_active", gettext("You cannot lock yourself out."))
        return data

    is_own = False
    """Whether this is the account of whoever fills in the form; set by the admin."""

    def save(self, commit: bool = True) -> Any:
        """Make the account one of staff if it gets a role, and none if it loses it."""
        if "role" in self.fields and "role" in self.changed_data:
            self.instance.is_staff = self.cleaned_data["role"] is not None
        return super().save(commit)

    def save_rights(self) -> None:
        """Replace the account's merchants, and its role; other groups stay."""
        if "merchants" in self.changed_data:
            self.instance.merchants.set(self.cleaned_data["merchants"])
        if "role" not in self.fields or "role" not in self.changed_data:
            return
        self.instance.groups.remove(*shop_roles())
        if role := self.cleaned_data["role"]:
            self.instance.groups.add(role)


@admin.register(User)
class AccountAdmin(TranslatedNames, CodedHistory, UserAdmin):  # type: ignore[type-arg]
    """Accounts, with the roles of each in the list.

    The page of one is the form for staff. Only superusers get to what is Advanced: groups, single
    permissions and the password.
    """

    search_fields = ("^username",)  # by its index: there may be millions
    show_full_result_count = False
    list_display = ("username", "email", "roles", "active", "last_seen")
    list_filter = ("is_staff", "is_superuser", "is_active")
    filter_horizontal = ()  # Django's widget is not accessible; this is the browser's own
    last_seen = timestamp_column("last_login", _("last sign-in"))
    active = column(
        _("account"),
        lambda it: (
            pill("good", pgettext_lazy("an account", "active"))
            if it.is_active
            else pill("bad", _("locked"))
        ),
        ordering="is_active",
    )
    roles = column(_("roles"), lambda it: role_names(it) or NO_VALUE)

    def get_form(
        self, request: HttpRequest, obj: User | None = None, change: bool = False, **kwargs: Any
    ) -> Any:
        """Return the form for staff, unless an account is new or Advanced was asked for."""
        if obj is None or _is_advanced(request):
            return super().get_form(request, obj, change=change, **kwargs)
        given: dict[str, Any] = {"is_own": obj == request.user}
        if not is_owner(request):  # to give a role is to give rights
            given["role"] = given["merchants"] = None
        kwargs["form"] = type("StaffForm", (StaffForm,), given)
        return super().get_form(request, obj, change=change, **kwargs)

    def has_change_permission(self, request: HttpRequest, obj: User | None = None) -> bool:
        """Let only owners change an owner."""
        may = super().has_change_permission(request, obj)
        return may and (obj is None or not obj.is_superuser or is_owner(request))

    def has_delete_permission(self, request: HttpRequest, obj: User | None = None) -> bool:
        """Let only owners delete an owner."""
        may = super().has_delete_permission(request, obj)
        return may and (obj is None or not obj.is_superuser or is_owner(request))

    def delete_model(self, request: HttpRequest, obj: User) -> None:
        """Delete an account, whose name the entry about this would keep."""
        forget_in_log(obj)
        super().delete_model(request, obj)

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[User]) -> None:
        """Delete accounts, as ``delete_model``."""
        for user in queryset:
            forget_in_log(user)
        super().delete_queryset(request, queryset)

    def user_change_password(
        self, request: HttpRequest, id: str, form_url: str = ""
    ) -> HttpResponse:
        """Let only owners set somebody's password."""
        if not is_owner(request):
            raise PermissionDenied
        return super().user_change_password(request, id, form_url)

    def get_fieldsets(self, request: HttpRequest, obj: User | None = None) -> Any:
        if obj is None:
            return super().get_fieldsets(request, obj)
        if _is_advanced(request):  # without the dates, which nobody sets
            return super().get_fieldsets(request, obj)[:-1]
        gives_rights = is_owner(request) and not obj.is_superuser
        rights = ["role", "merchants"] if gives_rights else []
        return [(None, {"fields": ["username", "first_name", "email", *rights, "is_active"]})]

    def get_readonly_fields(self, request: HttpRequest, obj: User | None = None) -> Any:
        fields = super().get_readonly_fields(request, obj)
        is_plain = obj is not None and not _is_advanced(request)
        return (*fields, "username") if is_plain and "username" not in fields else fields

    def render_change_form(
        self, request: HttpRequest, context: dict[str, Any], *args: Any, **kwargs: Any
    ) -> HttpResponse:
        """Offer no empty form beside that of a member of staff: they are invited."""
        if not _is_advanced(request) and not kwargs.get("add"):
            context["show_save_and_add_another"] = False
        return super().render_change_form(request, context, *args, **kwargs)

    def save_related(self, request: HttpRequest, form: Any, formsets: Any, change: bool) -> None:
        super().save_related(request, form, formsets, change)
        if isinstance(form, StaffForm):
            form.save_rights()

    def get_queryset(self, request: Any) -> Any:
        return super().get_queryset(request).prefetch_related("groups")

    def save_model(self, request: Any, obj: User, form: Any, change: bool) -> None:
        """Save the account; who becomes staff signs in again, for a session of staff."""
        was_staff = User.objects.filter(pk=obj.pk, is_staff=True).exists()
        becomes_staff = change and obj.is_staff and not form.initial.get("is_staff", was_staff)
        super().save_model(request, obj, form, change)
        if becomes_staff:
            end_all_sessions(obj)


def role_names(user: User) -> str:
    """Return the names of an account's groups; a superuser is the owner."""
    names = [gettext(group.name) for group in user.groups.all()]
    names = [gettext("Owner"), *names] if user.is_superuser else names
    return listed(names)


@admin.register(Group)
class RoleAdmin(TranslatedNames, GroupAdmin):  # type: ignore[misc]
    """Groups, with their translated names."""

    list_display = ("called",)
    search_fields = (f"name__{AnyCase.lookup_name}",)
    filter_horizontal = ()
    called = column(_("group"), lambda it: gettext(it.name), ordering="name")


@admin.register(Invitation)
class InvitationAdmin(CodedHistory):
    """Invitations of staff. To invite is to give rights, so only superusers do."""

    list_display = ("email", "name", "role_name", "invited", "accepted", "accepted_by")
    readonly_fields = ("role_name",)
    role_name = column(_("role"), lambda it: gettext(it.role.name))
    invited = timestamp_column("invited_at", _("invited"))
    accepted = timestamp_column("accepted_at", pgettext_lazy("an invitation", "accepted"))
    actions = None

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return is_owner(request)

    has_add_permission = has_delete_permission = has_view_permission

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def get_fields(self, request: HttpRequest, obj: Invitation | None = None) -> Any:
        return ("name", "email", "role_name" if obj else "role")

    def get_queryset(self, request: HttpRequest) -> Any:
        return super().get_queryset(request).select_related("role", "invited_by", "accepted_by")

    def formfield_for_foreignkey(self, db_field: Any, request: Any, **kwargs: Any) -> Any:
        """Offer the roles of the shop, in the reader's language."""
        if db_field.name == "role":
            kwargs |= {"form_class": RoleField, "queryset": shop_roles(), "to_field_name": "name"}
            kwargs["help_text"] = _("What they may see and do in the back office.")
        return super().formfield_for_foreignkey(db_field, request, **kwargs)

    def save_model(self, request: Any, obj: Invitation, form: Any, change: bool) -> None:
        """Save the invitation and send it."""
        send_invitation(obj, invited_by=request.user, tell=partial(_tell, request))

    def response_add(
        self, request: HttpRequest, obj: Invitation, post_url_continue: str | None = None
    ) -> HttpResponse:
        """Go back to the staff; the mail's outcome is told once it is known."""
        return HttpResponseRedirect(reverse("admin:staff"))


def _tell(request: HttpRequest, invitation: Invitation, is_mailed: bool) -> None:
    """Tell the owner whether the mail of an invitation went out."""
    sent = gettext("The invitation was sent to %(email)s.")
    text = sent if is_mailed else TEXTS["not_mailed"]
    level = messages.SUCCESS if is_mailed else messages.WARNING
    messages.add_message(request, level, text % {"email": invitation.email})


@office.page("accounts/invitation/<id:invitation_id>/resend/", name="accounts_invitation_resend")
def resend_invitation(request: HttpRequest, invitation_id: int) -> HttpResponse:
    """Mail the link of an invitation once more; it is valid for three days from now."""
    if not is_owner(request):
        raise PermissionDenied

    def send() -> int:
        by, tell = cast(User, request.user), partial(_tell, request)
        invitation = send_again(invitation_id=invitation_id, invited_by=by, tell=tell)
        log_change(request, invitation, entry(("invitation_sent_again", {})))
        return invitation.pk

    if request.method == "POST":
        try:
            make_once(request, f"mail of invitation {invitation_id}", send)
        except InvitationInvalid:
            text = gettext("This invitation was accepted or withdrawn.")
            messages.error(request, text)
    return HttpResponseRedirect(reverse("admin:staff"))


# --- The staff ------------------------------------------------------------------------------------


@office.page("staff/", name="staff")
def staff_page(request: HttpRequest) -> HttpResponse:
    """Show who works here with which role, and who is invited."""
    check_may(request, "auth.view_user", "auth.change_user")
    staff = User.objects.filter(is_staff=True).prefetch_related("groups").order_by("username")
    context: dict[str, Any] = {
        "title": gettext("Staff"),
        "staff": [(user, role_names(user)) for user in staff],
        "invitations": list(_pending()) if is_owner(request) else [],
        "is_owner": is_owner(request),
    }
    return office.show(request, "staff.html", **context)


def _pending() -> Iterator[tuple[Invitation, str, bool, str]]:
    """Yield who is invited: with which role, whether the link is still valid, and the link."""
    since = valid_since()
    for it in pending_invitations():
        yield it, gettext(it.role.name), it.invited_at > since, invitation_url(it)


def _is_advanced(request: HttpRequest) -> bool:
    return "advanced" in request.GET and is_owner(request)
