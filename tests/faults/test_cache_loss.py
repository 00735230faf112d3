"""C1: the cache is lost or restarted; a buyer is that person still, or nobody for a moment."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User

from tests.concurrency.sales import make_sale
from tests.faults.conftest import OwnRedis
from tests.faults.history import Outcome, Report
from tests.support.browsers import session_cookie
from tests.support.crowd import Answer, fire, post
from tests.support.orders import make_buyers
from tests.support.patience import MOMENT_S, wait_for
from tests.support.stack import Shop, Stack

pytestmark = [pytest.mark.concurrency, pytest.mark.faults, pytest.mark.usefixtures("row_locks")]

CSRF = "a" * 32


@pytest.fixture
def own_cache(tmp_path: Path) -> Iterator[OwnRedis]:
    """A cache of the test's own, which keeps its data over a restart."""
    redis = OwnRedis(tmp_path)
    redis.start()
    yield redis
    redis.kill()


@pytest.fixture
def shop(stack: Stack, own_cache: OwnRedis) -> Shop:
    """A shop whose cache is a Redis of the test's own."""
    where: dict[str, Any] = {"CACHE_URL": own_cache.url()}
    web = stack.web(workers=2, **where)
    return Shop(stack, web, stack.worker("--beat", **where))


@pytest.fixture
def cookies() -> dict[User, str]:
    """The session cookie of each of ten buyers."""
    return {buyer: session_cookie(buyer) for buyer in make_buyers(10)}


def get_me(cookies: dict[User, str], sale_id: int, *, url: str) -> dict[User, Answer]:
    """Ask who is signed in, with every cookie at once."""
    lines = (f"GET /me/?sale={sale_id} HTTP/1.1", "Host: localhost", "Accept: application/json")
    requests = [
        "\r\n".join([*lines, f"Cookie: {cookie}", "", ""]).encode() for cookie in cookies.values()
    ]
    return dict(zip(cookies, fire(requests, url=url), strict=True))


def are_signed_in(answers: dict[User, Answer]) -> bool:
    """Return whether all are signed in; fail if anybody is taken for somebody else."""
    for buyer, answer in answers.items():
        assert answer.status in (200, 503), answer
        if answer.status == 200 and answer.body["signed_in"]:
            assert answer.body["name"] == buyer.username
            assert answer.body["sale"]["buyer_id"] == str(buyer.pk)
    return all(it.status == 200 and it.body["signed_in"] for it in answers.values())


def outcome(what: str, recovery_s: float) -> Outcome:
    return Outcome("C1", what, 0, 0, 0, 0, 0, 0, 0, worst_recovery_s=round(recovery_s, 1))


@pytest.mark.parametrize("emptied", [True, False], ids=["emptied", "restarted"])
def test_c1_lost_cache_makes_nobody_somebody_else(
    shop: Shop, own_cache: OwnRedis, cookies: dict[User, str], emptied: bool, report: Report
) -> None:
    sale = make_sale(stock=5)
    wait_for(lambda: are_signed_in(get_me(cookies, sale.pk, url=shop.url)), what="all signed in")
    own_cache.kill()
    for _ in range(5):
        are_signed_in(get_me(cookies, sale.pk, url=shop.url))
    if emptied:
        own_cache.forget_all()
    own_cache.start()
    begun = time.monotonic()
    wait_for(lambda: are_signed_in(get_me(cookies, sale.pk, url=shop.url)), what="all signed in")
    recovery_s = time.monotonic() - begun
    assert recovery_s < MOMENT_S
    report(outcome("cache lost" if emptied else "cache restarted", recovery_s))


def test_c1_sign_out_during_an_outage_of_the_cache_holds_after_it(
    shop: Shop, own_cache: OwnRedis, cookies: dict[User, str], report: Report
) -> None:
    sale = make_sale(stock=5)
    wait_for(lambda: are_signed_in(get_me(cookies, sale.pk, url=shop.url)), what="all signed in")
    own_cache.kill()  # its file has all sessions
    gone = dict(list(cookies.items())[:5])
    headers = [
        {"Cookie": f"{cookie}; csrftoken={CSRF}", "X-CSRFToken": CSRF} for cookie in gone.values()
    ]
    requests = [post("/accounts/logout/", {}, it) for it in headers]
    # A program is answered 200 with the next address, a form 302.
    assert {it.status for it in fire(requests, url=shop.url, connections=1)} == {200}
    own_cache.start()
    begun = time.monotonic()

    def have_left() -> bool:
        answers = get_me(gone, sale.pk, url=shop.url).values()
        return all(it.status == 200 and not it.body["signed_in"] for it in answers)

    wait_for(have_left, what="the end of their sessions")
    recovery_s = time.monotonic() - begun
    assert recovery_s < MOMENT_S
    rest = dict(list(cookies.items())[5:])
    wait_for(lambda: are_signed_in(get_me(rest, sale.pk, url=shop.url)), what="the others")
    report(outcome("sign-outs while the cache was away", recovery_s))
