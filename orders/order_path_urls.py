"""What a crowd asks for; programs find it here without a look at the rest (``order_path.py``)."""

from django.urls import path

from orders import views

urlpatterns = [
    path("vouchers/<id:sale_id>/orders/", views.place, name="place-order"),
    path("vouchers/<id:sale_id>/orders/<id:order_id>/", views.receipt, name="receipt"),
]
