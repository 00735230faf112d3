from django.urls import path, re_path

from vouchers.web import views

urlpatterns = [
    path("", views.voucher_list, name="voucher-list"),
    path("search/", views.voucher_list, name="search"),
    path("vouchers/<id:sale_id>/live/", views.live, name="live"),
    path("vouchers/<id:sale_id>/calendar.ics", views.calendar, name="calendar"),
    re_path(r"^pictures/(?P<digest>[0-9a-f]{32})\.webp\Z", views.picture, name="picture"),
    re_path(r"^pictures/(?P<digest>[0-9a-f]{32})-small\.webp\Z", views.thumbnail, name="thumbnail"),
]
