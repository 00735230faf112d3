"""The front door: an ASGI application that answers what needs no thread, and gives Django the rest.

``SECKILL_FRONT_DOOR`` names the coroutines of the apps that are tried in turn. Their answers get
the headers that Django's middleware gives to its own.
"""

import asyncio
import gc
import io
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import lru_cache
from time import perf_counter
from typing import IO, Any

from django.conf import settings
from django.db import DatabaseError, connections
from django.http import Http404, HttpRequest
from django.http.request import split_domain_port, validate_host
from django.utils.translation import gettext, gettext_noop, override

from seckill_site.face.site_face import both_faces
from seckill_site.front_door.buyers import buyer_of, session_key_of
from seckill_site.front_door.django_threads import DjangoThreads, WsgiApplication
from seckill_site.front_door.health import PROBES, watch_lag
from seckill_site.front_door.ledger_node import close_ledger_nodes, ledger_node
from seckill_site.front_door.requests import (
    BodyCutOff,
    BodyTooLong,
    BodyTooSlow,
    Environ,
    Receive,
    Scope,
    Send,
    environ_of,
    has_body,
    is_large,
    read_body,
    request_language,
)
from seckill_site.front_door.shells import Shells, StoredAnswer, length_of, visit
from seckill_site.front_door.sign_in_gate import TooManySignIns, sign_in_gate
from seckill_site.front_door.threads import Busy, threads
from seckill_site.kept_settings import kept
from seckill_site.log_context import note_request
from seckill_site.metrics import count_request
from seckill_site.process_memory import Memory
from seckill_site.web.request_rates import (
    RATE_LIMITED_TEXT,
    RateLimited,
    check_address,
    count_limited,
    is_guarded,
)
from seckill_site.web.responses import (
    SIGN_INS_RETRY_AFTER_S,
    SIGN_INS_TEXT,
    UNAVAILABLE_RETRY_AFTER_S,
    UNAVAILABLE_TEXT,
    Answer,
    Headers,
    names_html,
    problem,
    problem_answer,
)

logger = logging.getLogger(__name__)

Responder = Callable[[Environ], Awaitable[Answer | None]]
"""A coroutine that answers a request, or returns None and leaves it, body included, to Django.

It may raise ``Http404`` with the text of a page, before translation.
"""

Pairs = list[tuple[bytes, bytes]]

DRAIN_S = 4.0
"""The longest that a process takes to end once its requests are answered."""

_REFUSALS: dict[type[Exception], tuple[int, str, str, int | None]] = {
    BodyCutOff: (400, "invalid", gettext_noop("The request could not be understood."), None),
    BodyTooLong: (413, "invalid", gettext_noop("The request is too large."), None),
    BodyTooSlow: (
        408,
        "invalid",
        gettext_noop("The request took too long to arrive. Send it again."),
        None,
    ),
    Busy: (503, "unavailable", UNAVAILABLE_TEXT, UNAVAILABLE_RETRY_AFTER_S),
    TooManySignIns: (429, "rate_limited", SIGN_INS_TEXT, SIGN_INS_RETRY_AFTER_S),
}
"""Status, code, text and ``Retry-After`` of what is refused here."""

YOUNG_OBJECTS = 20_000
"""How many new objects trigger a garbage collection; Python's default is 700."""

MOST_HEADERS = 256
"""The most sets of headers that are kept, merged with those of the site."""

_Kind = tuple[str, bool]
"""The language of a request, and whether it came by HTTPS."""

_OF_ONE_ANSWER = {b"content-type", b"content-length"}
"""Headers that say something about an answer, and nothing about the site."""


