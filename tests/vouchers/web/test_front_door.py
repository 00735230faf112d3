"""``live/`` and visitors' pages from memory: one call for many requests, nothing personal."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.utils import timezone
from pytest_django import DjangoAssertNumQueries

from locks.lua_script import ScriptCall
from seckill_site import asgi, process_memory
from seckill_site.front_door import shells
from tests.support import wsgi
from tests.support.asgi import ask, loop, open_door
from tests.support.browsers import session_cookie
from tests.support.inspection import redis_commands
from tests.support.orders import make_buyer, reserved
from tests.support.sales import HOUR, make_loaded_sale, make_sale, redis_now_ms
from tests.support.tiers import slow_after
from tests.support.wsgi import Answer
from vouchers.catalogue import public_sales
from vouchers.catalogue.public_sales import learn_sale
from vouchers.inventory import keys
from vouchers.inventory.keys import NotLoaded
from vouchers.inventory.sale_state import snapshot
from vouchers.models import SaleStage, SeckillVoucher
from vouchers.web import front_door as door

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Stop the monotonic clock of what a process remembers until a test sets it."""
    open_door()
    now = [1000.0]
    for module in (door, public_sales, process_memory, shells):
        monkeypatch.setattr(module, "monotonic", lambda: now[0])
    return now


def live(sale_id: int, way: Callable[..., Answer] = ask) -> Answer:
    return way("GET", f"/vouchers/{sale_id}/live/")


both = pytest.mark.parametrize("way", [ask, wsgi.ask])


def test_simultaneous_requests_cost_one_command_and_no_sql(
    django_assert_num_queries: DjangoAssertNumQueries,
) -> None:
    sale = make_loaded_sale(stock=7)
    assert learn_sale(sale_id=sale.pk).is_public
    with redis_commands() as commands, django_assert_num_queries(0):
        answers = [live(sale.pk) for _ in range(50)]
    assert {answer.status for answer in answers} == {200}
    assert {answer.json["remaining"] for answer in answers} == {7}
    assert len(commands.ledger) == 1


def test_sample_expires_after_a_tenth_of_a_second(clock: list[float]) -> None:
    sale = make_loaded_sale()
    live(sale.pk)
    clock[0] += door.FRESH_S
    with redis_commands() as commands:
        live(sale.pk)
    assert len(commands.ledger) == 1


def test_server_time_advances_between_samples(clock: list[float]) -> None:
    sale = make_loaded_sale()
    first = live(sale.pk).json["server_time_ms"]
    clock[0] += 0.05
    assert live(sale.pk).json["server_time_ms"] == first + 50


