"""The crowd of a rehearsal, against a web server that each test scripts."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from pytest_django import Settings

from backoffice.rehearsal import crowd
from backoffice.rehearsal.buyers import MAX_TRIES, AnswerLog
from backoffice.rehearsal.crowd import Answer, NoWebServer, check_web, fire
from backoffice.rehearsal.http_client import Address, BadAddress

pytestmark = pytest.mark.quick

PATH = "/vouchers/7/orders/"


class Scripted(ThreadingHTTPServer):
    """A web server that answers as its ``script`` says and records the requests."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.asked: list[tuple[str, str, dict[str, str], Any]] = []
        self.connections: set[int] = set()
        self.script: Callable[[_Handler, str], None] = lambda handler, token: handler.say(
            202, {"order_id": token}
        )

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def tokens(self) -> list[str]:
        return [body["token"] for _, _, _, body in self.asked if body]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Scripted

    def do_GET(self) -> None:
        self._remember(None)
        self.server.script(self, "")

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self._remember(body)
        self.server.script(self, body["token"])

    def _remember(self, body: Any) -> None:
        self.server.connections.add(id(self.connection))
        self.server.asked.append((self.command, self.path, dict(self.headers), body))

    def say(self, status: int, content: Any, **headers: str) -> None:
        body = json.dumps(content).encode()
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def hang_up(self) -> None:
        self.close_connection = True

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@pytest.fixture
def server() -> Iterator[Scripted]:
    with Scripted() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def in_a_thread(function: Callable[..., Any], **arguments: Any) -> Any:
    """Call the function in a thread, where no browser test has left an event loop."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(function, **arguments).result()


def fired(url: str, tokens: list[str], *, connections: int = 1, for_s: float = 5) -> list[Answer]:
    numbered = dict(enumerate(tokens))
    return in_a_thread(
        fire, url=url, path=PATH, tokens=numbered, connections=connections, for_s=for_s
    )


# --- Addresses ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("http://localhost:8000", ("localhost", 8000, False, "localhost:8000", "")),
        ("http://127.0.0.1", ("127.0.0.1", 80, False, "127.0.0.1", "")),
        ("https://shop.example", ("shop.example", 443, True, "shop.example", "")),
        ("https://shop.example/sale/", ("shop.example", 443, True, "shop.example", "/sale")),
        ("http://[::1]:81", ("::1", 81, False, "[::1]:81", "")),
        ("http://10.0.0.7:8000", ("10.0.0.7", 8000, False, "shop.example", "")),
    ],
)
def test_host_name_is_one_the_server_allows(
    settings: Settings, url: str, expected: tuple[Any, ...]
) -> None:
    settings.ALLOWED_HOSTS = ["shop.example", "localhost", "127.0.0.1", "[::1]"]
    settings.SECKILL_SITE_URL = "https://shop.example"
    found = Address.of(url)
    assert (found.host, found.port, found.tls, found.name, found.prefix) == expected


@pytest.mark.parametrize("url", ["", "/", "shop", "ftp://x", "http://x:0x1", "http://x\r\nHost: y"])
def test_bad_address_is_refused(url: str) -> None:
    with pytest.raises(BadAddress):
        Address.of(url)


def test_requests_past_the_proxy_claim_https(server: Scripted, settings: Settings) -> None:
    for https_only in (False, True):
        settings.HTTPS_ONLY = https_only
        fired(server.url, ["1"])
    assert [asked[2].get("X-Forwarded-Proto") for asked in server.asked] == [None, "https"]


def test_live_server_passes_the_check(server: Scripted) -> None:
    server.script = lambda handler, token: handler.say(200, "ok")
    in_a_thread(check_web, url=server.url, path="/healthz")
    assert server.asked[0][:2] == ("GET", "/healthz")


@pytest.mark.parametrize("status", [301, 404, 503])
def test_other_status_is_no_web_server(server: Scripted, status: int) -> None:
    server.script = lambda handler, token: handler.say(status, "")
    with pytest.raises(NoWebServer, match=str(status)):
        in_a_thread(check_web, url=server.url, path="/healthz")


def test_closed_port_is_no_web_server() -> None:
    with pytest.raises(NoWebServer):
        in_a_thread(check_web, url="http://127.0.0.1:1", path="/healthz")


# --- Answers ---------------------------------------------------------------------------------


def test_requests_are_sent_once_on_kept_connections(server: Scripted) -> None:
    tokens = [str(number) for number in range(40)]
    answers = fired(server.url, tokens, connections=4)
    assert sorted(server.tokens(), key=int) == tokens
    assert len(server.connections) <= 4
    assert {answer.click: answer.order_id for answer in answers} == {it: it for it in range(40)}
    assert {answer.code for answer in answers} == {"accepted"}
    assert all(answer.is_known and answer.ms is not None for answer in answers)
    # No click claims to be a first attempt, because a winner's token may be sent again.
    assert all(set(asked[3]) == {"token"} for asked in server.asked)


def test_nothing_is_sent_after_the_deadline(server: Scripted) -> None:
    assert fired(server.url, ["1", "2"], for_s=0) == []
    assert server.asked == []


@pytest.mark.parametrize(
    ("status", "content", "code", "is_known"),
    [
        (409, {"code": "sold_out"}, "sold_out", True),
        (403, {"code": "bad_token"}, "bad_token", True),
        (503, {"code": "unavailable"}, "unavailable", False),
        (429, {"code": "rate_limited"}, "rate_limited", False),
        (502, "<html>", "502", False),
        (500, "<html>", "500", True),
        (301, "", "301", True),
        (409, {"code": "x" * 99}, "x" * 32, True),
        (409, [1], "409", True),
    ],
)
def test_answer_has_the_code_of_the_refusal(
    server: Scripted, status: int, content: Any, code: str, is_known: bool
) -> None:
    server.script = lambda handler, token: handler.say(status, content, Retry_After="3")
    (answer,) = fired(server.url, ["1"])
    assert (answer.code, answer.is_known, answer.order_id) == (code, is_known, None)
    assert answer.retry_after_s == 3


def test_broken_connection_is_reopened(server: Scripted) -> None:
    def script(handler: _Handler, token: str) -> None:
        if token == "1":
            handler.hang_up()
        else:
            handler.say(202, {"order_id": token})

    server.script = script
    answers = fired(server.url, ["0", "1", "2"])
    assert [(it.code, it.is_known, it.ms is None) for it in answers] == [
        ("accepted", True, False),
        ("unanswered", False, True),
        ("accepted", True, False),
    ]


def test_non_http_response_is_unanswered(server: Scripted) -> None:
    def script(handler: _Handler, token: str) -> None:
        handler.wfile.write(b"hello\r\n\r\n")
        handler.hang_up()

    server.script = script
    assert [it.code for it in fired(server.url, ["1"])] == ["unanswered"]


def test_silent_server_times_out(server: Scripted, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crowd, "REQUEST_S", 0.05)
    silence = threading.Event()

    def say_nothing(handler: _Handler, token: str) -> None:
        silence.wait(10)

    server.script = say_nothing
    assert [it.code for it in fired(server.url, ["1"])] == ["unanswered"]
    silence.set()


def test_chunked_response_is_read(server: Scripted) -> None:
    def script(handler: _Handler, token: str) -> None:
        handler.send_response(202)
        handler.send_header("Transfer-Encoding", "chunked")
        handler.end_headers()
        handler.wfile.write(b'9\r\n{"order_i\r\n5\r\nd":"5\r\n2\r\n"}\r\n0\r\n\r\n')

    server.script = script
    assert [it.order_id for it in fired(server.url, ["1", "2"])] == [5, 5]


def test_closed_connection_is_reopened(server: Scripted) -> None:
    server.script = lambda handler, token: handler.say(409, {"code": "ended"}, Connection="close")
    assert [it.code for it in fired(server.url, ["1", "2", "3"])] == ["ended"] * 3


# --- Answer log -----------------------------------------------------------------------------------


def an_answer(code: str, *, is_known: bool, click: int = 0) -> Answer:
    return Answer(click, code, is_known, order_id=100 if code == "accepted" else None, ms=4)


def test_unknown_outcomes_are_retried_up_to_a_limit() -> None:
    log = AnswerLog(first_order_id=90, sent=1)
    for tries in range(1, MAX_TRIES):
        log.note(an_answer("unavailable", is_known=False), tries=tries)
        assert log.again.pop() == (0, tries)
        assert log.answers == {}
    log.note(an_answer("unavailable", is_known=False), tries=MAX_TRIES)
    assert (log.answers, log.again) == ({"unavailable": 1}, [])
    assert (log.requests, log.took_ms) == (MAX_TRIES, {"4": MAX_TRIES})


def test_answer_log_survives_json() -> None:
    log = AnswerLog(first_order_id=90, sent=2)
    log.note(an_answer("accepted", is_known=True), tries=1)
    log.note(an_answer("unanswered", is_known=False, click=1), tries=1)
    assert log.answered == 1
    assert log.accepted == [10]
    row = json.loads(json.dumps(log.as_json()))
    assert AnswerLog.of({**row, "of_a_newer_release": 1}) == log
    assert AnswerLog.of({}) == AnswerLog()
