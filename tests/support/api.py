"""Helpers of the API's tests: members of staff, their tokens, endpoints and real receivers."""

from __future__ import annotations

import datetime as dt
import itertools
import json
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple, TypeVar

from django.contrib.auth.models import Permission, User
from django.utils import timezone

from api.models import ApiToken, Scope, Topic, WebhookDelivery, WebhookEndpoint
from api.tokens import PERMISSIONS, create_token
from api.webhooks.messages import new_secret
from orders.models import VoucherOrder
from tests.support import asgi
from tests.support.wsgi import Answer
from vouchers.models import Merchant

ALL = tuple(Scope)
_numbers = itertools.count(1)


def make_member(*, may: Sequence[Scope] = ALL, **fields: Any) -> User:
    """Make a member of staff with the permissions of these scopes."""
    name = f"member{next(_numbers)}"
    user = User.objects.create(username=name, password="!", **{"is_staff": True, **fields})
    codenames = [PERMISSIONS[scope].partition(".")[2] for scope in may]
    user.user_permissions.set(Permission.objects.filter(codename__in=codenames))
    return user


def make_token(
    *,
    owner: User | None = None,
    scopes: Sequence[Scope] = ALL,
    valid: dt.timedelta = dt.timedelta(days=1),
    merchants: Sequence[Merchant] = (),
) -> tuple[ApiToken, str]:
    """Make a token; return it with its text."""
    now = timezone.now()
    return create_token(
        owner=owner or make_member(),
        name="till",
        scopes=scopes,
        expires_at=now + valid,
        now=now,
        merchants=merchants,
    )


def ask(method: str, path: str, fields: Any = None, *, token: str, **headers: Any) -> Answer:
    """Send a request with a token."""
    return asgi.ask(method, path, fields, HTTP_AUTHORIZATION=f"Bearer {token}", **headers)


def make_endpoint(url: str, **fields: Any) -> WebhookEndpoint:
    """Make an endpoint that is told everything."""
    defaults = {"topics": Topic.values, "secret": new_secret(), "created_at": timezone.now()}
    return WebhookEndpoint.objects.create(url=url, **{**defaults, **fields})


def make_delivery(endpoint: WebhookEndpoint, order: VoucherOrder) -> WebhookDelivery:
    """Make the row of a delivery that waits, for the last event of an order."""
    event = order.events.order_by("pk").last()
    assert event is not None
    now = timezone.now()
    return WebhookDelivery.objects.create(
        endpoint=endpoint,
        event=event,
        order=order,
        topic=Topic.of(event.before, event.after),
        created_at=now,
        next_at=now,
    )


class Received(NamedTuple):
    """A message that a receiver got."""

    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


T = TypeVar("T")


def elsewhere(call: Callable[[], T]) -> T:
    """Call something in a thread of its own: after a browser, that of the tests has a loop."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(call).result(60)


Respond = Callable[[BaseHTTPRequestHandler], None]


def answer(status: int, body: bytes = b"ok", **headers: str) -> Respond:
    """Return a function that answers like this."""

    def respond(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(status)
        for name, value in headers.items():
            handler.send_header(name, value)
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)

    return respond


class Receiver:
    """A receiver of webhooks; ``respond`` says how it answers."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.got: list[Received] = []
        self.respond: Respond = answer(200)
        self.released = threading.Event()

    @property
    def ids(self) -> list[str]:
        return [it.headers["webhook-id"] for it in self.got]

    def hang(self, handler: BaseHTTPRequestHandler) -> None:
        """Answer nothing until the test is over."""
        self.released.wait(60)


@contextmanager
def receiver(*, tls: Any = None) -> Iterator[Receiver]:
    """Serve on a free port of this machine."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            headers = {name.lower(): value for name, value in self.headers.items()}
            it.got.append(Received(self.path, headers, body))
            it.respond(self)

        def do_GET(self) -> None:
            it.got.append(Received(self.path, {}, b""))
            it.respond(self)

        def log_message(self, *args: Any) -> None:
            """Say nothing."""

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, *args: Any) -> None:
            """Expect clients that go away."""

    with Server(("127.0.0.1", 0), Handler) as server:
        if tls is not None:
            server.socket = tls.wrap_socket(server.socket, server_side=True)
        scheme = "https" if tls else "http"
        it = Receiver(f"{scheme}://localhost:{server.server_port}/hook")
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield it
        finally:
            it.released.set()
            server.shutdown()
            thread.join()