class FrontDoor:
    """The ASGI application; ``django`` is the complete WSGI application behind it."""

    def __init__(
        self,
        django: WsgiApplication,
        *,
        responders: Sequence[Responder],
        is_shared: Callable[[Environ], bool] = lambda _: False,
        at_stop: Sequence[Callable[[], object]] = (),
    ) -> None:
        """Prepare it; what belongs to an event loop is made in it, with the first request."""
        self._django = DjangoThreads(django)
        self._shells = Shells(self._django.ask, is_shared=is_shared)
        self._responders = (*responders, self._shells.answer)
        self._at_stop = at_stop
        self._site_headers = Memory[_Kind, dict[str, str]](most=MOST_HEADERS)
        self._headers = Memory[tuple[_Kind, Headers], Pairs](most=MOST_HEADERS)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, or begin and end with the process."""
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        elif scope["type"] == "http":
            await self._measure(environ_of(scope), receive, send)

    async def _measure(self, environ: Environ, receive: Receive, send: Send) -> None:
        started_s, path, status = perf_counter(), environ["PATH_INFO"], 499  # the client left

        async def noting(message: dict[str, Any]) -> None:
            nonlocal status
            status = message.get("status", status)
            await send(message)

        try:
            await self._answer(environ, receive, noting)
        finally:
            count_request(path, status, started_s)

    async def _answer(self, environ: Environ, receive: Receive, send: Send) -> None:
        body: IO[bytes] | None = None
        note_request(environ)
        try:
            body = await _body_of(environ, receive) if has_body(environ) else io.BytesIO()
            environ["wsgi.input"] = body
            answer = await self._respond(environ)
            if answer is None:
                check_address(environ)
                async with sign_in_gate().pass_through(environ):
                    await self._django.answer(environ, receive, send)
                return
        except Http404 as error:
            answer = await _refusal(environ, 404, "not_found", str(error))
        except RateLimited as error:
            count_limited(error.limit)
            wait_s = error.retry_after_s
            answer = await _refusal(environ, 429, "rate_limited", RATE_LIMITED_TEXT, wait_s)
        except tuple(_REFUSALS) as error:
            answer = await _refusal(environ, *_REFUSALS[type(error)])
        finally:
            if body is not None:
                body.close()
        await self._send(answer, environ, send)

    async def _respond(self, environ: Environ) -> Answer | StoredAnswer | None:
        """Return the first answer of the responders, if they may answer this request at all."""
        is_plain = _https_only() and not _is_secure(environ) and environ["PATH_INFO"] not in PROBES
        if is_plain or not _is_allowed(environ.get("HTTP_HOST", ""), *_hosts()):
            return None
        if stored := self._shells.stored(environ):
            return stored
        if is_guarded(environ):
            check_address(environ)
        for respond in self._responders:
            try:
                answer = await respond(environ)
            except (Busy, Http404, RateLimited):
                raise
            except Exception:  # Django has an error page, with a reference, for whatever it is
                logger.exception("the front door failed at %s", environ["PATH_INFO"])
                return None
            if answer is not None:
                return answer
        return None

    async def _send(self, answer: Answer | StoredAnswer, environ: Environ, send: Send) -> None:
        if isinstance(answer, StoredAnswer):
            status, headers, body = answer
        else:
            status, body = answer.status, answer.content.encode()
            kind = request_language(environ), _is_secure(environ)
            merged = self._headers.last((kind, answer.headers))
            if merged is None:
                merged = await self._merge_headers(kind, answer.headers, environ)
            headers = [*merged, length_of(body)]
            if answer.cookie:
                headers.append((b"set-cookie", answer.cookie.encode()))
        if environ["REQUEST_METHOD"] == "HEAD":
            body = b""
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    async def _merge_headers(self, kind: _Kind, headers: Headers, environ: Environ) -> Pairs:
        merged = _merged(await self._headers_of_the_site(kind, environ), headers)
        if self._site_headers.last(kind):
            self._headers.keep((kind, headers), merged)
        return merged

    async def _headers_of_the_site(self, kind: _Kind, environ: Environ) -> dict[str, str]:
        """Return the headers that Django's middleware gives to any answer in this language."""
        language, _ = kind
        headers = self._site_headers.last(kind)
        if headers is None:
            probe = visit(environ, "/healthz", language=language)
            start, _ = await asyncio.to_thread(self._django.whole_answer, probe)
            pairs = [(it, value) for it, value in start["headers"] if it not in _OF_ONE_ANSWER]
            headers = {name.decode(): value.decode("latin-1") for name, value in pairs}
            if start["status"] == 200:  # not a refusal, for example of a foreign host
                self._site_headers.keep(kind, headers)
        return headers

    # --- The life of a process --------------------------------------------------------------------

    async def _live(self, receive: Receive, send: Send) -> None:
        await receive()
        await ledger_node().open()
        _spare_the_collector()
        lag = asyncio.create_task(watch_lag())
        await send({"type": "lifespan.startup.complete"})
        await receive()
        lag.cancel()
        with suppress(TimeoutError):
            async with asyncio.timeout(DRAIN_S):
                await close_ledger_nodes()  # first, because replies may leave something to finish
                finishing = [asyncio.to_thread(finish) for finish in self._at_stop]
                await asyncio.gather(*finishing, return_exceptions=True)
        threads().close()
        await send({"type": "lifespan.shutdown.complete"})


