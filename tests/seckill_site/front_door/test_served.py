"""The front door as servers serve it: other servers than ours, restarts, slow clients."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from itertools import count

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.urls import reverse
from django.utils import timezone

from backoffice.rehearsal.http_client import Address
from orders.models import OrderStatus, VoucherOrder
from tests.concurrency.sales import crowd_of, make_sale, order_requests
from tests.faults.history import ACCEPTED, UNKNOWN, History
from tests.fixtures.processes import add_logs
from tests.support.browsers import session_cookie
from tests.support.crowd import NO_ANSWER, fire, post
from tests.support.orders import PRICE_CENTS, id_minted
from tests.support.patience import GENEROUS_S, wait_for
from tests.support.stack import Stack, Web
from tests.support.tiers import slow_after
from vouchers.models import Voucher

pytestmark = [pytest.mark.concurrency, pytest.mark.usefixtures("row_locks")]

SERVERS = ("granian", "uvicorn", "wsgi")
BUYERS, UNITS = 40, 25

PAUSE_S = 1.0
"""How long a client that got no answer waits; the page waits as long after a few attempts."""

LONGEST_QUEUE = 16
"""The most requests that can wait in the queues of two ending workers here."""


@pytest.fixture(scope="module")
def db(kept_databases: None) -> None:
    """The module's database, without a transaction around each test."""


@pytest.fixture(scope="module")
def servers(module_stack: Stack) -> dict[str, Web]:
    """Each server, with one thread for Django, and a worker."""
    with module_stack.together():
        module_stack.worker()
        return {it: module_stack.web(server=it, threads=1) for it in SERVERS}


@pytest.fixture(autouse=True)
def logs(module_stack: Stack, request: pytest.FixtureRequest) -> Iterator[None]:
    """Show the logs of the processes with a test that fails."""
    yield
    add_logs(request.node, module_stack.processes)


@pytest.mark.parametrize("server", slow_after(1, SERVERS))
def test_every_server_sells_exactly_the_stock(servers: dict[str, Web], server: str) -> None:
    web, sale = servers[server], make_sale(stock=UNITS)
    history = History("", server)
    history.fire(sale, crowd_of(sale, count=BUYERS), url=web.url)
    told = history.told()
    del told[UNKNOWN]  # who is told nothing while the machine stands still asks again
    assert told == {ACCEPTED: UNITS, "sold_out": BUYERS - UNITS}
    history.settle(sale)
    outcome = history.check(sale, slowest_seconds=GENEROUS_S)
    assert outcome.orders == outcome.accepted == UNITS


@pytest.mark.slow
@pytest.mark.usefixtures("servers")
def test_restart_under_load_gives_no_unexpected_answer(module_stack: Stack) -> None:
    web, sale = module_stack.web(workers=2), make_sale(stock=400)
    history, over = History("", "rolling restart"), threading.Event()
    tokens = crowd_of(sale, count=400)

    def buy() -> None:
        for first in count(step=4):  # whoever comes again asks with the same token
            history.fire(sale, [tokens[(first + it) % len(tokens)] for it in range(4)], url=web.url)
            if over.is_set():
                return
            if any(it.told != ACCEPTED for it in history.events[-8:]):
                time.sleep(PAUSE_S)  # an ending worker may close what comes at once, for a while

    with ThreadPoolExecutor(2) as buyers:
        buying = [buyers.submit(buy) for _ in range(2)]
        wait_for(lambda: len(history.events) > 20, what="orders")
        web.restart()
        answered = len(history.events)
        wait_for(lambda: len(history.events) > answered + 20, what="orders after the restart")
        over.set()
        for it in buying:
            it.result()
    # A connection that waits in the queue of a worker that ends is closed without an answer, as
    # by any server; nginx sends such a request to another (deploy/nginx.conf). Where this machine
    # stalls for longer than Redis may take to answer, a buyer is told to come again.
    assert {it.answer.status for it in history.events} <= {202, 503, NO_ANSWER}
    again = {it.text for it in history.events if it.told != ACCEPTED}
    assert len(again) <= LONGEST_QUEUE
    history.fire(sale, sorted(again), url=web.url)
    assert {it.told for it in history.events[-len(again) :] if again} <= {ACCEPTED}
    history.settle(sale)
    outcome = history.check(sale, slowest_seconds=GENEROUS_S)
    assert outcome.orders == outcome.accepted


