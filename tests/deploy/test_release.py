"""``deploy/release``: the units of one host restart in turn, and no visitor notices."""

from __future__ import annotations

import ipaddress
import json
import os
import re
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from fnmatch import fnmatch
from functools import partial
from http.server import BaseHTTPRequestHandler, HTTPServer
from itertools import chain, count, islice
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings

from backoffice.buyers import create_buyers
from orders.models import VoucherOrder
from orders.placing.tokens import PurchaseToken
from tests.concurrency.sales import make_sale
from tests.deploy.test_nginx import CONFIGURATION, started
from tests.support.patience import Stalls, wait_for
from tests.support.stack import ROOT, Process, Stack, Web, free_port
from tests.support.tls import SHOP, Request, Said, curl, make_certificate
from vouchers.models import SeckillVoucher

WEB, OTHER_WEB = "seckill-web@8000", "seckill-web@8001"
ORDER = ["seckill-worker", "seckill-outside@payments", WEB, OTHER_WEB]
ORDER += ["seckill-beat", "seckill-metrics"]

# --- What it does, in which order -----------------------------------------------------------------

STAND_IN = r"""#!/bin/bash
call="${0##*/} $*"
echo "$call" >>"$CALLS"
[[ -n $BROKEN && $call == $BROKEN ]] && { echo "it says why"; exit 1; }
[[ $call == systemctl\ list-units* ]] || exit 0
for unit in $RUNNING; do
  [[ $unit.service == ${@: -1} ]] && echo "$unit.service loaded active running"
done
true
"""
"""Notes how it was called; fails where the call is the pattern ``BROKEN``."""


@dataclass
class Host:
    """A host whose commands only note how they were called."""

    directory: Path
    calls: list[str] = field(default_factory=list)

    def release(
        self,
        *options: str,
        running: Sequence[str] = tuple(sorted(ORDER)),
        broken: str = "",
        broker: str = "redis://127.0.0.1/2",
    ) -> subprocess.CompletedProcess[str]:
        noted, file = self.directory / "calls", self.directory / "env"
        for name in ("systemctl", "curl", "celery", "sleep"):
            (self.directory / name).write_text(STAND_IN)
            (self.directory / name).chmod(0o755)
        file.write_text(
            f"ALLOWED_HOSTS='.shop.example,other.example'\nCELERY_BROKER_URL='{broker}'\n"
        )
        own = {"CALLS": str(noted), "RUNNING": " ".join(running), "BROKEN": broken}
        done = subprocess.run(
            [str(ROOT / "deploy/release"), "--env", str(file), *options],
            env={**os.environ, **own, "PATH": f"{self.directory}:{os.environ['PATH']}"},
            capture_output=True,
            text=True,
            check=False,
        )
        self.calls = noted.read_text().splitlines() if noted.exists() else []
        return done

    def restarted(self) -> list[str]:
        return [it.split()[-1] for it in self.calls if it.startswith("systemctl restart ")]


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


@pytest.mark.quick
def test_units_restart_in_their_order_and_each_is_waited_for(host: Host) -> None:
    assert host.release().returncode == 0
    assert host.restarted() == ORDER
    after = [it for it in host.calls if "list-units" not in it and not it.startswith("sleep")]
    waits = [after[after.index(f"systemctl restart {unit}") + 1] for unit in ORDER]
    node = os.uname().nodename
    assert [it.split()[-1] for it in waits[:2]] == [f"celery@{node}", f"payments@{node}"]
    assert [it.rpartition("Host: ")[2] for it in waits[2:4]] == [
        f"shop.example http://127.0.0.1:{port}/readyz" for port in (8000, 8001)
    ]
    assert "MainPID" in waits[4]
    assert waits[5].endswith("http://127.0.0.1:9808/metrics")


