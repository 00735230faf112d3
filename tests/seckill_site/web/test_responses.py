"""Answers of the contract: a page where ``Accept`` names it, else JSON."""

from __future__ import annotations

import datetime as dt
import json
from typing import Any

import pytest
from django.contrib.auth.models import AnonymousUser, User
from django.http import HttpResponse
from django.test import RequestFactory
from django.urls import resolve
from django.utils import translation

from seckill_site.web.responses import (
    allow,
    for_everybody,
    for_owner,
    for_visitors,
    problem,
    wants_html,
    ways_out,
)

pytestmark = pytest.mark.quick


def asking(accept=None, method="get"):
    headers = {} if accept is None else {"Accept": accept}
    return getattr(RequestFactory(), method)("/", headers=headers)


@pytest.mark.parametrize(
    ("accept", "html"),
    [
        (None, False),
        ("", False),
        ("*/*", False),
        ("application/json", False),
        ("application/xhtml+xml", False),
        ("text/html", True),
        ("TEXT/HTML", True),
        ("application/json, text/html;q=0.5", True),
        ("text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", True),
    ],
)
def test_html_only_for_clients_that_accept_it(accept, html):
    assert wants_html(asking(accept)) is html


def test_refusal_has_code_and_message():
    response = problem(asking(), status=409, code="ended", message="It is over.")

    assert response.status_code == 409
    assert json.loads(response.content) == {"code": "ended", "message": "It is over."}
    assert response["Content-Type"] == "application/json"
    assert response["Cache-Control"] == "no-store"
    assert "Retry-After" not in response


def test_refusal_may_have_details_and_retry_after():
    response = problem(
        asking(), status=503, code="unavailable", message="Wait.", retry_after_s=0, order_id="501"
    )

    assert json.loads(response.content)["order_id"] == "501"
    assert response["Retry-After"] == "0"


def test_refusal_page_has_same_status_and_message():
    response = problem(
        asking("text/html"), status=409, code="ended", message="It is <over>.", retry_after_s=3
    )

    page = response.content.decode()
    assert response.status_code == 409
    assert response["Content-Type"].startswith("text/html")
    assert response["Cache-Control"] == "no-store"
    assert response["Retry-After"] == "3"
    assert "It is &lt;over&gt;." in page
    assert "It is <over>." not in page


def test_public_answers_are_cacheable_and_private_ones_not():
    assert for_everybody(HttpResponse())["Cache-Control"] == "public, max-age=1"
    assert for_owner(HttpResponse())["Cache-Control"] == "private, no-store"


@pytest.mark.parametrize(
    ("user", "kept"), [(AnonymousUser(), "public, max-age=1"), (User(pk=7), "private, no-store")]
)
def test_only_visitors_pages_are_cacheable(user, kept):
    request = asking("text/html")
    request.user = user

    assert for_visitors(HttpResponse(), request)["Cache-Control"] == kept


@allow("GET", "HEAD")
def fine(request, **kwargs) -> Any:
    """Answer."""
    return HttpResponse(str(kwargs))


def test_allowed_method_reaches_the_view():
    response: Any = fine(asking(), sale_id=7)
    assert response.content == b"{'sale_id': 7}"
    assert fine(asking(method="head")).status_code == 200


@pytest.mark.parametrize("method", ["post", "put", "patch", "delete", "options", "trace"])
def test_other_method_returns_405_with_allow_header(method):
    response: Any = fine(asking(method=method))

    assert response.status_code == 405
    assert response["Allow"] == "GET, HEAD"
    body = json.loads(response.content)
    assert body["code"] == "invalid"
    assert "GET, HEAD" in body["message"]


def test_other_method_returns_a_page_to_browsers():
    response = fine(asking("text/html", method="post"))

    assert response.status_code == 405
    assert response["Content-Type"].startswith("text/html")


def test_the_view_keeps_its_name():
    assert (fine.__name__, fine.__doc__) == ("fine", "Answer.")


# --- The links of an error page: addresses of this site only, whatever the request says ----------

NOW = dt.datetime(2026, 11, 21, 4, 0, tzinfo=dt.UTC)


@pytest.fixture(autouse=True)
def our_host(settings):
    settings.ALLOWED_HOSTS = ["shop.example"]


def ways(
    path="/orders/?page=2",
    *,
    method="get",
    retry_after_s=None,
    match=None,
    environ=None,
    **headers,
):
    send = getattr(RequestFactory(), method)
    request = send(path, headers={"Host": "shop.example", **headers}, **(environ or {}))
    request.resolver_match = match
    return ways_out(request, retry_after_s=retry_after_s, now=NOW)


def test_get_is_retried_at_its_own_address():
    assert ways().again_url == ways().here == "/orders/?page=2"


def test_post_is_retried_from_the_page_before():
    sent = ways("/vouchers/7/orders/", method="post", Referer="https://shop.example/vouchers/7/")

    assert sent.again_url == sent.back_url == "/vouchers/7/"
    assert ways("/vouchers/7/orders/", method="post").again_url == ""


@pytest.mark.parametrize(
    ("referer", "back"),
    [
        ("https://shop.example/orders/?state=over", "/orders/?state=over"),
        ("http://shop.example/", "/"),
        ("https://shop.example", ""),
        ("https://shop.example//evil.example/", "/%2Fevil.example/"),
        ("https://evil.example/", ""),
        ("https://shop.example.evil.example/", ""),
        ("https://user@shop.example/", ""),
        ("javascript://shop.example/%0aalert(1)", "/%0aalert(1)"),
        ("/orders/", ""),
        ("http://[", ""),
        ("", ""),
        ("\x00", ""),
    ],
)
def test_back_link_stays_on_this_site(referer, back):
    assert ways(Referer=referer).back_url == back


def test_back_link_never_leads_to_same_page():
    assert ways(Referer="https://shop.example/orders/?page=2").back_url == ""


def test_double_slash_path_stays_on_this_site():
    assert ways("/", environ={"PATH_INFO": "//evil.example/"}).again_url == "/%2Fevil.example/"


def test_retry_time_is_a_moment():
    assert ways(retry_after_s=90).again_at == NOW + dt.timedelta(seconds=90)
    assert ways().again_at is None


def test_ids_are_taken_from_the_address():
    found = ways(match=resolve("/vouchers/7/orders/9/"))
    assert (found.sale_id, found.order_id) == (7, 9)
    assert ways(match=resolve("/vouchers/7/orders/")).order_id is None
    assert ways(match=resolve("/orders/")).sale_id is None


@pytest.mark.parametrize(("code", "said"), [("sold_out", True), ("not_refundable", False)])
def test_only_a_refused_order_was_not_charged(code, said):
    """A paid voucher that cannot be refunded was."""
    with translation.override("en"):
        page = problem(asking("text/html"), status=409, code=code, message="No.").content.decode()

    assert ("You were not charged." in page) == said


def test_admin_is_recognised_by_its_address():
    assert ways("/admin/auth/").in_admin
    assert not ways("/administration/").in_admin


def test_foreign_host_raises_nothing():
    assert ways(Host="a b", Referer="http://a b/").back_url == ""
