"""Requests as the front door and Django see them: one environment, one body read before a thread.

The environment is that of WSGI (PEP 3333), so that both ask the same questions of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from enum import StrEnum
from functools import lru_cache
from io import SEEK_END, BytesIO
from tempfile import SpooledTemporaryFile
from types import TracebackType
from typing import IO, Any
from urllib.parse import unquote_to_bytes

from django.conf import settings
from django.http import HttpRequest, parse_cookie
from django.utils import translation

from seckill_site.front_door.per_loop import PerLoop
from seckill_site.front_door.threads import Busy
from seckill_site.kept_settings import kept
from seckill_site.log_context import PEER
from seckill_site.web.clients import client_address

Environ = dict[str, Any]
Scope = dict[str, Any]
Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]

IN_MEMORY_BYTES = 64 * 1024
"""A longer body goes to a file on the disk."""

_LANGUAGE = "seckill.language"
"""Where an environment keeps the language that was found for it."""

LONGEST_KEPT_CHARACTERS = 256
"""For a longer choice of languages, the language is found anew with each request."""

LONGEST_BODY_BYTES = 16 * 1024 * 1024
LONGEST_BODY_S, LONGEST_UPLOAD_S = 2.0, 30.0


class BodyKind(StrEnum):
    """Bodies that do not take each other's places. An upload is a large body of staff."""

    SMALL = "small"
    LARGE = "large"
    UPLOAD = "upload"


MOST_BODIES = {BodyKind.SMALL: 1_000, BodyKind.LARGE: 256, BodyKind.UPLOAD: 8}
"""The most bodies that are being read; with ``IN_MEMORY_BYTES`` it bounds their memory."""

MOST_OF_ADDRESS = 64
"""The most bodies of an address that are being read."""

LONGEST_TURN_S, TURN_S = 0.25, 0.01
"""How long another one waits for its turn: those that have arrived are read in less."""


class BodyTooLong(Exception):
    """The body is longer than any that the shop takes."""


class BodyTooSlow(Exception):
    """The body did not arrive in time."""


class BodyCutOff(Exception):
    """The body has ended before its end, or cannot be read."""


def environ_of(scope: Scope) -> Environ:
    """Return the WSGI environment of an ASGI request, without its body."""
    raw_path = scope.get("raw_path")
    client = scope.get("client") or ("", 0)
    server = scope.get("server") or ("", None)
    environ: Environ = {
        "REQUEST_METHOD": scope["method"],
        "SCRIPT_NAME": scope.get("root_path", ""),
        "PATH_INFO": _decoded(raw_path) if raw_path else scope["path"].encode().decode("latin-1"),
        "QUERY_STRING": scope.get("query_string", b"").decode("latin-1"),
        "SERVER_NAME": server[0] or "localhost",
        "SERVER_PORT": str(server[1] or 0),
        "SERVER_PROTOCOL": f"HTTP/{scope.get('http_version', '1.1')}",
        "REMOTE_ADDR": client[0],
        PEER: scope.get(PEER, ""),
        "wsgi.url_scheme": scope.get("scheme", "http"),
    }
    for name, value in scope["headers"]:
        if key := _variable(name):
            text = value.decode("latin-1")
            between = "; " if key == "HTTP_COOKIE" else ","
            environ[key] = f"{environ[key]}{between}{text}" if key in environ else text
    return environ


@lru_cache(maxsize=1024)
def _decoded(path: bytes) -> str:
    return unquote_to_bytes(path.partition(b"?")[0]).decode("latin-1")


@lru_cache(maxsize=1024)
def _variable(header: bytes) -> str:
    """Return the name of a header in the environment, or nothing if it has to be ignored."""
    if b"_" in header:  # it would be taken for the name with a hyphen, as a proxy sets it
        return ""
    name = header.decode("latin-1").upper().replace("-", "_")
    return name if name in ("CONTENT_TYPE", "CONTENT_LENGTH") else f"HTTP_{name}"


def has_body(environ: Environ) -> bool:
    """Return whether the client has announced a body."""
    length = environ.get("CONTENT_LENGTH", "")
    return length not in ("", "0") or "HTTP_TRANSFER_ENCODING" in environ


def declared_bytes(environ: Environ) -> int:
    """Return what a ``Content-Length`` says; 0 if it says nothing, too much if it has 20 digits."""
    length = environ.get("CONTENT_LENGTH") or ""
    if not (length.isascii() and length.isdecimal()):
        return 0
    return int(length) if len(length) < 20 else LONGEST_BODY_BYTES + 1


def is_large(environ: Environ) -> bool:
    """Return whether a body may be too long for the memory."""
    length = _length_of(environ)
    return length is None or length > IN_MEMORY_BYTES


def _length_of(environ: Environ) -> int | None:
    """Return how long a body is; None if only its end can tell."""
    declared = declared_bytes(environ)
    return declared if declared and "HTTP_TRANSFER_ENCODING" not in environ else None


