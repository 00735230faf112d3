"""``room/``, and what a waiting room does to tokens, orders and pages, from both doors."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import ANY

import pytest
from django.contrib.auth.models import User
from django.contrib.staticfiles import finders
from pytest_django import DjangoAssertNumQueries

from orders.placing import places
from orders.placing.places import read_held_place
from orders.placing.tokens import read_token
from orders.web import room_answers
from seckill_site.clocks.machine import epoch_ms, now_ms
from seckill_site.process_memory import forget_everything
from tests.support import asgi, wsgi
from tests.support.browsers import session_cookie
from tests.support.inspection import redis_commands
from tests.support.orders import make_buyer, make_buyers, reserved, token_for
from tests.support.rooms import OPENED_MS, change_room, make_room
from tests.support.sales import change_state, redis_now_ms
from tests.support.tiers import slow_after
from tests.support.wsgi import Answer
from vouchers.catalogue.sales import delete_sale
from vouchers.inventory.keys import LedgerKeys
from vouchers.inventory.waiting_room import PLACE_KEPT_MS, SignedPlace, Visitor
from vouchers.models import RoomKind, SaleStage, SeckillVoucher
from vouchers.web import front_door as door

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("long_memory")]

HTML = "text/html,application/xhtml+xml;q=0.9"
LARGEST_PAGE_BYTES = 15_000
ENGLISH = {"HTTP_ACCEPT_LANGUAGE": "en"}

Ask = Callable[..., Answer]


def from_door(method: str, path: str, *args: Any, **sent: Any) -> Answer:
    """Ask the front door, without what it remembers of the sale."""
    door._samples.forget()
    return asgi.ask(method, path, *args, **{**ENGLISH, **sent})


def from_django(method: str, path: str, *args: Any, **sent: Any) -> Answer:
    path, _, query = path.partition("?")
    answer = wsgi.ask(method, path, *args, QUERY_STRING=query, **{**ENGLISH, **sent})
    headers = {name: value.strip() for name, value in answer.headers.items()}  # as a server does
    return replace(answer, headers=headers)


DOORS = (from_door, from_django)
both = pytest.mark.parametrize("ask", DOORS, ids=["door", "django"])


class Browser:
    """A signed-in browser: it keeps the cookies that it is given."""

    def __init__(self, user: User, ask: Ask = from_door) -> None:
        self.ask_server = ask
        name, _, key = session_cookie(user).partition("=")
        self.cookies = {name: key}

    def get(self, path: str, **sent: Any) -> Answer:
        answer = self.ask_server("GET", path, HTTP_COOKIE=self.header, **sent)
        if found := answer.headers.get("set-cookie"):
            name, _, rest = found.partition("=")
            self.cookies[name] = rest.partition(";")[0]
        return answer

    @property
    def header(self) -> str:
        return "; ".join(f"{name}={value}" for name, value in self.cookies.items())

    def room(self, sale: SeckillVoucher, query: str = "") -> Any:
        answer = self.get(room_path(sale) + query)
        assert answer.status == 200, answer.body
        return answer.json

    def place(self, sale: SeckillVoucher) -> str:
        return self.cookies[f"place-{sale.pk}"]


def room_path(sale: SeckillVoucher) -> str:
    return f"/vouchers/{sale.pk}/room/"


def order(ask: Ask, sale: SeckillVoucher, token: str, **sent: Any) -> Answer:
    return ask("POST", f"/vouchers/{sale.pk}/orders/", {"token": token}, **sent)


# --- The same from both doors ---------------------------------------------------------------------


def _waiting(sale: SeckillVoucher, buyer: User) -> None:
    Browser(make_buyer()).room(sale)


def _soon(sale: SeckillVoucher, buyer: User) -> None:
    change_room(sale.pk, rate=1, since_ms=3_600_000)


def _drawn_later(sale: SeckillVoucher, buyer: User) -> None:
    change_room(sale.pk, rate=1, since_ms=3_600_000, shuffled=True)


def _in(sale: SeckillVoucher, buyer: User) -> None:
    Browser(buyer).room(sale)
    change_room(sale.pk, base=1)


def _expired(sale: SeckillVoucher, buyer: User) -> None:
    Browser(buyer).room(sale)
    change_room(sale.pk, base=1, since_ms=-PLACE_KEPT_MS)


def _holder(sale: SeckillVoucher, buyer: User) -> None:
    reserved(sale, [buyer])


def _over(sale: SeckillVoucher, buyer: User) -> None:
    change_state(sale.pk, ends_at_ms=redis_now_ms() - 1)


def _closed(sale: SeckillVoucher, buyer: User) -> None:
    change_state(sale.pk, mode_terms="")


def _sold_out(sale: SeckillVoucher, buyer: User) -> None:
    reserved(sale, make_buyers(sale.stock))


def _draft(sale: SeckillVoucher, buyer: User) -> None:
    SeckillVoucher.objects.filter(pk=sale.pk).update(stage=SaleStage.DRAFT)


def _rehearsal(sale: SeckillVoucher, buyer: User) -> None:
    SeckillVoucher.objects.filter(pk=sale.pk).update(stage=SaleStage.REHEARSAL)


def _deleted(sale: SeckillVoucher, buyer: User) -> None:
    delete_sale(sale_id=sale.pk)


STATES = [
    (_waiting, 200, "waiting"),
    (_soon, 200, "waiting"),
    (_drawn_later, 200, "drawn_later"),
    (_in, 200, "in"),
    (_expired, 200, "expired"),
    (_holder, 200, "in"),
    (_over, 200, "in"),
    (_closed, 200, "in"),
    (_sold_out, 200, "waiting"),
    (_draft, 404, None),
    (_rehearsal, 404, None),
    (_deleted, 404, None),
]


@pytest.mark.parametrize(("prepare", "status", "turn"), slow_after(2, STATES))
def test_front_door_answers_as_django_does(
    prepare: Callable[[SeckillVoucher, User], None], status: int, turn: str | None
) -> None:
    sale, buyer = make_room(), make_buyer()
    prepare(sale, buyer)
    header = Browser(buyer).header

    fast, complete = (
        ask("GET", room_path(sale), HTTP_COOKIE=header) for ask in (from_door, from_django)
    )

    assert (fast.status, fast.json.get("turn")) == (status, turn)
    assert complete.status == status
    assert same_headers(fast) == same_headers(complete)
    assert same_body(fast) == same_body(complete)
    assert ("set-cookie" in fast.headers) == (
        prepare not in (_holder, _over, _closed) and status == 200
    )


def same_headers(answer: Answer) -> dict[str, Any]:
    return {**answer.headers, "content-length": ANY}


def same_body(answer: Answer) -> dict[str, Any]:
    moving = ("server_time_ms", "wait_ms")
    return {**answer.json, **{name: ANY for name in moving if answer.json.get(name)}}


@both
def test_place_of_a_buyer_in_line(ask: Ask) -> None:
    sale = make_room(terms={"rate": 100, "since_ms": 30_000})
    Browser(make_buyer(), ask).room(sale)

    found = Browser(make_buyer(), ask).room(sale)

    assert found == {
        "turn": "waiting",
        "position": 2,
        "waiting": 2,
        "wait_ms": ANY,
        "poll_after_ms": ANY,
        "rate": 100,
        "url": room_path(sale),
        "state": "open",
        "remaining": sale.stock,
        "server_time_ms": ANY,
    }
    assert 25_000 < found["wait_ms"] <= 30_000
    assert found["poll_after_ms"] == pytest.approx(found["wait_ms"] * 0.8, abs=2)


@both
def test_place_before_the_start_says_when_that_is(ask: Ask) -> None:
    sale = make_room(begins_in_s=600)

    found = Browser(make_buyer(), ask).room(sale)

    assert (found["state"], found["begins_at_ms"]) == ("scheduled", epoch_ms(sale.begins_at))


@both
@pytest.mark.parametrize("cookie", slow_after(1, ["", "sessionid=unknown", "place-1=junk"]))
def test_visitor_who_is_not_signed_in_gets_401(ask: Ask, cookie: str) -> None:
    sent = {"HTTP_COOKIE": cookie} if cookie else {}

    answer = ask("GET", room_path(make_room()), **sent)

    assert (answer.status, answer.json["code"]) == (401, "login_required")
    assert "place-" not in answer.headers.get("set-cookie", "")


@both
def test_visitor_finds_no_room_of_a_sale_that_is_not_public(ask: Ask) -> None:
    sale, buyer = make_room(), make_buyer()
    for prepare in (_draft, _deleted):
        prepare(sale, buyer)
        answer = ask("GET", room_path(sale))
        assert (answer.status, answer.json["code"]) == (404, "not_found")


@both
def test_cookie_is_for_the_server_alone(ask: Ask) -> None:
    sale, browser = make_room(), Browser(make_buyer(), ask)

    answer = browser.get(room_path(sale))

    assert answer.headers["cache-control"] == "private, no-store"
    text, *attributes = answer.headers["set-cookie"].split("; ")
    assert read_held_place(text.partition("=")[2], sale_id=sale.pk)
    assert sorted(attributes) == ["HttpOnly", "Path=/", "SameSite=Lax"]


@pytest.mark.parametrize("accept", ["application/json", HTML])
def test_head_has_no_body(accept: str) -> None:
    sale, browser = make_room(), Browser(make_buyer())

    answer = from_door("HEAD", room_path(sale), accept=accept, HTTP_COOKIE=browser.header)

    assert (answer.status, answer.body) == (200, b"")


@both
def test_lost_ledger_is_said_and_place_is_kept(ask: Ask, redis_gone: Any) -> None:
    sale, browser = make_room(), Browser(make_buyer(), ask)
    first = browser.room(sale)

    with redis_gone():
        answer = browser.get(room_path(sale))

    assert (answer.status, answer.json["code"]) == (503, "unavailable")
    assert answer.headers["retry-after"] == "1"
    assert browser.room(sale)["position"] == first["position"]


@both
def test_sale_that_is_not_loaded_is_loaded(ask: Ask, ledger: Any) -> None:
    sale, browser = make_room(), Browser(make_buyer(), ask)
    ledger.delete(*LedgerKeys(sale.pk).contents)

    assert browser.get(room_path(sale)).status == 200
    assert browser.get(f"/vouchers/{sale.pk}/token/").status == 200


# --- The cost of a poll ---------------------------------------------------------------------------


def poll(browser: Browser, sale: SeckillVoucher) -> Answer:
    """Ask as a page in line does, of a process that knows the sale."""
    return asgi.ask("GET", room_path(sale), HTTP_COOKIE=browser.header)


@pytest.mark.parametrize("guarded", [True, False], ids=["guarded", "control"])
def test_poll_with_a_place_takes_no_command(
    guarded: bool,
    monkeypatch: pytest.MonkeyPatch,
    django_assert_num_queries: DjangoAssertNumQueries,
) -> None:
    """The signed place: without it each poll is a script in Redis, and a look for the session."""
    monkeypatch.setattr(door, "FRESH_S", 3600.0)
    sale, browser = make_room(), Browser(make_buyer())
    browser.room(sale)
    if not guarded:
        del browser.cookies[f"place-{sale.pk}"]

    with redis_commands() as commands, django_assert_num_queries(0):
        answers = [poll(browser, sale) for _ in range(3)]

    assert {it.json["turn"] for it in answers} == {"waiting"}
    expected = 0 if guarded else 3
    assert (len(commands.ledger), len(commands.cache)) == (expected, expected)
    assert {"set-cookie" in it.headers for it in answers} == {not guarded}


def test_polls_share_one_look_at_the_sale(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(door, "FRESH_S", 3600.0)
    sale = make_room()
    browsers = [Browser(it) for it in make_buyers(5)]
    for browser in browsers:
        browser.room(sale)
    door._samples.forget()

    with redis_commands() as commands:
        answers = [poll(browser, sale) for browser in browsers]

    assert [it.json["position"] for it in answers] == [1, 2, 3, 4, 5]
    assert len(commands.ledger) == 1


@pytest.mark.parametrize("prepare", slow_after(1, [_in, _expired, _holder]))
def test_poll_never_takes_more_than_one_script(
    prepare: Callable[[SeckillVoucher, User], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(door, "FRESH_S", 3600.0)
    sale, buyer = make_room(), make_buyer()
    browser = Browser(buyer)
    browser.room(sale)
    prepare(sale, buyer)
    browser.room(sale)

    with redis_commands() as commands:
        poll(browser, sale)

    assert len(commands.ledger) <= 1


# --- Whose place it is ----------------------------------------------------------------------------


@both
@pytest.mark.parametrize("guarded", [True, False], ids=["guarded", "control"])
def test_copied_place_gives_another_account_nothing(
    ask: Ask, guarded: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The account in the place: without the comparison, its number is had by whoever shows it."""
    if not guarded:

        def visitor_of(*, held: str, again: bool, sale_id: int, user_id: int) -> Visitor:
            found = read_held_place(held, sale_id=sale_id) if held else None
            return Visitor(0, found.place if found else None, again)

        monkeypatch.setattr(room_answers, "visitor_of", visitor_of)
    sale, first, second, thief = make_room(), *(Browser(it, ask) for it in make_buyers(3))
    for browser in (first, second):
        browser.room(sale)
    thief.cookies[f"place-{sale.pk}"] = first.place(sale)

    assert thief.room(sale)["position"] == (3 if guarded else 1)
    assert first.room(sale)["position"] == 1