@pytest.mark.quick
@pytest.mark.parametrize(
    ("broken", "unit", "why"),
    [
        ("celery * celery@*", "seckill-worker", "is not ready after 0 s: it says why"),
        ("celery * payments@*", "seckill-outside@payments", "is not ready after 0 s: it says why"),
        ("curl *:8000/readyz", WEB, "is not ready after 0 s: it says why"),
        ("curl *:8001/readyz", OTHER_WEB, "is not ready after 0 s: it says why"),
        (f"systemctl restart {WEB}", WEB, f"does not start: journalctl --unit {WEB}"),
        ("systemctl is-active *", "seckill-beat", "is not ready after 0 s: it says why"),
        ("curl *:9808/metrics", "seckill-metrics", "is not ready after 0 s"),
    ],
)
def test_first_unit_that_is_not_ready_is_named_and_the_last(
    host: Host, broken: str, unit: str, why: str
) -> None:
    done = host.release("--within", "0", broken=broken)
    number = ORDER.index(unit)
    assert done.returncode == 1
    assert f"deploy/release: {unit} {why}" in done.stderr
    assert done.stderr.rstrip().endswith(f"untouched: {' '.join(ORDER[number + 1 :])}".rstrip())
    assert host.restarted() == ORDER[: number + 1]


@pytest.mark.quick
def test_workers_of_rabbitmq_are_asked_for_no_ping(host: Host) -> None:
    broken = "systemctl is-active seckill-worker"
    done = host.release("--within", "0", broken=broken, broker="amqp://rabbit//")
    assert "seckill-worker is not ready" in done.stderr
    assert not any(it.startswith("celery ") for it in host.calls)
    assert host.release(broker="amqp://rabbit//").returncode == 0


@pytest.mark.quick
def test_only_the_units_that_are_named_restart(host: Host) -> None:
    assert host.release(f"{OTHER_WEB}.service", "seckill-beat").returncode == 0
    assert host.restarted() == [OTHER_WEB, "seckill-beat"]


@pytest.mark.quick
@pytest.mark.parametrize(
    ("options", "why"),
    [
        (("--fast",), "unknown option --fast"),
        (("--within", "1m"), "--within 1m is no number of seconds"),
        (("--env", "/nowhere"), "cannot read /nowhere"),
        ((), "no unit of the shop runs here"),
    ],
)
def test_what_it_cannot_do_is_refused(host: Host, options: Sequence[str], why: str) -> None:
    done = host.release(*options, running=())
    assert (done.returncode, host.restarted()) == (1, [])
    assert why in done.stderr


# --- Visitors while it runs -----------------------------------------------------------------------

BEHIND_NGINX: dict[str, Any] = {
    "ALLOWED_HOSTS": f"{SHOP},127.0.0.1",
    "SECKILL_TRUSTED_PROXIES": "127.0.0.1",
}


