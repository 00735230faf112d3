"""Which locks are held, for staff: a page to look at, with nothing to change."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any, NoReturn

from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.utils.text import capfirst
from redis import RedisError

from locks.inspection import held_locks
from locks.models import Lock
from seckill_site.ledger_connection import ledger_connection


@admin.register(Lock)
class LockAdmin(admin.ModelAdmin):  # type: ignore[type-arg]
    """Read-only, and without a database: the list is what Redis says at this moment."""

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        if not self.has_view_permission(request):
            raise PermissionDenied
        context = {
            **self.admin_site.each_context(request),
            "opts": self.opts,
            "title": capfirst(self.opts.verbose_name_plural),
            **(extra_context or {}),
        }
        try:
            context["holds"], status = held_locks(ledger_connection()), HTTPStatus.OK
        except RedisError:
            status = HTTPStatus.SERVICE_UNAVAILABLE
        return TemplateResponse(
            request, "admin/locks/lock/change_list.html", context, status=status
        )

    def get_object(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise PermissionDenied  # there is no table to look one up in

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Lock | None = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Lock | None = None) -> bool:
        return False
