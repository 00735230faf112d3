from django.urls import path

from orders.web import (
    account_views,
    buyer_views,
    notice_views,
    order_api,
    payment_webhook,
    room_views,
    sandbox_views,
    staff_views,
)

urlpatterns = [
    path("vouchers/<id:sale_id>/orders/", order_api.place, name="place-order"),
    path("vouchers/<id:sale_id>/orders/<id:order_id>/", order_api.receipt, name="receipt"),
    path("vouchers/<id:sale_id>/", buyer_views.purchase, name="purchase"),
    path("vouchers/<id:sale_id>/form/", buyer_views.purchase_form, name="purchase-form"),
    path("vouchers/<id:sale_id>/room/", room_views.room, name="room"),
    path("me/", order_api.me, name="me"),
    path("orders/", buyer_views.my_orders, name="my-orders"),
    path("vouchers/<id:sale_id>/token/", order_api.token, name="token"),
    path("vouchers/<id:sale_id>/orders/<id:order_id>/pay/", buyer_views.pay, name="pay"),
    path("vouchers/<id:sale_id>/orders/<id:order_id>/cancel/", buyer_views.cancel, name="cancel"),
    path("vouchers/<id:sale_id>/orders/<id:order_id>/refund/", buyer_views.refund, name="refund"),
    path("vouchers/<id:sale_id>/waiting/", buyer_views.waiting, name="waiting"),
    path("vouchers/<id:sale_id>/waiting/leave/", buyer_views.leave_line, name="leave-line"),
    path("vouchers/<id:sale_id>/notice/", notice_views.notice, name="notice"),
    path("vouchers/<id:sale_id>/notice/stop/", notice_views.stop_notice, name="stop-notice"),
    path("notices/stop/<str:token>/", notice_views.stop_by_link, name="stop-notices"),
    path("accounts/notices/", notice_views.my_notices, name="my-notices"),
    path("sandbox/<slug:reference>/", sandbox_views.pay_page, name="sandbox"),
    path("staff/redeem/", staff_views.redeem_page, name="redeem"),
    path("accounts/data/", account_views.data, name="account-data"),
    path("accounts/delete/", account_views.delete, name="account-delete"),
    path("payments/<slug:provider>/notify/", payment_webhook.notify, name="notify"),
]
