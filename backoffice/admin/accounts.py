"""Accounts in the admin; the names of groups are in the reader's language."""

from __future__ import annotations

from typing import Any

from allauth.account.admin import EmailAddress
from allauth.mfa.admin import Authenticator
from allauth.usersessions.admin import UserSession
from django.contrib import admin, messages
from django.contrib.auth.admin import GroupAdmin, UserAdmin
from django.contrib.auth.models import Group, User
from django.forms import ModelChoiceField, ModelMultipleChoiceField
from django.http import HttpRequest
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from accounts.invitations import send_invitation
from accounts.models import Invitation
from accounts.sessions import end_all_sessions
from orders.roles import Role
from seckill_site.web.admin_lists import CheckedList

admin.site.unregister([User, Group])
admin.site.unregister([EmailAddress, Authenticator, UserSession])  # their owner's alone


class GroupsField(ModelMultipleChoiceField):  # type: ignore[type-arg]
    """Groups to choose from, with translated names of the shop's roles."""

    def label_from_instance(self, obj: Group) -> str:
        return gettext(obj.name)


class RoleField(ModelChoiceField):  # type: ignore[type-arg]
    """One of the roles, by its translated name."""

    def label_from_instance(self, obj: Group) -> str:
        return gettext(obj.name)


@admin.register(User)
class AccountAdmin(CheckedList, UserAdmin):  # type: ignore[type-arg]
    """Accounts, with the roles of each in the list."""

    list_display = ("username", "email", "is_staff", "is_superuser", "roles", "last_login")

    def get_queryset(self, request: Any) -> Any:
        return super().get_queryset(request).prefetch_related("groups")

    def formfield_for_manytomany(self, db_field: Any, request: Any, **kwargs: Any) -> Any:
        if db_field.name == "groups":
            kwargs["form_class"] = GroupsField
        return super().formfield_for_manytomany(db_field, request, **kwargs)

    def save_model(self, request: Any, obj: User, form: Any, change: bool) -> None:
        """Save the account; who becomes staff signs in again, for a session of staff."""
        super().save_model(request, obj, form, change)
        if change and obj.is_staff and "is_staff" in form.changed_data:
            end_all_sessions(obj)

    @admin.display(description=_("roles"))
    def roles(self, user: User) -> str:
        return ", ".join(gettext(group.name) for group in user.groups.all()) or "–"


@admin.register(Group)
class RoleAdmin(CheckedList, GroupAdmin):
    """Groups, with their translated names."""

    list_display = ("called",)

    @admin.display(description=_("group"), ordering="name")
    def called(self, group: Group) -> str:
        return gettext(group.name)


@admin.register(Invitation)
class InvitationAdmin(CheckedList):
    """Invitations of staff. To invite is to give rights, so only superusers do."""

    list_display = ("email", "role_name", "invited_by", "invited_at", "accepted_by", "accepted_at")
    fields = ("email", "role")
    actions = None

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return _is_superuser(request)

    def has_add_permission(self, request: HttpRequest) -> bool:
        return _is_superuser(request)

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return _is_superuser(request)

    def get_queryset(self, request: HttpRequest) -> Any:
        return super().get_queryset(request).select_related("role", "invited_by", "accepted_by")

    def formfield_for_foreignkey(self, db_field: Any, request: Any, **kwargs: Any) -> Any:
        """Offer the roles of the shop, in the reader's language."""
        if db_field.name == "role":
            kwargs |= {"form_class": RoleField, "to_field_name": "name"}
            kwargs["queryset"] = Group.objects.filter(name__in=Role.values)
        return super().formfield_for_foreignkey(db_field, request, **kwargs)

    def save_model(self, request: Any, obj: Invitation, form: Any, change: bool) -> None:
        """Save the invitation and send it."""

        def say_failure() -> None:
            text = gettext("The mail could not be sent. Delete the invitation and try again.")
            self.message_user(request, text, messages.ERROR)

        send_invitation(obj, invited_by=request.user, on_failure=say_failure)

    @admin.display(description=_("role"))
    def role_name(self, invitation: Invitation) -> str:
        return gettext(invitation.role.name)


def _is_superuser(request: HttpRequest) -> bool:
    return bool(request.user.is_active and getattr(request.user, "is_superuser", False))
