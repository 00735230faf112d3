"""Limits of requests: the same at the front door and in Django, shared by processes, liftable."""

from __future__ import annotations

from functools import partial
from ipaddress import ip_network
from typing import Any

import pytest
from django.conf import settings as site
from django.test import Client, override_settings
from django_redis import get_redis_connection
from pytest_django import Settings

from seckill_site.front_door import shells
from seckill_site.web import request_rates
from seckill_site.web.request_rates import (
    Limit,
    RateLimited,
    counts,
    lift_limits,
    limited_now,
)
from tests.support import asgi, wsgi
from tests.support.browsers import session_cookie
from tests.support.orders import make_buyer, make_buyers, make_sale, tokens_for
from tests.support.sales import make_loaded_sale
from tests.support.tiers import slow_after

pytestmark = pytest.mark.django_db

HOME, OFFICE = "203.0.113.7", "198.51.100.1"
DOORS = pytest.mark.parametrize(
    "ask", [asgi.ask, partial(wsgi.ask, REMOTE_ADDR=HOME)], ids=["front door", "Django"]
)


@pytest.fixture(autouse=True)
def few(settings: Settings) -> None:
    """Limit everybody, to three requests each."""
    settings.SECKILL_UNLIMITED_NETWORKS = []
    settings.SECKILL_REQUESTS_PER_ADDRESS = 3


def statuses(ask: Any, times: int, path: str = "/me/", **headers: str) -> list[int]:
    return [ask("GET", path, **headers).status for _ in range(times)]


@DOORS
def test_address_is_limited_and_told_when_to_return(ask: Any) -> None:
    assert statuses(ask, 4) == [200, 200, 200, 429]

    refused = ask("GET", "/me/", HTTP_ACCEPT_LANGUAGE="en")

    assert refused.json == {
        "code": "rate_limited",
        "message": "Too many requests. Wait a moment and try again.",
    }
    assert 0 < int(refused.headers["retry-after"]) <= 60
    assert refused.headers["cache-control"] == "no-store"


@DOORS
def test_limited_page_is_a_page_in_the_language(ask: Any) -> None:
    statuses(ask, 3)

    page = ask("GET", "/me/", accept="text/html", HTTP_ACCEPT_LANGUAGE="zh-CN")

    assert page.status == 429
    assert page.headers["content-type"].startswith("text/html")
    assert "请求过于频繁" in page.body.decode()


@DOORS
@pytest.mark.parametrize(
    "path",
    [
        "/me/",
        "/orders/",
        "/vouchers/1/token/",
        "/vouchers/1/orders/",
        "/vouchers/1/orders/5/",
        "/vouchers/1/orders/5/pay/",
        "/vouchers/1/waiting/",
        "/vouchers/1/room/",
        "/accounts/login/",
        "/admin/login/",
    ],
)
def test_every_path_of_a_buyer_is_limited(ask: Any, path: str) -> None:
    statuses(ask, 3)
    assert ask("GET", path).status == 429


@DOORS
@pytest.mark.parametrize(
    "path",
    ["/no/such/page/", "/vouchers/999999/", "/vouchers/999999/live/", "/captcha/image/x/", "/"],
)
def test_whatever_a_thread_has_to_make_is_limited(ask: Any, path: str) -> None:
    assert 429 not in statuses(ask, 3, "/terms/")
    assert ask("GET", path).status == 429


@DOORS
@pytest.mark.parametrize(
    "path", slow_after(1, ["/healthz", "/readyz", "/metrics", "/static/seckill/no.css"])
)
def test_probes_and_static_files_are_not_limited(ask: Any, path: str) -> None:
    assert 429 not in statuses(ask, 9, path)
    assert ask("GET", "/terms/").status != 429


@DOORS
def test_notifications_of_providers_are_not_limited(ask: Any) -> None:
    for _ in range(9):
        assert ask("POST", "/payments/sandbox/notify/", {}).status != 429


@pytest.mark.parametrize("path", ["/", "/vouchers/{}/", "/vouchers/{}/room/", "/vouchers/{}/live/"])
def test_what_lies_in_memory_is_neither_counted_nor_refused(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shells, "FRESH_S", 3600.0)
    monkeypatch.setattr(shells, "MAX_AGE_S", 3600.0)
    path = path.format(make_loaded_sale().pk)
    assert statuses(asgi.ask, 9, path, accept="text/html") == [200] * 9
    assert 429 in statuses(asgi.ask, 4, "/terms/")
    assert asgi.ask("GET", path, accept="text/html").status == 200


def test_unlimited_network_has_no_limit(settings: Settings) -> None:
    settings.SECKILL_UNLIMITED_NETWORKS = [ip_network("127.0.0.0/8")]
    assert statuses(asgi.ask, 9) == [200] * 9


def test_addresses_of_one_ipv6_network_are_one(client: Client) -> None:
    for n in range(3):
        assert client.get("/me/", REMOTE_ADDR=f"2001:db8:1:2::{n}").status_code == 200
    assert client.get("/me/", REMOTE_ADDR="2001:db8:1:2:ffff::1").status_code == 429
    assert client.get("/me/", REMOTE_ADDR="2001:db8:1:3::1").status_code == 200


@DOORS
def test_account_is_limited_over_all_addresses(ask: Any, settings: Settings) -> None:
    settings.SECKILL_REQUESTS_PER_ADDRESS, settings.SECKILL_REQUESTS_PER_ACCOUNT = 0, 2
    cookie = session_cookie(make_buyer())

    assert statuses(ask, 3, HTTP_COOKIE=cookie) == [200, 200, 429]
    assert statuses(ask, 3) == [200, 200, 200]


