"""The shop's URLs, and those that it is compared with."""

from django.urls import path

from bench.classic.views import place
from bench.empty import empty
from seckill_site import urls as shop

urlpatterns = [
    *shop.urlpatterns,
    path("bench/empty/", empty),
    path("bench/classic/<int:sale_id>/orders/", place),
]
handler400, handler403 = shop.handler400, shop.handler403
handler404, handler500 = shop.handler404, shop.handler500
