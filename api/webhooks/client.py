"""Sending one message over HTTP to an address of somebody else's choice."""

import ssl
from collections.abc import Mapping
from time import monotonic
from typing import NamedTuple

from api.webhooks.addresses import ForbiddenAddress, check_url, checked_addresses
from seckill_site.http_client import NoAnswer, exchange

TIMEOUT_S = 3.0
"""For everything together: name, connection, TLS, request and answer."""

LARGEST_ANSWER_BYTES = 4_096
SHOWN_CHARACTERS = 500


class Attempt(NamedTuple):
    """One attempt to send a message; ``status`` is None if there was no answer."""

    status: int | None
    answer: str
    error: str
    took_ms: int

    @property
    def succeeded(self) -> bool:
        return self.status is not None and 200 <= self.status < 300


async def post(
    url: str, *, headers: Mapping[str, str], body: bytes, tls: ssl.SSLContext | None = None
) -> Attempt:
    """Send a message to a checked address, and read little of the answer."""
    started = monotonic()
    status, content, error = None, b"", ""
    try:
        check_url(url)
        answer = await exchange(
            "POST",
            url,
            headers=headers,
            body=body,
            within_s=TIMEOUT_S,
            connect_within_s=TIMEOUT_S,
            largest_bytes=LARGEST_ANSWER_BYTES,
            cut=True,
            resolve=checked_addresses,
            tls=tls,
        )
        status, content = answer.status, answer.body
    except (ForbiddenAddress, NoAnswer) as failure:
        error = str(failure)
    text = content.decode("utf-8", "replace").replace("\0", "�")
    took_ms = round((monotonic() - started) * 1000)
    return Attempt(status, text[:SHOWN_CHARACTERS], error[:200], took_ms)