async def _body_of(environ: Environ, receive: Receive) -> IO[bytes]:
    is_upload = is_large(environ) and environ["PATH_INFO"].startswith("/admin/")
    return await read_body(environ, receive, is_upload=is_upload and await _is_staff(environ))


async def _is_staff(environ: Environ) -> bool:
    """Return whether a request has a session that has been in the back office."""
    key = session_key_of(environ)
    if not key:
        return False
    check_address(environ)
    try:
        buyer = await buyer_of(key)
    except DatabaseError:
        return False
    return buyer is not None and buyer.desk != ""


async def _refusal(
    environ: Environ, status: int, code: str, text: str, retry_after_s: int | None = None
) -> Answer:
    language = request_language(environ)
    if names_html(environ):
        # The first rendering would hold the loop for too long.
        return await asyncio.to_thread(_page, status, code, text, language, retry_after_s)
    return problem_answer(
        status=status, code=code, text=text, language=language, retry_after_s=retry_after_s
    )


def _page(*refusal: Any) -> Answer:
    """Return the error page without a session or the address that was asked for; in a thread."""
    try:
        return _page_in(both_faces(), *refusal)
    finally:
        connections.close_all()  # of a thread that is no thread of Django's


@lru_cache(maxsize=256)
def _page_in(
    _faces: object, status: int, code: str, text: str, language: str, retry_after_s: int | None
) -> Answer:
    request = HttpRequest()
    request.method, request.path = "GET", "."
    request.META = {"HTTP_ACCEPT": "text/html", "SERVER_NAME": "localhost", "SERVER_PORT": "80"}
    with override(language):
        response = problem(
            request, status=status, code=code, message=gettext(text), retry_after_s=retry_after_s
        )
    return Answer(status, response.content.decode(), tuple(response.items()))


def _spare_the_collector() -> None:
    """Exclude everything loaded at startup from garbage collection, and collect less often.

    A loop with hundreds of requests in flight starts a collection after each few hundred new
    objects, nearly all of them still in use. Collections took a fifth of the time of an order.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS, *gc.get_threshold()[1:])


def _is_secure(environ: Environ) -> bool:
    return bool(environ.get("HTTP_X_FORWARDED_PROTO") == "https")


_https_only = kept(lambda: bool(settings.HTTPS_ONLY))


_hosts = kept(lambda: (tuple(settings.ALLOWED_HOSTS), bool(settings.DEBUG)))


@lru_cache(maxsize=256)
def _is_allowed(host: str, allowed: tuple[str, ...], debug: bool) -> bool:
    # As Django's get_host() does it.
    if debug and not allowed:
        allowed = (".localhost", "127.0.0.1", "[::1]")
    domain, _ = split_domain_port(host)
    return bool(domain) and validate_host(domain, allowed)


def _merged(site: dict[str, str], ours: Headers) -> Pairs:
    """Return the headers of an answer with those of the site; ``Vary`` names what both name."""
    merged = {"content-type": "application/json", **site}
    for name, value in ours:
        name = name.lower()
        if name == "vary" and (rest := merged.get("vary")):
            named = [it.strip().lower() for it in value.split(",")]
            more = [it.strip() for it in rest.split(",") if it.strip().lower() not in named]
            value = ", ".join([value, *more])
        merged[name] = value
    return [(name.encode(), value.encode("latin-1")) for name, value in merged.items()]