@pytest.mark.slow
@pytest.mark.parametrize("server", ["granian", "wsgi"])
def test_https_site_binds_browsers_to_its_host_over_https(module_stack: Stack, server: str) -> None:
    web = module_stack.web(
        server=server, SECKILL_HTTPS_ONLY="true", SECKILL_TRUSTED_PROXIES="127.0.0.1"
    )
    secure = {"X-Forwarded-Proto": "https", "Accept": "text/html"}
    requests = [
        Address.of(web.url).request("GET", path, headers=secure)
        for path in ("/me/", "/", reverse("login"))
    ]
    answers = fire(requests, url=web.url)
    for answer in answers:
        assert answer.headers["strict-transport-security"] == "max-age=31536000"
    cookie = answers[-1].headers["set-cookie"]
    assert cookie.startswith("__Host-csrftoken=")
    assert {"Secure", "Path=/"} <= set(cookie.split("; "))
    assert "Domain" not in cookie


SLOW_ORDER = post("/vouchers/1/orders/", {"token": "x" * 100})[:-50]
ANNOUNCED = b"POST /admin/ HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2000000\r\n\r\n"


@contextmanager
def slow_bodies(web: Web, number: int, head: bytes = SLOW_ORDER) -> Iterator[list[socket.socket]]:
    """Open requests whose bodies do not arrive."""
    with ExitStack() as clients:
        found = []
        for _ in range(number):
            client = socket.create_connection(("127.0.0.1", web.port))
            found.append(clients.enter_context(client))
            client.sendall(head)
        yield found


def unanswered(clients: list[socket.socket]) -> int:
    """Return how many of these have got nothing yet."""
    waiting = 0
    for client in clients:
        client.setblocking(False)
        try:
            client.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            waiting += 1
    return waiting


@pytest.mark.slow
def test_slow_bodies_hold_up_nobody(servers: dict[str, Web]) -> None:
    web, sale = servers["granian"], make_sale(stock=UNITS)
    requests = order_requests(sale, crowd_of(sale, count=BUYERS), attempt=2)
    fire(requests, url=web.url)  # so that everything is warm
    deadline = time.monotonic() + GENEROUS_S
    still_slow = 0
    while not still_slow and time.monotonic() < deadline:  # the machine may stand still meanwhile
        with slow_bodies(web, 200) as clients:
            answers = fire(requests, url=web.url)
            assert web.is_alive()
            still_slow = unanswered(clients)
            wait_for(lambda: unanswered(clients) == 0, what="answers to slow requests")
            assert clients[0].recv(20).startswith(b"HTTP/1.1 408")
    assert still_slow
    assert sorted(it.status for it in answers) == [202] * UNITS + [409] * (BUYERS - UNITS)


@pytest.mark.slow
def test_announced_uploads_refuse_no_order(servers: dict[str, Web]) -> None:
    web, sale = servers["granian"], make_sale(stock=UNITS)
    requests = order_requests(sale, crowd_of(sale, count=BUYERS), attempt=2)
    fire(requests, url=web.url)  # so that everything is warm
    with slow_bodies(web, 1_100, ANNOUNCED) as clients:
        wait_for(lambda: unanswered(clients) < len(clients), what="the first refusal")
        answers = fire(requests, url=web.url)
        assert sorted(it.status for it in answers) == [202] * UNITS + [409] * (BUYERS - UNITS)
        wait_for(lambda: unanswered(clients) == 0, what="answers to all")


CHUNKED = "Transfer-Encoding: chunked"
BROKEN_BODIES = {
    "shorter than its length": ("Content-Length: 100", b"x" * 50),
    "missing": ("Content-Length: 100", b""),
    "no chunk": (CHUNKED, b"zz\r\nabc\r\n"),
    "chunk of 2^64": (CHUNKED, b"10000000000000000\r\nabc\r\n"),
    "chunk of nearly 2^64": (CHUNKED, b"ffffffffffffffff\r\nabc\r\n"),
    "broken second chunk": (CHUNKED, b"3\r\nabc\r\nzz\r\nabc\r\n"),
    "chunk that is cut off": (CHUNKED, b"5\r\nab"),
}


@pytest.mark.parametrize("server", SERVERS)
def test_broken_body_is_the_clients_fault(servers: dict[str, Web], server: str) -> None:
    web = servers[server]
    answers = {
        (path, name): answer_to_half(web, path, length, body)
        for name, (length, body) in BROKEN_BODIES.items()
        for path in ("/vouchers/1/orders/", "/accounts/login/")
    }
    assert {key: it for key, it in answers.items() if it[:10] not in (b"", b"HTTP/1.1 4")} == {}
    assert "Traceback" not in web.text()