def test_server_time_is_never_early(clock: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    async def slow(call: ScriptCall[Any]) -> Any:
        clock[0] += 0.5
        return await keys.ask(call)

    monkeypatch.setattr(door, "ask", slow)
    server_time_ms = live(make_loaded_sale().pk).json["server_time_ms"]
    assert server_time_ms <= redis_now_ms()


def test_sale_starts_between_samples(clock: list[float]) -> None:
    now = timezone.now()
    sale = make_loaded_sale(begins_at=now + HOUR, ends_at=now + 2 * HOUR)
    assert live(sale.pk).json["state"] == "scheduled"
    taken = door._samples.last(sale.pk)
    assert taken
    assert taken.snapshot
    shortly_before = taken.snapshot._replace(now_ms=taken.snapshot.terms.begins_at_ms - 30)
    door._samples.keep(sale.pk, replace(taken, snapshot=shortly_before))
    clock[0] += 0.05
    assert live(sale.pk).json["state"] == "open"


@pytest.mark.parametrize("language", slow_after(1, ["en", "zh-hans"]))
def test_live_answers_like_django(language: str) -> None:
    path = f"/vouchers/{make_loaded_sale().pk}/live/"
    from_door = ask("GET", path, HTTP_ACCEPT_LANGUAGE=language)
    from_django = wsgi.ask("GET", path, HTTP_ACCEPT_LANGUAGE=language)
    assert from_door.headers == from_django.headers
    assert from_door.json.keys() == from_django.json.keys()


@both
def test_unloaded_sale_is_loaded(way: Callable[..., Answer]) -> None:
    sale = make_sale(stock=3)
    assert live(sale.pk, way).json["remaining"] == 3


@pytest.mark.parametrize("stage", [SaleStage.DRAFT, SaleStage.REHEARSAL])
@both
def test_live_shows_public_sales_alone(way: Callable[..., Answer], stage: SaleStage) -> None:
    answer = way("GET", f"/vouchers/{make_loaded_sale(stage=stage).pk}/live/")
    assert (answer.status, answer.json["code"]) == (404, "not_found")


@pytest.mark.parametrize("path", slow_after(1, ["live/", "", "room/"]))
@both
def test_published_sale_is_shown_within_half_a_second(
    way: Callable[..., Answer], path: str, clock: list[float]
) -> None:
    sale = make_loaded_sale(stage=SaleStage.DRAFT)
    path, sent = f"/vouchers/{sale.pk}/{path}", {"accept": "text/html"}
    assert way("GET", path, **sent).status == 404
    SeckillVoucher.objects.filter(pk=sale.pk).update(stage=SaleStage.PUBLIC)
    clock[0] += 0.5
    assert way("GET", path, **sent).status == 200


@pytest.mark.django_db(transaction=True)
@both
def test_live_goes_on_while_the_database_is_away(
    way: Callable[..., Answer], lose_database: Callable[[], None]
) -> None:
    path = f"/vouchers/{make_loaded_sale().pk}/live/"
    assert way("GET", path).status == 200
    lose_database()
    assert way("GET", path).status == 200


@both
def test_missing_sale_returns_404(way: Callable[..., Answer]) -> None:
    answer = live(999_999, way)
    assert (answer.status, answer.json["code"]) == (404, "not_found")


@both
def test_redis_down_returns_503(
    way: Callable[..., Answer], redis_gone: Callable[[], AbstractContextManager[None]]
) -> None:
    sale = make_loaded_sale()
    with redis_gone():
        answer = live(sale.pk, way)
    assert (answer.status, answer.json["code"]) == (503, "unavailable")


def test_old_sample_is_shown_while_a_newer_one_is_fetched(
    clock: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    over = asyncio.Event()

    async def slow(call: ScriptCall[Any]) -> Any:
        await over.wait()
        return await keys.ask(call)

    sale = make_loaded_sale()
    first = live(sale.pk).json
    monkeypatch.setattr(door, "ask", slow)
    clock[0] += 0.5
    again = live(sale.pk)
    loop().call_soon_threadsafe(over.set)
    assert again.status == 200
    assert again.json["server_time_ms"] == first["server_time_ms"] + 500


# --- Pages ----------------------------------------------------------------------------------------


def page(path: str, **headers: Any) -> Answer:
    return ask("GET", path, accept="text/html", HTTP_ACCEPT_LANGUAGE="en", **headers)


@pytest.mark.parametrize("language", slow_after(1, ["en", "zh-hans"]))
@pytest.mark.parametrize("path", ["/", "/vouchers/{}/"])
def test_page_is_djangos_and_costs_nothing_twice(
    path: str,
    language: str,
    django_assert_num_queries: DjangoAssertNumQueries,
) -> None:
    path = path.format(make_loaded_sale().pk)
    sent: dict[str, Any] = {"accept": "text/html", "HTTP_ACCEPT_LANGUAGE": language}
    first, djangos = ask("GET", path, **sent), wsgi.ask("GET", path, **sent)
    assert (first.status, first.body) == (djangos.status, djangos.body)
    assert first.headers.pop("etag").startswith('W/"')
    assert first.headers.pop("vary") == djangos.headers.pop("vary") + ", Accept-Encoding"
    assert first.headers == djangos.headers
    with redis_commands() as commands, django_assert_num_queries(0):
        assert ask("GET", path, **sent).body == first.body
    assert list(commands) == []


@pytest.mark.parametrize("buyer_first", [True, False])
def test_page_shows_nobody_whoever_asks_first(buyer_first: bool) -> None:
    buyer, sale = make_buyer(), make_loaded_sale()
    reserved(sale, [buyer])
    cookie = session_cookie(buyer)
    for path in ("/", f"/vouchers/{sale.pk}/"):
        with_cookie: dict[str, str] = {"HTTP_COOKIE": f"theme=dark; {cookie}"}
        asked = (with_cookie, {}) if buyer_first else ({}, with_cookie)
        first, second = (page(path, **headers) for headers in asked)
        assert first == second
        assert buyer.username not in first.body.decode()
    form = page(f"/vouchers/{sale.pk}/form/", HTTP_COOKIE=cookie)
    assert 'data-state="queued"' in form.body.decode()
    assert 'data-state="queued"' not in page(f"/vouchers/{sale.pk}/form/").body.decode()


@pytest.mark.parametrize("language", ["en", "zh-hans"])
def test_refusal_of_a_foreign_host_teaches_no_headers(language: str) -> None:
    sent: dict[str, Any] = {"HTTP_ACCEPT_LANGUAGE": language}
    refused = ask("POST", "/", body=b"x", CONTENT_LENGTH="99999999", HTTP_HOST="evil.test", **sent)
    assert refused.status == 413
    assert ask("GET", "/healthz", **sent).headers == wsgi.ask("GET", "/healthz", **sent).headers


@pytest.mark.parametrize("guarded", [True, False], ids=["guard", "control"])
def test_even_a_personal_page_would_be_kept_without_its_owner(
    guarded: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page with a buyer's state is not stored; if it were, it would be asked for as nobody."""
    door: Any = asgi.application
    monkeypatch.setattr(door._shells, "_is_shared", lambda it: "/form/" in it["PATH_INFO"])
    ask_django = door._shells._ask

    async def ask_without_cookies(environ: Any) -> Any:  # else the page is kept for nobody anyway
        start, body = await ask_django(environ)
        start["headers"] = [it for it in start["headers"] if it[0] != b"set-cookie"]
        return start, body

    monkeypatch.setattr(door._shells, "_ask", ask_without_cookies)
    if not guarded:
        plain = shells.visit

        def visit(environ: Any, *args: Any, **more: Any) -> Any:
            return plain(environ, *args, **more) | {"HTTP_COOKIE": environ.get("HTTP_COOKIE", "")}

        monkeypatch.setattr(shells, "visit", visit)
    buyer, sale = make_buyer(), make_loaded_sale()
    reserved(sale, [buyer])
    cookie = session_cookie(buyer)
    path = f"/vouchers/{sale.pk}/form/"
    page(path, HTTP_COOKIE=cookie)

    is_shown = 'data-state="queued"' in page(path).body.decode()

    assert is_shown is not guarded


def test_head_tells_of_the_page_and_has_no_body() -> None:
    path = f"/vouchers/{make_loaded_sale().pk}/"
    whole = page(path)
    head = ask("HEAD", path, accept="text/html", HTTP_ACCEPT_LANGUAGE="en")
    assert (head.status, head.headers, head.body) == (200, whole.headers, b"")


@pytest.mark.parametrize("path", ["", "room/", "live/"])
def test_missing_sale_has_a_page_too(
    django_assert_num_queries: DjangoAssertNumQueries, path: str
) -> None:
    path = f"/vouchers/999999/{path}"
    with django_assert_num_queries(1):
        first = page(path)
        assert (page(path), first.status) == (first, 404)
    assert "We couldn’t find that sale" in first.body.decode().replace("&#x27;", "’")
    sent: dict[str, Any] = {"accept": "text/html", "HTTP_ACCEPT_LANGUAGE": "en"}
    assert wsgi.ask("GET", path, **sent).body == first.body


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("path", ["", "room/", "live/"])
def test_missing_sale_is_not_denied_without_the_database(
    path: str, clock: list[float], lose_database: Callable[[], None]
) -> None:
    path = f"/vouchers/999999/{path}"
    assert page(path).status == 404
    lose_database()
    clock[0] += 1
    assert page(path).status == 503


def test_draft_shows_itself_in_its_form_to_staff_alone() -> None:
    path = f"/vouchers/{make_loaded_sale(stage=SaleStage.DRAFT).pk}/form/"
    staff = User.objects.create(username="owner", is_staff=True, is_superuser=True)
    assert page(path, HTTP_COOKIE=session_cookie(staff)).status == 200
    assert page(path).status == 404


@both
def test_removed_ledger_is_answered_by_the_row(way: Callable[..., Answer]) -> None:
    sale = make_sale(begins_at=timezone.now() - 3 * HOUR, ends_at=timezone.now() - HOUR, sold=2)
    SeckillVoucher.objects.filter(pk=sale.pk).update(ledger_removed_at=timezone.now())
    answer = live(sale.pk, way)
    assert answer.status == 200
    figures = ("state", "total", "remaining")
    assert [answer.json[name] for name in figures] == ["ended", 5, 3]
    with pytest.raises(NotLoaded):
        snapshot(sale_id=sale.pk)
