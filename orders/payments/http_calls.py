"""HTTP to payment providers."""

import asyncio
from collections.abc import Mapping

from orders.payments.providers import ProviderUnavailable
from seckill_site.http_client import HttpAnswer, NoAnswer, exchange

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
    sent = exchange(
        method,
        url,
        headers=headers,
        body=body,
        within_s=CALL_S,
        connect_within_s=CONNECT_S,
        largest_bytes=largest_bytes,
    )
    try:
        return asyncio.run(sent)
    except NoAnswer as error:
        # The address without its query, which may hold a signature.
        raise ProviderUnavailable(f"{method} {url.partition('?')[0]}: {error}") from error
