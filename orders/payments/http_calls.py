"""HTTP to payment providers."""

from collections.abc import Mapping
from urllib.parse import urlsplit

from orders.payments.providers import ProviderUnavailable
from seckill_site import http_client
from seckill_site.http_client import HttpAnswer, Limits, NoAnswer

CALL_S = 4.0
"""The longest that one call takes, from connecting to the last byte of the answer."""

CONNECT_S = 1.5
"""The longest that connecting takes, and the handshake after it."""

LARGEST_ANSWER_BYTES = 1024 * 1024
LARGEST_LIST_BYTES = 64 * 1024 * 1024
"""The longest answer, and the longest list of a day's transactions."""


def call(
    method: str,
    url: str,
    *,
    headers: Mapping[str, str],
    body: bytes | None = None,
    largest_bytes: int = LARGEST_ANSWER_BYTES,
) -> HttpAnswer:
    """Send one request and return the whole answer, whatever its status.

    :raises ProviderUnavailable: there was none; the request may have been carried out.
    """
    limits = Limits(CALL_S, CONNECT_S, largest_bytes)
    try:
        return http_client.call(method, url, limits=limits, headers=headers, body=body)
    except NoAnswer as error:
        # The address without its query, which may hold a signature.
        where = urlsplit(url)._replace(query="").geturl()
        raise ProviderUnavailable(f"{method} {where}: {error}") from error
