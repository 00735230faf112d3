"""Accounts in the admin; the names of groups are in the reader's language."""

from __future__ import annotations

from typing import Any

from allauth.account.admin import EmailAddress
from allauth.mfa.admin import Authenticator
from allauth.usersessions.admin import UserSession
from django.contrib import admin
from django.contrib.auth.admin import GroupAdmin, UserAdmin
from django.contrib.auth.models import Group, User
from django.forms import ModelMultipleChoiceField
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

admin.site.unregister([User, Group])
admin.site.unregister([EmailAddress, Authenticator, UserSession])  # their owner's alone


class GroupsField(ModelMultipleChoiceField):  # type: ignore[type-arg]
    """Groups to choose from, with translated names of the shop's roles."""

    def label_from_instance(self, obj: Group) -> str:
        return gettext(obj.name)


@admin.register(User)
class AccountAdmin(UserAdmin):  # type: ignore[type-arg]
    """Accounts, with the roles of each in the list."""

    list_display = ("username", "email", "is_staff", "is_superuser", "roles", "last_login")

    def get_queryset(self, request: Any) -> Any:
        return super().get_queryset(request).prefetch_related("groups")

    def formfield_for_manytomany(self, db_field: Any, request: Any, **kwargs: Any) -> Any:
        if db_field.name == "groups":
            kwargs["form_class"] = GroupsField
        return super().formfield_for_manytomany(db_field, request, **kwargs)

    @admin.display(description=_("roles"))
    def roles(self, user: User) -> str:
        return ", ".join(gettext(group.name) for group in user.groups.all()) or "–"


@admin.register(Group)
class RoleAdmin(GroupAdmin):
    """Groups, with their translated names."""

    list_display = ("called",)

    @admin.display(description=_("group"), ordering="name")
    def called(self, group: Group) -> str:
        return gettext(group.name)
