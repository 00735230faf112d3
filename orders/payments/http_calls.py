"""HTTP to payment providers: one attempt, one deadline, no redirects, no proxy."""

import http.client
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from orders.payments.providers import ProviderUnavailable

CALL_S = 4.0
"""The longest that one call takes, from connecting to the last byte of the answer."""

CONNECT_S = 1.5
"""The longest that connecting takes, and the handshake after it."""

LARGEST_ANSWER_BYTES = 1024 * 1024
LARGEST_LIST_BYTES = 64 * 1024 * 1024
"""The longest answer, and the longest list of a day's transactions."""

_CHUNK_BYTES = 64 * 1024
_LEAST_S = 0.01  # 0 would not wait at all


@dataclass(frozen=True)
class HttpAnswer:
    """A whole answer. The names of its headers are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


def call(
    method: str,
    url: str,
    *,
    headers: Mapping[str, str],
    body: bytes | None = None,
    largest_bytes: int = LARGEST_ANSWER_BYTES,
) -> HttpAnswer:
    """Send one request and return the whole answer, whatever its status.

    :raises ProviderUnavailable: no answer, half an answer, or too much of one. The request may have
        been carried out.
    """
    deadline = time.monotonic() + CALL_S
    parts = urlsplit(url)
    target = f"{parts.path or '/'}?{parts.query}" if parts.query else parts.path or "/"
    connection = _connection(parts.scheme, parts.hostname or "", parts.port)
    try:
        connection.connect()
        connection.sock.settimeout(max(deadline - time.monotonic(), _LEAST_S))
        connection.request(method, target, body=body, headers=dict(headers))
        answer = connection.getresponse()
        content = _read(connection, answer, deadline, largest_bytes)
    except (OSError, http.client.HTTPException, ValueError) as error:
        # The address without its query, which may hold a signature.
        where = f"{parts.scheme}://{parts.netloc}{parts.path}"
        raise ProviderUnavailable(f"{method} {where}: {error!r}") from error
    finally:
        connection.close()
    names = {name.lower(): value for name, value in answer.getheaders()}
    return HttpAnswer(answer.status, names, content)


def _connection(scheme: str, host: str, port: int | None) -> http.client.HTTPConnection:
    if scheme == "https":
        context = ssl.create_default_context()
        return http.client.HTTPSConnection(host, port, timeout=CONNECT_S, context=context)
    return http.client.HTTPConnection(host, port, timeout=CONNECT_S)


def _read(
    connection: http.client.HTTPConnection,
    answer: http.client.HTTPResponse,
    deadline: float,
    largest_bytes: int,
) -> bytes:
    content = bytearray()
    # ``http.client`` gives the socket away with an answer that closes the connection.
    socket = connection.sock or getattr(getattr(answer.fp, "raw", None), "_sock", None)
    while not answer.isclosed():
        left_s = deadline - time.monotonic()
        if left_s <= 0:
            raise TimeoutError("the answer took too long")
        if socket is not None:
            socket.settimeout(left_s)
        chunk = answer.read1(_CHUNK_BYTES)
        if not chunk:
            break
        content += chunk
        if len(content) > largest_bytes:
            raise ValueError(f"the answer has more than {largest_bytes} bytes")
    if answer.length:  # what Content-Length promised and did not come
        raise http.client.IncompleteRead(b"", answer.length)
    return bytes(content)
