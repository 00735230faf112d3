"""The shop's URLs, and the two that it is compared with."""

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.urls import path
from django.views.decorators.csrf import csrf_exempt

from bench.classic.orders import NotSignedIn, Refused, order
from seckill_site import urls as shop


def empty(request: HttpRequest) -> HttpResponse:
    """Return an empty answer: the cost of a request before anything is done for it."""
    return HttpResponse()


@csrf_exempt  # the token is in a header that no other site can send
def order_classic(request: HttpRequest, sale_id: int) -> JsonResponse:
    """Accept or refuse one buyer by the classic design, with all the middleware."""
    try:
        order_id = order(token=request.headers.get("Authorization", ""), sale_id=sale_id)
    except NotSignedIn:
        return JsonResponse({"code": "login_required"}, status=401)
    except Refused as refusal:
        return JsonResponse({"code": str(refusal).lower()}, status=409)
    return JsonResponse({"order_id": str(order_id)}, status=202)


urlpatterns = [
    *shop.urlpatterns,
    path("bench/empty/", empty),
    path("bench/classic/<int:sale_id>/orders/", order_classic),
]
handler400, handler403 = shop.handler400, shop.handler403
handler404, handler429, handler500 = shop.handler404, shop.handler429, shop.handler500
