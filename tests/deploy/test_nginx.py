"""The nginx of ``deploy/``: which processes get which requests."""

from __future__ import annotations

import gzip
import http.client
import re
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from pathlib import Path
from statistics import median

import pytest

from backoffice.rehearsal.http_client import Address
from seckill_site.front_door.requests import request_language
from tests.concurrency.sales import crowd_of, make_sale
from tests.faults.history import LATE_SECONDS, History
from tests.faults.private import script_library
from tests.support.crowd import fire
from tests.support.patience import running_s, wait_for
from tests.support.stack import ROOT, Stack
from tests.support.tls import Request, curl, make_certificate
from vouchers.catalogue.sales import VoucherDetails, edit_sale, terms_of
from vouchers.models import SeckillVoucher

ORDERS, REST = "orders", "the rest"
CONFIGURATION = (ROOT / "deploy/nginx.conf").read_text()

SALES = count(100)
"""Sales that nobody has asked for yet."""

ASKED: list[tuple[str, dict[str, str]]] = []
"""Paths and headers of the requests that came through nginx."""


PLAIN_PORTS: dict[int, int] = {}
"""The port for plain HTTP of an nginx, by its first."""

LIBRARY = script_library("instances")


class Named(BaseHTTPRequestHandler):
    """Answers with the name of its server, and notes what it was asked."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        body = self.server.name.encode()  # type: ignore[attr-defined]
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        ASKED.append((self.path, dict(self.headers)))
        self.send_response(200)
        self.send_header("Cache-Control", "public, max-age=0, must-revalidate")
        self.send_header("Vary", "Accept, Cookie, Accept-Language")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_POST = do_GET

    def log_message(self, *args: object) -> None:
        """Say nothing."""


@contextmanager
def upstream(name: str) -> Iterator[int]:
    """Serve under a name; yields the port."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Named) as server:
        server.name = name  # type: ignore[attr-defined]
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_port
        server.shutdown()


@contextmanager
def started(
    directory: Path,
    *,
    orders: Sequence[int],
    rest: int,
    text: str = CONFIGURATION,
    certificate: Path | None = None,
) -> Iterator[int]:
    """Run a real nginx with that configuration before these servers; yields its port.

    With several servers for orders all come from this machine, so it has no limits per address.
    """
    if len(orders) > 1:
        text = re.sub(r"^ *limit_req .*\n", "", text, flags=re.MULTILINE)
    server = LIBRARY.Nginx(directory, orders=orders, rest=[rest], certificate=certificate)
    PLAIN_PORTS[server.port] = server.plain
    process = subprocess.Popen(server.prepare(text))
    try:
        wait_for(lambda: process.poll() is not None or answers(server.port), what="nginx")
        yield server.port
    finally:
        process.terminate()
        process.wait()


