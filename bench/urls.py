"""The shop's URLs, and the two that it is compared with."""

from django.http import HttpRequest, HttpResponse
from django.urls import path

from bench.classic.views import place
from seckill_site import urls as shop


def empty(request: HttpRequest) -> HttpResponse:
    """Return an empty answer: the cost of a request before anything is done for it."""
    return HttpResponse()


urlpatterns = [
    *shop.urlpatterns,
    path("bench/empty/", empty),
    path("bench/classic/<int:sale_id>/orders/", place),
]
handler400, handler403 = shop.handler400, shop.handler403
handler404, handler500 = shop.handler404, shop.handler500
