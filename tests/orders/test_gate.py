"""Sold out without asking: only for a first attempt, only for a moment, and in the same words."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from pytest_django import DjangoAssertNumQueries

from orders.tokens import PurchaseToken
from tests.orders.looking import redis_commands
from tests.orders.making import make_buyer, make_buyers, make_sale, token_for, tokens_for
from tests.through_wsgi import Answer, ask
from vouchers import sold_out, tally
from vouchers.ledger import Holding
from vouchers.models import SeckillVoucher
from vouchers.reservations import Release, holdings, release

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def nothing_heard(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Begin as a new process, in which what was heard is good for as long as a test takes."""
    monkeypatch.setattr(sold_out, "REPEATED_S", 60)
    sold_out.forget()
    yield
    sold_out.forget()


@pytest.fixture
def winner() -> PurchaseToken:
    """The buyer of the only unit of a sale."""
    sale = make_sale(stock=1)
    token = token_for(sale, make_buyer())
    assert place(token, attempt=1).status == 202
    return token


@pytest.fixture
def late(winner: PurchaseToken) -> PurchaseToken:
    """One who comes when this process knows already that the sale is sold out."""
    sale = SeckillVoucher.objects.get(pk=winner.sale_id)
    first, second = tokens_for(sale, make_buyers(2))
    assert place(first, attempt=1).status == 409
    return second


def place(token: PurchaseToken, **fields: Any) -> Answer:
    path = f"/vouchers/{token.sale_id}/orders/"
    return ask("POST", path, {"token": token.sign(), **fields})


def test_a_first_attempt_is_refused_without_redis_and_without_sql(
    late: PurchaseToken, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    with redis_commands() as commands, django_assert_num_queries(0):
        answer = place(late, attempt=1)
    assert answer.status == 409
    assert answer.json["code"] == "sold_out"
    assert list(commands) == []


@pytest.mark.parametrize("fields", [{}, {"attempt": 2}, {"attempt": "2"}])
def test_an_attempt_that_may_not_be_the_first_always_asks_the_ledger(
    late: PurchaseToken, fields: dict[str, Any]
) -> None:
    with redis_commands() as commands:
        assert place(late, **fields).status == 409
    assert len(commands.ledger) == 1


def test_a_winner_whose_answer_was_lost_is_never_told_that_all_is_sold_out(
    winner: PurchaseToken, late: PurchaseToken
) -> None:
    assert sold_out.heard(sale_id=winner.sale_id)
    answer = place(winner, attempt=2)
    assert answer.status == 202
    assert answer.json["order_id"] == str(winner.order_id)


def test_a_unit_that_comes_back_is_sold_to_a_first_attempt_once_the_moment_is_over(
    winner: PurchaseToken, late: PurchaseToken, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = Holding(winner.order_id, winner.user_id, 1)
    release(sale_id=winner.sale_id, releases=[Release(held, "cancelled")])
    assert place(late, attempt=1).status == 409  # within the moment it may be said still
    monkeypatch.setattr(sold_out, "monotonic", lambda: 1e12)
    assert place(late, attempt=1).status == 202
    assert holdings(sale_id=late.sale_id, user_id=late.user_id, limit=1) == [late.order_id]


def test_repeating_it_does_not_make_the_moment_longer(late: PurchaseToken) -> None:
    heard = sold_out.heard(sale_id=late.sale_id)
    place(late, attempt=1)
    assert sold_out.heard(sale_id=late.sale_id) is heard


def test_it_says_when_the_request_arrived_and_since_when_nothing_is_left(
    late: PurchaseToken, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard = sold_out.heard(sale_id=late.sale_id)
    assert heard
    monkeypatch.setattr(sold_out, "monotonic", lambda: heard.at + 0.12)
    refusal = place(late, attempt=1).json
    assert refusal["arrived_at_ms"] == heard.arrived_at_ms + 120
    assert refusal["sold_out_at_ms"] == heard.sold_out_at_ms


@pytest.mark.parametrize(
    ("change", "status", "code"),
    [
        (lambda text: text[:-1] + ("A" if text[-1] != "A" else "B"), 403, "bad_token"),
        (lambda text: "", 400, "invalid"),
        (lambda text: 5, 400, "invalid"),
    ],
)
def test_a_token_that_is_none_is_refused_as_such(
    late: PurchaseToken, change: Any, status: int, code: str
) -> None:
    path = f"/vouchers/{late.sale_id}/orders/"
    answer = ask("POST", path, {"token": change(late.sign()), "attempt": 1})
    assert (answer.status, answer.json["code"]) == (status, code)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"null",
        b"{",
        b"\xff",
        b"[" * 8000,
        b'{"attempt": 1, "attempt": 1, "token": "%s"}',
        b'{"attempt": true, "token": "%s"}',
        b'{"attempt": 1.0, "token": "%s", "token": "%s"}',
    ],
    ids=lambda body: repr(body[:20]),
)
def test_an_odd_body_gets_the_same_answer_as_without_the_gate(
    late: PurchaseToken, body: bytes
) -> None:
    body = body.replace(b"%s", late.sign().encode())
    path = f"/vouchers/{late.sale_id}/orders/"
    behind = ask("POST", path, body=body)
    sold_out.forget()
    assert behind.status == ask("POST", path, body=body).status == 400


@pytest.mark.parametrize("accepted", ["en", "zh-CN,zh;q=0.9", "de", ""])
def test_the_words_are_those_that_the_ledgers_refusal_has(
    late: PurchaseToken, accepted: str
) -> None:
    from_gate = place_with(late, HTTP_ACCEPT_LANGUAGE=accepted)
    sold_out.forget()
    from_ledger = place_with(late, HTTP_ACCEPT_LANGUAGE=accepted)
    assert from_gate.json["message"] == from_ledger.json["message"]


@pytest.mark.parametrize("language", ["en", "zh-hans"])
def test_the_language_that_was_chosen_is_kept(late: PurchaseToken, language: str) -> None:
    cookie = f"sessionid=x; django_language={language}; other=1"
    from_gate = place_with(late, HTTP_COOKIE=cookie)
    sold_out.forget()
    assert from_gate.json["message"] == place_with(late, HTTP_COOKIE=cookie).json["message"]


def place_with(token: PurchaseToken, **headers: str) -> Answer:
    path = f"/vouchers/{token.sale_id}/orders/"
    return ask("POST", path, {"token": token.sign(), "attempt": 1}, **headers)


def test_a_page_without_a_script_is_answered_by_a_page(late: PurchaseToken) -> None:
    path = f"/vouchers/{late.sale_id}/orders/"
    answer = ask("POST", path, {"token": late.sign(), "attempt": 1}, accept="text/html")
    assert answer.status == 409
    assert answer.headers["content-type"].startswith("text/html")
    assert "content-security-policy" in answer.headers


def test_what_the_gate_refuses_is_counted_like_any_refusal(late: PurchaseToken) -> None:
    place(late, attempt=1)
    tally.flush()
    sale = SeckillVoucher.objects.get(pk=late.sale_id)
    counts = {it.answer: it.count for it in tally.tally(sale=sale)}
    assert counts["sold_out"] == 2


def test_the_headers_of_both_say_the_same(late: PurchaseToken) -> None:
    from_gate = place(late, attempt=1).headers
    sold_out.forget()
    from_ledger = place(late, attempt=1).headers
    for name in ("content-type", "cache-control", "x-content-type-options", "referrer-policy"):
        assert from_gate[name] == from_ledger[name]
