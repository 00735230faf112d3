"""The load generator: where an answer ends, and that none is lost or counted twice."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from bench.sale.generator import (
    ConnectionBroken,
    Crowd,
    Hits,
    Shot,
    Step,
    Visit,
    end_of_answer,
    fire,
    packed,
)

pytestmark = pytest.mark.quick

COUNTED = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"
CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"
EMPTY_CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n"


def fired(shot: Shot | Crowd) -> Hits:
    """Fire in a thread of its own: a browser test leaves an event loop running in this one."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(fire, shot).result()


@pytest.mark.parametrize("answer", [COUNTED, CHUNKED, EMPTY_CHUNKED])
def test_answer_ends_with_its_body(answer: bytes) -> None:
    assert end_of_answer(answer + COUNTED, 0) == len(answer)
    assert end_of_answer(COUNTED + answer, len(COUNTED)) == len(COUNTED + answer)
    for length in range(len(answer)):
        assert end_of_answer(answer[:length], 0) is None


class Echo(BaseHTTPRequestHandler):
    """Answers with the status that the path names: 208 late, 298 at last; 599 breaks off."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        status = int(self.path.strip("/"))
        if status == 599:
            self.close_connection = True
            return
        if status == 208:
            time.sleep(0.2)
        self.close_connection = status == 298
        self.send_response(status)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"ok")

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def port() -> Iterator[int]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Echo) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.server_address[1]
        server.shutdown()
        thread.join()


@pytest.mark.slow
@pytest.mark.parametrize(("connections", "depth"), [(1, 1), (3, 4), (20, 2)])
def test_each_request_gets_one_answer(port: int, connections: int, depth: int) -> None:
    wanted = [200, 202, 409] * 5
    requests = [packed(f"/{status}") for status in wanted]
    hits = fired(Shot(port, requests, connections, depth))
    assert {answer.number: answer.status for answer in hits.answers} == dict(enumerate(wanted))
    assert hits.statuses() == Counter(wanted)
    assert all(answer.latency_s > 0 for answer in hits.answers)


@pytest.mark.slow
def test_requests_repeat_until_time_is_up(port: int) -> None:
    hits = fired(Shot(port, [packed("/200")] * 2, connections=1, seconds=1, again=True))
    assert len(hits.answers) > 2
    assert hits.rate > 0


def test_server_may_close_an_idle_connection(port: int) -> None:
    """The first has nothing more to send and is closed while the second waits."""
    hits = fired(Shot(port, [packed("/298"), packed("/208")], connections=2))
    assert hits.statuses() == Counter([298, 208])


@pytest.mark.slow
def test_broken_connection_raises(port: int) -> None:
    told = r"1 answered, 1 open for .* the server closed it; 1 answers came"
    with pytest.raises(ConnectionBroken, match=told):
        fired(Shot(port, [packed("/200"), packed("/599")], connections=1))


def test_visitor_goes_on_with_the_answer(port: int) -> None:
    told = []

    def visit(first: int) -> Visit:
        reply = yield Step("first", packed(f"/{first}"))
        told.append((first, reply.status, reply.body))
        yield Step("second", packed(f"/{reply.status + 1}"))

    hits = fired(Crowd(port, lambda: [visit(200), visit(300), visit(400)], connections=2))
    assert sorted(told) == [(first, first, b"ok") for first in (200, 300, 400)]
    assert hits.of("first").statuses() == Counter([200, 300, 400])
    second = hits.of("second").answers
    assert {it.number: it.status for it in second} == {0: 201, 1: 301, 2: 401}


def test_request_of_a_visitor_waits_until_it_is_due(port: int) -> None:
    def visit() -> Visit:
        reply = yield Step("late", packed("/200"), due_s=0.3)
        assert reply.at_s >= 0.3
        yield Step("at once", packed("/200"), due_s=0.1)

    hits = fired(Crowd(port, lambda: [visit()], connections=1))
    assert [it.at - hits.began_at >= 0.3 for it in hits.answers] == [True, True]
    assert all(it.latency_s < it.at - hits.began_at for it in hits.answers)


def test_latency_of_a_visitor_includes_the_wait_for_a_connection(port: int) -> None:
    def visit(status: int) -> Visit:
        yield Step("", packed(f"/{status}"))

    hits = fired(Crowd(port, lambda: [visit(208), visit(200)], connections=1))
    slow, waited = sorted(hits.answers)
    assert min(slow.latency_s, waited.latency_s) >= 0.2


def test_visit_that_fails_ends_the_run(port: int) -> None:
    def visit() -> Visit:
        yield Step("", packed("/200"))
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fired(Crowd(port, lambda: [visit()], connections=1))
