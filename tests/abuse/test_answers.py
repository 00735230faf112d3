"""What every answer tells a browser, and what no answer tells anybody."""

from __future__ import annotations

import pytest

from tests.support import asgi

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
