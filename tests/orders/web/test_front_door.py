"""Orders at the front door: in the words of Django; sold out without asking only for a moment, and
only for a first attempt."""

from __future__ import annotations

import asyncio
import io
import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from typing import Any

import pytest
from django.conf import settings
from django.utils import timezone
from django.utils.module_loading import import_string
from pytest_django import Settings
from redis.connection import parse_url

from orders.fulfilment.worker import fulfil_sale
from orders.placing import publisher as publisher_module
from orders.placing.publisher import publisher
from orders.placing.tokens import PurchaseToken
from orders.web.front_door import order
from seckill_site import process_memory
from seckill_site.front_door import ledger_node as ledger_node_module
from seckill_site.front_door.application import FrontDoor
from seckill_site.front_door.ledger_node import ledger_node
from seckill_site.redis.ledger_connection import ledger_connection
from seckill_site.wsgi import django
from tests.support import wsgi
from tests.support.asgi import ask, loop, open_door
from tests.support.browsers import session_cookie
from tests.support.inspection import redis_commands
from tests.support.orders import make_buyer, make_buyers, make_sale, reserved, token_for, tokens_for
from tests.support.patience import GENEROUS_S, wait_for
from tests.support.proxy import FaultProxy, redis_server
from tests.support.tiers import slow_after
from tests.support.wsgi import Answer
from vouchers.inventory import request_stats, sold_out_cache
from vouchers.inventory.holdings import Holding, held_order_ids
from vouchers.inventory.keys import LedgerKeys
from vouchers.inventory.reservations import Release, release
from vouchers.models import SeckillVoucher

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def long_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let what was heard be good for as long as a test takes."""
    monkeypatch.setattr(sold_out_cache._answers, "for_s", 60)


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


@pytest.mark.parametrize("fields", [{}, {"attempt": 2}, {"attempt": "2"}])
def test_later_attempt_always_asks_the_ledger(late: PurchaseToken, fields: dict[str, Any]) -> None:
    with redis_commands() as commands:
        assert place(late, **fields).status == 409
    assert len(commands.ledger) == 1


def test_winner_retrying_is_never_told_sold_out(winner: PurchaseToken, late: PurchaseToken) -> None:
    assert sold_out_cache.recall_sold_out(sale_id=winner.sale_id)
    answer = place(winner, attempt=2)
    assert answer.status == 202
    assert answer.json["order_id"] == str(winner.order_id)


def test_returned_unit_is_sold_after_cache_expires(
    winner: PurchaseToken, late: PurchaseToken, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = Holding(winner.order_id, winner.user_id, 1)
    release(sale_id=winner.sale_id, releases=[Release(held, "cancelled")])
    assert place(late, attempt=1).status == 409  # within the moment it may be said still
    monkeypatch.setattr(process_memory, "monotonic", lambda: 1e12)
    assert place(late, attempt=1).status == 202
    assert held_order_ids(sale_id=late.sale_id, user_id=late.user_id) == [late.order_id]


def test_cached_refusal_does_not_extend_the_cache(late: PurchaseToken) -> None:
    heard = sold_out_cache.recall_sold_out(sale_id=late.sale_id)
    place(late, attempt=1)
    assert sold_out_cache.recall_sold_out(sale_id=late.sale_id) is heard


def test_cached_refusal_has_arrival_and_sold_out_times(
    late: PurchaseToken, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard = sold_out_cache.recall_sold_out(sale_id=late.sale_id)
    assert heard
    monkeypatch.setattr(sold_out_cache, "monotonic", lambda: heard.remembered_at_s + 0.12)
    refusal = place(late, attempt=1).json
    assert refusal["arrived_at_ms"] == heard.arrived_at_ms + 120
    assert refusal["sold_out_at_ms"] == heard.sold_out_at_ms


@pytest.mark.parametrize(
    ("body", "status"),
    slow_after(
        2,
        [
            (b"{", 400),
            (b'{"token": "", "attempt": 1}', 400),
            (b'{"token": "%s", "attempt": true}', 400),
            (b'{"token": "%sA", "attempt": 1}', 403),
        ],
    ),
)
def test_bad_request_is_refused_before_sold_out(
    late: PurchaseToken, body: bytes, status: int
) -> None:
    path = f"/vouchers/{late.sale_id}/orders/"
    answer = ask("POST", path, body=body.replace(b"%s", late.sign().encode()))
    assert answer.status == status


@pytest.mark.parametrize(
    "headers",
    slow_after(
        1,
        [
            {"HTTP_ACCEPT_LANGUAGE": "en"},
            {"HTTP_ACCEPT_LANGUAGE": "zh-CN,zh;q=0.9"},
            {"HTTP_ACCEPT_LANGUAGE": ""},
            {"HTTP_COOKIE": "sessionid=x; django_language=zh-hans; other=1"},
        ],
    ),
)
def test_cached_refusal_has_the_ledgers_words(late: PurchaseToken, headers: dict[str, Any]) -> None:
    from_gate = place_with(late, **headers)
    sold_out_cache._answers.forget()
    from_ledger = place_with(late, **headers)
    assert from_gate.json["message"] == from_ledger.json["message"]
    for name in ("content-type", "cache-control", "x-content-type-options", "referrer-policy"):
        assert from_gate.headers[name] == from_ledger.headers[name]


def place_with(token: PurchaseToken, **headers: Any) -> Answer:
    path = f"/vouchers/{token.sale_id}/orders/"
    return ask("POST", path, {"token": token.sign(), "attempt": 1}, **headers)


def test_html_request_gets_a_page(late: PurchaseToken) -> None:
    path = f"/vouchers/{late.sale_id}/orders/"
    answer = ask("POST", path, {"token": late.sign(), "attempt": 1}, accept="text/html")
    assert answer.status == 409
    assert answer.headers["content-type"].startswith("text/html")
    assert "content-security-policy" in answer.headers


def test_refusals_at_the_front_door_are_counted(late: PurchaseToken) -> None:
    place(late, attempt=1)
    assert counted(late)["sold_out"] == 2


# --- What the front door answers, and what it leaves to Django ------------------------------------

Asked = tuple[str, str, dict[str, Any]]
"""Method, path, and what ``ask`` is given besides."""


def an_order(token: PurchaseToken, **fields: Any) -> Asked:
    path = f"/vouchers/{token.sale_id}/orders/"
    return "POST", path, {"fields": {"token": token.sign(), **fields}}


def a_receipt(token: PurchaseToken, *, of: int | None = None) -> Asked:
    path = f"/vouchers/{token.sale_id}/orders/{of or token.order_id}/"
    return "GET", path, {"HTTP_PURCHASE_TOKEN": token.sign()}


def one_token(**sale: Any) -> PurchaseToken:
    return token_for(make_sale(**sale), make_buyer())


def one_of_a_sold_out_sale() -> PurchaseToken:
    sale = make_sale(stock=1)
    reserved(sale, [make_buyer()])
    return token_for(sale, make_buyer())


def one_whose_buyer_has_ordered() -> PurchaseToken:
    sale, buyer = make_sale(), make_buyer()
    reserved(sale, [buyer])
    return token_for(sale, buyer)


def one_whose_sale_is_behind() -> PurchaseToken:
    sale, buyer = make_sale(), make_buyer()
    keys = LedgerKeys(sale.pk)
    ledger_connection().zadd(keys.pending, {"1:999999:1": time.time() * 1000 - 45_300})
    return token_for(sale, buyer)


def one_of_another_sale() -> Asked:
    _, _, options = an_order(one_token())
    return "POST", f"/vouchers/{make_sale().pk}/orders/", options


def one_queued() -> PurchaseToken:
    return reserved(make_sale(), [make_buyer()])[0]


def one_unpaid() -> PurchaseToken:
    token = one_queued()
    fulfil_sale(sale_id=token.sale_id)
    return token


def one_with_a_copy_of_another_buyer() -> PurchaseToken:
    token = one_unpaid()
    return token._replace(user_id=make_buyer().pk)


def through_django(asked: Asked) -> Answer:
    """Ask Django alone."""
    method, path, options = asked
    return wsgi.ask(method, path, **options)


def at_the_door(asked: Asked) -> Answer:
    """Ask the front door, with nothing behind it but the headers of the site."""
    method, path, options = asked
    responders = [import_string(name) for name in settings.SECKILL_FRONT_DOOR]
    return ask(method, path, **options, door=FrontDoor(nobody, responders=responders))


def nobody(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
    if environ["PATH_INFO"] == "/healthz":
        return django(environ, start_response)
    start_response("599 Left to Django", [])
    return []


ANSWERED: dict[str, tuple[Callable[[], Asked], int]] = {
    "wins": (lambda: an_order(one_token()), 202),
    "has ordered": (lambda: an_order(one_whose_buyer_has_ordered()), 409),
    "sold out": (lambda: an_order(one_of_a_sold_out_sale()), 409),
    "too early": (lambda: an_order(one_token(begins_in_s=60)), 409),
    "too late": (lambda: an_order(one_token(begins_in_s=-60, ends_in_s=-5)), 409),
    "paused": (lambda: an_order(one_token(paused=True)), 409),
    "behind": (lambda: an_order(one_whose_sale_is_behind()), 503),
    "another sale's token": (one_of_another_sale, 403),
    "no token": (lambda: ("POST", "/vouchers/1/orders/", {"fields": {}}), 400),
    "an odd attempt": (lambda: an_order(one_token(), attempt="first"), 400),
    "a body that is no JSON": (lambda: ("POST", "/vouchers/1/orders/", {"body": b"{"}), 400),
    "receipt, queued": (lambda: a_receipt(one_queued()), 200),
    "receipt, unpaid": (lambda: a_receipt(one_unpaid()), 200),
    "receipt, another's": (lambda: a_receipt(one_with_a_copy_of_another_buyer()), 404),
    "receipt, forged": (
        lambda: ("GET", "/vouchers/1/orders/2/", {"HTTP_PURCHASE_TOKEN": "2-3-1-9:x"}),
        403,
    ),
}
"""What the front door answers by itself: how to ask, and the status."""

OF_THE_MOMENT = {"server_time_ms", "arrived_at_ms", "sold_out_at_ms", "poll_after_ms"}


@pytest.mark.parametrize("language", ["en", "zh-hans"])
@pytest.mark.parametrize("what", slow_after(2, ANSWERED))
def test_front_door_answers_like_django(
    what: str,
    language: str,
) -> None:
    make, status = ANSWERED[what]
    method, path, options = make()
    asked = method, path, {**options, "HTTP_ACCEPT_LANGUAGE": language}
    ours, djangos = at_the_door(asked), through_django(asked)
    assert ours.status == djangos.status == status
    assert without_times(ours.json) == without_times(djangos.json)
    assert ours.json.keys() == djangos.json.keys()
    del ours.headers["content-length"], djangos.headers["content-length"]  # of times, too
    assert ours.headers == djangos.headers


def without_times(content: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in content.items() if name not in OF_THE_MOMENT}


LEFT: dict[str, Callable[[], Asked]] = {
    "a form": lambda: (
        "POST",
        "/vouchers/1/orders/",
        {"body": b"token=x", "CONTENT_TYPE": "application/x-www-form-urlencoded"},
    ),
    "a page": lambda: (*an_order(one_token())[:2], {"fields": {}, "accept": "text/html"}),
    "another method": lambda: ("GET", "/vouchers/1/orders/", {}),
    "too large a body": lambda: ("POST", "/vouchers/1/orders/", {"body": b" " * 9_000}),
    "a receipt by session": lambda: ("GET", "/vouchers/1/orders/2/", {}),
    "a receipt with another order's token": lambda: a_receipt(one_queued(), of=7),
    "a receipt of which Redis knows nothing": lambda: a_receipt(one_token()),
    "a receipt asked for by HEAD": lambda: ("HEAD", *a_receipt(one_queued())[1:]),
}


@pytest.mark.parametrize("what", LEFT)
def test_front_door_leaves_the_rest_to_django(what: str) -> None:
    assert at_the_door(LEFT[what]()).status == 599


def test_unloaded_sale_is_loaded_and_sold() -> None:
    method, path, options = an_order(one_token(loaded=False))
    assert ask(method, path, **options).status == 202
    assert ask(method, path, **options).status == 202


def test_redis_down_returns_503_on_both_paths(lose_ledger: Callable[[], None]) -> None:
    order, receipt = an_order(one_token()), a_receipt(one_queued())
    lose_ledger()
    ours, djangos = at_the_door(order), through_django(order)
    assert at_the_door(receipt).status == 599  # the row may know
    assert ours.status == djangos.status == 503
    assert ours.json == djangos.json
    assert ours.headers["retry-after"] == djangos.headers["retry-after"]


# --- What a fast path answers when it is asked in another way -------------------------------------


def as_buyer() -> dict[str, Any]:
    """Return the cookie of a buyer who has signed in."""
    return {"HTTP_COOKIE": session_cookie(make_buyer())}


FAST: dict[str, Callable[[], Asked]] = {
    "an order": lambda: an_order(one_token()),
    "a receipt": lambda: a_receipt(one_queued()),
    "token/": lambda: ("GET", f"/vouchers/{make_sale().pk}/token/", as_buyer()),
    "live/": lambda: ("GET", f"/vouchers/{make_sale().pk}/live/", {}),
    "me/": lambda: ("GET", "/me/", as_buyer()),
    "/healthz": lambda: ("GET", "/healthz", {}),
    "the sales": lambda: ("GET", "/", {"accept": "text/html"}),
    "a sale": lambda: ("GET", f"/vouchers/{make_sale().pk}/", {"accept": "text/html"}),
}
"""What the front door may answer by itself, as it is usually asked."""

STORED = {"the sales", "a sale"}


def by_method(method: str) -> Callable[[Asked], Asked]:
    return lambda asked: (method, asked[1], {**asked[2], "fields": None})


def at_foreign_host(asked: Asked) -> Asked:
    method, path, options = asked
    return method, path, {**options, "HTTP_HOST": "evil.example"}


UNUSUAL: dict[str, Callable[[Asked], Asked]] = {
    "HEAD": by_method("HEAD"),
    "PUT": by_method("PUT"),
    "a foreign host": at_foreign_host,
}


@pytest.mark.parametrize("how", slow_after(2, UNUSUAL))
@pytest.mark.parametrize("what", slow_after(1, FAST))
def test_unusual_request_gets_the_answer_of_plain_wsgi(what: str, how: str) -> None:
    method, path, options = UNUSUAL[how](FAST[what]())
    options["HTTP_ACCEPT_LANGUAGE"] = "zh-hans"
    djangos = wsgi.ask(method, path, QUERY_STRING="", **options)
    ours = ask(method, path, **options)
    assert ours.status == djangos.status
    assert headers_of(ours) == headers_of(djangos, is_stored=what in STORED and how == "HEAD")
    assert ours.body == b"" if method == "HEAD" else timeless(ours) == timeless(djangos)


def headers_of(answer: Answer, *, is_stored: bool = False) -> dict[str, str]:
    headers = {name: value for name, value in answer.headers.items() if name != "etag"}
    if is_stored:
        headers["vary"] = ", ".join([*filter(None, [headers.get("vary")]), "Accept-Encoding"])
    return headers


def timeless(answer: Answer) -> Any:
    is_json = answer.headers.get("content-type") == "application/json" and answer.body
    return without_times(answer.json) if is_json else answer.body


@pytest.mark.parametrize("language", ["en", "zh-hans"])
def test_huge_order_is_refused_like_one_too_large(language: str) -> None:
    """The front door reads no body above 16 MiB, and Django takes no order above 8 KiB."""
    token = one_token()
    path, as_asked = f"/vouchers/{token.sale_id}/orders/", {"HTTP_ACCEPT_LANGUAGE": language}
    huge = ask("POST", path, body=b"{}", CONTENT_LENGTH=str(17 * 1024 * 1024), **as_asked)
    large = ask("POST", path, body=b" " * 9_000, **as_asked)
    djangos = wsgi.ask("POST", path, body=b" " * 9_000, **as_asked)
    assert (
        (huge.status, huge.json["code"]) == (large.status, large.json["code"]) == (413, "invalid")
    )
    assert large == djangos
    for answer in (huge, large):
        assert answer.headers.pop("content-length") == str(len(answer.body))
    assert huge.headers["cache-control"] == "no-store"
    for headers in (huge.headers, large.headers):
        del headers["vary"]  # no cache keeps them
    assert huge.headers == large.headers


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_huge_body_to_any_page_is_refused(method: str) -> None:
    answer = ask(method, "/", body=b"{}", CONTENT_LENGTH=str(17 * 1024 * 1024))
    assert answer.status == 413
    assert (answer.body == b"") == (method == "HEAD")
    assert int(answer.headers["content-length"]) > 0
    assert answer.headers["x-content-type-options"] == "nosniff"


# --- Nobody waits for the answer, or the broker ---------------------------------------------------


@pytest.fixture
def ledger_line(settings: Settings) -> Iterator[FaultProxy]:
    """A line to the ledger on which the front door's replies can be held back."""
    with FaultProxy(redis_server(settings.REDIS_URL)) as line:
        database = parse_url(settings.REDIS_URL).get("db", 0)
        caches: dict[str, Any] = {name: dict(cache) for name, cache in settings.CACHES.items()}
        caches["ledger"]["LOCATION"] = line.url(database, like=settings.REDIS_URL)
        settings.CACHES = caches
        open_door()
        yield line
        asyncio.run_coroutine_threadsafe(close_line(), loop()).result(GENEROUS_S)


