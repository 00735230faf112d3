"""Requests made from ``docs/openapi.yaml``, right and wrong, against the running shop.

Nothing that a client sends is answered with a 500, and every answer is a documented one.
"""

from __future__ import annotations

from typing import NamedTuple

import pytest
import schemathesis
from hypothesis import HealthCheck
from hypothesis import settings as effort
from schemathesis import Case

from tests.support import openapi
from tests.support.api import make_token
from tests.support.browsers import session_cookie
from tests.support.orders import make_buyer, make_sale, reserved
from tests.support.stack import Stack

pytestmark = pytest.mark.concurrency

SCHEMA = schemathesis.openapi.from_path(openapi.FILE)


class Target(NamedTuple):
    """A running web server, and who asks it."""

    url: str
    headers: dict[str, str]


@pytest.fixture(scope="module")
def db(kept_databases: None) -> None:
    """The module's database, without a transaction around each test."""


@pytest.fixture(scope="module")
def target(module_stack: Stack) -> Target:
    """A shop with a sale and a buyer, who also has a token of staff."""
    web, buyer = module_stack.web(), make_buyer()
    reserved(make_sale(), [buyer])
    _, token = make_token()
    csrf = "c" * 32
    return Target(
        web.url,
        {
            "Authorization": f"Bearer {token}",
            "Cookie": f"{session_cookie(buyer)}; csrftoken={csrf}",
            "X-CSRFToken": csrf,
            "Accept": "application/json",
        },
    )


few, many = (
    effort(max_examples=it, deadline=None, suppress_health_check=list(HealthCheck), database=None)
    for it in (4, 30)
)


@SCHEMA.parametrize()
@few
def test_made_up_request_is_answered_as_documented(case: Case, target: Target, db: None) -> None:
    ask(case, target)


@pytest.mark.slow
@SCHEMA.parametrize()
@many
def test_many_requests_are_answered_as_documented(case: Case, target: Target, db: None) -> None:
    ask(case, target)


def ask(case: Case, target: Target) -> None:
    """Send a request, and check its answer."""
    response = case.call(
        base_url=target.url, headers=target.headers, allow_redirects=False, timeout=30
    )

    assert response.status_code != 500, response.text
    sent = response.request
    openapi.check(
        str(sent.method),
        str(sent.path_url),
        status=response.status_code,
        headers={name.lower(): values[0] for name, values in response.headers.items()},
        body=response.content,
    )