class RunningHost:
    """Real processes as the units of a host, and a ``systemctl`` that restarts them.

    As with units of type ``simple``, a restart is over once the new process has been started.
    """

    def __init__(self, stack: Stack, directory: Path) -> None:
        self.stack, self.directory, self.restarted = stack, directory, list[str]()
        self.ports = [free_port(), free_port()]
        self.webs = [f"seckill-web@{port}" for port in self.ports]
        self.starts: dict[str, Callable[[], Process]] = {"seckill-worker": stack.worker}
        for name, port in zip(self.webs, self.ports, strict=True):
            self.starts[name] = partial(stack.web, workers=2, port=port, **BEHIND_NGINX)
        self.starts["seckill-beat"] = stack.beat
        with stack.together():
            self.units = {name: start() for name, start in self.starts.items()}
        broker = settings.CELERY_BROKER_URL
        (directory / "env").write_text(f"ALLOWED_HOSTS='{SHOP}'\nCELERY_BROKER_URL='{broker}'\n")

    @contextmanager
    def systemctl(self) -> Iterator[Path]:
        """Serve the command ``systemctl``; yields the directory that it is in."""
        host = self

        class Asked(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                words = self.rfile.read(int(self.headers["Content-Length"])).decode().split()
                said = host.answer(*words).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(said)))
                self.end_headers()
                self.wfile.write(said)

            def log_message(self, *args: object) -> None:
                """Say nothing."""

        with HTTPServer(("127.0.0.1", 0), Asked) as server:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            command = self.directory / "systemctl"
            command.write_text(
                "#!/bin/sh\nexec curl --silent --fail --noproxy '*' --data \"$*\" "
                f"http://127.0.0.1:{server.server_port}/\n"
            )
            command.chmod(0o755)
            yield self.directory
            server.shutdown()

    def answer(self, verb: str, *words: str) -> str:
        """Do what systemctl is asked to, and return what it prints."""
        if verb == "list-units":
            found = [it for it in self.units if fnmatch(f"{it}.service", words[-1])]
            return "".join(f"{it}.service loaded active running\n" for it in found)
        if verb == "restart":
            self.restarted += words
            for name in words:
                self.units[name].stop()
            with self.stack.together(wait=False):
                self.units.update({name: self.starts[name]() for name in words})
            return ""
        return f"{self.units[words[-1]].pid}\n"

    def release(self) -> str:
        """Run ``deploy/release`` on this host, and return what it prints."""
        with self.systemctl() as directory:
            done = subprocess.run(
                [ROOT / "deploy/release", "--env", self.directory / "env"],
                env={**os.environ, "PATH": f"{directory}:{os.environ['PATH']}"},
                capture_output=True,
                text=True,
                check=False,
            )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def restart_at_once(self) -> str:
        """Restart both web servers together: the control."""
        self.answer("restart", *self.webs)
        for name in self.webs:
            web = self.units[name]
            assert isinstance(web, Web)
            web.wait_until(web.is_alive, what="answer")
        return "both at once"


PER_SECOND, VISITORS = 25, 24
"""Each asks one request after the other, so often; more of them come than it takes."""

ASKED_PER_SECOND, BUYERS, NO_ANSWER = 250, 12_000, "000"

EXPECTED = {
    "page": "200",
    "live": "200",
    "me": "200",
    "order": "202",
    "receipt": "200",
    "form": "200",
    "cancel": "403",  # not repeated by nginx, and refused for its missing token of a form
}

KINDS = [*list(EXPECTED)[:5] * 3, "form", "cancel"]
"""What a crowd asks for, in this order: the last two are answered by Django's threads."""


class Visitors:
    """Visitors of the shop over TLS, half of them over HTTP/2, each at an address of their own.

    What a visitor asks in a second shares a connection.
    """

    def __init__(self, nginx: int, certificate: Path, sale: SeckillVoucher) -> None:
        self.send = partial(curl, nginx, certificate=certificate, rate=f"{PER_SECOND}/s")
        self.base, self.seen = f"/vouchers/{sale.pk}/", list[tuple[str, Said]]()
        chunks = create_buyers(count=BUYERS, sale_id=sale.pk)
        self._tokens = iter([*chain.from_iterable(chunks)])
        self.buyers = list(islice(self._tokens, PER_SECOND))
        self._numbers, self._addresses = count(), count(1)
        self._visits, self._began_s = count(), 0.0
        self._next, self._over = threading.Lock(), threading.Event()

    def come(self) -> None:
        """Let the first ones order: their receipts are looked at later."""
        said = self.send([self._order(it) for it in self.buyers], version="2")
        assert {it.status for it in said} == {"202"}

    @contextmanager
    def visiting(self) -> Iterator[None]:
        """Let them ask while the block runs."""
        self._began_s = time.monotonic()
        with ThreadPoolExecutor(VISITORS) as pool:
            visits = [pool.submit(self._visit, ("1.1", "2")[it % 2]) for it in range(VISITORS)]
            try:
                wait_for(lambda: len(self.seen) > ASKED_PER_SECOND, what="visitors")
                yield
            finally:
                self._over.set()
        for visit in visits:
            visit.result()

    def _visit(self, version: str) -> None:
        while True:
            with self._next:
                kinds = [self._request() for _ in range(PER_SECOND)]
                due_s = self._began_s + next(self._visits) * PER_SECOND / ASKED_PER_SECOND
            if self._over.wait(max(0, due_s - time.monotonic())):
                return
            said = self.send([request for _, request in kinds], version=version)
            assert {it.version for it in said if it.status != NO_ANSWER} <= {version}
            with self._next:
                self.seen += zip([kind for kind, _ in kinds], said, strict=True)

    def _request(self) -> tuple[str, Request]:
        """Return the next request and its kind."""
        number = next(self._numbers)
        kind, buyer = KINDS[number % len(KINDS)], self.buyers[number % PER_SECOND]
        if kind == "order":
            self.buyers.append(buyer := next(self._tokens))
            return kind, self._order(buyer)
        receipt, page = f"{self.base}orders/{buyer.order_id}/", 'header = "Accept: text/html"'
        path, line = {
            "page": (self.base, page),
            "form": (f"{self.base}form/", page),
            "live": (f"{self.base}live/", ""),
            "me": (f"/me/?sale={buyer.sale_id}", ""),
            "receipt": (receipt, f'header = "Purchase-Token: {buyer.sign()}"'),
            "cancel": (f"{receipt}cancel/", 'data = ""'),
        }[kind]
        return kind, self._from_an_address(path, line)

    def _order(self, buyer: PurchaseToken) -> Request:
        body = json.dumps(json.dumps({"token": buyer.sign()}))
        json_lines = 'header = "Content-Type: application/json"', f"data = {body}"
        return self._from_an_address(f"{self.base}orders/", *json_lines)

    def _from_an_address(self, path: str, *lines: str) -> Request:
        number = next(self._addresses)
        address = ipaddress.IPv4Address("10.0.0.0") + number
        return Request(path, [f'header = "Race-Buyer: {address}"', *lines])


