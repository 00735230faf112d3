"""The empty view: what a request costs before anything is done for it."""

from django.http import HttpRequest, HttpResponse


def empty(request: HttpRequest) -> HttpResponse:
    """Answer with nothing."""
    return HttpResponse()