@pytest.mark.parametrize("guarded", [True, False], ids=["guarded", "control"])
def test_place_left_in_a_browser_is_not_shown_to_the_next(
    guarded: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The session in the place: without it the front door shows it to whoever signs in there."""
    if not guarded:
        monkeypatch.setattr(places, "digest_of", lambda _: "0" * 16)
        monkeypatch.setattr(room_answers, "digest_of", lambda _: "0" * 16)
    sale, first, second = make_room(), *(Browser(it) for it in make_buyers(2))
    first.room(sale)
    second.cookies[f"place-{sale.pk}"] = first.place(sale)

    assert second.room(sale)["position"] == (2 if guarded else 1)


@both
@pytest.mark.parametrize("text", slow_after(1, ["junk", "é"]))
def test_malformed_place_is_ignored(ask: Ask, text: str) -> None:
    sale, browser = make_room(), Browser(make_buyer(), ask)
    browser.cookies[f"place-{sale.pk}"] = text

    assert browser.room(sale)["position"] == 1


@both
def test_forged_place_is_ignored(ask: Ask) -> None:
    sale, buyers = make_room(), make_buyers(2)
    browsers = [Browser(it, ask) for it in buyers]
    for browser in browsers:
        browser.room(sale)
    given, rest = browsers[1].place(sale).split("-", 1)
    assert given == "2"
    browsers[1].cookies[f"place-{sale.pk}"] = f"1-{rest}"

    assert browsers[1].room(sale)["position"] == 2


@both
def test_restart_of_redis_and_process_keeps_the_order(ask: Ask, ledger: Any) -> None:
    sale, browsers = make_room(), [Browser(it, ask) for it in make_buyers(3)]
    for browser in browsers:
        browser.room(sale)
    ledger.delete(LedgerKeys(sale.pk).room)
    forget_everything()

    positions = [browsers[number].room(sale)["position"] for number in (2, 0, 1)]

    assert positions == [3, 1, 2]


@both
@pytest.mark.parametrize("query", slow_after(1, ["?again=1", "?again=2"]))
def test_only_an_expired_place_is_given_up(ask: Ask, query: str) -> None:
    sale, browser, other = make_room(), *(Browser(it, ask) for it in make_buyers(2))
    for it in (browser, other):
        it.room(sale)

    assert browser.room(sale, query)["position"] == 1
    change_room(sale.pk, base=1, since_ms=-PLACE_KEPT_MS)
    found = browser.room(sale, query)

    if query == "?again=1":
        assert (found["turn"], found["position"]) == ("waiting", 2)
    else:
        assert (found["turn"], found["position"]) == ("expired", None)


@pytest.mark.slow
def test_visitor_with_an_old_place_is_not_sent_in_circles(
    ledger: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Late in a shuffled line that nobody came early for: both pages say the same."""
    sale = make_room(terms={"shuffled": True})
    browsers = [Browser(it) for it in make_buyers(8)]
    for browser in browsers:
        browser.room(sale)
    change_room(sale.pk, base=4, shuffled=True)

    turns = [browser.room(sale)["turn"] for browser in browsers]
    tokens = [browser.get(f"/me/?sale={sale.pk}").json["sale"]["token"] for browser in browsers]

    assert turns == ["in"] * 4 + ["waiting"] * 4
    assert [bool(it) for it in tokens] == [turn == "in" for turn in turns]


# --- The token ------------------------------------------------------------------------------------


@both
def test_token_is_refused_until_let_in(ask: Ask) -> None:
    sale, browser = make_room(), Browser(make_buyer(), ask)
    path = f"/vouchers/{sale.pk}/token/"

    refused = browser.get(path)
    change_room(sale.pk, base=1)
    given = browser.get(path)

    assert (refused.status, refused.json["code"]) == (429, "waiting_room")
    assert int(refused.headers["retry-after"]) >= 1
    token = read_token(given.json["token"], sale_id=sale.pk, now_ms=now_ms())
    assert token.admission == 1
    assert order(ask, sale, given.json["token"]).status == 202


@both
def test_me_has_a_place_instead_of_a_token_until_let_in(ask: Ask) -> None:
    sale, browser = make_room(), Browser(make_buyer(), ask)
    path = f"/me/?sale={sale.pk}"

    waiting = browser.get(path).json["sale"]
    change_room(sale.pk, base=1)
    let_in = browser.get(path).json["sale"]

    assert (waiting["token"], waiting["expires_at_ms"]) == ("", None)
    assert (waiting["room"]["turn"], waiting["room"]["position"]) == ("waiting", 1)
    assert "room" not in let_in
    assert order(ask, sale, let_in["token"]).status == 202


@both
def test_holder_of_the_limit_sees_the_order_and_no_place(ask: Ask) -> None:
    sale, buyer = make_room(), make_buyer()
    reserved(sale, [buyer])

    found = Browser(buyer, ask).get(f"/me/?sale={sale.pk}").json["sale"]

    assert (found["own_state"], found["token"], "room" in found) == ("queued", "", False)


@both
@pytest.mark.parametrize("guarded", [True, False], ids=["guarded", "control"])
def test_new_order_without_admission_gets_429(
    ask: Ask, guarded: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    sale, buyer = make_room(), make_buyer()
    if not guarded:
        change_state(sale.pk, mode_terms="")

    answer = order(ask, sale, token_for(sale, buyer).sign())

    if guarded:
        assert (answer.status, answer.json["code"]) == (429, "waiting_room")
        assert int(answer.headers["retry-after"]) >= 1
    else:
        assert answer.status == 202


@both
def test_page_of_a_refused_order_names_the_line(ask: Ask) -> None:
    sale, buyer = make_room(), make_buyer()

    answer = order(ask, sale, token_for(sale, buyer).sign(), accept=HTML)

    assert answer.status == 429
    assert int(answer.headers["retry-after"]) >= 1
    assert "There is a line for this sale." in answer.body.decode()
    assert f'href="/vouchers/{sale.pk}/"' in answer.body.decode()


# --- The page -------------------------------------------------------------------------------------


def page(ask: Ask, path: str, **sent: Any) -> str:
    answer = ask("GET", path, accept=HTML, **sent)
    assert answer.status == 200, answer.body
    return answer.body.decode()


def test_page_is_the_same_for_everybody_from_both_doors() -> None:
    sale = make_room()
    browsers = [Browser(it, ask) for it, ask in zip(make_buyers(2), DOORS, strict=True)]
    browsers[1].room(sale)

    pages = [ask("GET", room_path(sale), accept=HTML) for ask in DOORS]
    pages += [browser.get(room_path(sale), accept=HTML) for browser in browsers]

    assert len({it.body for it in pages}) == 1
    assert all("set-cookie" not in it.headers for it in pages)
    assert "csrf" not in pages[0].body.decode()


@both
def test_hidden_sale_has_no_page(ask: Ask) -> None:
    sale = make_room()
    _draft(sale, make_buyer())

    assert ask("GET", room_path(sale), accept=HTML).status == 404


@pytest.mark.parametrize("language", slow_after(1, ["en", "zh-hans"]))
@pytest.mark.parametrize("kind", ["script", "form"])
def test_page_with_all_its_parts_is_small(kind: str, language: str) -> None:
    """Raw bytes, so what is sent is less."""
    sale = make_room()
    sale.voucher.title = "火" * 120
    sale.voucher.save()
    sent = {"HTTP_ACCEPT_LANGUAGE": language}
    if kind == "form":
        sent["HTTP_COOKIE"] = Browser(make_buyer()).header
        text = page(from_django, f"/vouchers/{sale.pk}/form/", **sent)
    else:
        text = page(from_django, room_path(sale), **sent)

    parts = assets(re.findall(r'(?:src|href)="/static/([^"]+)"', text))

    assert {Path(it).name for it in parts} >= {"room.css"}
    assert len(text.encode()) + sum(map(len, parts.values())) <= LARGEST_PAGE_BYTES


def assets(names: list[str]) -> dict[str, bytes]:
    """Return the files behind the addresses of a page, with the modules that they import."""
    found: dict[str, bytes] = {}
    names = [re.sub(r"\.[0-9a-f]{12}(?=\.\w+$)", "", it) for it in names]
    while names:
        name = names.pop()
        path = finders.find(name)
        assert isinstance(path, str), name
        found[name] = Path(path).read_bytes()
        imported = re.findall(r'(?:from|import) "\./([^"]+)"', found[name].decode())
        imported += re.findall(r'url\("?\./([^")]+)', found[name].decode())
        names += [f"seckill/{it}" for it in imported if f"seckill/{it}" not in found]
    return found


# --- Without JavaScript ---------------------------------------------------------------------------


def form_path(sale: SeckillVoucher, query: str = "") -> str:
    return f"/vouchers/{sale.pk}/form/{query}"


def test_shell_leads_to_the_form_without_javascript() -> None:
    sale = make_room()

    text = page(from_django, room_path(sale))

    noscript = re.search(r"<noscript>(.*?)</noscript>", text, re.DOTALL)
    assert noscript
    assert f'http-equiv="refresh" content="0; url={form_path(sale)}"' in noscript[1]


def test_form_shows_the_place_and_reloads_itself() -> None:
    sale, browser = make_room(), Browser(make_buyer(), from_django)
    Browser(make_buyer()).room(sale)

    answer = browser.get(form_path(sale), accept=HTML)

    text = answer.body.decode()
    assert "You are number 2 in line" in text
    assert f'http-equiv="refresh" content="15; url={form_path(sale)}"' in text
    assert "<script" not in text
    assert f"Vouchers left: {sale.stock}" in text
    assert 'max="2" value="0"></progress>' in text
    assert re.search(r"Updated at \d\d:\d\d:\d\d\.", text)
    assert answer.headers["cache-control"] == "private, no-store"
    assert read_held_place(browser.place(sale), sale_id=sale.pk)


def test_form_has_a_token_once_let_in() -> None:
    sale, browser = make_room(), Browser(make_buyer(), from_django)
    waiting = browser.get(form_path(sale), accept=HTML).body.decode()
    change_room(sale.pk, base=1)
    let_in = browser.get(form_path(sale), accept=HTML).body.decode()

    found = re.search(r'name="token" value="([^"]+)"', let_in)

    assert 'name="token"' not in waiting
    assert "It is your turn" not in title_of(waiting)
    assert "It is your turn" in title_of(let_in)
    assert found
    assert order(from_django, sale, found[1]).status == 202


def title_of(text: str) -> str:
    return text.partition("<title>")[2].partition("</title>")[0]


NOTES = [
    ({"room": RoomKind.START}, "A line forms; come from 09:50. First come, first in line"),
    ({"room": RoomKind.START, "room_shuffled": True}, "A line forms; come from 09:50. Places are"),
    ({"room": RoomKind.BUSY}, "If many people come at once, a line forms"),
    ({"room": RoomKind.START, "room_opened_ms": 0}, ""),
]


@pytest.mark.parametrize(("fields", "words"), slow_after(2, NOTES))
def test_page_says_before_the_start_that_a_line_forms(fields: dict[str, Any], words: str) -> None:
    sale = make_room(**fields)
    SeckillVoucher.objects.filter(pk=sale.pk).update(
        begins_at=dt.datetime(2099, 5, 3, 2, 0, tzinfo=dt.UTC),  # 10:00 in Shanghai
        ends_at=dt.datetime(2099, 5, 4, 2, 0, tzinfo=dt.UTC),
    )

    text = page(from_django, f"/vouchers/{sale.pk}/")

    assert ('id="room-note"' in text) == bool(words)
    assert words in text


def test_form_joins_again_only_when_asked() -> None:
    sale, browser = make_room(), Browser(make_buyer(), from_django)
    browser.get(form_path(sale), accept=HTML)
    Browser(make_buyer()).room(sale)
    change_room(sale.pk, base=1, since_ms=-PLACE_KEPT_MS)

    expired = browser.get(form_path(sale), accept=HTML).body.decode()
    again = browser.get(form_path(sale, "?again=1"), accept=HTML).body.decode()

    assert "Your turn has passed" in expired
    assert f'href="{form_path(sale)}?again=1"' in expired
    assert "You are number 2 in line" in again
    assert f"url={form_path(sale)}?again=1" not in again


@pytest.mark.parametrize("prepare", slow_after(1, [_holder, _over, _closed]))
def test_form_of_who_need_not_wait_is_the_sale(prepare: Any) -> None:
    sale, buyer = make_room(), make_buyer()
    prepare(sale, buyer)

    answer = Browser(buyer, from_django).get(form_path(sale), accept=HTML)

    assert answer.status == 200
    assert 'id="room"' not in answer.body.decode()
    assert "place-" not in answer.headers.get("set-cookie", "")


def test_form_without_redis_has_no_token(redis_gone: Any) -> None:
    sale, browser = make_room(), Browser(make_buyer(), from_django)

    with redis_gone():
        answer = browser.get(form_path(sale), accept=HTML)

    assert answer.status == 200
    assert 'name="token" value=""' in answer.body.decode()


def test_draft_with_a_room_is_shown_to_staff() -> None:
    sale, staff = make_room(), make_buyer()
    _draft(sale, staff)
    User.objects.filter(pk=staff.pk).update(is_staff=True, is_superuser=True)

    answer = Browser(staff, from_django).get(form_path(sale), accept=HTML)

    assert answer.status == 200
    assert 'name="token" value=""' in answer.body.decode()


def test_place_says_nothing_of_the_draw() -> None:
    """A place of a shuffled line has the number given, not the one that is drawn."""
    sale, browser = (
        make_room(terms={"since_ms": 3_600_000, "shuffled": True}),
        Browser(make_buyer()),
    )
    browser.room(sale)

    held = read_held_place(browser.place(sale), sale_id=sale.pk)

    assert held
    assert held.place == SignedPlace(OPENED_MS, 1, ANY)
