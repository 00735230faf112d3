"""The site's URLs and views that fail in each way, for the tests of the error answers."""

from __future__ import annotations

from django.core.exceptions import PermissionDenied, SuspiciousOperation
from django.db import OperationalError, ProgrammingError
from django.http import HttpRequest, HttpResponse
from django.urls import path

from seckill_site import urls
from seckill_site.urls import handler400, handler403, handler404, handler500

__all__ = ["handler400", "handler403", "handler404", "handler500", "urlpatterns"]


def crash(request: HttpRequest) -> HttpResponse:
    raise ZeroDivisionError("a secret of ours")


def suspicious(request: HttpRequest) -> HttpResponse:
    raise SuspiciousOperation("a secret of ours")


def forbidden(request: HttpRequest) -> HttpResponse:
    raise PermissionDenied("a secret of ours")


def database_away(request: HttpRequest) -> HttpResponse:
    raise OperationalError(2006, "a secret of ours")


def table_missing(request: HttpRequest) -> HttpResponse:
    raise ProgrammingError(1146, "a secret of ours")


def address(request: HttpRequest) -> HttpResponse:
    """Answer which address the site takes the client's to be."""
    return HttpResponse(request.META["REMOTE_ADDR"])


urlpatterns = [
    *urls.urlpatterns,
    path("faults/crash/", crash),
    path("faults/suspicious/", suspicious),
    path("faults/forbidden/", forbidden),
    path("faults/database/", database_away),
    path("faults/table/", table_missing),
    path("address/", address),
]