# --- Orders ---------------------------------------------------------------------------------------


@DOORS
@pytest.mark.usefixtures("young_window")
def test_order_over_the_limit_of_its_address_is_refused(ask: Any, settings: Settings) -> None:
    settings.SECKILL_REQUESTS_PER_ADDRESS, settings.SECKILL_ORDERS_PER_ADDRESS = 0, 2
    sale = make_sale(stock=10)
    tokens = [it.sign() for it in tokens_for(sale, make_buyers(3))]
    path = f"/vouchers/{sale.pk}/orders/"

    answers = [
        ask("POST", path, {"token": it}, HTTP_ACCEPT_LANGUAGE="en") for it in [*tokens, tokens[0]]
    ]

    assert [it.status for it in answers] == [202, 202, 429, 202]
    assert answers[2].json == {
        "code": "rate_limited",
        "message": "Too many orders came from your network. Wait a few minutes and try again.",
    }
    assert 0 < int(answers[2].headers["retry-after"]) <= 1_000


# --- Accounts -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "setting"),
    slow_after(
        2,
        [
            ("/accounts/signup/", "SECKILL_SIGN_UPS_PER_ADDRESS"),
            ("/accounts/login/", "SECKILL_SIGN_INS_PER_ADDRESS"),
            ("/admin/login/", "SECKILL_SIGN_INS_PER_ADDRESS"),
            ("/accounts/password/reset/", "SECKILL_RESETS_PER_ADDRESS"),
        ],
    ),
)
def test_attempts_of_an_address_are_limited_over_all_names(
    client: Client, settings: Settings, path: str, setting: str
) -> None:
    settings.SECKILL_REQUESTS_PER_ADDRESS = 0
    setattr(settings, setting, 2)

    def attempt(n: int, address: str = HOME) -> int:
        return client.post(path, {"username": f"name{n}"}, REMOTE_ADDR=address).status_code

    assert 429 not in [attempt(1), attempt(2)]
    assert attempt(3) == 429
    assert attempt(4, OFFICE) != 429
    assert client.get(path, REMOTE_ADDR=HOME).status_code != 429
    assert [it.subject for it in limited_now(most=9)] == [HOME]


def test_refusal_is_repeated_without_the_cache_and_the_gate(
    client: Client, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.SECKILL_REQUESTS_PER_ADDRESS = 0
    settings.SECKILL_SIGN_INS_PER_ADDRESS = 1
    monkeypatch.setattr(request_rates._refused, "for_s", 3600.0)

    def attempt() -> int:
        return client.post("/accounts/login/", {}, REMOTE_ADDR=HOME).status_code

    assert [attempt() for _ in range(2)] == [200, 429]

    def ask(_environ: Any) -> None:
        pytest.fail("asked again")

    monkeypatch.setattr(request_rates, "check_account_path", ask)
    assert attempt() == 429
    request_rates._refused.forget()
    with pytest.raises(pytest.fail.Exception):
        attempt()  # the control: it would be asked


def test_account_far_below_its_limit_shares_nothing(settings: Settings) -> None:
    settings.SECKILL_REQUESTS_PER_ACCOUNT = 100
    for _ in range(24):
        counts.count(Limit.ACCOUNT, "7")
    counts.share()
    assert not get_redis_connection("default").keys("seckill:rates*")
    counts.count(Limit.ACCOUNT, "7")
    counts.share()
    assert get_redis_connection("default").keys("seckill:rates*")


# --- Processes ------------------------------------------------------------------------------------


def test_processes_share_their_counts() -> None:
    other = request_rates._Counts()
    for process in (counts, other):
        process.count(Limit.ADDRESS, HOME)
        process.count(Limit.ADDRESS, HOME)
        process.share()

    with pytest.raises(RateLimited):
        other.count(Limit.ADDRESS, HOME)
    other.count(Limit.ADDRESS, OFFICE)


def test_control_processes_that_do_not_share_allow_more() -> None:
    other = request_rates._Counts()
    for process in (counts, other):
        for _ in range(3):
            process.count(Limit.ADDRESS, HOME)


def test_crowd_of_many_addresses_shares_nothing(settings: Settings) -> None:
    settings.SECKILL_REQUESTS_PER_ADDRESS = 3_000
    for n in range(300):
        counts.count(Limit.ADDRESS, f"198.18.0.{n}")
    counts.share()
    assert not get_redis_connection("default").keys("seckill:rates*")


def test_without_the_cache_a_process_limits_alone() -> None:
    gone = {**site.CACHES["default"], "LOCATION": "redis://127.0.0.1:1/1"}
    with override_settings(CACHES={**site.CACHES, "default": gone}):
        for _ in range(3):
            counts.count(Limit.ADDRESS, HOME)
            counts.share()
        with pytest.raises(RateLimited):
            counts.count(Limit.ADDRESS, HOME)
        assert limited_now(most=9) == []


def test_lifted_limit_starts_anew() -> None:
    for _ in range(3):
        counts.count(Limit.ADDRESS, HOME)
    with pytest.raises(RateLimited):
        counts.count(Limit.ADDRESS, HOME)
    counts.share()
    [limited] = limited_now(most=9)
    assert (limited.limit, limited.subject) == (Limit.ADDRESS, HOME)

    lift_limits([limited])

    with pytest.raises(RateLimited):
        counts.count(Limit.ADDRESS, HOME)  # until the process hears of it
    counts.share()
    counts.count(Limit.ADDRESS, HOME)
