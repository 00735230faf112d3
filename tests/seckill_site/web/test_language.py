"""The choice of the language."""

from __future__ import annotations

import pytest

from tests.support import asgi, wsgi
from tests.support.accounts import ODD, OUTSIDE, stays_inside

pytestmark = [pytest.mark.django_db, pytest.mark.quick]

HTML = {"Accept": "text/html"}


@pytest.mark.parametrize("code", ["en", "zh-hans"])
def test_language_link_sets_cookie_and_returns(client, code):
    response = client.get(f"/language/{code}/?next=/vouchers/7/")

    cookie = response.cookies["django_language"]
    assert (cookie.value, cookie["samesite"], cookie["max-age"]) == (code, "Lax", 31_536_000)
    assert response["Location"] == "/vouchers/7/"

    page = client.get("/", headers={**HTML, "Accept-Language": "fr"}).content.decode()
    assert f'<html lang="{code}">' in page


@pytest.mark.parametrize(
    ("cookie", "language", "text"),
    [
        ("EN", "en", "Skip to content"),
        ("En-gb", "en", "Skip to content"),
        ("ZH-HANS", "zh-hans", "跳到正文"),
    ],
)
@pytest.mark.parametrize("ask", [asgi.ask, wsgi.ask])
@pytest.mark.parametrize("path", ["/", "/accounts/login/", "/nowhere/"])
def test_language_cookie_is_read_in_any_case(ask, path, cookie, language, text):
    answer = ask("GET", path, HTTP_ACCEPT="text/html", HTTP_COOKIE=f"django_language={cookie}")

    page = answer.body.decode()
    assert f'<html lang="{language}">' in page
    assert text in page


def test_language_cookie_is_secure_over_https(client, settings):
    settings.HTTPS_ONLY = True

    assert client.get("/language/en/").cookies["django_language"]["secure"]


@pytest.mark.parametrize("outside", OUTSIDE)
def test_language_link_ignores_foreign_next(client, outside):
    response = client.get("/language/en/", {"next": outside})

    assert response.status_code == 302
    assert response["Location"] == "/"


@pytest.mark.parametrize("odd", ODD)
def test_language_link_survives_malformed_next(client, odd):
    response = client.get("/language/en/", {"next": odd})

    assert response.status_code == 302
    assert stays_inside(response, "/language/en/")


@pytest.mark.parametrize("code", ["fr", "EN", "zh_hans", "x" * 1_000])
def test_unknown_language_returns_404(client, code):
    response = client.get(f"/language/{code}/")

    assert response.status_code == 404
    assert not response.cookies


def test_language_link_refuses_other_methods(client):
    response = client.post("/language/en/")

    assert (response.status_code, response["Allow"]) == (405, "GET, HEAD")


def test_language_needs_no_sql(client, django_assert_num_queries):
    with django_assert_num_queries(0):
        client.get("/language/en/?next=/vouchers/7/")