async def read_body(environ: Environ, receive: Receive, *, is_upload: bool = False) -> IO[bytes]:
    """Return the whole body of a request, at its start; a long one is on the disk.

    The rest of an upload has more time, once its first part has arrived.

    :raises BodyTooLong: it is longer than ``LONGEST_BODY_BYTES``.
    :raises BodyTooSlow: it did not arrive in time.
    :raises BodyCutOff: the client did not finish it, or sent something else.
    :raises Busy: enough others are being read.
    """
    if declared_bytes(environ) > LONGEST_BODY_BYTES:
        raise BodyTooLong
    bodies, length, address = _bodies(), _length_of(environ), client_address(environ)
    if bodies.of_address.get(address, 0) >= MOST_OF_ADDRESS:
        await bodies.wait_for_turn(address)
    kind = BodyKind.LARGE if is_large(environ) else BodyKind.SMALL
    if is_upload and bodies.have_place(BodyKind.UPLOAD):
        kind = BodyKind.UPLOAD
    if not bodies.have_place(kind):
        raise Busy
    with _Reading(bodies, kind, address) as reading:
        message = await receive()
        if kind is BodyKind.UPLOAD:
            reading.end_after(LONGEST_UPLOAD_S)
        chunk = message.get("body", b"")
        # Granian announces more even after the last part; to ask costs three thread switches.
        is_all = not message.get("more_body") or len(chunk) == length
        if is_all and len(chunk) <= IN_MEMORY_BYTES and message["type"] == "http.request":
            body: IO[bytes] = BytesIO(chunk)  # as nearly always
        else:
            body = await _body_in_parts(message, receive)
    if length is None:
        environ["CONTENT_LENGTH"] = str(body.seek(0, SEEK_END))
        body.seek(0)
    return body


async def _body_in_parts(message: dict[str, Any], receive: Receive) -> IO[bytes]:
    body: IO[bytes] = SpooledTemporaryFile(IN_MEMORY_BYTES)  # noqa: SIM115 (its request closes it)
    try:
        while message["type"] == "http.request":
            body.write(message.get("body", b""))
            if body.tell() > LONGEST_BODY_BYTES:
                raise BodyTooLong
            if not message.get("more_body"):
                body.seek(0)
                return body
            message = await receive()
        raise BodyCutOff
    except BaseException:
        body.close()
        raise


class _Bodies:
    """The bodies that an event loop reads. One timer watches them: one for each costs too much."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._due_at_s = 0.0
        self.being_read: set[_Reading] = set()
        self.of_kind = dict.fromkeys(BodyKind, 0)
        self.of_address: dict[str, int] = {}

    async def wait_for_turn(self, address: str) -> None:
        """Wait until fewer bodies of an address are being read.

        :raises Busy: as many are being read for too long.
        """
        until_s = self.loop.time() + LONGEST_TURN_S
        while self.of_address.get(address, 0) >= MOST_OF_ADDRESS:
            if self.loop.time() >= until_s:
                raise Busy
            await asyncio.sleep(TURN_S)

    def have_place(self, kind: BodyKind) -> bool:
        return self.of_kind[kind] < MOST_BODIES[kind]

    def watch(self, reading: _Reading) -> None:
        self.being_read.add(reading)
        self.of_kind[reading.kind] += 1
        if reading.address:
            self.of_address[reading.address] = self.of_address.get(reading.address, 0) + 1
        if self._timer is None or reading.due_at_s < self._due_at_s:
            self._look_at(reading.due_at_s)

    def forget(self, reading: _Reading) -> None:
        self.being_read.discard(reading)
        self.of_kind[reading.kind] -= 1
        if reading.address:
            rest = self.of_address.pop(reading.address) - 1
            if rest:
                self.of_address[reading.address] = rest

    def _look_at(self, due_at_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._due_at_s = due_at_s
        self._timer = self.loop.call_at(due_at_s, self._end_overdue)

    def _end_overdue(self) -> None:
        self._timer = None
        now_s = self.loop.time()
        for reading in self.being_read:
            if reading.due_at_s <= now_s:
                reading.end()
        due = [it.due_at_s for it in self.being_read if not it.is_overdue]
        if due:
            self._look_at(min(due))


class _Reading:
    """The reading of one body: ended after some time as ``asyncio.timeout`` would end it."""

    __slots__ = ("_bodies", "_cancelling", "_task", "address", "due_at_s", "is_overdue", "kind")

    def __init__(self, bodies: _Bodies, kind: BodyKind, address: str) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._bodies, self._task = bodies, task
        self.kind, self.address = kind, address
        self._cancelling = 0
        self.is_overdue = False
        self.end_after(LONGEST_BODY_S)

    def __enter__(self) -> _Reading:
        self._bodies.watch(self)
        return self

    def end_after(self, longest_s: float) -> None:
        self.due_at_s = self._bodies.loop.time() + longest_s

    def end(self) -> None:
        if not self.is_overdue:
            self.is_overdue = True
            self._cancelling = self._task.cancelling()
            self._task.cancel()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._bodies.forget(self)
        is_ours = self.is_overdue and self._task.uncancel() <= self._cancelling
        if is_ours and kind is asyncio.CancelledError:
            raise BodyTooSlow from error


_bodies = PerLoop(_Bodies)


def request_path(environ: Environ) -> str:
    """Return the path of a request as its client knows it."""
    return f"{environ.get('SCRIPT_NAME', '')}{environ['PATH_INFO']}"


def request_language(environ: Environ) -> str:
    """Return the language of a request, which ``site_guard`` hands on to Django."""
    language: str | None = environ.get(_LANGUAGE)
    if language is None:
        cookies, name = environ.get("HTTP_COOKIE", ""), _language_cookie()
        chosen = parse_cookie(cookies).get(name, "") if name in cookies else ""
        accepted = environ.get("HTTP_ACCEPT_LANGUAGE", "")
        is_usual = len(chosen) + len(accepted) <= LONGEST_KEPT_CHARACTERS
        language = (_language if is_usual else _language.__wrapped__)(chosen, accepted)
        environ[_LANGUAGE] = language
    return language


_language_cookie = kept(lambda: str(settings.LANGUAGE_COOKIE_NAME))


@lru_cache(maxsize=512)
def _language(chosen: str, accepted: str) -> str:
    request = HttpRequest()
    request.META["HTTP_ACCEPT_LANGUAGE"] = accepted
    # Django takes EN for a language of its own, which has no texts.
    request.COOKIES[settings.LANGUAGE_COOKIE_NAME] = chosen.lower()
    return translation.get_language_from_request(request)
