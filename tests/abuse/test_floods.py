"""Attacks on the processes: bodies that are too large or too slow, many sign-ups at once."""

from __future__ import annotations

import asyncio
import select
import socket
import time
from contextlib import ExitStack
from itertools import cycle
from typing import Any
from urllib.parse import urlencode

import pytest
from django.db import connection

from backoffice.rehearsal.http_client import Address
from orders.web import request_parsing
from seckill_site.asgi import application
from seckill_site.front_door import requests
from seckill_site.web import middleware
from tests.abuse import guard_and_control
from tests.concurrency.sales import crowd_of
from tests.concurrency.sales import make_sale as make_open_sale
from tests.support import asgi, wsgi
from tests.support.browsers import browser_of
from tests.support.crowd import fire, post
from tests.support.orders import make_buyer, make_sale, token_for
from tests.support.patience import GENEROUS_S
from tests.support.stack import Stack
from tests.support.staff import staff_with
from tests.support.tiers import slow_after
from vouchers.web.public import GATHER_S

MIB = 1024 * 1024


# --- Bodies ---------------------------------------------------------------------------------------


@guard_and_control
@pytest.mark.django_db
@pytest.mark.parametrize("ask", [asgi.ask, wsgi.ask], ids=["front door", "Django"])
def test_order_in_a_large_body_is_refused(
    ask: Any, guarded: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not guarded:
        monkeypatch.setattr(request_parsing, "LARGEST_BODY_BYTES", MIB)
    sale = make_sale()
    text = token_for(sale, make_buyer()).sign()
    body = b'{"token": "%s"%s}' % (text.encode(), b" " * 9_000)

    answer = ask("POST", f"/vouchers/{sale.pk}/orders/", body=body)

    assert answer.status == (413 if guarded else 202)


@guard_and_control
@pytest.mark.django_db
def test_body_without_end_is_not_read_to_its_end(
    guarded: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It does not say how long it is; the control takes whatever comes."""
    if not guarded:
        for module in (requests, middleware):
            monkeypatch.setattr(module, "LONGEST_BODY_BYTES", 1_000 * MIB)
    monkeypatch.setattr(requests, "LONGEST_BODY_S", GENEROUS_S)
    parts = [{"type": "http.request", "body": b"x" * MIB, "more_body": True} for _ in range(19)]
    parts.append({"type": "http.request", "body": b"x" * MIB, "more_body": False})
    read = []

    async def counting(scope: Any, receive: Any, send: Any) -> None:
        async def receive_one() -> Any:
            read.append(await receive())
            return read[-1]

        await application(scope, receive_one, send)

    headers = [(b"host", b"localhost"), (b"transfer-encoding", b"chunked")]
    scope = {"type": "http", "method": "POST", "path": "/no/such/page", "headers": headers}
    answer = asgi.answer_to(scope, parts, door=counting)

    assert (answer.status, len(read)) == ((413, 17) if guarded else (404, 20))


@guard_and_control
@pytest.mark.django_db
def test_body_that_trickles_in_is_given_up(guarded: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "LONGEST_BODY_S", 0.1 if guarded else GENEROUS_S)
    sale = make_sale()
    fields = {"token": token_for(sale, make_buyer()).sign()}

    async def trickling(scope: Any, receive: Any, send: Any) -> None:
        body = (await receive())["body"]
        parts = [body[start : start + 10] for start in range(0, len(body), 10)]

        async def receive_a_little() -> dict[str, Any]:
            await asyncio.sleep(0.02)
            return {"type": "http.request", "body": parts.pop(0), "more_body": bool(parts)}

        await application(scope, receive_a_little, send)

    answer = asgi.ask("POST", f"/vouchers/{sale.pk}/orders/", fields, door=trickling)

    assert answer.status == (408 if guarded else 202)


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("who", "path", "status"),
    slow_after(
        2,
        [
            ("staff", "/admin/vouchers/voucher/add/", 403),
            ("staff", "/accounts/login/", 408),
            ("buyer", "/admin/vouchers/voucher/add/", 408),
            ("nobody", "/admin/vouchers/voucher/add/", 408),
        ],
    ),
)
def test_only_staff_have_time_for_uploads(
    who: str, path: str, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requests, "LONGEST_BODY_S", 0.6)
    people = {"staff": staff_with("add_voucher"), "buyer": browser_of(make_buyer())}
    cookie = ""
    if browser := people.get(who):
        browser.get("/admin/")
        cookie = f"sessionid={browser.cookies['sessionid'].value}"

    async def slowly(scope: Any, receive: Any, send: Any) -> None:
        parts = [b"x" * MIB, b"x"]

        async def receive_a_part() -> dict[str, Any]:
            await asyncio.sleep(0.35)
            return {"type": "http.request", "body": parts.pop(0), "more_body": bool(parts)}

        await application(scope, receive_a_part, send)

    length = {"CONTENT_LENGTH": str(MIB + 1), "HTTP_COOKIE": cookie}
    assert asgi.ask("POST", path, body=b"x", door=slowly, **length).status == status


# --- Made-up sales --------------------------------------------------------------------------------


def statements() -> int:
    """Return how many queries the database has answered."""
    with connection.cursor() as cursor:
        cursor.execute("SHOW GLOBAL STATUS LIKE 'Com_select'")
        return int(cursor.fetchone()[1])


@pytest.mark.slow
@pytest.mark.concurrency
@pytest.mark.usefixtures("row_locks")
def test_made_up_sales_share_few_queries(stack: Stack) -> None:
    web, html = stack.web(), {"Accept": "text/html"}
    address = Address.of(web.url)
    made_up = [
        address.request("GET", f"/vouchers/{10**9 + number}/{path}", headers=html)
        for number, path in zip(range(300), cycle(["", "room/", "live/"]), strict=False)
    ]
    fire(made_up[:3], url=web.url)  # so that everything is warm
    before, began_at = statements(), time.monotonic()
    answers = fire(made_up[3:], url=web.url)
    batches = 2 + (time.monotonic() - began_at) / GATHER_S
    assert {it.status for it in answers} == {404}
    assert statements() - before <= batches < len(answers)


# --- Sign-ups -------------------------------------------------------------------------------------


def sign_up(number: int) -> bytes:
    """Return the bytes of a sign-up, as a program sends it."""
    secret = "x" * 32
    password = "lang genug 1234"
    fields = {"username": f"bot{number}", "password1": password, "password2": password}
    body = urlencode({**fields, "csrfmiddlewaretoken": secret}).encode()
    head = (
        "POST /accounts/signup/ HTTP/1.1\r\nHost: localhost\r\n"
        "Content-Type: application/x-www-form-urlencoded\r\n"
        f"Content-Length: {len(body)}\r\nCookie: csrftoken={secret}\r\n\r\n"
    )
    return head.encode() + body


@pytest.mark.slow
@guard_and_control
@pytest.mark.concurrency
@pytest.mark.usefixtures("row_locks")
def test_sixteen_sign_ups_at_once_turn_no_order_away(stack: Stack, guarded: bool) -> None:
    """A program's order needs no thread; that of a form does, and sign-ups may not have them all.

    In the control as many passwords as come are hashed at once.
    """
    most = "1" if guarded else "100"
    web = stack.web(threads=2, SECKILL_DJANGO_WAITING="4", SECKILL_HASHES_AT_ONCE=most)
    sale = make_open_sale(stock=20)
    path, tokens = f"/vouchers/{sale.pk}/orders/", crowd_of(sale, count=6)
    forms = [post(path, {"token": it}, {"Accept": "text/html"}) for it in tokens[:3]]
    programs = [post(path, {"token": it}) for it in tokens[3:]]

    fire([*forms, *programs], url=web.url)  # so that everything is warm

    with ExitStack() as attackers:
        address = ("127.0.0.1", web.port)
        sockets = [
            attackers.enter_context(socket.create_connection(address, GENEROUS_S))
            for _ in range(16)
        ]
        for number, client in enumerate(sockets):
            client.sendall(sign_up(number))
        first = select.select(sockets, [], [], GENEROUS_S)[0][0]  # in the control, all is full now
        answers = fire([*forms, *programs], url=web.url)
        told = first.recv(12)

    statuses = [it.status for it in answers]
    assert set(statuses[3:]) == {202}
    if guarded:
        assert told in (b"HTTP/1.1 302", b"HTTP/1.1 429")
        assert set(statuses[:3]) == {303}
    else:
        assert told == b"HTTP/1.1 503"
        assert 503 in statuses[:3]
