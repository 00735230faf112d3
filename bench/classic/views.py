"""The classic design over HTTP: one view, with all the middleware."""

from django.http import HttpRequest, JsonResponse
from django.views.decorators.csrf import csrf_exempt

from bench.classic.orders import NotSignedIn, Refused, order


@csrf_exempt  # the token is in a header that no other site can send
def place(request: HttpRequest, sale_id: int) -> JsonResponse:
    """Accept or refuse one buyer."""
    try:
        order_id = order(token=request.headers.get("Authorization", ""), sale_id=sale_id)
    except NotSignedIn:
        return JsonResponse({"code": "login_required"}, status=401)
    except Refused as refusal:
        return JsonResponse({"code": str(refusal).lower()}, status=409)
    return JsonResponse({"order_id": str(order_id)}, status=202)
