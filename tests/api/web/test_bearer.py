"""What all addresses of the API share: tokens, scopes, limits, refusals as JSON."""

from __future__ import annotations

from typing import Any

import pytest

from api.models import Scope
from tests.support import asgi, wsgi
from tests.support.api import ask, make_member, make_token
from tests.support.wsgi import Answer

pytestmark = pytest.mark.django_db

NEEDS = {
    "/api/v1/sales/": Scope.READ_SALES,
    "/api/v1/sales/1/": Scope.READ_SALES,
    "/api/v1/orders/": Scope.READ_ORDERS,
    "/api/v1/orders/1/": Scope.READ_ORDERS,
    "/api/v1/redeem/": Scope.REDEEM,
}


def method_of(path: str) -> str:
    return "POST" if "redeem" in path else "GET"


def is_refused(answer: Answer, status: int, code: str) -> bool:
    assert (answer.status, answer.json["code"]) == (status, code), answer.body
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["cache-control"] == "private, no-store"
    return bool(answer.json["message"])


@pytest.mark.parametrize("path", NEEDS)
@pytest.mark.parametrize("accept", ["application/json", "text/html"])
@pytest.mark.parametrize("server", [asgi, wsgi])
def test_request_without_token_is_unauthorized(path: str, accept: str, server: Any) -> None:
    answer = server.ask(method_of(path), path, accept=accept)

    assert is_refused(answer, 401, "login_required")
    assert answer.headers["www-authenticate"] == 'Bearer realm="api"'


@pytest.mark.parametrize("header", ["Bearer", "Bearer x", "Basic eDp5", "Bearer a b", "Bearer é"])
def test_bad_header_is_unauthorized(header: str) -> None:
    answer = asgi.ask("GET", "/api/v1/sales/", HTTP_AUTHORIZATION=header)

    assert is_refused(answer, 401, "login_required")
    assert 'error="invalid_token"' in answer.headers["www-authenticate"]


@pytest.mark.parametrize("path", NEEDS)
def test_missing_scope_is_named(path: str) -> None:
    _, text = make_token(scopes=[it for it in Scope if it != NEEDS[path]])

    answer = ask(method_of(path), path, token=text)

    assert is_refused(answer, 403, "missing_scope")
    assert answer.json["scope"] == NEEDS[path].value
    assert NEEDS[path].value in answer.headers["www-authenticate"]


@pytest.mark.parametrize("path", NEEDS)
def test_token_may_no_more_than_its_owner(path: str) -> None:
    owner = make_member(may=[it for it in Scope if it != NEEDS[path]])
    _, text = make_token(owner=owner)

    assert is_refused(ask(method_of(path), path, token=text), 403, "no_permission")


@pytest.mark.parametrize("name", ["token", "access_token", "API_KEY", "Authorization"])
def test_token_in_the_address_is_refused(name: str) -> None:
    _, text = make_token()
    for path in (f"/api/v1/sales/?{name}={text}", f"/api/v1/sales/?limit=5&{name}=x"):
        assert is_refused(ask("GET", path, token=text), 400, "invalid")
        assert is_refused(asgi.ask("GET", path), 400, "invalid")


def test_session_is_no_token(client: Any) -> None:
    client.force_login(make_member(), backend="django.contrib.auth.backends.ModelBackend")

    assert client.get("/api/v1/sales/").status_code == 401


@pytest.mark.parametrize("method", ["PUT", "OPTIONS"])
@pytest.mark.parametrize("path", NEEDS)
def test_other_methods_are_refused(path: str, method: str) -> None:
    answer = asgi.ask(method, path)

    assert is_refused(answer, 405, "invalid")
    assert method_of(path) in answer.headers["allow"]


def test_account_has_a_limit_of_requests(settings: Any) -> None:
    settings.SECKILL_UNLIMITED_NETWORKS = []
    settings.SECKILL_REQUESTS_PER_ACCOUNT = 3
    owner = make_member()
    answers = []
    for text in [make_token(owner=owner)[1], make_token(owner=owner)[1]] * 2:
        answers.append(ask("GET", "/api/v1/sales/", token=text))

    assert [it.status for it in answers] == [200, 200, 200, 429]
    assert is_refused(answers[-1], 429, "rate_limited")
    assert int(answers[-1].headers["retry-after"]) > 0


def test_address_has_a_limit_of_guesses(settings: Any) -> None:
    settings.SECKILL_UNLIMITED_NETWORKS = []
    settings.SECKILL_REQUESTS_PER_ADDRESS = 3

    statuses = [ask("GET", "/api/v1/sales/", token=f"sk_{n}").status for n in range(4)]

    assert statuses == [401, 401, 401, 429]
