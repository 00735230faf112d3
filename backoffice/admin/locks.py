"""The locks that are held, for staff to look at."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any, NoReturn

from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.utils.text import capfirst
from redis import RedisError

from backoffice.admin.pages import ReadOnlyAdmin, admin_page
from locks.inspection import held_locks
from locks.models import Lock
from seckill_site.ledger_connection import ledger_connection


@admin.register(Lock)
class LockAdmin(ReadOnlyAdmin):
    """A list without a table: it shows what Redis says at this moment."""

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        if not self.has_view_permission(request):
            raise PermissionDenied
        context = {"title": capfirst(self.opts.verbose_name_plural), **(extra_context or {})}
        status = HTTPStatus.OK
        try:
            context["holds"] = held_locks(ledger_connection())
        except RedisError:
            status = HTTPStatus.SERVICE_UNAVAILABLE
        return admin_page(self, request, "locks/lock/change_list.html", status=status, **context)

    def get_object(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise PermissionDenied  # there is no table to look one up in
