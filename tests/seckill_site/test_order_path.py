"""Which requests go the short way, and what they still get there."""

from __future__ import annotations

import pytest

from seckill_site.gate import GateAnswer, gated
from seckill_site.order_path import OrderPathHandler, is_on_order_path
from tests.through_wsgi import ask


@pytest.mark.parametrize(
    ("path", "headers", "short"),
    [
        ("/vouchers/1/orders/", {}, True),
        ("/vouchers/1/orders/", {"HTTP_ACCEPT": "text/html,*/*"}, False),
        ("/vouchers/1/orders/12/", {"HTTP_PURCHASE_TOKEN": "x"}, True),
        ("/vouchers/1/orders/12/", {}, False),
        ("/vouchers/1/orders/12/pay/", {"HTTP_PURCHASE_TOKEN": "x"}, False),
        ("/vouchers/1/", {}, False),
        ("/", {}, False),
    ],
)
def test_a_programs_orders_and_receipts_by_token_go_the_short_way(path, headers, short):
    assert is_on_order_path({"PATH_INFO": path, **headers}) is short


def test_the_others_keep_the_middleware_of_the_site(settings):
    everything = list(settings.MIDDLEWARE)
    OrderPathHandler()
    assert everything == settings.MIDDLEWARE


@pytest.mark.django_db
@pytest.mark.parametrize(("accepted", "words"), [("en", "missing"), ("zh-hans", "缺少")])
def test_the_short_way_speaks_the_buyers_language_and_keeps_the_headers_of_security(
    accepted, words
):
    answer = ask("POST", "/vouchers/1/orders/", {"token": ""}, HTTP_ACCEPT_LANGUAGE=accepted)

    assert answer.status == 400
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["referrer-policy"] == "same-origin"


@pytest.mark.django_db
def test_the_short_way_sets_no_cookie_and_asks_no_session():
    answer = ask("POST", "/vouchers/1/orders/", {"token": ""}, HTTP_COOKIE="sessionid=abc")

    assert "set-cookie" not in answer.headers
    assert "Cookie" not in answer.headers.get("vary", "")


def test_where_https_is_demanded_the_gate_is_shut_to_plain_http():
    def behind(environ, start_response):
        start_response("301 Moved Permanently", [])
        return [b""]

    site = gated(
        behind, answerers=[lambda environ: GateAnswer("200 OK", b"{}", ())], https_only=True
    )
    begun = []
    site({}, lambda status, headers: begun.append(status))
    site({"HTTP_X_FORWARDED_PROTO": "https"}, lambda status, headers: begun.append(status))

    assert begun == ["301 Moved Permanently", "200 OK"]