def answer_to_half(web: Web, path: str, length: str, body: bytes) -> bytes:
    """Send a request and no more after it; return the beginning of its answer."""
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    with socket.create_connection(("127.0.0.1", web.port), GENEROUS_S) as client:
        client.sendall(f"{head}{length}\r\n\r\n".encode() + body)
        client.shutdown(socket.SHUT_WR)
        return client.recv(12)


FORM = "Content-Type: application/x-www-form-urlencoded"
REFUSED = {
    "unknown host": (400, f"GET /{'x' * 4_000}/", "evil.example", "", 0),
    "malformed host": (400, "GET /", "a b" * 1_000, "", 0),
    "declared too large": (413, "POST /accounts/login/", "localhost", FORM, 17 * 1024 * 1024),
    "form that is too large": (413, "POST /accounts/login/", "localhost", FORM, 2 * 1024 * 1024),
}


@pytest.mark.parametrize("server", ["granian", "wsgi"])
@pytest.mark.parametrize("kind", slow_after(1, REFUSED))
def test_refused_request_writes_at_most_a_short_line(
    servers: dict[str, Web], server: str, kind: str
) -> None:
    web = servers[server]
    status, asks, host, header, length = REFUSED[kind]
    before = len(web.text())
    lines = [f"{asks} HTTP/1.1", f"Host: {host}", "Cookie: csrftoken=" + "c" * 32, header]
    lines = [*filter(None, lines), f"Content-Length: {length}", "Connection: close", "", ""]
    with socket.create_connection(("127.0.0.1", web.port), GENEROUS_S) as client:
        client.sendall("\r\n".join(lines).encode())
        with suppress(OSError):  # one that is declared too large is refused unread
            client.sendall(b"x" * length)
        answer = client.recv(12)
    assert answer == b"HTTP/1.1 %d" % status
    assert web.is_alive()
    written = web.text()[before:].splitlines()
    assert len(written) <= 1
    assert all(len(line) < 300 for line in written)


# --- Streams --------------------------------------------------------------------------------------

LARGE = 30_000
"""Orders whose export is larger than all buffers between the process and its client."""

THREADS = 2


def large_export_request() -> bytes:
    """Make many orders, and return a request of the shop's owner for all of them."""
    sale = make_sale(stock=1)
    Voucher.objects.filter(pk=sale.voucher_id).update(title="x" * 100)
    first = id_minted(seconds_ago=60)
    VoucherOrder.objects.bulk_create(
        [
            VoucherOrder(
                id=first + it,
                seckill_voucher=sale,
                unit=1,
                status=OrderStatus.CANCELLED,
                live=None,
                price_cents=PRICE_CENTS,
                accepted_at=timezone.now(),
            )
            for it in range(LARGE)
        ],
        batch_size=5_000,
    )
    owner = User.objects.create(username="shop", is_staff=True, is_superuser=True)
    path, headers = reverse("admin:orders_voucherorder_export"), {"Cookie": session_cookie(owner)}
    return Address.of("http://localhost").request("GET", path, headers=headers)


@contextmanager
def stream(web: Web, request: bytes) -> Iterator[socket.socket]:
    """Open a stream as soon as the process has a thread for it, and read only its beginning."""
    with ExitStack() as clients:
        found: list[socket.socket] = []

        def opens() -> bool:
            client = clients.enter_context(socket.socket())
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            client.settimeout(GENEROUS_S)
            client.connect(("127.0.0.1", web.port))
            client.sendall(request)
            head = client.recv(1_000).lower()
            assert head.startswith((b"http/1.1 200", b"http/1.1 503")), head
            assert (b"content-length" in head) == head.startswith(b"http/1.1 503")
            found.append(client)
            return head.startswith(b"http/1.1 200")

        wait_for(opens, what="a thread for a stream")
        yield found[-1]


def hang_up(client: socket.socket) -> None:
    """Reset a connection, as a client that dies does."""
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.close()


def database_connections() -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT COUNT(*) FROM information_schema.processlist WHERE db = DATABASE()")
        return int(cursor.fetchone()[0])


@pytest.mark.slow
def test_lost_and_stalled_streams_keep_no_page_waiting(module_stack: Stack) -> None:
    export = large_export_request()
    login = Address.of("http://localhost").request("GET", reverse("login"))
    before = database_connections()
    web = module_stack.web(threads=THREADS, SECKILL_DJANGO_WAITING="50")
    with stream(web, export) as lost:
        hang_up(lost)
    with stream(web, export):  # one that stalls, in the thread that the lost one had
        (refused,) = fire([export], url=web.url)
        assert (refused.status, refused.headers["retry-after"]) == (503, "1")
        answers = fire([login] * 50, url=web.url, connections=25)
        assert {answer.status for answer in answers} == {200}
        assert database_connections() <= before + THREADS
