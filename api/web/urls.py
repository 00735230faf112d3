from django.urls import path

from api.web import views

urlpatterns = [
    path("sales/", views.sale_list, name="api-sales"),
    path("sales/<id:sale_id>/", views.sale, name="api-sale"),
    path("orders/", views.order_list, name="api-orders"),
    path("orders/<id:order_id>/", views.order, name="api-order"),
    path("redeem/", views.redeem, name="api-redeem"),
]