async def close_line() -> None:
    """Close and forget the event loop's connection to a ledger that another test does not have."""
    node, nodes = ledger_node(), ledger_node_module._nodes()
    await node.close()
    for key in [key for key, found in nodes.items() if found is node]:
        del nodes[key]


@pytest.fixture
def published(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """The sales whose fulfil task the publisher has sent."""
    found: list[int] = []
    monkeypatch.setattr(
        publisher_module, "publish_fulfilment", lambda sale_id: found.append(sale_id)
    )
    yield found
    assert publisher.drain(longest_s=GENEROUS_S)


def start_order(token: PurchaseToken) -> Future[Any]:
    """Start the front door's coroutine in its event loop, and return its task."""
    method, path, options = an_order(token)
    body = json.dumps(options["fields"]).encode()
    environ = {
        "REQUEST_METHOD": method,
        "PATH_INFO": path,
        "CONTENT_TYPE": "application/json",
        "CONTENT_LENGTH": str(len(body)),
        "wsgi.input": io.BytesIO(body),
    }
    return asyncio.run_coroutine_threadsafe(order(environ), loop())


def cancel_once_written(token: PurchaseToken, line: FaultProxy) -> None:
    """Cancel an order while its reply is under way, then let the reply arrive."""
    line.hold_replies(1, matching=b"EVALSHA")
    task = start_order(token)
    line.wait_for_fault(GENEROUS_S)
    assert task.cancel()
    line.release()


def counted(token: PurchaseToken) -> dict[str, int]:
    """Return how often each answer was given, in whichever seconds."""
    request_stats.flush_request_counts()
    sale = SeckillVoucher.objects.get(pk=token.sale_id)
    counts = Counter[str]()
    for it in request_stats.read_request_counts(sale=sale):
        counts[it.answer] += it.count
    return counts


def test_cancelled_order_is_published_and_counted(
    ledger_line: FaultProxy, published: list[int]
) -> None:
    token = one_token()
    cancel_once_written(token, ledger_line)
    wait_for(lambda: published == [token.sale_id], what="the fulfil task")
    wait_for(lambda: counted(token) == {"accepted": 1}, what="the count")
    assert held_order_ids(sale_id=token.sale_id, user_id=token.user_id) == [token.order_id]


def test_cancelled_order_is_remembered_as_sold_out(ledger_line: FaultProxy) -> None:
    token = one_of_a_sold_out_sale()
    cancel_once_written(token, ledger_line)
    wait_for(lambda: sold_out_cache.recall_sold_out(sale_id=token.sale_id), what="the memory")
    wait_for(lambda: counted(token) == {"sold_out": 1}, what="the count")


def test_order_is_answered_while_the_broker_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    token = one_token()
    is_asked, is_back = threading.Event(), threading.Event()

    def block(*, sale_id: int) -> None:
        is_asked.set()
        is_back.wait(GENEROUS_S)

    monkeypatch.setattr(publisher_module, "publish_fulfilment", block)
    open_door()
    try:
        answer = start_order(token).result(GENEROUS_S / 2)
        assert answer.status == 202
        assert is_asked.wait(GENEROUS_S)
    finally:
        is_back.set()
    assert publisher.drain(longest_s=GENEROUS_S)


@pytest.mark.parametrize("way", [ask, wsgi.ask])
def test_late_token_of_a_removed_ledger_is_answered_by_rows(way: Callable[..., Answer]) -> None:
    sale = make_sale()
    known, other = tokens_for(sale, make_buyers(2))
    assert place(known).status == 202
    fulfil_sale(sale_id=sale.pk)
    ledger_connection().unlink(*LedgerKeys(sale.pk).movable)
    SeckillVoucher.objects.filter(pk=sale.pk).update(ledger_removed_at=timezone.now())

    path = f"/vouchers/{sale.pk}/orders/"
    answers = [way("POST", path, {"token": it.sign()}) for it in (known, other)]

    assert [(it.status, it.json.get("code")) for it in answers] == [(202, None), (409, "ended")]
    assert answers[0].json["order_id"] == str(known.order_id)
    assert held_order_ids(sale_id=sale.pk, user_id=known.user_id) == []
