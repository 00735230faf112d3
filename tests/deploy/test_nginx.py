"""The nginx of ``deploy/``: which processes get which requests."""

from __future__ import annotations

import http.client
import os
import re
import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.support.patience import wait_for
from tests.support.stack import ROOT, free_port

ORDERS, REST = "orders", "the rest"

HEAD = """\
daemon off;
pid {directory}/nginx.pid;
error_log stderr warn;
{user}
events {{}}
http {{
    access_log off;
    client_body_temp_path {directory}/body;
    proxy_temp_path {directory}/proxy;
    fastcgi_temp_path {directory}/fastcgi;
    uwsgi_temp_path {directory}/uwsgi;
    scgi_temp_path {directory}/scgi;
"""


class Named(BaseHTTPRequestHandler):
    """Answers with the name of its server."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        body = self.server.name.encode()  # type: ignore[attr-defined]
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.send_response(200)
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


def adapted(text: str, *, ports: dict[str, int], port: int, directory: Path) -> str:
    """Return the configuration for this machine: without TLS, on a free port."""
    text = re.sub(r"^.*10\.0\.0\.12:.*\n", "", text, flags=re.MULTILINE)
    for number, name in (("8000", ORDERS), ("8001", REST)):
        assert text.count(f"10.0.0.11:{number}") == 1
        text = text.replace(f"10.0.0.11:{number}", f"127.0.0.1:{ports[name]}")
    text = re.sub(r"^ *ssl_certificate.*\n", "", text, flags=re.MULTILINE)
    text = text.replace("listen 443 ssl http2;", f"listen 127.0.0.1:{port};")
    text = text.replace("listen 80;", f"listen 127.0.0.1:{free_port()};")
    return text.replace("/var/cache/nginx/seckill", f"{directory}/cache")


@pytest.fixture(scope="module")
def nginx(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """A real nginx with that configuration before two servers that say their names."""
    program = shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin")
    assert program, "no nginx: script/test installs it"
    directory, port = tmp_path_factory.mktemp("nginx"), free_port()
    with upstream(ORDERS) as orders, upstream(REST) as rest:
        text = adapted(
            (ROOT / "deploy/nginx.conf").read_text(),
            ports={ORDERS: orders, REST: rest},
            port=port,
            directory=directory,
        )
        user = "user root;" if os.geteuid() == 0 else ""
        config = directory / "nginx.conf"
        config.write_text(HEAD.format(directory=directory, user=user) + text + "}\n")
        process = subprocess.Popen([program, "-p", str(directory), "-c", str(config)])
        try:
            wait_for(lambda: process.poll() is not None or answers(port), what="nginx")
            yield port
        finally:
            process.terminate()
            process.wait()


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


def test_orders_have_processes_of_their_own(nginx: int) -> None:
    assert ask(nginx, "POST", "/vouchers/7/orders/") == ORDERS
    assert ask(nginx, "GET", "/vouchers/7/live/") == ORDERS
    receipt = "/vouchers/7/orders/123/"
    assert ask(nginx, "GET", receipt, **{"Purchase-Token": "x"}) == ORDERS


@pytest.mark.parametrize(
    "path",
    ["/", "/vouchers/7/", "/vouchers/7/orders/123/", "/orders/", "/admin/", "/accounts/login/"],
)
def test_pages_go_to_other_processes(nginx: int, path: str) -> None:
    assert ask(nginx, "GET", path, Accept="text/html") == REST
