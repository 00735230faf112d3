"""Answers of the contract: a page where ``Accept`` names it, else JSON."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.contrib.auth.models import AnonymousUser, User
from django.http import HttpResponse
from django.test import RequestFactory

from seckill_site.web.responses import (
    allow,
    for_everybody,
    for_owner,
    for_visitors,
    problem,
    wants_html,
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
