"""Requests through the WSGI application as it is served."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch
from wsgiref.util import setup_testing_defaults

from django.core.signals import request_finished, request_started
from django.db import close_old_connections

from seckill_site.front_door import threads
from seckill_site.wsgi import application
from tests.support import openapi


@dataclass(frozen=True)
class Answer:
    """What a request got; header names are in small letters."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


def ask(
    method: str,
    path: str,
    fields: Any = None,
    *,
    body: bytes | None = None,
    accept: str = "application/json",
    **headers: str,
) -> Answer:
    """Send one request; ``fields`` go as JSON, further headers in the names of WSGI."""
    if body is None:
        body = b"" if fields is None else json.dumps(fields).encode()
    path, _, query = path.partition("?")
    environ: dict[str, Any] = {
        "REQUEST_METHOD": method,
        "PATH_INFO": path,
        "QUERY_STRING": query,
        "HTTP_HOST": "localhost",
        "HTTP_ACCEPT": accept,
        "CONTENT_TYPE": "application/json" if body else "",
        "CONTENT_LENGTH": str(len(body)) if body else "",
        "wsgi.input": io.BytesIO(body),
        "wsgi.errors": sys.stderr,
        **headers,
    }
    setup_testing_defaults(environ)
    begun: list[Any] = []

    def start(status: str, found: list[tuple[str, str]], error: Any = None) -> None:
        begun.append((status, found))

    with open_connections():
        chunks = application(environ, start)
        content = b"".join(chunks)
        close = getattr(chunks, "close", None)
        if close:
            close()
    status, found = begun[0]
    answer = Answer(int(status[:3]), {name.lower(): value for name, value in found}, content)
    openapi.check(method, path, status=answer.status, headers=answer.headers, body=answer.body)
    return answer


@contextmanager
def open_connections() -> Iterator[None]:
    """Keep the test's connection, and its transaction, at the end of a request."""
    for signal in (request_started, request_finished):
        signal.disconnect(close_old_connections)
    try:
        with patch.object(threads, "close_old_connections"):
            yield
    finally:
        for signal in (request_started, request_finished):
            signal.connect(close_old_connections)
