"""Which requests go the short way, and what they still get there."""

from __future__ import annotations

import io
from wsgiref.util import setup_testing_defaults

import pytest
from django.db import connection

from orders import views
from seckill_site.gate import GateAnswer, gated
from seckill_site.order_path import OrderPathHandler, by_path, is_on_order_path
from tests.through_wsgi import ask
from vouchers.ledger import NotLoaded


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


@pytest.mark.django_db
def test_both_ways_through_django_give_the_same_answer(client):
    """But for what only a session or a page needs."""
    asked = {"path": "/vouchers/1/orders/", "headers": {"accept-language": "en"}}
    long_way = client.post(**asked, data={"token": ""}, content_type="application/json")

    short_way = ask("POST", asked["path"], {"token": ""}, HTTP_ACCEPT_LANGUAGE="en")

    kept = {name.lower(): value for name, value in long_way.headers.items()}
    left_out = {"content-security-policy", "x-frame-options", "content-length"}
    assert (short_way.status, short_way.body) == (long_way.status_code, long_way.content)
    assert {*kept} - {*short_way.headers} == left_out
    assert {name: kept[name] for name in short_way.headers} == short_way.headers


@pytest.mark.django_db
@pytest.mark.parametrize("path", ["/vouchers/0/orders/", f"/vouchers/{2**63}/orders/"])
def test_an_address_that_there_is_not_is_said_in_the_words_of_the_contract(path):
    answer = ask("POST", path, {"token": ""})

    assert (answer.status, answer.json["code"]) == (404, "not_found")


@pytest.mark.django_db
def test_a_view_that_raises_is_an_error_page_of_ours_with_a_reference(monkeypatch, caplog):
    def broken(*args, **options):
        raise RuntimeError("a fault of ours")

    monkeypatch.setattr(views, "place_order", broken)

    answer = ask("POST", "/vouchers/1/orders/", {"token": "x"})

    assert answer.status == 500
    assert answer.json["code"] == "error"


@pytest.mark.django_db(transaction=True)
def test_a_connection_that_is_too_old_is_closed_before_a_request_and_after_it(monkeypatch):
    application = by_path(order_path=OrderPathHandler(), others=nobody)
    seen = []

    def look(**options):
        seen.append(connection.connection)
        connection.ensure_connection()
        connection.close_at = 1
        raise NotLoaded

    monkeypatch.setattr(views, "place_order", look)
    connection.ensure_connection()
    connection.close_at = 1

    post(application)

    assert seen == [None]
    assert connection.connection is None


def nobody(environ, start_response):
    raise AssertionError("not on the order path")


def post(application):
    environ = {
        "PATH_INFO": "/vouchers/1/orders/",
        "REQUEST_METHOD": "POST",
        "CONTENT_TYPE": "application/json",
        "CONTENT_LENGTH": "14",
        "wsgi.input": io.BytesIO(b'{"token": "x"}'),
    }
    setup_testing_defaults(environ)
    return b"".join(application(environ, lambda status, headers: None))
