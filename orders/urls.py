from django.urls import path

from orders import pages, views

urlpatterns = [
    path("vouchers/<id:sale_id>/", pages.purchase, name="purchase"),
    path("orders/", pages.my_orders, name="my-orders"),
    path("vouchers/<id:sale_id>/token/", views.token, name="token"),
    path("vouchers/<id:sale_id>/orders/", views.place, name="place-order"),
    path("vouchers/<id:sale_id>/orders/<id:order_id>/", views.receipt, name="receipt"),
]
