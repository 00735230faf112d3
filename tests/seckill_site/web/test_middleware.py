"""What is refused before anything answers, in front of Django and in it alike."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing

import pytest
from django.templatetags.static import static
from django.test import Client

from orders.models import VoucherOrder
from tests.support import asgi, wsgi
from tests.support.orders import make_buyer, make_sale, token_for
from tests.support.wsgi import Answer
from vouchers.inventory.holdings import held_order_ids

pytestmark = pytest.mark.django_db
on_both_ways = pytest.mark.parametrize("ask", [asgi.ask, wsgi.ask])

Ask = Callable[..., Answer]

STYLES = "seckill/site.css"
PATHS = ["/healthz", "/vouchers/1/", "/vouchers/1/live/"]


@pytest.mark.parametrize("host", ["evil.example:80", "localhost@evil.example", ""])
@on_both_ways
@pytest.mark.parametrize("path", PATHS)
def test_foreign_host_gets_400_everywhere(ask: Ask, path: str, host: str) -> None:
    answer = ask("GET", path, HTTP_HOST=host)
    assert (answer.status, answer.json["code"]) == (400, "invalid")


@pytest.mark.parametrize("language", ["en", "zh-hans"])
def test_static_file_is_refused_to_a_foreign_host(client: Client, language: str) -> None:
    sent = {"Host": "evil.example", "Accept-Language": language}
    with closing(client.get(static(STYLES), headers=sent)) as answer:
        assert answer.status_code == 400
    english = "The request could not be understood."
    assert (answer.json()["message"] == english) is (language == "en")


@on_both_ways
@pytest.mark.parametrize("method", ["post", "Post"])
def test_method_in_small_letters_places_no_order(ask: Ask, method: str) -> None:
    sale, buyer = make_sale(), make_buyer()
    token = token_for(sale, buyer)
    answer = ask(method, f"/vouchers/{sale.pk}/orders/", {"token": token.sign()})
    assert (answer.status, answer.json["code"]) == (405, "invalid")
    assert not held_order_ids(sale_id=sale.pk, user_id=buyer.pk)
    assert not VoucherOrder.objects.exists()


@on_both_ways
@pytest.mark.parametrize("path", ["/", "/healthz", "/me/", "/nowhere/"])
def test_pages_may_use_no_device(ask: Ask, path: str) -> None:
    policy = ask("GET", path, accept="text/html").headers["permissions-policy"]
    assert {"camera=()", "geolocation=()", "microphone=()"} <= set(policy.split(", "))
