from django.urls import path

from vouchers import views

urlpatterns = [
    path("", views.voucher_list, name="voucher-list"),
    path("vouchers/<id:sale_id>/live/", views.live, name="live"),
]