@pytest.fixture(scope="module")
def nginx(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """An nginx before two servers that say their names."""
    with (
        upstream(ORDERS) as orders,
        upstream(REST) as rest,
        started(tmp_path_factory.mktemp("nginx"), orders=[orders], rest=rest) as port,
    ):
        yield port


def answers(port: int) -> bool:
    try:
        return bool(ask(port, "GET", "/"))
    except OSError:
        return False


def ask(port: int, method: str, path: str, **headers: str) -> str:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request(method, path, headers={"Host": "shop.example", **headers})
        return connection.getresponse().read().decode()
    finally:
        connection.close()


def head_of(port: int, path: str, host: str) -> http.client.HTTPResponse:
    """Ask, and return the answer without its body."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request("GET", path, headers={"Host": host})
        return connection.getresponse()
    finally:
        connection.close()


@pytest.mark.parametrize("which", ["plain", "https"])
def test_foreign_host_gets_no_answer(nginx: int, which: str) -> None:
    port = PLAIN_PORTS[nginx] if which == "plain" else nginx
    for host in ("evil.example", "127.0.0.2", "shop.example.evil.example"):
        with pytest.raises(http.client.RemoteDisconnected):
            head_of(port, "/", host)


def test_plain_http_leads_to_the_shop_alone(nginx: int) -> None:
    answer = head_of(PLAIN_PORTS[nginx], "/vouchers/7/?a=b", "shop.example")
    where = "https://shop.example/vouchers/7/?a=b"
    assert (answer.status, answer.headers["Location"]) == (301, where)


def test_nginx_names_no_version(nginx: int) -> None:
    assert head_of(nginx, "/errors/none", "shop.example").headers["Server"] == "nginx"


@pytest.mark.parametrize("unit", ["web@", "worker", "outside@", "beat"])
def test_units_may_do_little(unit: str) -> None:
    text = (ROOT / f"deploy/seckill-{unit}.service").read_text()
    settings = set(text.splitlines())
    assert {"CapabilityBoundingSet=", "NoNewPrivileges=yes"} <= settings
    assert "SystemCallFilter=@system-service" in settings
    assert re.search(r"^MemoryMax=\d+[MG]$", text, re.MULTILINE)


def test_web_servers_listen_on_this_machine_unless_told() -> None:
    text = (ROOT / "deploy/seckill-web@.service").read_text()
    assert "--host ${SECKILL_LISTEN} " in text
    assert "--host ${SECKILL_LISTEN} " in (ROOT / "deploy/no-front-door.conf").read_text()
    default, override = "Environment=SECKILL_LISTEN=127.0.0.1", "EnvironmentFile="
    assert text.index(default) < text.index(override)
    assert "ssl_protocols TLSv1.2 TLSv1.3;" in (ROOT / "deploy/nginx.conf").read_text()


def test_orders_have_processes_of_their_own(nginx: int) -> None:
    assert ask(nginx, "POST", "/vouchers/7/orders/") == ORDERS
    of_sale = ("", "live/", "token/", "room/")
    for path in ("/", "/me/?sale=7", *(f"/vouchers/7/{it}" for it in of_sale)):
        assert ask(nginx, "GET", path) == ORDERS
    receipt = "/vouchers/7/orders/123/"
    assert ask(nginx, "GET", receipt, **{"Purchase-Token": "x"}) == ORDERS


@pytest.mark.parametrize(
    "path",
    ["/vouchers/7/form/", "/vouchers/7/orders/123/", "/orders/", "/admin/", "/accounts/login/"],
)
def test_pages_go_to_other_processes(nginx: int, path: str) -> None:
    assert ask(nginx, "GET", path, Accept="text/html") == REST


@pytest.mark.parametrize("path", ["/", "/me/", "/vouchers/7/", "/vouchers/7/live/"])
def test_line_feed_after_a_path_makes_another_path(nginx: int, path: str) -> None:
    ASKED.clear()
    assert ask(nginx, "GET", f"{path}%0a") == REST
    assert [asked for asked, _ in ASKED] == [f"{path}%0a"]


@pytest.mark.slow
@pytest.mark.parametrize("limited", [True, False], ids=["guard", "control"])
def test_pages_and_live_figures_have_a_limit_of_their_own(tmp_path: Path, limited: bool) -> None:
    text = CONFIGURATION
    if not limited:
        text = re.sub(r"^ *limit_req zone=pages .*\n", "", text, flags=re.MULTILINE)
    with (
        upstream(ORDERS) as orders,
        started(tmp_path, orders=[orders], rest=orders, text=text) as port,
    ):
        address = Address.of(f"http://127.0.0.1:{port}")
        page, live = (address.request("GET", f"/vouchers/7/{it}") for it in ("", "live/"))
        order = address.request("POST", "/vouchers/7/orders/", {})
        # Pages come from the cache of nginx, faster than the limit allows.
        requests = [*[page] * 150, live] * 20 + [order]
        statuses = [
            it.status for it in fire(requests, url=f"http://127.0.0.1:{port}", connections=4)
        ]
    pages_and_live, of_order = statuses[:-1], statuses[-1]
    assert (429 in pages_and_live[150::151]) == (429 in pages_and_live) == limited
    assert of_order == 200


def test_record_of_a_draw_is_kept_compressed(tmp_path: Path) -> None:
    record = b"# sale: 7\n" * 1_000
    asked: list[dict[str, str]] = []

    class Recorded(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            asked.append(dict(self.headers))
            is_record = self.path.endswith("record.txt")  # nginx is up if it answers
            body = gzip.compress(record) if is_record else b"x"
            is_known = "If-None-Match" in self.headers
            self.send_response(304 if is_known else 200)
            self.send_header("Cache-Control", "public, max-age=1")
            self.send_header("ETag", 'W/"a"')
            self.send_header("Vary", "Accept, Accept-Encoding")
            if is_record:
                self.send_header("Content-Encoding", "gzip")
            self.send_header("Content-Length", "0" if is_known else str(len(body)))
            self.end_headers()
            self.wfile.write(b"" if is_known else body)

        def log_message(self, *args: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Recorded) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        recorded = server.server_port
        with started(tmp_path, orders=[recorded], rest=recorded) as port:
            asked.clear()  # by the wait for nginx
            path = "/vouchers/7/draw/record.txt"
            assert ask(port, "GET", path, Accept="text/html") == record.decode()
            client = http.client.HTTPConnection("127.0.0.1", port)
            with closing(client):
                client.request("GET", path, headers={"Accept-Encoding": "gzip, br"})
                small = client.getresponse()
                assert small.headers["Content-Encoding"] == "gzip"
                assert gzip.decompress(small.read()) == record
            assert len(asked) == 1
            wait_for(lambda: ask(port, "GET", path) and len(asked) > 1, what="the next question")
        server.shutdown()
    assert asked[-1]["If-None-Match"] == 'W/"a"'


# --- With TLS -------------------------------------------------------------------------------------

VERSIONS = pytest.mark.parametrize("version", ["1.1", "2"])


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate of shop.example that this test made; its key is beside it."""
    return make_certificate(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def secure_nginx(tmp_path_factory: pytest.TempPathFactory, certificate: Path) -> Iterator[int]:
    """An nginx with TLS before two servers that say their names."""
    directory = tmp_path_factory.mktemp("nginx")
    with (
        upstream(ORDERS) as orders,
        upstream(REST) as rest,
        started(directory, orders=[orders], rest=rest, certificate=certificate) as port,
    ):
        yield port


@VERSIONS
def test_requests_over_tls_reach_the_same_servers(
    secure_nginx: int, certificate: Path, tmp_path: Path, version: str
) -> None:
    ASKED.clear()
    posted = {"orders/": ['data = "token=x"']}
    paths = ["", "live/", "token/", "orders/", "form/", "orders/123/"]
    to = [tmp_path / str(number) for number in range(len(paths))]
    sale = next(SALES)
    requests = [
        Request(f"/vouchers/{sale}/{path}", posted.get(path, ()), str(file))
        for path, file in zip(paths, to, strict=True)
    ]
    said = curl(secure_nginx, requests, version=version, certificate=certificate)
    assert {it[:2] for it in said} == {("200", version)}
    assert [it.read_text() for it in to] == [ORDERS] * 4 + [REST] * 2
    assert len(ASKED) == len(paths)
    for _, headers in ASKED:
        assert (headers["X-Forwarded-Proto"], headers["X-Forwarded-For"]) == ("https", "127.0.0.1")


@VERSIONS
def test_too_large_a_body_over_tls_gets_our_answer(
    secure_nginx: int, certificate: Path, tmp_path: Path, version: str
) -> None:
    """Over HTTP/2 nginx compares the length again when it opens the page."""
    (body := tmp_path / "body").write_bytes(b"x" * 2_000_000)
    (answer := tmp_path / "answer").touch()
    request = Request("/vouchers/7/orders/", [f'data-binary = "@{body}"'], str(answer))
    (said,) = curl(secure_nginx, [request], version=version, certificate=certificate)
    assert said[:2] == ("413", version)
    assert answer.read_bytes() == (ROOT / "deploy/errors/too-large.json").read_bytes()


def test_other_name_gets_no_handshake(secure_nginx: int, certificate: Path) -> None:
    context = ssl.create_default_context(cafile=str(certificate))
    for name in ("evil.example", "shop.example.evil.example", None):
        context.check_hostname = name is not None
        with (
            socket.create_connection(("127.0.0.1", secure_nginx), 30) as client,
            pytest.raises(ssl.SSLError, match="UNRECOGNIZED_NAME"),
        ):
            context.wrap_socket(client, server_hostname=name)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_both_versions_of_tls_negotiate_http2(
    secure_nginx: int, certificate: Path, version: ssl.TLSVersion
) -> None:
    context = ssl.create_default_context(cafile=str(certificate))
    context.minimum_version = context.maximum_version = version
    context.set_alpn_protocols(["h2", "http/1.1"])
    with (
        socket.create_connection(("127.0.0.1", secure_nginx), 30) as client,
        context.wrap_socket(client, server_hostname="shop.example") as secure,
    ):
        assert secure.selected_alpn_protocol() == "h2"


# --- Pages that are the same for everybody --------------------------------------------------------


def asked_for(nginx: int, path: str, *variants: dict[str, str]) -> list[tuple[str, dict[str, str]]]:
    """Ask for a page in each way at once, and return what reached the application."""
    ASKED.clear()
    people = [threading.Thread(target=ask, args=(nginx, "GET", path), kwargs=it) for it in variants]
    for person in people:
        person.start()
    for person in people:
        person.join()
    return ASKED[:]


def test_crowd_asks_for_a_page_a_few_times(nginx: int) -> None:
    crowd = [{"Cookie": f"sessionid={k}; csrftoken={k}", "User-Agent": str(k)} for k in range(60)]
    began_at = time.monotonic()
    asked = asked_for(nginx, "/vouchers/7/?from=advert", *crowd)
    tenths = 10 * (time.monotonic() - began_at)
    assert 1 <= len(asked) <= 2 + tenths
    for path, headers in asked:
        assert path == "/vouchers/7/"
        assert "Cookie" not in headers
        assert headers["Accept-Language"] == "zh-hans"


def test_page_is_asked_for_again_after_a_tenth_of_a_second(nginx: int) -> None:
    asked_for(nginx, "/vouchers/8/", {})
    time.sleep(0.2)
    assert len(asked_for(nginx, "/vouchers/8/", {})) == 1


@pytest.mark.parametrize(
    ("sent", "language"),
    [
        ({}, "zh-hans"),
        ({"Accept-Language": "en-GB,en;q=0.9"}, "en"),
        ({"Accept-Language": "fr,en;q=0.8,zh;q=0.5"}, "en"),
        ({"Accept-Language": "zh-CN,zh;q=0.9,en;q=0.8"}, "zh-hans"),
        ({"Accept-Language": "de"}, "zh-hans"),
        ({"Accept-Language": "zh-CN", "Cookie": "a=b; django_language=en"}, "en"),
        ({"Accept-Language": "en", "Cookie": "django_language=zh-hans"}, "zh-hans"),
        ({"Accept-Language": "en", "Cookie": "django_language=xx"}, "en"),
    ],
)
def test_page_is_in_the_language_that_django_chooses(
    nginx: int, sent: dict[str, str], language: str
) -> None:
    ((_, headers),) = asked_for(nginx, f"/vouchers/{next(SALES)}/", sent)
    assert headers["Accept-Language"] == language
    environ = {f"HTTP_{name.upper().replace('-', '_')}": value for name, value in sent.items()}
    assert request_language(environ) == language


@pytest.mark.parametrize(
    ("sent", "name", "told"),
    [
        ({"Accept": "text/html,application/xml"}, "Accept", "text/html"),
        ({"Accept": "*/*"}, "Accept", "application/json"),
        ({"Accept-Encoding": "br, gzip"}, "Accept-Encoding", "gzip"),
        ({"Accept-Encoding": "br"}, "Accept-Encoding", "identity"),
    ],
)
def test_application_sees_only_what_the_key_holds(
    nginx: int, sent: dict[str, str], name: str, told: str
) -> None:
    ((_, headers),) = asked_for(nginx, f"/vouchers/{next(SALES)}/", sent)
    assert headers[name] == told


@pytest.mark.slow
@pytest.mark.concurrency
@pytest.mark.usefixtures("row_locks")
def test_change_shows_within_a_second(stack: Stack, tmp_path: Path) -> None:
    """Over the memory of the processes and nginx; a browser asks each time. Usually in 0.4 s."""
    web, sale, took = stack.web(workers=2), make_sale(stock=5), []
    with started(tmp_path, orders=[web.port], rest=web.port) as port:
        for k in range(7):
            title = f"Voucher number {k}"
            details = VoucherDetails(title, "", 100, 200)
            edit_sale(sale_id=sale.pk, terms=terms_of(sale), details=details)
            changed_at = running_s()
            wait_for(partial(shows, port, sale, title), what="the change")
            took.append(running_s() - changed_at)
    assert median(took) < 1, took  # a busy machine may take longer for one of them


def shows(port: int, sale: SeckillVoucher, title: str) -> bool:
    page = ask(port, "GET", f"/vouchers/{sale.pk}/", Host="localhost", Accept="text/html")
    return title in page


def test_variants_have_answers_of_their_own(nginx: int) -> None:
    variants = [
        {"Accept-Language": language, "Accept": kind, "Accept-Encoding": encoding}
        for language in ("en", "zh")
        for kind in ("text/html", "application/json")
        for encoding in ("gzip", "identity")
    ]
    assert len(asked_for(nginx, f"/vouchers/{next(SALES)}/", *variants)) == len(variants)


# --- Requests in flight when a server dies --------------------------------------------------------


@contextmanager
def dying(asked: list[str]) -> Iterator[int]:
    """A server that reads each request whole and dies before it answers; yields its port."""

    class Dying(Named):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            asked.append(self.path)
            self.close_connection = True

        do_GET = do_POST

    with ThreadingHTTPServer(("127.0.0.1", 0), Dying) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_port
        server.shutdown()


def in_flight(directory: Path, path: str, text: str = CONFIGURATION) -> tuple[list[str], list[str]]:
    """POST four times before a server that dies and one that lives: answers, and who died."""
    asked: list[str] = []
    text = text.replace("max_fails=2", "max_fails=0")  # it stays in turn
    with (
        dying(asked) as dead,
        upstream(ORDERS) as alive,
        started(directory, orders=[dead, alive], rest=dead, text=text) as port,
    ):
        asked.clear()  # by the wait for nginx
        return [ask(port, "POST", path) for _ in range(4)], asked


def presses_in(directory: Path) -> list[list[str]]:
    """Return who answered each POST, and whether it had been sent to another before, by the log."""
    lines = (directory / LIBRARY.ANSWERS).read_text().splitlines()
    return [line.split()[:2] for line in lines if " POST " in line]


def test_order_in_flight_is_sent_to_the_next_server(tmp_path: Path) -> None:
    """It may have been accepted: the same token gets the same answer."""
    path = "/vouchers/7/orders/"
    said, asked = in_flight(tmp_path, path)
    assert said == [ORDERS] * 4
    assert asked == [path] * len(asked) != []
    presses = presses_in(tmp_path)
    assert len({answered_by for answered_by, _ in presses} - {"-"}) == 1
    assert [sent_on for _, sent_on in presses].count("1") == len(asked)


def test_without_that_line_orders_in_flight_are_refused(tmp_path: Path) -> None:
    """The control: nginx does not repeat a POST by itself."""
    line = "proxy_next_upstream error timeout non_idempotent;"
    assert CONFIGURATION.count(line) == 1
    said, asked = in_flight(tmp_path, "/vouchers/7/orders/", CONFIGURATION.replace(line, ""))
    assert len(asked) == sum('"unavailable"' in it for it in said) > 0
    assert presses_in(tmp_path).count(["-", "0"]) == len(asked)


def test_payment_in_flight_is_not_repeated(tmp_path: Path) -> None:
    """Its buyer is told to try again, and asked once."""
    path = "/vouchers/7/orders/123/pay/"
    text = CONFIGURATION.replace("http://seckill;", "http://seckill_orders;")  # has a second server
    said, asked = in_flight(tmp_path, path, text)
    assert asked == [path] * len(asked) != []
    assert sum('"unavailable"' in it for it in said) == len(asked)


@pytest.mark.slow
@pytest.mark.concurrency
@pytest.mark.usefixtures("row_locks")
def test_restart_of_one_server_is_seen_by_no_buyer(stack: Stack, tmp_path: Path) -> None:
    """nginx asks the other server again where one ends without an answer: tokens allow that."""
    with stack.together():
        first, second, _ = stack.web(workers=2), stack.web(), stack.worker()
    sale, history = make_sale(stock=400), History("", "rolling restart behind nginx")
    tokens, over = crowd_of(sale, count=400), threading.Event()
    with (
        started(tmp_path, orders=[first.port, second.port], rest=first.port) as port,
        ThreadPoolExecutor(1) as buyers,
    ):

        def buy() -> None:
            for at in count(step=4):  # a repeated request sends the same token
                some = [tokens[(at + it) % len(tokens)] for it in range(4)]
                history.fire(sale, some, url=f"http://127.0.0.1:{port}")
                if over.is_set():
                    return

        buying = buyers.submit(buy)
        wait_for(lambda: len(history.events) > 20, what="orders")
        first.restart()
        answered = len(history.events)
        wait_for(lambda: len(history.events) > answered + 20, what="orders after the restart")
        over.set()
        buying.result()
    statuses = {it.answer.status for it in history.events}
    # Where this machine stalls for longer than Redis may take, a buyer is told to come again.
    assert statuses - ({503} if history.stalls.seconds() > LATE_SECONDS else set()) == {202}
    history.settle(sale)
    outcome = history.check(sale)
    assert outcome.orders == outcome.accepted
