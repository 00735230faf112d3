"""What a log line says beyond its text: at which request, task, sale and order its code worked.

A request costs one assignment for it: its environment is read once a line is written.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from ipaddress import ip_address, ip_network
from typing import Any

from django.conf import settings

PEER = "seckill.peer"
"""The key in a request's environment for the address that connected: nginx, or the visitor."""

_REQUEST_ID = re.compile(r"[\w-]{1,64}", re.ASCII)
_IDS = re.compile(r"/vouchers/(?P<sale_id>\d+)/(?:orders/(?P<order_id>\d+)/)?", re.ASCII)
_request = ContextVar[Mapping[str, Any] | None]("_request", default=None)
_fields = ContextVar[dict[str, str]]("_fields")

note_request = _request.set
"""Let the lines of this thread or coroutine name a request, by its environment; None for none."""


@contextmanager
def log_fields(**fields: object) -> Iterator[None]:
    """Let the lines of a block have these fields."""
    token = _fields.set(_fields.get({}) | {name: str(value) for name, value in fields.items()})
    try:
        yield
    finally:
        _fields.reset(token)


def note_task(*, task: Any, kwargs: dict[str, Any], state: str = "", **_: Any) -> None:
    """Let the lines of a task name it, its sale and its order, until it has a ``state``."""
    named = {"task": task.name, **kwargs}
    wanted = ("task", "sale_id", "order_id") if not state else ()
    _fields.set({name: str(named[name]) for name in wanted if name in named})


def with_peer(application: Callable[..., Any]) -> Any:
    """Note who sent a request to this ASGI or WSGI application, before a proxy is believed."""

    def wrapped(request: dict[str, Any], *others: Any) -> Any:
        request[PEER] = (request.get("client") or [request.get("REMOTE_ADDR", "")])[0]
        return application(request, *others)

    return wrapped


def fields_here() -> dict[str, str]:
    """Return the fields of a line that is written here."""
    environ = _request.get() or {}
    ids = _IDS.match(environ.get("PATH_INFO", ""))
    fields = {name: it for name, it in ids.groupdict().items() if it} if ids else {}
    request_id = environ.get("HTTP_X_REQUEST_ID", "")
    if _REQUEST_ID.fullmatch(request_id) and _is_proxy(environ.get(PEER, "")):
        fields["request_id"] = request_id
    return fields | _fields.get({})


def _is_proxy(peer: str) -> bool:
    with suppress(ValueError):  # no address, or a proxy with a name
        networks = (ip_network(it, strict=False) for it in settings.SECKILL_TRUSTED_PROXIES)
        return any(ip_address(peer) in it for it in networks)
    return False