@pytest.mark.cluster
@pytest.mark.concurrency
@pytest.mark.timeout(600)
@pytest.mark.usefixtures("row_locks")
@pytest.mark.parametrize("in_turn", [True, False], ids=["guard", "control"])
def test_no_visitor_notices_a_release(
    stack: Stack, tmp_path: Path, request: pytest.FixtureRequest, in_turn: bool
) -> None:
    """Each web server stands in for the other, as on one host."""
    host, certificate = RunningHost(stack, tmp_path), make_certificate(tmp_path)
    sale, (orders, rest) = make_sale(stock=BUYERS), host.ports
    text = CONFIGURATION
    for number, other in ((8000, rest), (8001, orders)):
        text = re.sub(rf"10[.]0[.]0[.]12:{number} .*", f"127.0.0.1:{other} backup;", text)
    nginx: dict[str, Any] = {
        "orders": [orders],
        "rest": rest,
        "text": text,
        "certificate": certificate,
    }
    with started(tmp_path / "nginx", **nginx) as port:
        visitors = Visitors(port, certificate, sale)
        visitors.come()
        began_s, stalls = time.monotonic(), Stalls()
        with visitors.visiting():
            said = host.release() if in_turn else host.restart_at_once()
        took_s = time.monotonic() - began_s - stalls.seconds()
    seen = visitors.seen
    accepted = PER_SECOND + sum(it.status == "202" for kind, it in seen if kind == "order")
    rows = VoucherOrder.objects.filter(seckill_voucher=sale, live=True)
    wait_for(lambda: rows.count() >= accepted, what="all accepted orders")
    slowest = max(float(it.seconds) for _, it in seen)
    unexpected = Counter((kind, it.status) for kind, it in seen if it.status != EXPECTED[kind])
    figures = (
        f"{len(seen)} requests, {len(seen) / took_s:.0f} a second, slowest {slowest:.2f} s, "
        f"unexpected {dict(unexpected)}; {accepted} accepted, {rows.count()} orders"
    )
    sys.stderr.write(f"{figures}; {said}\n")
    request.node.add_report_section("call", "release", figures)
    if in_turn:
        assert not unexpected
        assert rows.count() == accepted
        assert host.restarted == list(host.units)
    else:
        assert {status for _, status in unexpected} == {"503"}
