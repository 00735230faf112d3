"""Requests as the front door and Django see them: one environment, one body read before a thread.

The environment is that of WSGI (PEP 3333), so that both ask the same questions of it.
"""

import asyncio
from collections.abc import Awaitable, Callable
from functools import lru_cache
from io import SEEK_END, BytesIO
from tempfile import SpooledTemporaryFile
from typing import IO, Any
from urllib.parse import unquote_to_bytes

from django.conf import settings
from django.http import HttpRequest, parse_cookie
from django.utils import translation

from seckill_site.front_door.threads import Busy

Environ = dict[str, Any]
Scope = dict[str, Any]
Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]

IN_MEMORY_BYTES = 64 * 1024
"""A longer body goes to a file on the disk."""

UPLOAD_BYTES = 1024 * 1024
"""A body that is declared longer is an upload, and has more time."""

LONGEST_BODY_BYTES = 16 * 1024 * 1024
LONGEST_BODY_S, LONGEST_UPLOAD_S = 2.0, 30.0

MOST_BODIES = 1_000
"""The most bodies that are being read; with ``IN_MEMORY_BYTES`` it bounds their memory."""

_reading = 0


class BodyTooLong(Exception):
    """The body is longer than any that the shop takes."""


class BodyTooSlow(Exception):
    """The body did not arrive in time."""


class ClientGone(Exception):
    """The client has closed the connection: nobody waits for an answer."""


def environ_of(scope: Scope) -> Environ:
    """Return the WSGI environment of an ASGI request, without its body."""
    path = scope.get("raw_path") or scope["path"].encode()
    client = scope.get("client") or ("", 0)
    server = scope.get("server") or ("", None)
    environ: Environ = {
        "REQUEST_METHOD": scope["method"],
        "SCRIPT_NAME": scope.get("root_path", ""),
        "PATH_INFO": _decoded(path),
        "QUERY_STRING": scope.get("query_string", b"").decode("latin-1"),
        "SERVER_NAME": server[0] or "localhost",
        "SERVER_PORT": str(server[1] or 0),
        "SERVER_PROTOCOL": f"HTTP/{scope.get('http_version', '1.1')}",
        "REMOTE_ADDR": client[0],
        "wsgi.url_scheme": scope.get("scheme", "http"),
    }
    for name, value in scope["headers"]:
        key, text = _variable(name), value.decode("latin-1")
        environ[key] = f"{environ[key]},{text}" if key in environ else text
    return environ


@lru_cache(maxsize=1024)
def _decoded(path: bytes) -> str:
    return unquote_to_bytes(path.partition(b"?")[0]).decode("latin-1")


@lru_cache(maxsize=1024)
def _variable(header: bytes) -> str:
    name = header.decode("latin-1").upper().replace("-", "_")
    return name if name in ("CONTENT_TYPE", "CONTENT_LENGTH") else f"HTTP_{name}"


def has_body(environ: Environ) -> bool:
    """Return whether the client has announced a body."""
    length = environ.get("CONTENT_LENGTH", "")
    return length not in ("", "0") or "HTTP_TRANSFER_ENCODING" in environ


async def read_body(environ: Environ, receive: Receive) -> IO[bytes]:
    """Return the whole body of a request, at its start; a long one is on the disk.

    :raises BodyTooLong: it is longer than ``LONGEST_BODY_BYTES``.
    :raises BodyTooSlow: it did not arrive in time.
    :raises ClientGone: the client did not finish it.
    :raises Busy: enough others are being read.
    """
    global _reading
    length = environ.get("CONTENT_LENGTH", "")
    declared = int(length) if length.isdecimal() and len(length) < 20 else 0
    if declared > LONGEST_BODY_BYTES:
        raise BodyTooLong
    if _reading >= MOST_BODIES:
        raise Busy
    longest_s = LONGEST_UPLOAD_S if declared > UPLOAD_BYTES else LONGEST_BODY_S
    _reading += 1
    try:
        async with asyncio.timeout(longest_s):
            body = await _received(receive)
    except TimeoutError as error:
        raise BodyTooSlow from error
    finally:
        _reading -= 1
    if not declared:
        environ["CONTENT_LENGTH"] = str(body.seek(0, SEEK_END))  # it came in chunks
    body.seek(0)
    return body


async def _received(receive: Receive) -> IO[bytes]:
    message = await receive()
    if message["type"] == "http.request" and not message.get("more_body"):
        return BytesIO(message.get("body", b""))  # as nearly always
    body: IO[bytes] = SpooledTemporaryFile(IN_MEMORY_BYTES)  # noqa: SIM115 (its request closes it)
    size = 0
    while True:
        if message["type"] != "http.request":
            raise ClientGone
        chunk, more = message.get("body", b""), message.get("more_body", False)
        size += len(chunk)
        if size > LONGEST_BODY_BYTES:
            raise BodyTooLong
        body.write(chunk)
        if not more:
            return body
        message = await receive()


def request_path(environ: Environ) -> str:
    """Return the path of a request as its client knows it."""
    return f"{environ.get('SCRIPT_NAME', '')}{environ['PATH_INFO']}"


def request_language(environ: Environ) -> str:
    """Return the language that Django's ``LocaleMiddleware`` would choose for a request."""
    cookies = environ.get("HTTP_COOKIE")
    chosen = parse_cookie(cookies).get(settings.LANGUAGE_COOKIE_NAME, "") if cookies else ""
    return _language(chosen[:16], environ.get("HTTP_ACCEPT_LANGUAGE", "")[:128])


@lru_cache(maxsize=512)
def _language(chosen: str, accepted: str) -> str:
    request = HttpRequest()
    request.META["HTTP_ACCEPT_LANGUAGE"] = accepted
    request.COOKIES[settings.LANGUAGE_COOKIE_NAME] = chosen
    return translation.get_language_from_request(request)
