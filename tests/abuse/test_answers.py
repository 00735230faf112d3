"""What every answer tells a browser, and what no answer tells anybody."""

from __future__ import annotations

from typing import Any

import pytest
from allauth.core import context
from pytest_django import Settings

from tests.abuse import guard_and_control
from tests.support import asgi, wsgi
from tests.support.orders import make_sale
from vouchers.web import views

pytestmark = pytest.mark.django_db

PATHS = ["/", "/me/", "/vouchers/1/", "/vouchers/1/live/", "/accounts/login/", "/no/such/page"]


@pytest.mark.parametrize("accept", ["text/html", "application/json"])
@pytest.mark.parametrize("path", PATHS)
def test_every_answer_binds_the_browser(path: str, accept: str) -> None:
    headers = asgi.ask("GET", path, accept=accept).headers

    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "same-origin"
    for directive in ("object-src 'none'", "base-uri 'none'", "frame-ancestors 'none'"):
        assert directive in headers["content-security-policy"]
    assert "server" not in headers
    assert "access-control-allow-origin" not in headers


@pytest.mark.parametrize("method", ["TRACE", "CONNECT", "PUT", "DELETE"])
def test_other_methods_are_refused(method: str) -> None:
    assert asgi.ask(method, "/").status == 405


@pytest.mark.parametrize("path", ["/.git/config", "/.env", "/static/", "/static/../manage.py"])
def test_no_file_beside_the_static_ones_is_served(path: str) -> None:
    assert asgi.ask("GET", path).status == 404


# --- Hosts ----------------------------------------------------------------------------------------

on_both_ways = pytest.mark.parametrize("ask", [asgi.ask, wsgi.ask], ids=["front door", "Django"])


@guard_and_control
@on_both_ways
@pytest.mark.parametrize("path", ["/", "/me/", "/accounts/login/"])
def test_foreign_host_is_told_nothing(
    ask: Any, path: str, guarded: bool, settings: Settings
) -> None:
    if not guarded:
        settings.ALLOWED_HOSTS = ["*"]

    assert ask("GET", path, HTTP_HOST="evil.example").status == (400 if guarded else 200)


@guard_and_control
@on_both_ways
def test_file_for_caches_names_this_site_alone(
    ask: Any, guarded: bool, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cache would show everybody what the attacker's Host has put there."""
    settings.ALLOWED_HOSTS = ["*"]  # as careless as a shop can be
    settings.SECKILL_SITE_URL = "https://shop.example"
    if not guarded:
        monkeypatch.setattr(
            views, "absolute_url", lambda path: context.request.build_absolute_uri(path)
        )
    sale = make_sale(begins_in_s=600)

    answer = ask("GET", f"/vouchers/{sale.pk}/calendar.ics", HTTP_HOST="evil.example")

    text = answer.body.decode().replace("\r\n ", "")
    assert ("https://shop.example/vouchers/" in text) is guarded
    assert ("evil.example" in text) is not guarded
