"""A gate in front of Django: what a process knows already is answered before Django is asked.

An answer from here costs about a tenth of the smallest Django view. What may be answered here the
apps decide: their functions are named in ``SECKILL_GATE`` and asked in turn.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

logger = logging.getLogger(__name__)

Environ = dict[str, Any]
Headers = tuple[tuple[str, str], ...]
Application = Callable[[Environ, Callable[..., Any]], Iterable[bytes]]


class GateAnswer(NamedTuple):
    """A whole answer: the status line, JSON, and the headers that depend on the answer."""

    status: str
    body: bytes
    headers: Headers


Answerer = Callable[[Environ], GateAnswer | None]
"""Answers a request from memory, or returns None and leaves it, body and all, to Django."""

_ALWAYS = (
    ("Content-Type", "application/json"),
    ("X-Content-Type-Options", "nosniff"),
    ("Referrer-Policy", "same-origin"),
    ("Cross-Origin-Opener-Policy", "same-origin"),
)


def gated(
    application: Application, *, answerers: Sequence[Answerer], https_only: bool
) -> Application:
    """Return the application behind a gate; over plain HTTP it is shut where HTTPS is demanded."""

    def wrapped(environ: Environ, start_response: Callable[..., Any]) -> Iterable[bytes]:
        if not https_only or environ.get("HTTP_X_FORWARDED_PROTO") == "https":
            for ask in answerers:
                answer = _asked(ask, environ)
                if answer is not None:
                    length = ("Content-Length", str(len(answer.body)))
                    start_response(answer.status, [*_ALWAYS, *answer.headers, length])
                    return [answer.body]
        return application(environ, start_response)

    return wrapped


def _asked(ask: Answerer, environ: Environ) -> GateAnswer | None:
    try:
        return ask(environ)
    except Exception:  # whatever it is, Django has an answer and a reference for it
        logger.exception("the gate failed at %s", environ.get("PATH_INFO"))
        return None


def path_of(environ: Environ) -> str:
    """Return the path of a request as its client knows it."""
    return f"{environ.get('SCRIPT_NAME', '')}{environ['PATH_INFO']}"
