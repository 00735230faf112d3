"""Ways out of an error: addresses of this site only, whatever the request says."""

from __future__ import annotations

import datetime as dt

import pytest
from django.test import RequestFactory
from django.urls import resolve

from seckill_site.web.error_links import ways_out

pytestmark = pytest.mark.quick

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


def test_sale_id_is_taken_from_the_address():
    assert ways(match=resolve("/vouchers/7/orders/")).sale_id == 7
    assert ways(match=resolve("/orders/")).sale_id is None


def test_admin_is_recognised_by_its_address():
    assert ways("/admin/auth/").in_admin
    assert not ways("/administration/").in_admin


def test_foreign_host_raises_nothing():
    assert ways(Host="a b", Referer="http://a b/").back_url == ""
