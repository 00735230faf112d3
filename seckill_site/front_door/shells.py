"""Pages that are the same for everybody, answered from memory.

A stored page is the answer of Django's own view, asked for by the process itself as a visitor
without any cookie, through all middleware. So nothing personal can be in it: a page's script asks
``me/`` who is there.
"""

import asyncio
import gzip
import hashlib
import io
from collections.abc import Callable
from dataclasses import dataclass, replace
from time import monotonic
from typing import Any, NamedTuple

from seckill_site.front_door.requests import Environ, request_language
from seckill_site.front_door.threads import Busy
from seckill_site.process_memory import Flights, Memory
from seckill_site.web.request_rates import check_address
from seckill_site.web.responses import names_html

Pairs = list[tuple[bytes, bytes]]
Key = tuple[str, str, bool, bool]

FRESH_S = 0.25
"""A page is asked for at most once in this time, however many people come."""

MAX_AGE_S = 0.5
"""The oldest page that is shown while a newer one is asked for: with a cache of a tenth of a second
before it, and its transfer, a change shows within a second."""

KEPT_S = 60.0
"""The oldest page that is shown while Django has no answer, because the database is away."""

MOST_PAGES = 1_000
"""The most pages in memory, those of sales that do not exist included."""

_KEPT = {200, 404}
_COMPRESSED_FROM_BYTES = 1_000


class StoredAnswer(NamedTuple):
    """A complete answer: status, all headers, body."""

    status: int
    headers: Pairs
    body: bytes


@dataclass(frozen=True)
class _Page:
    """A stored page as it is and compressed; when it was made, and last asked for (monotonic)."""

    plain: StoredAnswer
    compressed: StoredAnswer
    not_modified: StoredAnswer
    etag: str
    made_at: float
    asked_at: float

    def answer(self, environ: Environ) -> StoredAnswer:
        known = environ.get("HTTP_IF_NONE_MATCH", "")
        if self.plain.status == 200 and self.etag in known:
            return self.not_modified
        takes_gzip = "gzip" in environ.get("HTTP_ACCEPT_ENCODING", "")
        return self.compressed if takes_gzip else self.plain


class Shells:
    """The pages that a process has stored."""

    def __init__(self, ask: Any, *, is_shared: Callable[[Environ], bool]) -> None:
        """Begin empty; ``ask`` returns Django's whole answer to an environment.

        ``is_shared`` says whether a page is the same for everybody.
        """
        self._ask, self._is_shared = ask, is_shared
        self._pages = Memory[Key, _Page](most=MOST_PAGES)
        self._asking = Flights[Key, _Page | StoredAnswer]()

    def stored(self, environ: Environ) -> StoredAnswer | None:
        """Answer a request for a page that lies in memory; have it made anew in time."""
        if not self._is_page(environ):
            return None
        key = _key_of(environ)
        page = self._pages.last(key)
        age_s = monotonic() - page.asked_at if page else KEPT_S
        if page is None or age_s >= MAX_AGE_S:
            return None
        if age_s >= FRESH_S:
            self._asking.join(key, lambda: self._make(key, environ))
        return page.answer(environ)

    async def answer(self, environ: Environ) -> StoredAnswer | None:
        """Answer a request for a page that has to be made; None if it is for Django.

        :raises Busy: no thread is free to make the page.
        :raises RateLimited: this address has had too much made.
        """
        if not self._is_page(environ):
            return None
        key = _key_of(environ)
        if not self._asking.running(key):
            check_address(environ)
        made = await asyncio.shield(self._asking.join(key, lambda: self._make(key, environ)))
        return made.answer(environ) if isinstance(made, _Page) else made

    def _is_page(self, environ: Environ) -> bool:
        return environ["REQUEST_METHOD"] in ("GET", "HEAD") and self._is_shared(environ)

    async def _make(self, key: Key, environ: Environ) -> _Page | StoredAnswer:
        """Ask Django for a page and keep it, or keep the last one while Django has none."""
        asked_at = monotonic()
        last = self._pages.last(key)
        is_recent = last is not None and asked_at - last.made_at < KEPT_S
        try:
            start, body = await self._ask(visit(environ, key[0], language=key[1], html=key[2]))
        except Busy:
            if last is None or not is_recent:
                raise
            return self._keep(key, replace(last, asked_at=asked_at))
        status, headers = start["status"], start["headers"]
        if status in _KEPT and b"set-cookie" not in {name for name, _ in headers}:
            return self._keep(key, _stored(status, headers, body, asked_at))
        if last is not None and is_recent and status >= 500:
            return self._keep(key, replace(last, asked_at=asked_at))
        return StoredAnswer(status, headers, body)

    def _keep(self, key: Key, page: _Page) -> _Page:
        self._pages.keep(key, page)
        return page


def visit(environ: Environ, path: str, *, language: str, html: bool = False) -> Environ:
    """Return the request of somebody who sends nothing but what a page may depend on."""
    names = ("HTTP_HOST", "HTTP_X_FORWARDED_PROTO", "SERVER_NAME", "SERVER_PORT")
    return {name: environ[name] for name in names if name in environ} | {
        "REQUEST_METHOD": "GET",
        "SCRIPT_NAME": environ.get("SCRIPT_NAME", ""),
        "PATH_INFO": path,
        "QUERY_STRING": "",
        "SERVER_PROTOCOL": "HTTP/1.1",
        "HTTP_ACCEPT": "text/html" if html else "application/json",
        "HTTP_ACCEPT_LANGUAGE": language,
        "wsgi.url_scheme": environ["wsgi.url_scheme"],
        "wsgi.input": io.BytesIO(),
    }


def _key_of(environ: Environ) -> Key:
    """Return what a page depends on.

    It does not depend on the query: nobody can have pages made by inventing queries.
    """
    is_secure = environ.get("HTTP_X_FORWARDED_PROTO") == "https"
    return environ["PATH_INFO"], request_language(environ), names_html(environ), is_secure


def _stored(status: int, headers: Pairs, body: bytes, asked_at: float) -> _Page:
    etag = f'"{hashlib.blake2b(body, digest_size=16).hexdigest()}"'
    by_name = {name: value for name, value in headers if name != b"content-length"}
    by_name[b"vary"] = b", ".join([*filter(None, [by_name.get(b"vary")]), b"Accept-Encoding"])
    kept = [*by_name.items(), (b"etag", f"W/{etag}".encode())]
    plain = compressed = StoredAnswer(status, [*kept, length_of(body)], body)
    if len(body) >= _COMPRESSED_FROM_BYTES:
        small = gzip.compress(body, 6, mtime=0)
        of_gzip = [*kept, (b"content-encoding", b"gzip"), length_of(small)]
        compressed = StoredAnswer(status, of_gzip, small)
    return _Page(plain, compressed, StoredAnswer(304, kept, b""), etag, asked_at, asked_at)


def length_of(body: bytes) -> tuple[bytes, bytes]:
    """Return the header that names the length of a body."""
    return b"content-length", b"%d" % len(body)
